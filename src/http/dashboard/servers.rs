//! The servers page: all servers with their status, without secrets; adding, enabling, disabling and removing them.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use super::empty_state::{EmptyState, no_servers};
use super::oauth;
use super::{Deleted, SwitchInput, SwitchedItem};
use crate::http::Face;
use crate::http::access::ChangedBy;
use crate::http::address::base_url;
use crate::http::authorization::AuthorizationRequired;
use crate::http::error::HandlerResult;
use crate::http::extract::{Name, Query, json_object};
use crate::http::reply::{Accepted, Created, Json};
use gateway::Entry;
use gateway::oauth::RegistrationOutcome;
use gateway::record::{ServerRecord, state_of};
use gateway::servers::Existing;
use model::package::package_of;
use model::{Status, Transport, arguments, time};

/// How many lines of standard error are listed with a server.
const STDERR_LINES: usize = 200;

/// All servers, and the empty state if there are none.
#[derive(Serialize, ToSchema)]
pub struct DashboardServers {
    servers: Vec<DashboardServer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    empty_state: Option<EmptyState>,
}

/// A registered server with its status, without secrets.
#[derive(Serialize, ToSchema)]
pub struct DashboardServer {
    name: String,
    /// `stdio`, `streamable_http` or `sse`.
    transport: &'static str,
    enabled: bool,
    /// `connecting`, `connected`, `degraded`, `failed` or `disabled`.
    status: &'static str,
    /// The reason for the status; empty if there is none.
    status_reason: String,
    /// The revision of MCP that the server uses; empty if it is not known yet.
    protocol_version: String,
    /// The last lines that the process wrote to its standard error.
    stderr_tail: Vec<String>,
    /// The number of tools that the server lists, including disabled ones.
    tool_count: usize,
    /// The number of prompts that the server lists, including disabled ones.
    prompt_count: usize,
    /// The number of resources that the server lists.
    resource_count: usize,
    /// The time when the lists were last read (RFC 3339); `null` if they never were.
    last_discovered_at: Option<String>,
    /// The time of the last change of the registration (RFC 3339).
    updated_at: String,
    /// Status, transport and protocol revision in one line.
    connection_summary: String,
    config_summary: ConfigSummary,
}

/// The configuration of a server, without secrets.
#[derive(Serialize, ToSchema)]
pub struct ConfigSummary {
    /// `stdio`, `streamable_http` or `sse`.
    kind: &'static str,
    /// The URL without user info, query and fragment; for a process, its command.
    target: String,
    /// The command of a process; empty for a server with a URL.
    command: String,
    /// The number of arguments of a process.
    argument_count: usize,
    /// The command of a process and its arguments, with `•••` in place of everything that could be a secret; empty for a
    /// server with a URL.
    command_line: String,
    /// Names of the environment variables, never their values.
    env_keys: Vec<String>,
    /// Names of the headers, never their values; `Authorization` is not included.
    header_keys: Vec<String>,
    /// `stateless` or `stateful`.
    session_mode: &'static str,
    description: String,
    /// What the server is, in a few words: its URL, the package that its command starts, or its command line.
    sanitized_summary: String,
}

/// A server that was just added.
#[derive(Serialize, ToSchema)]
pub struct DashboardServerAdded {
    name: String,
    transport: &'static str,
    enabled: bool,
    description: String,
}

/// Lists all servers.
#[utoipa::path(get, path = "/api/dashboard/servers", tag = "dashboard",
    responses((status = 200, body = DashboardServers)))]
pub async fn list(State(face): State<Face>, headers: HeaderMap) -> Json<DashboardServers> {
    let catalog = face.gateway.catalog();
    let servers: Vec<_> = catalog.entries().map(|entry| DashboardServer::of(entry)).collect();
    let empty_state = servers.is_empty().then(|| no_servers(&base_url(&face.settings, &headers)));
    Json(DashboardServers { servers, empty_state })
}

/// Registers a server. If a person must authorize it first, the response is 202 with the URL to open.
#[utoipa::path(post, path = "/api/dashboard/servers", tag = "dashboard",
    params(("force" = Option<bool>, Query, description = "Whether to replace an existing server of this name")),
    request_body = crate::http::api::servers::RegistrationBody,
    responses((status = 201, body = DashboardServerAdded), (status = 202, body = AuthorizationRequired)))]
pub async fn add(
    State(face): State<Face>,
    headers: HeaderMap,
    ChangedBy(by): ChangedBy,
    query: Query,
    body: Bytes,
) -> HandlerResult<Response> {
    let existing = if query.flag("force")? { Existing::Replace } else { Existing::Refuse };
    Ok(match oauth::register(&face, &headers, &by, json_object(&body)?, existing).await? {
        RegistrationOutcome::Stored(server) => Created(DashboardServerAdded::of(*server)).into_response(),
        RegistrationOutcome::AuthorizationRequired(pending) => {
            Accepted(AuthorizationRequired::from(pending)).into_response()
        }
    })
}

/// Reads the lists of a server again, now; a failed server is connected again.
#[utoipa::path(post, path = "/api/dashboard/servers/{name}/refresh", tag = "dashboard",
    params(("name" = String, Path)), responses((status = 200, body = DashboardServer)))]
pub async fn refresh(State(face): State<Face>, Name(name): Name) -> HandlerResult<Json<DashboardServer>> {
    face.gateway.refresh(&name).await?;
    Ok(Json(DashboardServer::of(face.gateway.catalog().require(&name)?)))
}

/// Removes a server and everything it offers.
#[utoipa::path(delete, path = "/api/dashboard/servers/{name}", tag = "dashboard",
    params(("name" = String, Path)), responses((status = 200, body = Deleted)))]
pub async fn remove(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
) -> HandlerResult<Json<Deleted>> {
    face.gateway.remove(&name, &by).await?;
    Ok(Json(Deleted::YES))
}

/// Enables or disables a server.
#[utoipa::path(patch, path = "/api/dashboard/servers/{name}/enabled", tag = "dashboard",
    params(("name" = String, Path)), request_body = SwitchInput, responses((status = 200, body = SwitchedItem)))]
pub async fn switch(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
    body: Bytes,
) -> HandlerResult<Json<SwitchedItem>> {
    let SwitchInput { enabled } = SwitchInput::parse(&body)?;
    let switched = face.gateway.switch_server(&name, enabled, &by).await?;
    Ok(Json(SwitchedItem { name: switched.name, enabled }))
}

impl DashboardServerAdded {
    pub fn of(server: ServerRecord) -> Self {
        let ServerRecord { name, transport, enabled, description, .. } = server;
        Self { name, transport, enabled, description }
    }
}

impl DashboardServer {
    fn of(entry: &Entry) -> Self {
        let offering = entry.offering();
        let (status, status_reason) = state_of(entry);
        let transport = entry.registration.config.transport.as_str();
        Self {
            name: entry.name().to_string(),
            transport,
            enabled: entry.is_enabled(),
            status: status.as_str(),
            status_reason,
            connection_summary: summarize(status, transport, &offering.protocol_version),
            protocol_version: offering.protocol_version.clone(),
            stderr_tail: entry.journal.stderr(STDERR_LINES),
            tool_count: entry.everything().tools.len(),
            prompt_count: entry.everything().prompts.len(),
            resource_count: entry.everything().resources.len(),
            last_discovered_at: entry.discovered_at_ms.map(time::rfc3339),
            updated_at: time::rfc3339(entry.updated_at_ms),
            config_summary: ConfigSummary::of(entry),
        }
    }
}

fn summarize(status: Status, transport: &str, version: &str) -> String {
    let over = match transport {
        "stdio" => "over stdio",
        "sse" => "over HTTP+SSE",
        _ => "over streamable HTTP",
    };
    match (status, version) {
        (Status::Connected | Status::Degraded, version) if !version.is_empty() => {
            format!("{} {over}, protocol {version}", status.as_str())
        }
        (_, _) => format!("{} {over}", status.as_str()),
    }
}

impl ConfigSummary {
    fn of(entry: &Entry) -> Self {
        let config = &entry.registration.config;
        let mut summary = Self {
            kind: config.transport.as_str(),
            target: String::new(),
            command: String::new(),
            argument_count: 0,
            command_line: String::new(),
            env_keys: vec![],
            header_keys: vec![],
            session_mode: config.session_mode.as_str(),
            description: config.description.clone(),
            sanitized_summary: String::new(),
        };
        match &config.transport {
            Transport::StreamableHttp(endpoint) | Transport::Sse(endpoint) => {
                let is_shown = |name: &&String| !name.eq_ignore_ascii_case("authorization");
                summary.header_keys = endpoint.headers.keys().filter(is_shown).cloned().collect();
                summary.target = endpoint.bare_url();
                summary.sanitized_summary.clone_from(&summary.target);
            }
            Transport::Stdio(process) => {
                summary.target.clone_from(&process.command);
                summary.command.clone_from(&process.command);
                summary.argument_count = process.args.len();
                summary.env_keys = process.env.keys().cloned().collect();
                let args = arguments::hidden(&process.args);
                summary.command_line = arguments::command_line(&process.command, &args);
                let package = package_of(&process.command, &args);
                summary.sanitized_summary = package.unwrap_or(&summary.command_line).to_owned();
            }
        }
        summary
    }
}
