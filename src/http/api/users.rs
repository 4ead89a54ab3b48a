//! `/api/v0/users`: people, their roles and tokens.

use axum::extract::State;
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::Face;
use crate::http::access::Caller;
use crate::http::error::Refusal;
use crate::http::extract::{Name, json_object};
use crate::http::reply::{Answer, Created, Json, NoContent};
use gateway::principals::Principal;
use model::{HolderName, Role, User};

/// What everybody may know about a user.
#[derive(Serialize, ToSchema)]
pub struct UserRecord {
    #[schema(value_type = String)]
    username: HolderName,
    /// `admin` or `user`.
    #[schema(value_type = String)]
    role: Role,
}

/// A user with the token, as whoever gave it out sees it.
#[derive(Serialize, ToSchema)]
pub struct UserWithToken {
    #[serde(flatten)]
    record: UserRecord,
    access_token: String,
}

/// What a user is made of; `username` is required only for a new one. It is read by the gateway; this is its description.
#[derive(ToSchema)]
pub struct UserInput {
    pub username: Option<String>,
    /// `admin` or `user`.
    pub role: Option<String>,
    pub access_token: Option<String>,
}

/// All users.
#[utoipa::path(get, path = "/api/v0/users", tag = "users", responses((status = 200, body = [UserRecord])))]
pub async fn list(State(face): State<Face>) -> Answer<Json<Vec<UserRecord>>> {
    Ok(Json(face.gateway.users()?.into_iter().map(record).collect()))
}

/// Makes a user.
#[utoipa::path(post, path = "/api/v0/users", tag = "users",
    request_body = UserInput, responses((status = 201, body = UserWithToken)))]
pub async fn create(State(face): State<Face>, body: Bytes) -> Answer<Created<UserWithToken>> {
    // Whether there are users at all is the first thing to say, before what is wrong with the body.
    face.gateway.users()?;
    Ok(Created(with_token(face.gateway.create_user(json_object(&body)?).await?)))
}

/// Changes what is given of a user.
#[utoipa::path(put, path = "/api/v0/users/{name}", tag = "users", params(("name" = String, Path)),
    request_body = UserInput, responses((status = 200, body = UserWithToken)))]
pub async fn change(State(face): State<Face>, Name(name): Name, body: Bytes) -> Answer<Json<UserWithToken>> {
    face.gateway.user(&name)?;
    Ok(Json(with_token(face.gateway.change_user(&name, json_object(&body)?).await?)))
}

/// Deletes a user; the token is worthless at once.
#[utoipa::path(delete, path = "/api/v0/users/{name}", tag = "users",
    params(("name" = String, Path)), responses((status = 204)))]
pub async fn delete(State(face): State<Face>, Name(name): Name) -> Answer<NoContent> {
    face.gateway.delete_user(&name).await?;
    Ok(NoContent)
}

/// Whose token this is.
#[utoipa::path(get, path = "/api/v0/users/whoami", tag = "users", responses((status = 200, body = UserRecord)))]
pub async fn whoami(State(face): State<Face>, caller: Caller) -> Answer<Json<UserRecord>> {
    face.gateway.users()?;
    match caller.0 {
        Some(Principal::User(user)) => Ok(Json(record(user.holder.clone()))),
        Some(Principal::Client(_)) | None => Err(Refusal::no_token()),
    }
}

fn record(user: User) -> UserRecord {
    UserRecord { username: user.username, role: user.role }
}

fn with_token(user: User) -> UserWithToken {
    UserWithToken { access_token: user.token.secret().expose().to_owned(), record: record(user) }
}
