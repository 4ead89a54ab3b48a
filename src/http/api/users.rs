//! `/api/v0/users`: people, their roles and tokens.

use axum::extract::State;
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::Face;
use crate::http::access::{ChangedBy, CurrentPrincipal, SIGN_IN};
use crate::http::error::{ErrorResponse, HandlerResult};
use crate::http::extract::{Name, json_object};
use crate::http::record::RateLimitBody;
use crate::http::reply::{Created, Json, NoContent};
use gateway::principals::Principal;
use model::{AuditOutcome, HolderName, Role, User, time};

/// A user without its token.
#[derive(Serialize, ToSchema)]
pub struct UserRecord {
    #[schema(value_type = String)]
    username: HolderName,
    /// `admin` or `user`.
    #[schema(value_type = String)]
    role: Role,
    /// The limit of the user's calls, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_limit: Option<RateLimitBody>,
    /// The user's own rules for servers, tools and prompts.
    allow_list: Vec<String>,
}

/// A user as it is listed.
#[derive(Serialize, ToSchema)]
pub struct ListedUser {
    #[serde(flatten)]
    record: UserRecord,
    /// `local`, or `oidc` for people of the identity provider.
    source: &'static str,
    /// Whether the user is kept out.
    disabled: bool,
    /// When the user last sent a request; null if never.
    last_seen_at: Option<String>,
}

/// A user with its token, as returned on creation and change.
#[derive(Serialize, ToSchema)]
pub struct UserWithToken {
    #[serde(flatten)]
    record: UserRecord,
    /// Whether the user is kept out.
    disabled: bool,
    /// People of the identity provider have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    access_token: Option<String>,
}

/// The fields of a user; `username` is required only on creation.
// Only for the OpenAPI document: `model::user` parses the body.
#[derive(ToSchema)]
pub struct UserInput {
    /// The name; on a change, the new name.
    pub username: Option<String>,
    /// `admin` or `user`; on creation, `user` if omitted.
    pub role: Option<String>,
    /// A token of at least 8 characters. On creation, one is generated if this is omitted.
    pub access_token: Option<String>,
    /// The limit of the user's calls; none if omitted, on a change too.
    pub rate_limit: Option<RateLimitBody>,
    /// What the user may use: `*`, servers, `<server>__<pattern>`, `*__<pattern>`, `group:<tool group>`; with `!` before it,
    /// what the user may not use. On creation, `["*"]` if omitted.
    pub allow_list: Option<Vec<String>>,
    /// Whether the user is kept out; only on a change.
    pub disabled: Option<bool>,
}

/// Lists all users.
#[utoipa::path(get, path = "/api/v0/users", tag = "users", responses((status = 200, body = [ListedUser])))]
pub async fn list(State(face): State<Face>) -> HandlerResult<Json<Vec<ListedUser>>> {
    let users = face.gateway.users()?;
    let seen = face.gateway.last_seen().await?;
    let listed = users.into_iter().map(|user| ListedUser {
        last_seen_at: seen.get(&user.id).map(|at_ms| time::rfc3339(*at_ms)),
        source: user.source(),
        disabled: user.is_disabled,
        record: record(&face, user),
    });
    Ok(Json(listed.collect()))
}

/// Creates a user and returns it with its token.
#[utoipa::path(post, path = "/api/v0/users", tag = "users",
    request_body = UserInput, responses((status = 201, body = UserWithToken)))]
pub async fn create(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    body: Bytes,
) -> HandlerResult<Created<UserWithToken>> {
    // In development mode there are no users; that error comes before errors in the body.
    face.gateway.users()?;
    let user = face.gateway.create_user(json_object(&body)?, &by).await?;
    Ok(Created(with_token(&face, user)))
}

/// Changes the given fields of a user; omitted fields stay the same, except that the rate limit is removed.
#[utoipa::path(put, path = "/api/v0/users/{name}", tag = "users", params(("name" = String, Path)),
    request_body = UserInput, responses((status = 200, body = UserWithToken)))]
pub async fn change(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
    body: Bytes,
) -> HandlerResult<Json<UserWithToken>> {
    face.gateway.user(&name)?;
    let user = face.gateway.change_user(&name, json_object(&body)?, &by).await?;
    Ok(Json(with_token(&face, user)))
}

/// Deletes a user; its token stops working at once.
#[utoipa::path(delete, path = "/api/v0/users/{name}", tag = "users",
    params(("name" = String, Path)), responses((status = 204)))]
pub async fn delete(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
) -> HandlerResult<NoContent> {
    face.gateway.delete_user(&name, &by).await?;
    Ok(NoContent)
}

/// Returns the user that the token belongs to.
#[utoipa::path(get, path = "/api/v0/users/whoami", tag = "users", responses((status = 200, body = UserRecord)))]
pub async fn whoami(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    ChangedBy(by): ChangedBy,
) -> HandlerResult<Json<UserRecord>> {
    face.gateway.users()?;
    match caller.0 {
        Some(Principal::User(user)) => {
            // Programs sign in by asking who they are.
            face.gateway.sum_up(by, SIGN_IN, "", AuditOutcome::Ok);
            Ok(Json(record(&face, user.holder.clone())))
        }
        Some(Principal::Client(_)) | None => Err(ErrorResponse::no_token()),
    }
}

fn record(face: &Face, user: User) -> UserRecord {
    // Groups of the identity provider may give another role.
    let catalog = face.gateway.catalog();
    let rights = catalog.principals().rights_of_user(user.username.as_str());
    UserRecord {
        role: rights.map_or(user.role, |rights| rights.role),
        rate_limit: user.rate_limit.map(RateLimitBody::from),
        allow_list: user.allow_list.entries().to_vec(),
        username: user.username,
    }
}

fn with_token(face: &Face, user: User) -> UserWithToken {
    let access_token = user.token.as_ref().map(|token| token.secret().expose().to_owned());
    UserWithToken { access_token, disabled: user.is_disabled, record: record(face, user) }
}
