//! `/api/v0/calls` and `/api/v0/stats`: what is recorded of calls.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::broadcast;
use tokio::sync::{mpsc, watch};
use utoipa::ToSchema;

use crate::http::Face;
use crate::http::access::CurrentPrincipal;
use crate::http::error::{ErrorResponse, HandlerResult};
use crate::http::extract::{Name, Query};
use crate::http::pages::page;
use crate::http::reply::Json;
use crate::http::stream::SseBody;
use gateway::principals::Principal;
use gateway::recorder::{CallFilter, CountedKind, KeptCall, Sum, Window};
use gateway::{Disclosure, Error};
use model::{CallRecord, Door, FieldError, PrincipalId, time};
use telemetry::Outcome;
use wire::sse;

/// How many events are queued for a slow reader of the stream.
const EVENT_BACKLOG: usize = 256;

/// The parameters that select calls.
const FILTERS: [&str; 10] =
    ["server", "name", "principal", "outcome", "via", "since", "until", "q", "limit", "before"];

/// A call.
#[derive(Serialize, ToSchema)]
#[schema(as = Call)]
pub struct CallBody {
    /// Later calls have greater ids.
    id: String,
    /// When the first byte of the request arrived.
    at: String,
    principal: PrincipalBody,
    /// The name and version that the MCP client gave.
    agent: Option<String>,
    /// `mcp`, `sse`, `rest` or `dashboard`.
    via: String,
    endpoint: String,
    /// `tools/call`, `prompts/get` or `resources/read`.
    method: String,
    server: Option<String>,
    /// The native name of the tool or prompt, or the URI.
    name: String,
    /// `ok`, `tool_error`, `upstream_error`, `timed_out`, `cancelled`, `denied` or `limited`.
    outcome: String,
    /// The error as the caller saw it.
    error: Option<String>,
    /// Why it failed; only for admins.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    duration_ms: f64,
    /// Waiting for the server.
    upstream_ms: f64,
    /// Waiting for a slot of `max_concurrency`.
    queue_ms: f64,
    /// Waiting for input of a person.
    input_ms: f64,
    /// The gateway's own time: what is left of the duration.
    gateway_ms: f64,
    request_bytes: u64,
    response_bytes: u64,
    /// How often it was sent to the server.
    attempts: u32,
    /// `legacy` or `modern`; `null` for calls over REST.
    client_era: Option<String>,
    server_era: Option<String>,
    trace_id: Option<String>,
    /// How often the server asked for input.
    rounds: u32,
    /// When the request was handed to the link to the server, in milliseconds since it arrived; `null` if it was not.
    sent_ms: Option<f64>,
    /// When the first byte of the server came after that.
    first_byte_ms: Option<f64>,
    /// Notices, requests for input and answers to them during the call.
    marks: Vec<MarkBody>,
}

/// The user or client that made a call.
#[derive(Serialize, ToSchema)]
#[schema(as = CallPrincipal)]
pub struct PrincipalBody {
    /// `client`, `user` or `anonymous`.
    kind: String,
    name: String,
}

/// Something that happened during a call.
#[derive(Serialize, ToSchema)]
#[schema(as = CallMark)]
pub struct MarkBody {
    /// `progress`, `notice` (another message of the server), `input` (the server asks for some) or `answer` (the caller came
    /// back with it).
    kind: String,
    /// Milliseconds since the call arrived.
    at_ms: f64,
}

impl CallBody {
    fn of(record: CallRecord, sees_details: bool) -> Self {
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        Self {
            id: record.id,
            at: time::rfc3339(record.at_ms),
            principal: PrincipalBody { kind: record.principal.kind, name: record.principal.name },
            agent: given(record.agent),
            via: record.via,
            endpoint: record.endpoint,
            method: record.method,
            server: given(record.server),
            name: record.name,
            outcome: record.outcome,
            error: record.error,
            detail: record.detail.filter(|_| sees_details),
            duration_ms: record.duration_ms,
            upstream_ms: record.upstream_ms,
            queue_ms: record.queue_ms,
            input_ms: record.input_ms,
            gateway_ms: record.gateway_ms,
            request_bytes: record.request_bytes,
            response_bytes: record.response_bytes,
            attempts: record.attempts,
            client_era: given(record.client_era),
            server_era: given(record.server_era),
            trace_id: record.trace_id,
            rounds: record.rounds,
            sent_ms: record.sent_ms,
            first_byte_ms: record.first_byte_ms,
            marks: record
                .marks
                .into_iter()
                .map(|mark| MarkBody { kind: mark.kind, at_ms: mark.at_ms })
                .collect(),
        }
    }
}

/// Calls, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = Calls)]
pub struct CallsBody {
    calls: Vec<CallBody>,
    /// The `before` of the next page; `null` if there is none.
    next: Option<String>,
}

/// Lists calls, newest first. Users who are not admins see their own.
#[utoipa::path(get, path = "/api/v0/calls", tag = "calls",
    params(
        ("server" = Option<String>, Query, description = "Only calls to this server"),
        ("name" = Option<String>, Query, description = "Only calls to the tool, prompt or URI with this native name"),
        ("principal" = Option<String>, Query, description = "Only calls of the user or client with this name"),
        ("outcome" = Option<String>, Query, description = "Only calls with this outcome"),
        ("via" = Option<String>, Query, description = "Only calls over `mcp`, `sse`, `rest` or `dashboard`"),
        ("since" = Option<String>, Query, description = "Only calls from this time on, such as 2026-01-31T12:00:00Z"),
        ("until" = Option<String>, Query, description = "Only calls until this time"),
        ("q" = Option<String>, Query, description = "Only calls with this text in a name, agent, endpoint or error"),
        ("limit" = Option<u32>, Query, description = "The most calls to return, up to 1000; 100 if omitted"),
        ("before" = Option<String>, Query, description = "Only calls with smaller ids than this one"),
    ), responses((status = 200, body = CallsBody)))]
pub async fn list(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    query: Query,
) -> HandlerResult<Json<CallsBody>> {
    let filter = filter(&query, &caller)?;
    let mut wanted = filter.clone();
    // One more tells whether there is another page.
    wanted.limit += 1;
    let records = face.gateway.recorder.calls(&wanted).await.map_err(Error::from)?;
    let (records, next) = page(records, filter.limit, |record| record.id.clone());
    let sees_details = sees_all(&caller);
    let calls = records.into_iter().map(|record| CallBody::of(record, sees_details)).collect();
    Ok(Json(CallsBody { calls, next }))
}

/// A call with what was kept of its arguments and its result.
#[derive(Serialize, ToSchema)]
#[schema(as = CallDetails)]
pub struct CallDetailsBody {
    #[serde(flatten)]
    call: CallBody,
    /// Present if `CALL_LOG` was `full`. A text if they were cut after 64 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    arguments: Option<Box<RawValue>>,
    /// The same for the response of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Box<RawValue>>,
}

/// Returns a call.
#[utoipa::path(get, path = "/api/v0/calls/{id}", tag = "calls",
    params(("id" = String, Path, description = "The id of the call")),
    responses((status = 200, body = CallDetailsBody)))]
pub async fn get(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    Name(id): Name,
) -> HandlerResult<Json<CallDetailsBody>> {
    let kept = face.gateway.recorder.call(&id).await.map_err(Error::from)?;
    let own = filter_of(&caller);
    let kept = kept.filter(|kept| own.fits(&kept.record));
    let unknown = || Error::not_found(format!("there is no record of a call {id:?}"));
    let KeptCall { record, arguments, result } = kept.ok_or_else(unknown)?;
    let call = CallBody::of(record, sees_all(&caller));
    Ok(Json(CallDetailsBody { call, arguments: arguments.map(json), result: result.map(json) }))
}

/// JSON as it was, or a text of what is left of it.
fn json(kept: Vec<u8>) -> Box<RawValue> {
    let text = String::from_utf8_lossy(&kept).into_owned();
    let quoted = |text: &str| serde_json::value::to_raw_value(text).expect("a text is JSON");
    serde_json::from_str::<&RawValue>(&text).map_or_else(|_| quoted(&text), ToOwned::to_owned)
}

/// Streams calls as they end, each as an event `call`.
#[utoipa::path(get, path = "/api/v0/calls/stream", tag = "calls",
    params(
        ("server" = Option<String>, Query, description = "Only calls to this server"),
        ("name" = Option<String>, Query, description = "Only calls to the tool, prompt or URI with this native name"),
        ("principal" = Option<String>, Query, description = "Only calls of the user or client with this name"),
        ("outcome" = Option<String>, Query, description = "Only calls with this outcome"),
        ("via" = Option<String>, Query, description = "Only calls over `mcp`, `sse`, `rest` or `dashboard`"),
        ("since" = Option<String>, Query, description = "Only calls from this time on, such as 2026-01-31T12:00:00Z"),
        ("until" = Option<String>, Query, description = "Only calls until this time"),
        ("q" = Option<String>, Query, description = "Only calls with this text in a name, agent, endpoint or error"),
    ), responses((status = 200, content_type = "text/event-stream", body = String)))]
pub async fn stream(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    query: Query,
) -> HandlerResult<Response> {
    let filter = filter(&query, &caller)?;
    let (sees_details, principal) = (sees_all(&caller), caller.0.as_ref().map(Principal::id));
    // Before anything is streamed: a change of the caller's role from now on ends the stream.
    let changes = face.gateway.changes();
    let slot = face.gateway.usage(principal).streams.take(1);
    let slot = slot.map_err(|exceeded| ErrorResponse::too_many_streams(&exceeded))?;
    let mut ended = face.gateway.recorder.watch();
    let (frames, events) = mpsc::channel(EVENT_BACKLOG);
    let closing = face.closing.clone();
    let work = async move {
        let _slot = slot;
        let pass = async {
            loop {
                let record = match ended.recv().await {
                    Ok(record) if filter.fits(&record) => record,
                    // A reader that is too slow misses some; the list has them.
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => continue,
                    Err(broadcast::error::RecvError::Closed) => return,
                };
                if frames.send(event(&record, sees_details)).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = until_other_rights(&face, principal, sees_details, changes) => {}
            _ = closing.run_until_cancelled(pass) => {}
        }
        Bytes::new()
    };
    Ok(SseBody::response(work, events))
}

/// Waits until the principal may see more or less than when the stream began.
async fn until_other_rights(
    face: &Face,
    principal: Option<PrincipalId>,
    sees_details: bool,
    mut changes: watch::Receiver<()>,
) {
    while (face.gateway.disclosure(principal) == Disclosure::Full) == sees_details {
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn event(record: &Arc<CallRecord>, sees_details: bool) -> Bytes {
    let body = CallBody::of(CallRecord::clone(record), sees_details);
    sse::frame(Some("call"), &serde_json::to_vec(&body).expect("a call is JSON"))
}

/// Whether the caller sees the calls of everybody.
fn sees_all(caller: &CurrentPrincipal) -> bool {
    caller.limited_to().is_none()
}

/// What the caller may see.
fn filter_of(caller: &CurrentPrincipal) -> CallFilter {
    CallFilter { owner: caller.limited_to().map(Principal::id), ..CallFilter::default() }
}

fn filter(query: &Query, caller: &CurrentPrincipal) -> Result<CallFilter, ErrorResponse> {
    query.only(&FILTERS)?;
    let own = filter_of(caller);
    let text = |key: &str| query.text(key).unwrap_or_default().to_owned();
    let before = text("before");
    let is_id = before.len() == 24 && before.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_id && !before.is_empty() {
        return Err(FieldError::new("before", "must be the id of a call").into());
    }
    let (since_ms, until_ms) = query.period()?;
    let mut principal = text("principal");
    if let Some(limited) = caller.limited_to()
        && !principal.is_empty()
    {
        if principal != limited.name().as_str() {
            return Err(ErrorResponse::forbidden("users who are not admins see only their own calls"));
        }
        // Also those that they made under another name.
        principal.clear();
    }
    Ok(CallFilter {
        server: text("server"),
        name: text("name"),
        principal,
        owner: own.owner,
        outcome: query.one_of("outcome", &Outcome::ALL.map(Outcome::as_str))?,
        via: query.one_of("via", &Door::ALL.map(Door::as_str))?,
        since_ms,
        until_ms,
        text: text("q"),
        before,
        limit: query.limit()?,
    })
}

/// The name of a principal that is counted by its kind and name.
fn name_of(counted: &str) -> &str {
    counted.split_once('/').map_or(counted, |(_, name)| name)
}

/// How many calls there were, and how long they took.
#[derive(Serialize, ToSchema)]
#[schema(as = Stats)]
pub struct StatsBody {
    /// Those with most calls first.
    rows: Vec<StatsRow>,
    /// All rows together.
    total: StatsTotal,
    /// 60 points, the oldest first.
    series: Vec<StatsPoint>,
}

/// The calls of one server, tool or principal.
#[derive(Serialize, ToSchema)]
pub struct StatsRow {
    /// The name of a server, user or client, or the full name of a tool.
    key: String,
    calls: u64,
    errors: u64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    /// The median of the gateway's own time.
    gateway_p50_ms: f64,
    /// Of requests and responses.
    bytes: u64,
}

/// The calls of all rows together.
#[derive(Serialize, ToSchema)]
pub struct StatsTotal {
    calls: u64,
    errors: u64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
}

/// The calls of a 60th of the window.
#[derive(Serialize, ToSchema)]
pub struct StatsPoint {
    /// When it begins.
    at: String,
    calls: u64,
    errors: u64,
    p50_ms: f64,
    p95_ms: f64,
}

/// Returns statistics of the calls in a window.
#[utoipa::path(get, path = "/api/v0/stats", tag = "calls",
    params(
        ("by" = Option<String>, Query, description = "`server`, `tool` or `principal`; `server` if omitted"),
        ("window" = Option<String>, Query, description = "`1h`, `24h`, `7d` or `30d`; `1h` if omitted"),
        ("server" = Option<String>, Query, description = "Only this server, or only the tools of this server"),
        ("name" = Option<String>, Query, description = "Only the tool with this full name; with `by=tool`"),
        ("principal" = Option<String>, Query, description = "Only this user or client; with `by=principal`"),
    ), responses((status = 200, body = StatsBody)))]
pub async fn stats(State(face): State<Face>, query: Query) -> HandlerResult<Json<StatsBody>> {
    query.only(&["by", "window", "server", "name", "principal"])?;
    let (server, name, principal) = (query.text("server"), query.text("name"), query.text("principal"));
    let kind = match query.text("by") {
        None | Some("server") => CountedKind::Server,
        Some("tool") => CountedKind::Tool,
        Some("principal") => CountedKind::Principal,
        Some(_) => return Err(FieldError::new("by", "must be server, tool or principal").into()),
    };
    let window = query.text("window").map_or(Some(Window::Hour), Window::parse);
    let window = window.ok_or_else(|| FieldError::new("window", "must be 1h, 24h, 7d or 30d"))?;
    let only_with = |key: &str, by: &str| FieldError::new(key, format!("can be given only with by={by}"));
    match kind {
        CountedKind::Principal if server.is_some() => {
            return Err(FieldError::new("server", "cannot be given with by=principal").into());
        }
        CountedKind::Server | CountedKind::Tool if principal.is_some() => {
            return Err(only_with("principal", "principal").into());
        }
        CountedKind::Server | CountedKind::Principal if name.is_some() => {
            return Err(only_with("name", "tool").into());
        }
        CountedKind::Server | CountedKind::Tool | CountedKind::Principal => {}
    }
    let prefix = server.map(|server| format!("{server}__"));
    let fits = |key: &str| match kind {
        CountedKind::Server => server.is_none_or(|server| server == key),
        CountedKind::Tool => {
            prefix.as_deref().is_none_or(|prefix| key.starts_with(prefix))
                && name.is_none_or(|name| name == key)
        }
        CountedKind::Principal => principal.is_none_or(|principal| principal == name_of(key)),
    };
    let stats = face.gateway.recorder.stats(window, kind, fits).await.map_err(Error::from)?;
    let milliseconds = |histogram: &model::Histogram, part: f64| {
        (histogram.quantile(part).as_secs_f64() * 1e6).round() / 1e3
    };
    let mut durations = model::Histogram::default();
    stats.rows.iter().for_each(|(_, sum)| durations.merge(&sum.durations));
    let total = StatsTotal {
        calls: stats.rows.iter().map(|(_, sum)| sum.calls).sum(),
        errors: stats.rows.iter().map(|(_, sum)| sum.errors).sum(),
        p50_ms: milliseconds(&durations, 0.5),
        p95_ms: milliseconds(&durations, 0.95),
        p99_ms: milliseconds(&durations, 0.99),
    };
    let row = |(key, sum): (String, Sum)| StatsRow {
        key: if kind == CountedKind::Principal { name_of(&key).to_owned() } else { key },
        calls: sum.calls,
        errors: sum.errors,
        p50_ms: milliseconds(&sum.durations, 0.5),
        p95_ms: milliseconds(&sum.durations, 0.95),
        p99_ms: milliseconds(&sum.durations, 0.99),
        gateway_p50_ms: milliseconds(&sum.own_times, 0.5),
        bytes: sum.bytes,
    };
    let point = |(at_ms, sum): (i64, Sum)| StatsPoint {
        at: time::rfc3339(at_ms),
        calls: sum.calls,
        errors: sum.errors,
        p50_ms: milliseconds(&sum.durations, 0.5),
        p95_ms: milliseconds(&sum.durations, 0.95),
    };
    Ok(Json(StatsBody {
        rows: stats.rows.into_iter().map(row).collect(),
        total,
        series: stats.series.into_iter().map(point).collect(),
    }))
}
