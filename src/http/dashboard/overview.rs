//! The overview page: health, counts, endpoints and recent failures.

use axum::extract::State;
use axum::http::HeaderMap;
use serde::Serialize;
use utoipa::ToSchema;

use super::empty_state::{EmptyState, no_servers};
use crate::http::address::base_url;
use crate::http::reply::Json;
use crate::http::{Face, VERSION};
use gateway::overview::FailedCall;
use model::time;

/// How many recent failures are shown.
const FAILURES: usize = 10;

#[derive(Serialize, ToSchema)]
pub struct Overview {
    /// `ok`, or `degraded` when changes cannot be saved or a server that is switched on cannot be used.
    status: &'static str,
    mode: &'static str,
    version: &'static str,
    endpoints: Vec<LabelledUrl>,
    server_count: usize,
    tool_count: usize,
    prompt_count: usize,
    resource_count: usize,
    tool_group_count: usize,
    /// One sentence for each thing that somebody should look at.
    troubleshooting: Vec<String>,
    /// Why changes cannot be saved now.
    store_problem: Option<String>,
    /// The last calls that failed, newest first.
    recent_failures: Vec<RecentFailure>,
    empty_state: Option<EmptyState>,
}

#[derive(Serialize, ToSchema)]
pub struct LabelledUrl {
    label: &'static str,
    url: String,
}

#[derive(Serialize, ToSchema)]
pub struct RecentFailure {
    at: String,
    server: String,
    /// The full name.
    tool: String,
    reason: String,
}

/// The gateway at a glance.
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
        recent_failures: catalog.failed_calls(FAILURES).into_iter().map(RecentFailure::of).collect(),
        empty_state: (counts.servers == 0).then(|| no_servers(&base)),
    })
}

fn endpoints(base: &str) -> Vec<LabelledUrl> {
    let paths =
        [("MCP, streamable HTTP", "/mcp"), ("MCP, SSE for older clients", "/sse"), ("REST API", "/api/v0")];
    paths.map(|(label, path)| LabelledUrl { label, url: format!("{base}{path}") }).into()
}

impl RecentFailure {
    fn of(call: FailedCall) -> Self {
        let FailedCall { at, server, tool, reason } = call;
        Self { at: time::rfc3339(time::milliseconds(at)), server, tool, reason }
    }
}
