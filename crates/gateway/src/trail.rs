//! The trail of a call: what is recorded of it, from the first byte of its request until its answer has been handed to the
//! socket. Whoever takes part in the call holds it; when the last one lets go of it, the call becomes a record. So every call has
//! exactly one, whatever happened to it.

mod ended_call;

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::caller::Caller;
use super::catalog::Entry;
use super::ending::CalledTool;
use super::principals::Principal;
use super::recorder::Recorder;
use super::refusal::Refusal;
use super::spans::{AttemptSpan, CallSpan};
use super::stopwatch::Spent;
use super::{Error, ErrorKind, Gateway, now_ms};
use model::Door;
use telemetry::traces::{TraceContext, read_trace_state};
use telemetry::{CallId, Entered, Outcome};
use upstream::Link;
use wire::{Era, Head};

pub(super) use ended_call::EndedCall;

/// How much is kept of arguments, and of a result.
const CONTENTS: usize = 64 * 1024;
/// How many marks a call may have; later ones are left out.
const MARKS: usize = 100;

/// How a request arrived.
#[derive(Clone)]
pub struct Arrival {
    /// When its first byte did.
    pub at: Instant,
    pub door: Door,
    /// The user or client that sent it.
    pub principal: Option<Principal>,
    /// The trace that its HTTP headers name.
    pub trace: Option<TraceContext>,
    /// The `tracestate` beside it.
    pub trace_state: Option<Arc<str>>,
    /// The id of the MCP session, if calls are traced.
    pub session: Option<Arc<str>>,
}

impl Arrival {
    /// A request whose first byte arrived at this moment.
    pub fn new(at: Instant, door: Door, principal: Option<Principal>) -> Self {
        Self { at, door, principal, trace: None, trace_state: None, session: None }
    }

    /// A request that arrives now.
    pub fn now(door: Door, principal: Option<Principal>) -> Self {
        Self::new(Instant::now(), door, principal)
    }

    /// The same with the trace that the HTTP headers name.
    pub fn in_trace(self, traceparent: Option<&str>, tracestate: Option<&str>) -> Self {
        let trace = traceparent.and_then(TraceContext::parse);
        let state = tracestate.filter(|_| trace.is_some()).and_then(read_trace_state);
        Self { trace, trace_state: state.map(Arc::from), ..self }
    }
}

/// The requests that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallMethod {
    Tool,
    Prompt,
    Resource,
}

impl CallMethod {
    pub fn of(method: &str) -> Option<Self> {
        match method {
            "tools/call" => Some(CallMethod::Tool),
            "prompts/get" => Some(CallMethod::Prompt),
            "resources/read" => Some(CallMethod::Resource),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            CallMethod::Tool => "tools/call",
            CallMethod::Prompt => "prompts/get",
            CallMethod::Resource => "resources/read",
        }
    }
}

/// Where a request came in.
pub(super) enum Origin {
    Agent(Arc<Caller>),
    /// A person, at this path of the REST API or of the dashboard.
    Person {
        arrival: Arrival,
        path: Box<str>,
    },
}

impl Origin {
    fn arrival(&self) -> &Arrival {
        match self {
            Origin::Agent(caller) => &caller.arrival,
            Origin::Person { arrival, .. } => arrival,
        }
    }
}

/// The trail of one call; empty for requests that are not recorded.
#[derive(Clone, Default)]
pub struct Trail(Option<Arc<Held>>);

struct Held {
    recorder: Arc<Recorder>,
    id: CallId,
    /// Boxed, since it is large and moved.
    call: Mutex<Option<Box<EndedCall>>>,
    /// `None` if calls are not traced.
    span: Option<Box<CallSpan>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let call = self.call.get_mut().ok().and_then(Option::take);
        if let Some(mut call) = call {
            let now = Instant::now();
            call.total = now.saturating_duration_since(call.origin.arrival().at);
            if let Some(span) = &self.span {
                span.end(&call.facts());
            }
            self.recorder.add(call, now);
        }
    }
}

/// How the engine ended a call.
pub(super) struct Ended {
    pub entry: Option<Arc<Entry>>,
    pub called: Option<CalledTool>,
    pub outcome: Outcome,
    pub reason: Option<String>,
    pub spent: Spent,
    pub attempts: u32,
    pub rounds: u32,
    pub server_era: Option<Era>,
    pub sent: Option<Instant>,
    pub heard: Option<Instant>,
}

impl Gateway {
    /// Whether calls are traced.
    pub fn is_traced(&self) -> bool {
        self.tracer.is_some()
    }

    /// Begins the trail of an agent's request.
    pub fn trail_of_agent(&self, caller: &Arc<Caller>, method: &str, request_bytes: usize) -> Trail {
        // The gateway of a link records the calls of its callers.
        if caller.viewer.scope.link().is_some() {
            return Trail::default();
        }
        self.begin_trail(method, || Origin::Agent(caller.clone()), request_bytes)
    }

    /// Begins the trail of a person's request.
    pub fn trail_of_person(&self, method: &str, arrival: Arrival, path: &str, request_bytes: usize) -> Trail {
        self.begin_trail(method, || Origin::Person { arrival, path: path.into() }, request_bytes)
    }

    fn begin_trail(&self, method: &str, origin: impl FnOnce() -> Origin, request_bytes: usize) -> Trail {
        let is_kept = self.recorder.is_on() || self.tracer.is_some();
        let Some(method) = CallMethod::of(method).filter(|_| is_kept) else {
            return Trail::default();
        };
        let origin = origin();
        let span = self.tracer.as_ref().map(|tracer| Box::new(CallSpan::begin(tracer, origin.arrival())));
        let now_ms = now_ms();
        let id = self.recorder.next_id(now_ms);
        let waited = i64::try_from(origin.arrival().at.elapsed().as_millis()).unwrap_or_default();
        let mut call = Box::new(EndedCall {
            id,
            at_ms: now_ms - waited,
            origin,
            trace: None,
            method,
            agent: String::new(),
            request_bytes,
            response_bytes: 0,
            entry: None,
            denied_at: None,
            called: None,
            outcome: None,
            error: None,
            detail: None,
            total: Duration::ZERO,
            spent: Spent::default(),
            attempts: 0,
            rounds: 0,
            server_era: None,
            sent: None,
            heard: None,
            paused: None,
            marks: Vec::new(),
            arguments: None,
            result: None,
        });
        if let Some(span) = &span {
            call.trace = Some(span.context());
        }
        let (recorder, call) = (self.recorder.clone(), Mutex::new(Some(call)));
        Trail(Some(Arc::new(Held { recorder, id, call, span })))
    }

    /// Notes the name that was asked for, if it leads nowhere.
    pub fn note_asked(&self, trail: &Trail, name: &str) {
        trail.note(|call| call.asked_for(&self.catalog_seen_by(call.principal_id()), name));
    }

    /// Notes why a request of a person has no result, if it has none. `name` is what was asked for.
    pub(super) fn settle_trail<T>(
        &self,
        trail: &Trail,
        name: &str,
        result: Result<T, Error>,
    ) -> Result<T, Error> {
        result.inspect_err(|error| {
            self.note_asked(trail, name);
            trail.failed(error);
        })
    }

    /// The call waits until its client sends its request again, with the input that a modern server asked for. The key
    /// is what both requests have in common.
    pub fn pause_trail(&self, key: impl FnOnce() -> Vec<u8>, trail: &Trail) {
        if trail.is_recorded() {
            trail.note(|call| {
                call.paused = Some(Instant::now());
                call.rounds += 1;
            });
            trail.mark(|| "input");
            self.recorder.pause(key(), trail.clone(), self.budgets().limits.answer_time);
        }
    }

    /// The trail of the call that goes on with a request of so many bytes, if it waits here.
    pub fn resume_trail(&self, key: &[u8], request_bytes: usize) -> Option<Trail> {
        let trail = self.recorder.resume(key)?;
        trail.note(|call| {
            let waited = call.paused.take().map_or(Duration::ZERO, |since| since.elapsed());
            call.spent.input += waited;
            call.request_bytes += request_bytes;
        });
        trail.mark(|| "answer");
        Some(trail)
    }
}

impl Trail {
    fn note(&self, note: impl FnOnce(&mut EndedCall)) {
        let Some(held) = &self.0 else { return };
        let mut call: MutexGuard<'_, Option<Box<EndedCall>>> =
            held.call.lock().expect("no code panics while it holds a trail");
        if let Some(call) = call.as_mut() {
            note(call);
        }
    }

    /// Whether the request is recorded.
    pub fn is_recorded(&self) -> bool {
        self.0.is_some()
    }

    /// Lines that are logged until the end of the returned value have the id of the call.
    pub(super) fn enter(&self) -> Option<Entered> {
        self.0.as_ref().map(|held| held.id.enter())
    }

    /// Does some work of the call: lines that are logged meanwhile have its id.
    pub async fn within<T>(&self, work: Pin<&mut impl Future<Output = T>>) -> T {
        match &self.0 {
            Some(held) => held.id.within(work).await,
            None => work.await,
        }
    }

    /// Takes what the message of an agent says about its trace, which wins over what the headers say.
    pub fn set_trace(&self, head: &Head<'_>) {
        if let Some(span) = self.span() {
            span.describe(head);
            let trace = span.context();
            return self.note(|call| call.trace = Some(trace));
        }
        let named = head.meta().and_then(|meta| meta.traceparent.as_ref());
        if let Some(trace) = named.and_then(|text| TraceContext::parse(&text.value)) {
            self.note(|call| call.trace = Some(trace));
        }
    }

    fn span(&self) -> Option<&CallSpan> {
        self.0.as_ref()?.span.as_deref()
    }

    /// Begins the span of sending the call to a server, if calls are traced. `tool` is the tool that is called, if it is one.
    pub(super) fn begin_attempt(
        &self,
        entry: &Entry,
        tool: Option<&str>,
        link: &Link,
    ) -> Option<Box<AttemptSpan>> {
        let span = self.span()?;
        let mut begun = None;
        self.note(|call| {
            begun = Some(span.attempt(call.method, entry, tool.unwrap_or(call.name()), link));
        });
        begun
    }

    /// The caller got an error with this code.
    pub fn set_code(&self, code: i64) {
        if let Some(span) = self.span() {
            span.set_code(code);
        }
    }

    /// The name and version that a client gives itself in its request.
    pub fn set_agent(&self, agent: impl FnOnce() -> String) {
        self.note(|call| call.agent = agent());
    }

    /// The server that gets the request, and what is called there.
    pub fn found(&self, entry: &Arc<Entry>, called: CalledTool) {
        self.note(|call| (call.entry, call.called) = (Some(entry.clone()), Some(called)));
    }

    /// Keeps the arguments, if arguments are kept.
    pub fn keep_arguments(&self, arguments: impl FnOnce() -> Bytes) {
        if self.0.as_ref().is_some_and(|held| held.recorder.keeps_contents()) {
            self.note(|call| call.arguments = Some(shortened(&arguments())));
        }
    }

    /// Keeps the result, if results are kept.
    pub fn keep_result(&self, result: impl FnOnce() -> Bytes) {
        if self.0.as_ref().is_some_and(|held| held.recorder.keeps_contents()) {
            self.note(|call| call.result = Some(shortened(&result())));
        }
    }

    /// Something happened, such as progress.
    pub fn mark(&self, kind: impl FnOnce() -> &'static str) {
        self.note(|call| {
            if call.marks.len() < MARKS {
                call.marks.push((kind(), Instant::now()));
            }
        });
    }

    /// The engine has ended the call, or a round of it.
    pub(super) fn end(&self, ended: Ended) {
        self.note(|call| {
            call.entry = ended.entry.or(call.entry.take());
            call.called = ended.called.or(call.called.take());
            // A client that does not come back has given its call up.
            call.outcome = Some(ended.outcome).filter(|_| call.paused.is_none());
            call.detail = ended.reason;
            call.spent += ended.spent;
            call.attempts += ended.attempts;
            call.rounds += ended.rounds;
            call.server_era = ended.server_era.or(call.server_era);
            (call.sent, call.heard) = (ended.sent.or(call.sent), ended.heard.or(call.heard));
        });
    }

    /// Its client did not come back in time.
    pub(super) fn abandon(&self) {
        self.note(|call| call.outcome = Some(Outcome::TimedOut));
    }

    /// The caller got this many bytes.
    pub fn answered(&self, bytes: usize) {
        self.note(|call| call.response_bytes += bytes);
    }

    /// The caller was told this error.
    pub fn told(&self, error: impl FnOnce() -> String) {
        self.note(|call| call.error = Some(error()));
    }

    /// The request of an agent was refused.
    pub fn refused(&self, refusal: &Refusal) {
        self.note(|call| {
            if let (Some(span), Origin::Agent(caller)) = (self.span(), &call.origin) {
                span.set_code(refusal.code(caller.profile.era));
            }
            call.error = Some(refusal.to_string());
            call.outcome.get_or_insert(match refusal {
                Refusal::Throttled(_) => Outcome::Limited,
                Refusal::Revoked => Outcome::Cancelled,
                Refusal::Upstream(_) | Refusal::Rpc { .. } => Outcome::UpstreamError,
                Refusal::UnknownMethod(_)
                | Refusal::Invalid(_)
                | Refusal::UnknownTool(_)
                | Refusal::UnknownPrompt(_)
                | Refusal::UnknownResource(_)
                | Refusal::UnknownTask(_)
                | Refusal::MissingCapability(_)
                | Refusal::MissingExtension(_) => Outcome::Denied,
            });
        });
    }

    /// The request of a person was refused.
    fn failed(&self, error: &Error) {
        // Another gateway records it.
        if let ErrorKind::Elsewhere(_) = error.kind {
            return self.forget();
        }
        self.note(|call| {
            call.error = Some(error.to_string());
            call.outcome.get_or_insert(match error.kind {
                ErrorKind::Throttled => Outcome::Limited,
                ErrorKind::Upstream => Outcome::UpstreamError,
                _ => Outcome::Denied,
            });
        });
    }

    /// The request was refused before anything else was noted.
    pub fn refuse(&self, error: impl FnOnce() -> String) {
        self.note(|call| {
            call.error.get_or_insert_with(error);
            call.outcome.get_or_insert(Outcome::Denied);
        });
    }

    /// Records nothing: another gateway does.
    pub fn forget(&self) {
        if let Some(held) = &self.0 {
            *held.call.lock().expect("no code panics while it holds a trail") = None;
        }
    }
}

/// The beginning of bytes, copied: the whole of them may be large, and waits for the disk.
fn shortened(contents: &Bytes) -> Bytes {
    Bytes::copy_from_slice(&contents[..contents.len().min(CONTENTS)])
}
