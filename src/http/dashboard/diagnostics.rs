//! The system page: version, settings, supported protocols, limits and what is used of them, and hints for
//! troubleshooting.

use axum::extract::State;
use axum::http::HeaderMap;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::address::base_url;
use crate::http::reply::Json;
use crate::http::{Face, VERSION};
use budget::{Bound, Budget};
use gateway::Gateway;
use wire::Version;

/// The version and the configuration of the gateway, its limits, and hints for troubleshooting.
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
    /// Every limit, with what is used of it and how often it refused something.
    limits: Vec<DashboardLimit>,
    server_count: usize,
    tool_count: usize,
    prompt_count: usize,
    resource_count: usize,
    tool_group_count: usize,
}

/// A limit of the gateway.
#[derive(Serialize, ToSchema)]
pub struct DashboardLimit {
    /// The name of the bound in metrics, such as `connections`.
    bound: &'static str,
    /// A description of what is limited.
    label: &'static str,
    /// The variable that sets the limit, or the key that sets it for one client, user or server; null if it is fixed.
    setting: Option<&'static str>,
    /// `process` (the whole gateway) or `everybody` (all callers together); null for a limit without a current use.
    owner: Option<&'static str>,
    /// The current use; null for a limit without one, such as a timeout.
    used: Option<u64>,
    /// The limit; null for a limit without a current use that no variable sets.
    limit: Option<u64>,
    /// `bytes`, or null for a plain number.
    unit: Option<&'static str>,
    /// How often something was refused since the start of the gateway.
    refusals: u64,
}

/// Returns the version and the configuration of the gateway, its limits, and hints for troubleshooting.
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
        limits: limits(&face.gateway),
        server_count: counts.servers,
        tool_count: counts.tools,
        prompt_count: counts.prompts,
        resource_count: counts.resources,
        tool_group_count: counts.groups,
    })
}

/// All limits. The budgets of principals are those of everybody together: the dashboard exists in development mode only.
fn limits(gateway: &Gateway) -> Vec<DashboardLimit> {
    let (budgets, everybody) = (gateway.budgets(), gateway.usage(None));
    let limit_of = |(bound, refusals): (Bound, u64)| {
        let held = |owner, budget: &Budget| (Some(owner), Some(budget.used()), Some(budget.limit()));
        let (owner, used, limit) = match bound {
            Bound::Connections => held("process", &budgets.connections),
            Bound::BufferedBytes => held("process", &budgets.buffered),
            Bound::Processes => held("process", &budgets.processes),
            Bound::Calls => held("everybody", &everybody.calls),
            Bound::Streams => held("everybody", &everybody.streams),
            Bound::Subscriptions => held("everybody", &everybody.subscriptions),
            Bound::ParkedCalls => held("everybody", &everybody.parked),
            Bound::AnswerTime => (None, None, Some(budgets.limits.answer_time.as_secs())),
            Bound::MessageSize => (None, None, Some(budgets.limits.message_bytes as u64)),
            Bound::HeadTime
            | Bound::BodyTime
            | Bound::SendTime
            | Bound::BodySize
            | Bound::BatchMessages
            | Bound::BatchAnswer
            | Bound::UriLength
            | Bound::WaitingCalls
            | Bound::WaitingTime
            | Bound::Lists
            | Bound::WrongTokens
            | Bound::Registrations
            | Bound::RateLimit => (None, None, None),
        };
        let is_size = matches!(bound, Bound::BufferedBytes | Bound::MessageSize);
        let is_time = bound == Bound::AnswerTime;
        DashboardLimit {
            bound: bound.as_str(),
            label: bound.label(),
            setting: bound.setting(),
            owner,
            used,
            limit,
            unit: is_size.then_some("bytes").or(is_time.then_some("seconds")),
            refusals,
        }
    };
    budgets.refusals.all().map(limit_of).collect()
}

const HINTS: [&str; 4] = [
    "A command is not found: use its full path. The gateway uses the PATH that it was started with.",
    "A server starts slowly: set MCP_SERVER_INIT_REQ_TIMEOUT_SEC to more than 30 seconds.",
    "A server answers 401: set its bearer token or headers, or sign in to it here.",
    "For more detail in the log, start the gateway with RUST_LOG=toolgate=debug.",
];
