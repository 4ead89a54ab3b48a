//! `/api/v0/clients`: agents, their tokens and allow lists.

use axum::extract::State;
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::Face;
use crate::http::access::ChangedBy;
use crate::http::error::HandlerResult;
use crate::http::extract::{Name, json_object};
use crate::http::record::RateLimitBody;
use crate::http::reply::{Created, Json, NoContent};
use model::{Client, HolderName};

/// A client with its token.
#[derive(Serialize, ToSchema)]
pub struct ClientRecord {
    #[schema(value_type = String)]
    name: HolderName,
    description: String,
    access_token: String,
    /// Whether the token was given in a request instead of generated.
    is_custom_access_token: bool,
    /// What the client may use: `*`, servers, `<server>__<pattern>`, `*__<pattern>`, `group:<tool group>`; with `!` before
    /// it, what the client may not use.
    allow_list: Vec<String>,
    /// The limit of its calls, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_limit: Option<RateLimitBody>,
    /// The subject of tokens that another issuer gives to the client, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    jwt_subject: Option<String>,
}

impl From<Client> for ClientRecord {
    fn from(client: Client) -> Self {
        Self {
            access_token: client.token.secret().expose().to_owned(),
            is_custom_access_token: client.is_custom_token,
            allow_list: client.allow_list.entries().to_vec(),
            rate_limit: client.rate_limit.map(RateLimitBody::from),
            jwt_subject: client.jwt_subject,
            name: client.name,
            description: client.description,
        }
    }
}

/// The fields of a client; `name` is used only on creation.
// Only for the OpenAPI document: `model::client` parses the body.
#[derive(ToSchema)]
pub struct ClientInput {
    pub name: Option<String>,
    pub description: Option<String>,
    /// A token of at least 8 characters. On creation, one is generated if this is omitted.
    pub access_token: Option<String>,
    /// The names of the servers that the client may use, or `*` for all of them.
    pub allow_list: Option<Vec<String>>,
    /// The limit of its calls; none if omitted.
    pub rate_limit: Option<RateLimitBody>,
}

/// Lists all clients.
#[utoipa::path(get, path = "/api/v0/clients", tag = "clients", responses((status = 200, body = [ClientRecord])))]
pub async fn list(State(face): State<Face>) -> HandlerResult<Json<Vec<ClientRecord>>> {
    Ok(Json(face.gateway.clients()?.into_iter().map(ClientRecord::from).collect()))
}

/// Creates a client and returns it with its token.
#[utoipa::path(post, path = "/api/v0/clients", tag = "clients",
    request_body = ClientInput, responses((status = 201, body = ClientRecord)))]
pub async fn create(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    body: Bytes,
) -> HandlerResult<Created<ClientRecord>> {
    // In development mode there are no clients; that error comes before errors in the body.
    face.gateway.clients()?;
    Ok(Created(face.gateway.create_client(json_object(&body)?, &by).await?.into()))
}

/// Replaces all fields of a client except its name.
#[utoipa::path(put, path = "/api/v0/clients/{name}", tag = "clients", params(("name" = String, Path)),
    request_body = ClientInput, responses((status = 200, body = ClientRecord)))]
pub async fn replace(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
    body: Bytes,
) -> HandlerResult<Json<ClientRecord>> {
    face.gateway.client(&name)?;
    Ok(Json(face.gateway.replace_client(&name, json_object(&body)?, &by).await?.into()))
}

/// Deletes a client; its token stops working at once.
#[utoipa::path(delete, path = "/api/v0/clients/{name}", tag = "clients",
    params(("name" = String, Path)), responses((status = 204)))]
pub async fn delete(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
) -> HandlerResult<NoContent> {
    face.gateway.delete_client(&name, &by).await?;
    Ok(NoContent)
}
