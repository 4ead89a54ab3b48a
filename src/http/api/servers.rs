//! `/api/v0/servers`: registering, changing and removing servers.

use std::collections::HashMap;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::http::Face;
use crate::http::access::CurrentPrincipal;
use crate::http::authorization::AuthorizationRequired;
use crate::http::error::HandlerResult;
use crate::http::extract::{Name, Query, json_object};
use crate::http::record::ServerBody;
use crate::http::reply::{Accepted, Created, Json, NoContent};
use gateway::oauth::RegistrationOutcome;
use gateway::record::ServerRecord;
use gateway::servers::{Existing, SwitchOutcome};
use model::{Fields, Role};

#[derive(Serialize, ToSchema)]
pub struct OneServer {
    server: ServerBody,
}

impl From<ServerRecord> for OneServer {
    fn from(server: ServerRecord) -> Self {
        Self { server: server.into() }
    }
}

/// The record under `server`, and its fields at the top level too.
#[derive(Serialize, ToSchema)]
pub struct Registered {
    server: ServerBody,
    #[serde(flatten)]
    fields: ServerBody,
}

/// What became visible or hidden when a server was switched.
#[derive(Serialize, ToSchema)]
pub struct SwitchedServer {
    name: String,
    tools_affected: Vec<String>,
    prompts_affected: Vec<String>,
}

impl From<SwitchOutcome> for SwitchedServer {
    fn from(switched: SwitchOutcome) -> Self {
        let SwitchOutcome { name, tools_affected, prompts_affected } = switched;
        Self { name, tools_affected, prompts_affected }
    }
}

/// How to reach a server. It is read by `model::registration`; this is its description.
#[derive(ToSchema)]
#[schema(as = RegistrationInput)]
pub struct RegistrationBody {
    pub name: String,
    /// `stdio`, `streamable_http` or `sse`.
    pub transport: String,
    pub description: Option<String>,
    pub url: Option<String>,
    pub bearer_token: Option<String>,
    pub headers: Option<HashMap<String, String>>,
    pub command: Option<String>,
    pub args: Option<Vec<String>>,
    pub env: Option<HashMap<String, String>>,
    pub cwd: Option<String>,
    /// `stateless` or `stateful`.
    pub session_mode: Option<String>,
    pub timeout_ms: Option<u64>,
    pub max_concurrency: Option<u64>,
    pub enabled: Option<bool>,
    pub disabled_tools: Option<Vec<String>>,
    pub disabled_prompts: Option<Vec<String>>,
    pub oauth_redirect_uri: Option<String>,
    pub oauth_client_id: Option<String>,
    pub oauth_client_secret: Option<String>,
    pub oauth_scopes: Option<Vec<String>>,
}

/// All servers.
#[utoipa::path(get, path = "/api/v0/servers", tag = "servers", responses((status = 200, body = [ServerBody])))]
pub async fn list(State(face): State<Face>, caller: CurrentPrincipal) -> Json<Vec<ServerBody>> {
    Json(face.gateway.servers().into_iter().map(|server| shown_to(&caller, server)).collect())
}

/// One server.
#[utoipa::path(get, path = "/api/v0/servers/{name}", tag = "servers",
    params(("name" = String, Path)), responses((status = 200, body = ServerBody)))]
pub async fn get(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    Name(name): Name,
) -> HandlerResult<Json<ServerBody>> {
    Ok(Json(shown_to(&caller, face.gateway.server(&name)?)))
}

/// Masks the arguments of processes for plain users, since they often contain secrets.
fn shown_to(caller: &CurrentPrincipal, server: ServerRecord) -> ServerBody {
    match caller.role() {
        Some(Role::User) => server.without_arguments().into(),
        Some(Role::Admin) | None => server.into(),
    }
}

/// Registers a server. Where a person must authorize it first, the answer is 202 with the page to open.
#[utoipa::path(post, path = "/api/v0/servers", tag = "servers",
    params(("force" = Option<bool>, Query, description = "Replaces a server of that name")),
    request_body = RegistrationBody,
    responses((status = 201, body = Registered), (status = 202, body = AuthorizationRequired)))]
pub async fn register(State(face): State<Face>, query: Query, body: Bytes) -> HandlerResult<Response> {
    let existing = if query.flag("force")? { Existing::Replace } else { Existing::Refuse };
    Ok(match face.gateway.register(json_object(&body)?, existing).await? {
        RegistrationOutcome::Stored(server) => {
            let server = ServerBody::from(*server);
            Created(Registered { fields: server.clone(), server }).into_response()
        }
        RegistrationOutcome::AuthorizationRequired(pending) => {
            Accepted(AuthorizationRequired::from(pending)).into_response()
        }
    })
}

/// Changes what is given of a server; what is left out stays. `env` and `headers` are merged by key; `null` removes one.
#[utoipa::path(patch, path = "/api/v0/servers/{name}", tag = "servers", params(("name" = String, Path)),
    request_body = HashMap<String, Value>,
    responses((status = 200, body = OneServer), (status = 202, body = AuthorizationRequired)))]
pub async fn amend(State(face): State<Face>, Name(name): Name, body: Bytes) -> HandlerResult<Response> {
    Ok(match face.gateway.amend(&name, json_object(&body)?).await? {
        RegistrationOutcome::Stored(server) => Json(OneServer::from(*server)).into_response(),
        RegistrationOutcome::AuthorizationRequired(pending) => {
            Accepted(AuthorizationRequired::from(pending)).into_response()
        }
    })
}

/// Asks a person to authorize a server anew; the way back is the registered one unless the body says another.
#[utoipa::path(post, path = "/api/v0/servers/{name}/reauthorize", tag = "servers", params(("name" = String, Path)),
    request_body = HashMap<String, String>, responses((status = 202, body = AuthorizationRequired)))]
pub async fn reauthorize(
    State(face): State<Face>,
    Name(name): Name,
    body: Bytes,
) -> HandlerResult<Accepted<AuthorizationRequired>> {
    let mut redirect_uri = None;
    if !body.iter().all(u8::is_ascii_whitespace) {
        let mut fields = Fields::new(json_object(&body)?);
        redirect_uri = fields.text("oauth_redirect_uri")?.filter(|uri| !uri.is_empty());
        fields.finish()?;
    }
    Ok(Accepted(face.gateway.reauthorize(&name, redirect_uri).await?.into()))
}

/// Removes a server.
#[utoipa::path(delete, path = "/api/v0/servers/{name}", tag = "servers",
    params(("name" = String, Path)), responses((status = 204)))]
pub async fn remove(State(face): State<Face>, Name(name): Name) -> HandlerResult<NoContent> {
    face.gateway.remove(&name).await?;
    Ok(NoContent)
}

/// Switches a server on.
#[utoipa::path(post, path = "/api/v0/servers/{name}/enable", tag = "servers",
    params(("name" = String, Path)), responses((status = 200, body = SwitchedServer)))]
pub async fn enable(State(face): State<Face>, Name(name): Name) -> HandlerResult<Json<SwitchedServer>> {
    Ok(Json(face.gateway.switch_server(&name, true).await?.into()))
}

/// Switches a server off.
#[utoipa::path(post, path = "/api/v0/servers/{name}/disable", tag = "servers",
    params(("name" = String, Path)), responses((status = 200, body = SwitchedServer)))]
pub async fn disable(State(face): State<Face>, Name(name): Name) -> HandlerResult<Json<SwitchedServer>> {
    Ok(Json(face.gateway.switch_server(&name, false).await?.into()))
}

/// Reads the lists of a server now.
#[utoipa::path(post, path = "/api/v0/servers/{name}/refresh", tag = "servers",
    params(("name" = String, Path)), responses((status = 200, body = OneServer)))]
pub async fn refresh(State(face): State<Face>, Name(name): Name) -> HandlerResult<Json<OneServer>> {
    Ok(Json(face.gateway.refresh(&name).await?.into()))
}

/// The registrations of all servers, secrets in clear.
#[utoipa::path(get, path = "/api/v0/server_configs", tag = "servers", responses((status = 200, body = [RegistrationBody])))]
pub async fn configs(State(face): State<Face>) -> Json<Vec<Map<String, Value>>> {
    Json(face.gateway.server_configs())
}
