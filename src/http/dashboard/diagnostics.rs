//! The system page: version, settings, supported protocols, and hints for troubleshooting.

use axum::extract::State;
use axum::http::HeaderMap;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::address::base_url;
use crate::http::reply::Json;
use crate::http::{Face, VERSION};
use wire::Version;

/// The version and the configuration of the gateway, with hints for troubleshooting.
#[derive(Serialize, ToSchema)]
pub struct Diagnostics {
    /// The version of the gateway, with a leading `v`.
    version: &'static str,
    /// The mode of the gateway.
    mode: &'static str,
    uptime_seconds: u64,
    /// The sources of the settings: flags, the environment, `.env`, or only defaults.
    config_source: String,
    /// The kind of the database, and its file.
    database: String,
    /// The transports that servers may use.
    enabled_transports: [&'static str; 3],
    /// The revisions of MCP that the gateway supports.
    protocol_versions: Vec<&'static str>,
    /// The URL of the metrics; empty if metrics are off.
    metrics_endpoint: String,
    /// The URL of the MCP endpoint for agents.
    primary_endpoint: String,
    /// Current problems, and then general hints.
    troubleshooting_hints: Vec<String>,
    server_count: usize,
    tool_count: usize,
    prompt_count: usize,
    resource_count: usize,
    tool_group_count: usize,
}

/// Returns the version and the configuration of the gateway, with hints for troubleshooting.
#[utoipa::path(get, path = "/api/dashboard/diagnostics", tag = "dashboard",
    responses((status = 200, body = Diagnostics)))]
pub async fn show(State(face): State<Face>, headers: HeaderMap) -> Json<Diagnostics> {
    let catalog = face.gateway.catalog();
    let counts = catalog.counts();
    let base = base_url(&face.settings, &headers);
    let mut hints = face.gateway.troubles();
    hints.extend(HINTS.map(str::to_owned));
    Json(Diagnostics {
        version: VERSION,
        mode: face.gateway.mode.as_str(),
        uptime_seconds: face.about.started.elapsed().as_secs(),
        config_source: face.about.config_source.clone(),
        database: face.about.database.clone(),
        enabled_transports: ["stdio", "streamable_http", "sse"],
        protocol_versions: Version::SUPPORTED.map(Version::as_str).into(),
        metrics_endpoint: if face.settings.telemetry { format!("{base}/metrics") } else { String::new() },
        primary_endpoint: format!("{base}/mcp"),
        troubleshooting_hints: hints,
        server_count: counts.servers,
        tool_count: counts.tools,
        prompt_count: counts.prompts,
        resource_count: counts.resources,
        tool_group_count: counts.groups,
    })
}

const HINTS: [&str; 4] = [
    "a command that is not found: give its full path, since the gateway sees the PATH it was started with",
    "a server that takes long to start: MCP_SERVER_INIT_REQ_TIMEOUT_SEC gives it more than 30 seconds",
    "a server that answers 401: register it with bearer_token or headers, or authorize it here",
    "more detail: start the gateway with RUST_LOG=toolgate=debug",
];
