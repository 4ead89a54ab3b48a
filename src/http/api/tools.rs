//! `/api/v0/tools`: listing, calling, enabling and disabling tools.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::poll_fn;
use std::task::Poll;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::{coverage, entity};
use crate::http::Face;
use crate::http::access::{ChangedBy, CurrentPrincipal};
use crate::http::error::{ErrorResponse, HandlerResult};
use crate::http::extract::{Name, Query};
use crate::http::record::ToolRecord;
use crate::http::reply::{Json, Written};
use crate::http::stream::SseBody;
use crate::http::trail::{Arrived, recorded};
use gateway::ErrorKind;
use gateway::caller::Logs;
use gateway::interview::{Answering, CallEvent, CallListener, PersonsAnswer};
use gateway::trail::Trail;
use gateway::why::{AskedViewer, HiddenTool, Remark, ToolsVisibility, Visibility};
use model::{FieldError, LogLevel};
use wire::{Span, authored, sse, text, walk};

/// How many events are queued for a slow reader; further progress is dropped.
const EVENT_BACKLOG: usize = 64;

/// The result of a tool call. An error that the tool reports is a result, too.
#[derive(ToSchema)]
#[schema(as = ToolResult)]
pub struct ToolResultBody {
    /// Content blocks; each has a `type`, such as `text` or `image`.
    pub content: Vec<Value>,
    /// Whether the tool reports an error.
    #[schema(rename = "isError")]
    pub is_error: bool,
    /// The result as JSON, if the server sent one.
    #[schema(rename = "structuredContent")]
    pub structured_content: Option<Value>,
    /// The `_meta` object of the result, if the server sent one.
    #[schema(rename = "_meta")]
    pub meta: Option<HashMap<String, Value>>,
}

/// Lists the tools of the enabled servers.
#[utoipa::path(get, path = "/api/v0/tools", tag = "tools",
    params(
        ("server" = Option<String>, Query, description = "Lists only what this server offers"),
        ("all" = Option<bool>, Query, description = "Whether to include disabled servers; false if omitted"),
    ), responses((status = 200, body = [ToolRecord])))]
pub async fn list(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    query: Query,
) -> HandlerResult<Response> {
    let (catalog, coverage) = (face.catalog_for(&caller), coverage(&query)?);
    let tools = catalog.covered_tools(&coverage)?;
    Ok(Json(tools.map(|(entry, tool)| ToolRecord::of(entry, tool)).collect::<Vec<_>>()).into_response())
}

/// Returns a tool.
#[utoipa::path(get, path = "/api/v0/tool", tag = "tools",
    params(("name" = String, Query, description = "The full name")),
    responses((status = 200, body = ToolRecord)))]
pub async fn get(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    query: Query,
) -> HandlerResult<Response> {
    let catalog = face.catalog_for(&caller);
    let (entry, tool) = catalog.tool(query.required("name")?)?;
    Ok(Json(ToolRecord::of(entry, tool)).into_response())
}

/// Whether a caller sees a tool or a server, and why not.
#[derive(Serialize, ToSchema)]
pub struct VisibilityBody {
    /// The name that was asked about.
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    visible: bool,
    /// Why it is not visible; empty if it is.
    reasons: Vec<RemarkBody>,
    /// Problems with something that is visible, such as a server that failed.
    warnings: Vec<RemarkBody>,
    /// For the name of a server: its tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<ToolsVisibilityBody>,
}

/// The tools of a server, and which of them the caller does not see.
#[derive(Serialize, ToSchema)]
pub struct ToolsVisibilityBody {
    total: usize,
    visible: usize,
    hidden: Vec<HiddenToolBody>,
}

/// A tool that the caller does not see.
#[derive(Serialize, ToSchema)]
pub struct HiddenToolBody {
    /// The full name.
    name: String,
    reasons: Vec<RemarkBody>,
}

/// One cause.
#[derive(Serialize, ToSchema)]
pub struct RemarkBody {
    /// For programs, such as `tool_disabled`.
    code: &'static str,
    /// For people.
    message: String,
}

impl RemarkBody {
    fn list(remarks: Vec<Remark>) -> Vec<Self> {
        remarks.into_iter().map(|Remark { code, message }| Self { code, message }).collect()
    }
}

impl From<ToolsVisibility> for ToolsVisibilityBody {
    fn from(ToolsVisibility { total, hidden }: ToolsVisibility) -> Self {
        let visible = total - hidden.len();
        let body = |HiddenTool { name, reasons }| HiddenToolBody { name, reasons: RemarkBody::list(reasons) };
        Self { total, visible, hidden: hidden.into_iter().map(body).collect() }
    }
}

/// Returns why a caller sees or does not see a tool or a server.
#[utoipa::path(get, path = "/api/v0/tools/why", tag = "tools",
    params(
        ("name" = String, Query, description = "The full name of a tool, or the name of a server"),
        ("group" = Option<String>, Query, description = "The group whose endpoint the caller uses; if neither it nor `server` is given, the endpoint of all servers"),
        ("server" = Option<String>, Query, description = "The server whose endpoint the caller uses"),
        ("client" = Option<String>, Query, description = "The MCP client; if omitted, a caller that may use all servers"),
    ), responses((status = 200, body = VisibilityBody)))]
pub async fn why(State(face): State<Face>, query: Query) -> HandlerResult<Json<VisibilityBody>> {
    let name = query.required("name")?;
    let (group, server, client) = (query.text("group"), query.text("server"), query.text("client"));
    let answer = face.gateway.why(name, &AskedViewer { group, server, client })?;
    let Visibility { visible, reasons, warnings, tools } = answer;
    Ok(Json(VisibilityBody {
        name: name.to_owned(),
        group: group.map(str::to_owned),
        server: server.map(str::to_owned),
        client: client.map(str::to_owned),
        visible,
        reasons: RemarkBody::list(reasons),
        warnings: RemarkBody::list(warnings),
        tools: tools.map(ToolsVisibilityBody::from),
    }))
}

/// Enables a tool, or all tools of a server, and returns the full names that changed.
#[utoipa::path(post, path = "/api/v0/tools/enable", tag = "tools",
    params(("entity" = Option<String>, Query, description = "A full name, or the name of a server")),
    request_body(content = Option<HashMap<String, String>>, description = "An object with `entity`, unless the query has it"),
    responses((status = 200, body = [String])))]
pub async fn enable(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    query: Query,
    body: Bytes,
) -> HandlerResult<Json<Vec<String>>> {
    Ok(Json(face.gateway.switch_tools(&entity(&query, &body)?, true, &by).await?))
}

/// Disables a tool, or all tools of a server, and returns the full names that changed.
#[utoipa::path(post, path = "/api/v0/tools/disable", tag = "tools",
    params(("entity" = Option<String>, Query, description = "A full name, or the name of a server")),
    request_body(content = Option<HashMap<String, String>>, description = "An object with `entity`, unless the query has it"),
    responses((status = 200, body = [String])))]
pub async fn disable(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    query: Query,
    body: Bytes,
) -> HandlerResult<Json<Vec<String>>> {
    Ok(Json(face.gateway.switch_tools(&entity(&query, &body)?, false, &by).await?))
}

/// Calls a tool. With `Accept: text/event-stream` the response streams progress, other notifications, requests for input,
/// and then the result.
#[utoipa::path(post, path = "/api/v0/tools/invoke", tag = "tools",
    params(
        ("input" = Option<bool>, Query, description = "Whether the caller of an event stream can answer requests for input. If omitted, it can, but a stdio server that would need another process for this is not told so"),
        ("log_level" = Option<String>, Query, description = "The minimum level of log messages in an event stream, such as `info`; if omitted, none are sent"),
    ),
    request_body(content = HashMap<String, Value>, description = "The full name of the tool as `name`, and its arguments"),
    responses((status = 200, body = ToolResultBody)))]
pub async fn invoke(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    arrived: Arrived,
    query: Query,
    headers: HeaderMap,
    body: Bytes,
) -> HandlerResult<Response> {
    let nests = |name: &str| {
        face.catalog_for(&caller).tool(name).is_ok_and(|(_, tool)| tool.takes_name_but_not_arguments())
    };
    let call = InvokeRequest::parse(&body, nests)?;
    let trail = arrived.begin(&face, "tools/call", body.len());
    Ok(recorded(run(face, caller, &query, &headers, call, &trail).await, trail))
}

/// The keys of the requests for input that are still open.
#[derive(Serialize, ToSchema)]
pub struct OpenInput {
    open: Vec<String>,
}

/// Answers requests for input that a call showed in its event stream.
#[utoipa::path(post, path = "/api/v0/tools/invoke/{call}/input", tag = "tools",
    params(("call" = String, Path, description = "The id of the call, from its `input` event")),
    request_body(content = HashMap<String, Value>, description = "An object with `responses`: the answers by key, each a result as MCP defines it, or null to refuse"),
    responses((status = 200, body = OpenInput)))]
pub async fn answer_input(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    Name(call): Name,
    body: Bytes,
) -> HandlerResult<Json<OpenInput>> {
    let open = face.gateway.answer_input(caller.owner(), &call, responses(&body)?).await?;
    Ok(Json(OpenInput { open }))
}

/// The answers in a body, by key and byte for byte.
fn responses(body: &Bytes) -> Result<Vec<PersonsAnswer>, ErrorResponse> {
    let span = walk::whole(body)
        .map_err(|error| ErrorResponse::bad_request(format!("the body is not JSON: {error}")))?;
    let wrong = || FieldError::new("responses", "must be an object: the answers by key");
    let responses = walk::member(body, &span, "responses").filter(|span| body[span.start] == b'{');
    let responses = responses.ok_or_else(wrong)?;
    let answer = |(key, _, value): (Cow<'_, str>, Span, Span)| {
        let answer = (&body[value.clone()] != b"null").then(|| body.slice(value));
        (key.into_owned(), answer)
    };
    Ok(walk::members(body, &responses).map(answer).collect())
}

/// Calls a tool. The response is JSON, or an event stream if the caller accepts one.
pub async fn run(
    face: Face,
    caller: CurrentPrincipal,
    query: &Query,
    headers: &HeaderMap,
    call: InvokeRequest,
    trail: &Trail,
) -> HandlerResult<Response> {
    if !wants_events(headers) {
        let result = face.gateway.invoke(caller.owner(), &call.name, &call.arguments, None, trail).await?;
        return Ok(Written(result.to_json()).into_response());
    }
    // Errors in the request itself get a status code, which is possible only before the stream begins.
    face.gateway.check_callable(caller.owner(), &call.name, trail)?;
    face.gateway.check_home_of_call(caller.owner(), &call.name).await?;
    let answers = match (query.text("input"), query.flag("input")?) {
        (None, _) => Answering::WhenAsked,
        (Some(_), true) => Answering::Declared,
        (Some(_), false) => Answering::Never,
    };
    let (sender, mut events) = mpsc::channel(EVENT_BACKLOG);
    let (frames, notices) = mpsc::channel(EVENT_BACKLOG);
    let unknown = || FieldError::new("log_level", "must be a level of MCP, from debug to emergency");
    let logs = match query.text("log_level") {
        None => Logs::None,
        Some(level) => Logs::From(LogLevel::parse(level).ok_or_else(unknown)?),
    };
    let listener = CallListener { events: sender, answers, logs };
    let (running, recorded) = (trail.clone(), trail.clone());
    let mut invoked = Box::pin(async move {
        face.gateway.invoke(caller.owner(), &call.name, &call.arguments, Some(listener), &running).await
    });
    // Most limits refuse a call when it begins.
    let mut ended = match poll_fn(|context| Poll::Ready(invoked.as_mut().poll(context))).await {
        Poll::Ready(Err(error)) if error.kind == ErrorKind::Throttled => return Err(error.into()),
        Poll::Ready(ended) => Some(ended),
        Poll::Pending => None,
    };
    let work = async move {
        let invoked = loop {
            if let Some(ended) = ended.take() {
                break ended;
            }
            tokio::select! {
                biased;
                Some(event) = events.recv() => pass(event, &frames).await,
                invoked = &mut invoked => ended = Some(invoked),
            }
        };
        // The last events may have arrived together with the result.
        while let Ok(event) = events.try_recv() {
            pass(event, &frames).await;
        }
        let last = match invoked {
            Ok(result) => sse::frame(Some("result"), &result.to_json()),
            Err(error) => {
                let error = text::quote(&error.to_string());
                sse::frame(Some("error"), &authored::object(&[("error", &error)]))
            }
        };
        recorded.answered(last.len());
        last
    };
    Ok(SseBody::response(work, notices))
}

/// Passes an event on to the reader of the stream. Notices may be dropped, a request for input may not.
async fn pass(event: CallEvent, frames: &mpsc::Sender<Bytes>) {
    match event {
        CallEvent::Progress(params) => drop(frames.try_send(sse::frame(Some("progress"), &params))),
        CallEvent::Notification(notice) => drop(frames.try_send(sse::frame(Some("notification"), &notice))),
        CallEvent::Input(requests) => drop(frames.send(sse::frame(Some("input"), &requests)).await),
    }
}

fn wants_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|part| {
        part.split(';').next().is_some_and(|media| media.trim().eq_ignore_ascii_case("text/event-stream"))
    })
}

/// The name of a tool and its arguments, in the bytes of the request.
pub struct InvokeRequest {
    pub name: String,
    pub arguments: Vec<u8>,
}

impl InvokeRequest {
    /// Parses a body with `name` and the arguments beside it. `nests` tells whether the arguments of a tool may be
    /// nested under `arguments` instead, because one of them is called `name`.
    pub fn parse(body: &[u8], nests: impl FnOnce(&str) -> bool) -> Result<Self, ErrorResponse> {
        let span = walk::whole(body)
            .map_err(|error| ErrorResponse::bad_request(format!("the body is not JSON: {error}")))?;
        if body.get(span.start) != Some(&b'{') {
            return Err(ErrorResponse::bad_request("the body must be a JSON object"));
        }
        let (mut name, mut rest) = (None, Vec::new());
        for (key, key_span, value_span) in walk::members(body, &span) {
            if key != "name" {
                rest.push((key, key_span, value_span));
            } else if name.replace(value_span).is_some() {
                return Err(FieldError::new("name", "is given twice").into());
            }
        }
        let name = name.ok_or_else(|| FieldError::new("name", "is required: the full name of a tool"))?;
        let name = text::unescape(&body[name]).ok_or_else(|| FieldError::new("name", "must be a string"))?;
        if let [(key, _, value)] = rest.as_slice()
            && key == "arguments"
            && body[value.start] == b'{'
            && nests(&name)
        {
            return Ok(Self { arguments: body[value.clone()].to_vec(), name: name.into_owned() });
        }
        let mut arguments = vec![b'{'];
        for (_, key, value) in rest {
            if arguments.len() > 1 {
                arguments.push(b',');
            }
            arguments.extend_from_slice(&body[key]);
            arguments.push(b':');
            arguments.extend_from_slice(&body[value]);
        }
        arguments.push(b'}');
        Ok(Self { name: name.into_owned(), arguments })
    }
}
