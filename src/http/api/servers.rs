//! `/api/v0/servers`: registering, changing and removing servers.

use std::collections::HashMap;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::http::Face;
use crate::http::access::{ChangedBy, CurrentPrincipal};
use crate::http::authorization::AuthorizationRequired;
use crate::http::error::HandlerResult;
use crate::http::extract::{Name, Query, json_object};
use crate::http::record::{RateLimitBody, ServerBody};
use crate::http::reply::{Accepted, Created, Json, NoContent};
use gateway::oauth::RegistrationOutcome;
use gateway::record::ServerRecord;
use gateway::servers::{Existing, SwitchOutcome};
use model::{Fields, Role};

/// The record of a server under `server`.
#[derive(Serialize, ToSchema)]
pub struct OneServer {
    server: ServerBody,
}

impl From<ServerRecord> for OneServer {
    fn from(server: ServerRecord) -> Self {
        Self { server: server.into() }
    }
}

/// A new server: its record under `server`, and the fields of the record at the top level too.
#[derive(Serialize, ToSchema)]
pub struct Registered {
    server: ServerBody,
    #[serde(flatten)]
    fields: ServerBody,
}

/// The tools and prompts that became visible or hidden when a server was enabled or disabled.
#[derive(Serialize, ToSchema)]
pub struct SwitchedServer {
    /// The name of the server.
    name: String,
    /// Full names of tools.
    tools_affected: Vec<String>,
    /// Full names of prompts.
    prompts_affected: Vec<String>,
}

impl From<SwitchOutcome> for SwitchedServer {
    fn from(switched: SwitchOutcome) -> Self {
        let SwitchOutcome { name, tools_affected, prompts_affected } = switched;
        Self { name, tools_affected, prompts_affected }
    }
}

/// The registration of a server.
// Only for the OpenAPI document: `model::registration` parses the body.
#[derive(ToSchema)]
#[schema(as = RegistrationInput)]
pub struct RegistrationBody {
    /// Letters, digits, `-` and `_`; no `__`, not ending in `_`; at most 64 characters.
    pub name: String,
    /// `stdio`, `streamable_http` or `sse`.
    pub transport: String,
    pub description: Option<String>,
    /// The URL of the MCP endpoint; for HTTP servers.
    pub url: Option<String>,
    /// A token for the `Authorization` header; for HTTP servers.
    pub bearer_token: Option<String>,
    /// Headers that are sent with every request. An `Authorization` here takes precedence over `bearer_token`; for
    /// HTTP servers.
    pub headers: Option<HashMap<String, String>>,
    /// The program to start; for `stdio`.
    pub command: Option<String>,
    /// The arguments of the program; for `stdio`.
    pub args: Option<Vec<String>>,
    /// Environment variables of the program; for `stdio`.
    pub env: Option<HashMap<String, String>>,
    /// The working directory of the program; for `stdio`.
    pub cwd: Option<String>,
    /// `stateless` (the default): sessions share links; `stateful`: each session has its own link.
    pub session_mode: Option<String>,
    /// `each` (the default): every gateway starts its own processes; `one`: one gateway runs them for all; for `stdio`.
    pub placement: Option<String>,
    /// The timeout of a call in milliseconds; 300000 if omitted, 0 for none.
    pub timeout_ms: Option<u64>,
    /// The maximum number of concurrent calls; 0 or omitted for no limit.
    pub max_concurrency: Option<u64>,
    /// The limit of the calls of all callers together; none if omitted.
    pub rate_limit: Option<RateLimitBody>,
    /// Limits of single tools, by native name or by a pattern with `*`; each tool has its own count.
    pub tool_limits: Option<HashMap<String, RateLimitBody>>,
    /// Whether the server is enabled; true if omitted.
    pub enabled: Option<bool>,
    /// Names of tools, as the server calls them, that are disabled from the start.
    pub disabled_tools: Option<Vec<String>>,
    /// Names of prompts, as the server calls them, that are disabled from the start.
    pub disabled_prompts: Option<Vec<String>>,
    /// Whether a server that cannot be connected is stored as `failed` instead of being refused; false if omitted.
    pub keep_failed: Option<bool>,
    /// The redirect URI, if the server requires OAuth.
    pub oauth_redirect_uri: Option<String>,
    /// The client id at the authorization server, if the gateway is registered there already.
    pub oauth_client_id: Option<String>,
    /// The secret of that client.
    pub oauth_client_secret: Option<String>,
    /// The scopes to request.
    pub oauth_scopes: Option<Vec<String>>,
}

/// Lists all servers.
#[utoipa::path(get, path = "/api/v0/servers", tag = "servers", responses((status = 200, body = [ServerBody])))]
pub async fn list(State(face): State<Face>, caller: CurrentPrincipal) -> Json<Vec<ServerBody>> {
    let catalog = face.catalog_for(&caller);
    Json(catalog.entries().map(|entry| shown_to(&caller, ServerRecord::of(entry))).collect())
}

/// Returns a server.
#[utoipa::path(get, path = "/api/v0/servers/{name}", tag = "servers",
    params(("name" = String, Path)), responses((status = 200, body = ServerBody)))]
pub async fn get(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    Name(name): Name,
) -> HandlerResult<Json<ServerBody>> {
    let catalog = face.catalog_for(&caller);
    Ok(Json(shown_to(&caller, ServerRecord::of(catalog.require(&name)?))))
}

/// Masks the arguments of processes and the paths of URLs for plain users, since they often contain secrets, and shows
/// them only the kind of a failure.
fn shown_to(caller: &CurrentPrincipal, server: ServerRecord) -> ServerBody {
    match caller.role() {
        Some(Role::User) => server.without_arguments().without_url_path().with_kind_of_failure().into(),
        Some(Role::Admin) | None => server.into(),
    }
}

/// Registers a server. If a person must authorize it first, the response is 202 with the URL to open.
#[utoipa::path(post, path = "/api/v0/servers", tag = "servers",
    params(("force" = Option<bool>, Query, description = "Whether to replace an existing server of this name")),
    request_body = RegistrationBody,
    responses((status = 201, body = Registered), (status = 202, body = AuthorizationRequired)))]
pub async fn register(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    query: Query,
    body: Bytes,
) -> HandlerResult<Response> {
    let existing = if query.flag("force")? { Existing::Replace } else { Existing::Refuse };
    Ok(match face.gateway.register(json_object(&body)?, existing, &by).await? {
        RegistrationOutcome::Stored(server) => {
            let server = ServerBody::from(*server);
            Created(Registered { fields: server.clone(), server }).into_response()
        }
        RegistrationOutcome::AuthorizationRequired(pending) => {
            Accepted(AuthorizationRequired::from(pending)).into_response()
        }
    })
}

/// Changes the given fields of a server; omitted fields stay the same.
///
/// `env` and `headers` are merged by key; a value of `null` removes the key.
#[utoipa::path(patch, path = "/api/v0/servers/{name}", tag = "servers", params(("name" = String, Path)),
    request_body = HashMap<String, Value>,
    responses((status = 200, body = OneServer), (status = 202, body = AuthorizationRequired)))]
pub async fn amend(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
    body: Bytes,
) -> HandlerResult<Response> {
    Ok(match face.gateway.amend(&name, json_object(&body)?, &by).await? {
        RegistrationOutcome::Stored(server) => Json(OneServer::from(*server)).into_response(),
        RegistrationOutcome::AuthorizationRequired(pending) => {
            Accepted(AuthorizationRequired::from(pending)).into_response()
        }
    })
}

/// Starts a new authorization of a server. The redirect URI is the registered one unless the body has another.
#[utoipa::path(post, path = "/api/v0/servers/{name}/reauthorize", tag = "servers", params(("name" = String, Path)),
    request_body = HashMap<String, String>, responses((status = 202, body = AuthorizationRequired)))]
pub async fn reauthorize(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
    body: Bytes,
) -> HandlerResult<Accepted<AuthorizationRequired>> {
    let mut redirect_uri = None;
    if !body.iter().all(u8::is_ascii_whitespace) {
        let mut fields = Fields::new(json_object(&body)?);
        redirect_uri = fields.text("oauth_redirect_uri")?.filter(|uri| !uri.is_empty());
        fields.finish()?;
    }
    Ok(Accepted(face.gateway.reauthorize(&name, redirect_uri, &by).await?.into()))
}

/// Removes a server and everything it offers.
#[utoipa::path(delete, path = "/api/v0/servers/{name}", tag = "servers",
    params(("name" = String, Path)), responses((status = 204)))]
pub async fn remove(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
) -> HandlerResult<NoContent> {
    face.gateway.remove(&name, &by).await?;
    Ok(NoContent)
}

/// Enables a server.
#[utoipa::path(post, path = "/api/v0/servers/{name}/enable", tag = "servers",
    params(("name" = String, Path)), responses((status = 200, body = SwitchedServer)))]
pub async fn enable(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
) -> HandlerResult<Json<SwitchedServer>> {
    Ok(Json(face.gateway.switch_server(&name, true, &by).await?.into()))
}

/// Disables a server.
#[utoipa::path(post, path = "/api/v0/servers/{name}/disable", tag = "servers",
    params(("name" = String, Path)), responses((status = 200, body = SwitchedServer)))]
pub async fn disable(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
) -> HandlerResult<Json<SwitchedServer>> {
    Ok(Json(face.gateway.switch_server(&name, false, &by).await?.into()))
}

/// Reads the lists of a server again, now.
#[utoipa::path(post, path = "/api/v0/servers/{name}/refresh", tag = "servers",
    params(("name" = String, Path)), responses((status = 200, body = OneServer)))]
pub async fn refresh(State(face): State<Face>, Name(name): Name) -> HandlerResult<Json<OneServer>> {
    Ok(Json(face.gateway.refresh(&name).await?.into()))
}

/// Returns the registrations of all servers, with secrets in plain text.
#[utoipa::path(get, path = "/api/v0/server_configs", tag = "servers", responses((status = 200, body = [RegistrationBody])))]
pub async fn configs(State(face): State<Face>) -> Json<Vec<Map<String, Value>>> {
    Json(face.gateway.server_configs())
}
