//! The spans of a call, as the conventions of OpenTelemetry for MCP describe them: one for the call as its caller sees it, and
//! one for each time that it was sent to a server. They exist only while calls are traced. The trace begins with the caller
//! or here, and goes on in the `_meta` of what is sent to the server.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use super::caller::Caller;
use super::catalog::Entry;
use super::trail::{Arrival, CallMethod};
use telemetry::traces::{
    AttributeValue, FinishedSpan, SpanId, SpanKind, TraceContext, Tracer, read_trace_state,
};
use telemetry::{CallId, Outcome};
use upstream::{CallError, Link};
use wire::{Head, Id, Response, Version, meta, text, walk};

type Attributes = Vec<(&'static str, AttributeValue)>;

/// The `error.type` of a result in which a tool reports an error.
const TOOL_ERROR: &str = "tool_error";

/// The span of a call as its caller sees it.
pub(super) struct CallSpan {
    tracer: Arc<Tracer>,
    clock: SpanClock,
    known: Mutex<Known>,
}

/// What is known of it while the call runs.
struct Known {
    context: TraceContext,
    /// The span of the caller.
    parent: Option<TraceContext>,
    state: Option<Arc<str>>,
    /// The span of the HTTP request, if the message names another one.
    link: Option<TraceContext>,
    /// The name that the caller used.
    asked: Option<String>,
    request_id: Option<String>,
    /// The code of the error that the caller got.
    code: Option<i64>,
}

/// The times of the spans of one call, which fit together even if the clock of the system is set meanwhile.
#[derive(Clone, Copy)]
struct SpanClock {
    begun: Instant,
    begun_ns: u64,
}

impl SpanClock {
    fn since(begun: Instant) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { begun, begun_ns: nanoseconds(now.saturating_sub(begun.elapsed())) }
    }

    fn at(&self, moment: Instant) -> u64 {
        self.begun_ns + nanoseconds(moment.saturating_duration_since(self.begun))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What the record of a call knows of it at its end.
pub(super) struct CallFacts<'a> {
    pub id: CallId,
    pub method: CallMethod,
    /// The agent that made the call; `None` for people.
    pub caller: Option<&'a Caller>,
    pub server: &'a str,
    /// The name of the tool or prompt at its server, or the URI.
    pub name: &'a str,
    pub outcome: Outcome,
}

impl CallSpan {
    pub fn begin(tracer: &Arc<Tracer>, arrival: &Arrival) -> Self {
        let known = Known {
            context: tracer.begin(arrival.trace.as_ref()),
            parent: arrival.trace,
            state: arrival.trace_state.clone(),
            link: None,
            asked: None,
            request_id: None,
            code: None,
        };
        Self { tracer: tracer.clone(), clock: SpanClock::since(arrival.at), known: Mutex::new(known) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no code panics while it holds a span")
    }

    /// Takes what an agent's message says. The trace that it names wins over that of the HTTP headers, which may be those of a
    /// request that carries several messages.
    pub fn describe(&self, head: &Head<'_>) {
        let mut known = self.known();
        let asked = head.params.as_ref().and_then(|params| params.name.as_ref().or(params.uri.as_ref()));
        known.asked = asked.map(|asked| asked.value.to_string());
        known.request_id = head.id.as_ref().map(shown_id);
        let Some(said) = head.meta() else { return };
        let context = said.traceparent.as_ref().and_then(|text| TraceContext::parse(&text.value));
        let Some(context) = context else { return };
        known.link = known.parent.replace(context).filter(|header| *header != context);
        known.context = self.tracer.begin(Some(&context));
        let state = walk::member(head.body, &said.span, meta::TRACESTATE);
        let state = state.and_then(|span| text::unescape(&head.body[span]));
        known.state = state.and_then(|state| read_trace_state(&state).map(Arc::from));
    }

    pub fn set_code(&self, code: i64) {
        self.known().code = Some(code);
    }

    pub fn context(&self) -> TraceContext {
        self.known().context
    }

    /// Begins the span of sending the call to a server. `name` is the one that the server knows.
    pub fn attempt(&self, method: CallMethod, entry: &Entry, name: &str, link: &Link) -> Box<AttemptSpan> {
        let (parent, state) = {
            let known = self.known();
            (known.context, known.state.clone())
        };
        let context = self.tracer.child(&parent);
        let mut members = vec![(meta::TRACEPARENT, text::quote(&context.to_string()))];
        members.extend(state.as_ref().map(|state| (meta::TRACESTATE, text::quote(state))));
        let open = context.is_sampled().then(|| {
            let mut attributes = about(method, name);
            attributes.push(("toolgate.server", entry.name().as_str().into()));
            add_version(&mut attributes, link.version());
            attributes.extend(link.session_id().map(|id| ("mcp.session.id", id.into())));
            add_address(&mut attributes, entry);
            let span_name = FinishedSpan::name_of(method.as_str(), target(method, name));
            OpenAttempt {
                tracer: self.tracer.clone(),
                clock: self.clock,
                begun: Instant::now(),
                context,
                parent: parent.span,
                state,
                name: span_name,
                attributes,
                outcome: Outcome::Cancelled,
            }
        });
        Box::new(AttemptSpan { members, open })
    }

    /// Ends the span, with the call.
    pub fn end(&self, facts: &CallFacts<'_>) {
        let ended_ns = self.clock.at(Instant::now());
        let mut known = self.known();
        if !known.context.is_sampled() {
            return;
        }
        let asked = known.asked.take().map_or_else(|| full_name(facts), Cow::Owned);
        let mut attributes = about(facts.method, &asked);
        attributes.extend([
            ("network.transport", "tcp".into()),
            ("network.protocol.name", "http".into()),
            ("toolgate.call.id", facts.id.to_string().as_str().into()),
            ("toolgate.outcome", facts.outcome.as_str().into()),
        ]);
        if !facts.server.is_empty() {
            attributes.push(("toolgate.server", facts.server.into()));
        }
        attributes.extend(known.request_id.take().map(|id| ("jsonrpc.request.id", id.as_str().into())));
        if let Some(caller) = facts.caller {
            add_version(&mut attributes, caller.version);
            let session = caller.arrival.session.as_deref();
            attributes.extend(session.map(|id| ("mcp.session.id", id.into())));
        }
        let is_error = !matches!(facts.outcome, Outcome::Ok | Outcome::Cancelled);
        if is_error {
            let kind = facts.outcome.as_str();
            let code = known.code.filter(|_| facts.outcome != Outcome::ToolError);
            add_error(&mut attributes, code, kind);
        }
        self.tracer.end(FinishedSpan {
            context: known.context,
            parent: known.parent.map(|parent| parent.span),
            is_parent_remote: known.parent.is_some(),
            state: known.state.take(),
            link: known.link,
            kind: SpanKind::Server,
            name: FinishedSpan::name_of(facts.method.as_str(), target(facts.method, &asked)),
            begun_ns: self.clock.begun_ns,
            ended_ns,
            attributes,
            is_error,
        });
    }
}

/// The span of sending a call to a server, which ends when this is dropped.
pub(super) struct AttemptSpan {
    members: Vec<(&'static str, Vec<u8>)>,
    /// `None` if the trace is not sampled: its context is passed on nevertheless.
    open: Option<OpenAttempt>,
}

struct OpenAttempt {
    tracer: Arc<Tracer>,
    clock: SpanClock,
    begun: Instant,
    context: TraceContext,
    parent: SpanId,
    state: Option<Arc<str>>,
    name: String,
    attributes: Attributes,
    outcome: Outcome,
}

impl AttemptSpan {
    /// The members of `_meta` that tell the server which trace the call belongs to, as JSON.
    pub fn members(&self) -> &[(&'static str, Vec<u8>)] {
        &self.members
    }

    /// The server knows the request by this id.
    pub fn sent_as(&mut self, id: u64) {
        if let Some(open) = &mut self.open {
            open.attributes.push(("jsonrpc.request.id", id.to_string().as_str().into()));
        }
    }

    /// The server responded.
    pub fn answered(&mut self, response: &Response) {
        let Some(open) = &mut self.open else { return };
        open.outcome = match (response.is_tool_error(), response.result()) {
            (true, _) => {
                add_error(&mut open.attributes, None, TOOL_ERROR);
                Outcome::ToolError
            }
            (false, Some(_)) => Outcome::Ok,
            (false, None) => {
                let code = response.error().map(|error| error.code);
                add_error(&mut open.attributes, code, Outcome::UpstreamError.as_str());
                Outcome::UpstreamError
            }
        };
    }

    /// There is no response.
    pub fn failed(&mut self, error: &CallError) {
        let Some(open) = &mut self.open else { return };
        let kind: Cow<'_, str> = match error {
            CallError::NotSent(_) => "not_sent".into(),
            CallError::SessionLost(_) => "session_lost".into(),
            CallError::Lost(_) => "response_lost".into(),
            CallError::Unauthorized(_) => "unauthorized".into(),
            CallError::Status { status, .. } => status.to_string().into(),
            CallError::TimedOut(_) => Outcome::TimedOut.as_str().into(),
            CallError::Exceeded(_) | CallError::NoRoom(_) => "limit_exceeded".into(),
        };
        add_error(&mut open.attributes, None, &kind);
        open.outcome = match error {
            CallError::TimedOut(_) => Outcome::TimedOut,
            _ => Outcome::UpstreamError,
        };
    }
}

impl Drop for OpenAttempt {
    fn drop(&mut self) {
        let mut attributes = std::mem::take(&mut self.attributes);
        attributes.push(("toolgate.outcome", self.outcome.as_str().into()));
        self.tracer.end(FinishedSpan {
            context: self.context,
            parent: Some(self.parent),
            is_parent_remote: false,
            state: self.state.take(),
            link: None,
            kind: SpanKind::Client,
            name: std::mem::take(&mut self.name),
            begun_ns: self.clock.at(self.begun),
            ended_ns: self.clock.at(Instant::now()),
            attributes,
            is_error: !matches!(self.outcome, Outcome::Ok | Outcome::Cancelled),
        });
    }
}

/// What the name of a span has besides the method. URIs are too many for that.
fn target(method: CallMethod, name: &str) -> Option<&str> {
    match method {
        CallMethod::Tool | CallMethod::Prompt => Some(name),
        CallMethod::Resource => None,
    }
}

/// The attributes that say what is called.
fn about(method: CallMethod, name: &str) -> Attributes {
    let mut attributes: Attributes = vec![("mcp.method.name", method.as_str().into())];
    let key = match method {
        CallMethod::Tool => {
            attributes.push(("gen_ai.operation.name", "execute_tool".into()));
            "gen_ai.tool.name"
        }
        CallMethod::Prompt => "gen_ai.prompt.name",
        CallMethod::Resource => "mcp.resource.uri",
    };
    if !name.is_empty() {
        attributes.push((key, name.into()));
    }
    attributes
}

fn add_version(attributes: &mut Attributes, version: Option<Version>) {
    attributes.extend(version.map(|version| ("mcp.protocol.version", version.as_str().into())));
}

/// Adds how the server is reached. The path of its URL may have credentials.
fn add_address(attributes: &mut Attributes, entry: &Entry) {
    let Some(endpoint) = entry.registration.config.endpoint() else {
        return attributes.push(("network.transport", "pipe".into()));
    };
    attributes.push(("network.transport", "tcp".into()));
    attributes.push(("network.protocol.name", "http".into()));
    attributes.extend(endpoint.url.host_str().map(|host| ("server.address", host.into())));
    let port = endpoint.url.port_or_known_default();
    attributes.extend(port.map(|port| ("server.port", i64::from(port).into())));
}

/// Adds what went wrong: the code of the error, or else the kind.
fn add_error(attributes: &mut Attributes, code: Option<i64>, kind: &str) {
    let code = code.map(|code| code.to_string());
    attributes.push(("error.type", code.as_deref().unwrap_or(kind).into()));
    attributes.extend(code.map(|code| ("rpc.response.status_code", code.as_str().into())));
}

/// The name by which people call something.
fn full_name<'a>(facts: &CallFacts<'a>) -> Cow<'a, str> {
    match (facts.server, target(facts.method, facts.name)) {
        ("", _) | (_, None) => facts.name.into(),
        (server, Some(name)) => format!("{server}__{name}").into(),
    }
}

/// An id without quotes.
fn shown_id(id: &Id<'_>) -> String {
    match text::unescape(id.raw()) {
        Some(text) => text.into_owned(),
        None => String::from_utf8_lossy(id.raw()).into_owned(),
    }
}
