//! The overview page: health, counts, endpoints and recent failures.

use axum::extract::State;
use axum::http::HeaderMap;
use serde::Serialize;
use utoipa::ToSchema;

use super::empty_state::{EmptyState, no_servers};
use crate::http::address::base_url;
use crate::http::reply::Json;
use crate::http::{Face, VERSION};
use gateway::caller::Scope;
use gateway::overview::FailedCall;
use gateway::recent_clients::RecentClient;
use gateway::recorder::{CallLog, Recorder};
use model::time;

/// How many recent failures are shown.
const FAILURES: usize = 10;

/// The state of the gateway: health, counts, endpoints and recent failures.
#[derive(Serialize, ToSchema)]
pub struct Overview {
    /// `ok`, or `degraded` if changes cannot be stored or an enabled server is failed or degraded.
    status: &'static str,
    /// The mode of the gateway.
    mode: &'static str,
    /// The version of the gateway, with a leading `v`.
    version: &'static str,
    /// The URLs of the MCP endpoints and the REST API.
    endpoints: Vec<LabelledUrl>,
    server_count: usize,
    tool_count: usize,
    prompt_count: usize,
    resource_count: usize,
    tool_group_count: usize,
    /// One sentence for each problem that needs attention.
    troubleshooting: Vec<String>,
    /// Why changes cannot be stored now; `null` if they can.
    store_problem: Option<String>,
    /// What is recorded of calls: `off`, `summary` or `full`.
    call_log: &'static str,
    /// Why calls cannot be recorded now; `null` if they can, or if nothing is to be recorded.
    records_problem: Option<String>,
    /// The last calls that failed, newest first.
    recent_failures: Vec<RecentFailure>,
    /// The MCP clients that connected last, newest first; at most 10.
    recent_clients: Vec<ConnectedClient>,
    empty_state: Option<EmptyState>,
}

/// A URL with a label.
#[derive(Serialize, ToSchema)]
pub struct LabelledUrl {
    label: &'static str,
    url: String,
}

/// A call that failed.
#[derive(Serialize, ToSchema)]
pub struct RecentFailure {
    /// The time of the failure (RFC 3339).
    at: String,
    /// The name of the server.
    server: String,
    /// The full name of the tool.
    tool: String,
    reason: String,
}

/// An MCP client that connected, by what it says about itself.
#[derive(Serialize, ToSchema)]
pub struct ConnectedClient {
    name: String,
    version: String,
    /// The group whose endpoint it uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// The server whose endpoint it uses. If neither is given, it uses the endpoint of all servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    /// The time of its last connection (RFC 3339).
    at: String,
}

/// Returns the health, counts, endpoints and recent failures of the gateway.
#[utoipa::path(get, path = "/api/dashboard/overview", tag = "dashboard", responses((status = 200, body = Overview)))]
pub async fn show(State(face): State<Face>, headers: HeaderMap) -> Json<Overview> {
    let catalog = face.gateway.catalog();
    let counts = catalog.counts();
    let base = base_url(&face.settings, &headers);
    Json(Overview {
        status: if face.gateway.is_healthy() { "ok" } else { "degraded" },
        mode: face.gateway.mode.as_str(),
        version: VERSION,
        endpoints: endpoints(&base),
        server_count: counts.servers,
        tool_count: counts.tools,
        prompt_count: counts.prompts,
        resource_count: counts.resources,
        tool_group_count: counts.groups,
        troubleshooting: face.gateway.troubles(),
        store_problem: face.gateway.store_problem(),
        call_log: shown_call_log(face.gateway.recorder.recording.calls),
        records_problem: records_problem(&face.gateway.recorder),
        recent_failures: catalog.failed_calls(FAILURES).into_iter().map(RecentFailure::of).collect(),
        recent_clients: face.gateway.recent_clients().into_iter().map(ConnectedClient::of).collect(),
        empty_state: (counts.servers == 0).then(|| no_servers(&base)),
    })
}

fn shown_call_log(calls: CallLog) -> &'static str {
    match calls {
        CallLog::Off => "off",
        CallLog::Summary => "summary",
        CallLog::Full => "full",
    }
}

fn records_problem(recorder: &Recorder) -> Option<String> {
    let reason = recorder.failure()?;
    Some(format!("calls cannot be recorded: {reason}; calls themselves are not affected"))
}

fn endpoints(base: &str) -> Vec<LabelledUrl> {
    let paths =
        [("MCP, streamable HTTP", "/mcp"), ("MCP, SSE (legacy clients)", "/sse"), ("REST API", "/api/v0")];
    paths.map(|(label, path)| LabelledUrl { label, url: format!("{base}{path}") }).into()
}

impl ConnectedClient {
    fn of(client: RecentClient) -> Self {
        let (group, server) = match client.scope {
            Scope::Everything => (None, None),
            Scope::Group(name) => (Some(name), None),
            Scope::Server(name) => (None, Some(name)),
            Scope::Link(link) => (None, Some(link.server)),
        };
        let at = time::rfc3339(time::milliseconds(client.at));
        Self { name: client.name.to_string(), version: client.version.to_string(), group, server, at }
    }
}

impl RecentFailure {
    fn of(call: FailedCall) -> Self {
        let FailedCall { at, server, tool, reason } = call;
        Self { at: time::rfc3339(time::milliseconds(at)), server, tool, reason }
    }
}
