//! `/api/v0/oauth-clients`: software that admins registered, so that it need not register itself.

use axum::extract::State;
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::http::Face;
use crate::http::access::ChangedBy;
use crate::http::error::{ErrorResponse, HandlerResult};
use crate::http::extract::{Name, json_object};
use crate::http::reply::{Created, Json, NoContent};
use gateway::sign_in::NewOAuthClient;
use model::oauth::Software;
use model::oauth::registration::Registered;
use model::{Secret, time};

/// Registered software, with the metadata of RFC 7591.
#[derive(Serialize, ToSchema)]
pub struct OAuthClientBody {
    id: String,
    client_id: String,
    client_name: String,
    redirect_uris: Vec<String>,
    token_endpoint_auth_method: String,
    created_at: String,
}

/// The same with its secret, which is shown once.
#[derive(Serialize, ToSchema)]
pub struct NewOAuthClientBody {
    #[serde(flatten)]
    client: OAuthClientBody,
    /// Absent if it proves who it is in another way, or not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_secret: Option<String>,
}

/// The metadata of software (RFC 7591). Other fields are ignored.
// Only for the OpenAPI document: `model::oauth` parses the body.
#[derive(ToSchema)]
pub struct OAuthClientInput {
    pub client_name: Option<String>,
    pub redirect_uris: Vec<String>,
    /// `none`, `client_secret_basic` (the default), `client_secret_post` or `private_key_jwt`.
    pub token_endpoint_auth_method: Option<String>,
    /// The keys of `private_key_jwt` (RFC 7517).
    #[schema(value_type = Option<serde_json::Value>)]
    pub jwks: Option<Value>,
    /// The https URL of such keys.
    pub jwks_uri: Option<String>,
}

/// Lists the software that admins registered, the newest first.
#[utoipa::path(get, path = "/api/v0/oauth-clients", tag = "grants",
    responses((status = 200, body = [OAuthClientBody])))]
pub async fn list(State(face): State<Face>) -> HandlerResult<Json<Vec<OAuthClientBody>>> {
    let clients = face.gateway.oauth_clients().await?;
    let readable = clients.into_iter().filter_map(|client| {
        let software = Software::from_json(client.software.expose())?;
        Some(OAuthClientBody::of(client.id, software, client.created_at_ms))
    });
    Ok(Json(readable.collect()))
}

/// Registers software, and returns its client id and secret.
#[utoipa::path(post, path = "/api/v0/oauth-clients", tag = "grants",
    request_body = OAuthClientInput, responses((status = 201, body = NewOAuthClientBody)))]
pub async fn register(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    body: Bytes,
) -> HandlerResult<Created<NewOAuthClientBody>> {
    face.gateway.require_enterprise()?;
    let Registered { software, secret } = parse_registration(&face, json_object(&body)?)?;
    let client_id = face.gateway.generate_client_id();
    let software = Software { client_id: client_id.clone(), ..software };
    let new =
        NewOAuthClient { client_id, name: software.name.clone(), software: Secret::new(software.to_json()) };
    let stored = face.gateway.register_oauth_client(new, &by).await?;
    Ok(Created(NewOAuthClientBody {
        client: OAuthClientBody::of(stored.id, software, stored.created_at_ms),
        client_secret: secret.map(|secret| secret.expose().to_owned()),
    }))
}

/// Deletes software; its grants end at once.
#[utoipa::path(delete, path = "/api/v0/oauth-clients/{id}", tag = "grants",
    params(("id" = String, Path, description = "The id of the registration")), responses((status = 204)))]
pub async fn delete(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(id): Name,
) -> HandlerResult<NoContent> {
    face.gateway.delete_oauth_client(&id, &by).await?;
    Ok(NoContent)
}

impl OAuthClientBody {
    fn of(id: String, software: Software, created_at_ms: i64) -> Self {
        Self {
            id,
            client_id: software.client_id,
            client_name: software.name,
            redirect_uris: software.redirect_uris,
            token_endpoint_auth_method: software.proof.method().to_owned(),
            created_at: time::rfc3339(created_at_ms),
        }
    }
}

/// Reads what an admin registers.
fn parse_registration(face: &Face, metadata: Map<String, Value>) -> Result<Registered, ErrorResponse> {
    let rules = face.sign_in.as_ref().map(|server| server.settings.rules.clone());
    let read = rules.unwrap_or_default().read_admins(metadata);
    read.map_err(|problem| ErrorResponse::bad_request(problem.to_string()))
}
