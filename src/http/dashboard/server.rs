//! One server: what the list of servers leaves out, without secrets, and changing its registration.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::oauth;
use super::servers::DashboardServerAdded;
use crate::http::Face;
use crate::http::access::ChangedBy;
use crate::http::authorization::AuthorizationRequired;
use crate::http::error::HandlerResult;
use crate::http::extract::{Name, json_object};
use crate::http::record::{RateLimitBody, shown_placement};
use crate::http::reply::{Accepted, Json};
use gateway::Entry;
use gateway::oauth::RegistrationOutcome;
use model::{FieldError, Transport, arguments};

/// The details of a server, without secrets.
#[derive(Serialize, ToSchema)]
pub struct ServerDetails {
    name: String,
    /// The instructions of the server for agents; empty if it has none.
    instructions: String,
    /// The working directory of a process; empty if it is the gateway's.
    cwd: String,
    /// `one` if the processes of the server run on one of several gateways; omitted otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    placement: Option<&'static str>,
    /// Timeout of one call in milliseconds; 0 = none.
    timeout_ms: u64,
    /// The maximum number of concurrent calls; 0 = no limit.
    max_concurrency: u64,
    /// The limit of the calls of all callers together.
    rate_limit: Option<RateLimitBody>,
    /// Limits of single tools, by native name or pattern.
    tool_limits: BTreeMap<String, RateLimitBody>,
    oauth_client_id: String,
    oauth_scopes: Vec<String>,
    /// Whether a bearer token is stored.
    has_bearer_token: bool,
    /// Whether a secret of the OAuth client is stored.
    has_oauth_client_secret: bool,
    /// Whether the URL has user info, a query or a fragment, which are not shown.
    has_hidden_url_parts: bool,
}

/// Returns the details of a server.
#[utoipa::path(get, path = "/api/dashboard/servers/{name}", tag = "dashboard",
    params(("name" = String, Path)), responses((status = 200, body = ServerDetails)))]
pub async fn get(State(face): State<Face>, Name(name): Name) -> HandlerResult<Json<ServerDetails>> {
    Ok(Json(ServerDetails::of(face.gateway.catalog().require(&name)?)))
}

/// Changes the given fields of a server; omitted fields stay the same, including secrets.
///
/// `env` and `headers` are merged by key; a value of `null` removes the key. In `args`, `•••` stands for the secret that
/// is shown so in `command_line`.
#[utoipa::path(patch, path = "/api/dashboard/servers/{name}", tag = "dashboard", params(("name" = String, Path)),
    request_body = HashMap<String, Value>,
    responses((status = 200, body = DashboardServerAdded), (status = 202, body = AuthorizationRequired)))]
pub async fn amend(
    State(face): State<Face>,
    headers: HeaderMap,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
    body: Bytes,
) -> HandlerResult<Response> {
    let mut changes = json_object(&body)?;
    reveal_arguments(&mut changes, face.gateway.catalog().require(&name)?)?;
    Ok(match oauth::amend(&face, &headers, &by, &name, changes).await? {
        RegistrationOutcome::Stored(server) => Json(DashboardServerAdded::of(*server)).into_response(),
        RegistrationOutcome::AuthorizationRequired(pending) => {
            Accepted(AuthorizationRequired::from(pending)).into_response()
        }
    })
}

/// Puts the current values in place of hidden ones. Arguments of a wrong type are left to the check of the registration.
fn reveal_arguments(changes: &mut Map<String, Value>, entry: &Entry) -> Result<(), FieldError> {
    let Transport::Stdio(process) = &entry.registration.config.transport else { return Ok(()) };
    let Some(Value::Array(args)) = changes.get("args") else { return Ok(()) };
    let edited: Option<Vec<_>> = args.iter().map(|arg| arg.as_str().map(str::to_owned)).collect();
    if let Some(edited) = edited {
        changes.insert("args".to_owned(), arguments::revealed(&edited, &process.args)?.into());
    }
    Ok(())
}

impl ServerDetails {
    fn of(entry: &Entry) -> Self {
        let config = &entry.registration.config;
        let mut details = Self {
            name: entry.name().to_string(),
            instructions: entry.offering().instructions.clone().unwrap_or_default(),
            cwd: String::new(),
            placement: shown_placement(config.placement),
            timeout_ms: config.timeout_ms,
            max_concurrency: config.max_concurrency,
            rate_limit: config.rate_limit.map(RateLimitBody::from),
            tool_limits: RateLimitBody::by_key(&config.tool_limits),
            oauth_client_id: String::new(),
            oauth_scopes: vec![],
            has_bearer_token: false,
            has_oauth_client_secret: false,
            has_hidden_url_parts: false,
        };
        match &config.transport {
            Transport::StreamableHttp(endpoint) | Transport::Sse(endpoint) => {
                details.oauth_client_id = endpoint.oauth.client_id.clone().unwrap_or_default();
                details.oauth_scopes.clone_from(&endpoint.oauth.scopes);
                details.has_bearer_token = endpoint.bearer_token.is_some();
                details.has_oauth_client_secret = endpoint.oauth.client_secret.is_some();
                details.has_hidden_url_parts = endpoint.bare_url() != endpoint.url.as_str();
            }
            Transport::Stdio(process) => details.cwd = process.cwd.clone().unwrap_or_default(),
        }
        details
    }
}
