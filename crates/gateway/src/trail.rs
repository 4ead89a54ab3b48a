//! The trail of a call: what is recorded of it, from the first byte of its request until its answer has been handed to the
//! socket. Whoever takes part in the call holds it; when the last one lets go of it, the call becomes a record. So every call has
//! exactly one, whatever happened to it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::caller::{Caller, Scope};
use super::catalog::Entry;
use super::ending::CalledTool;
use super::principals::Principal;
use super::recorder::{CountKey, Counted, Recorder};
use super::refusal::Refusal;
use super::stopwatch::Spent;
use super::{Error, ErrorKind, Gateway, now_ms};
use model::call_record::CallMark;
use model::{CallRecord, Door, RecordedPrincipal};
use store::{CallRow, CountedKind};
use telemetry::{CallId, Outcome};
use wire::Era;

/// How much is kept of arguments, and of a result.
const CONTENTS: usize = 64 * 1024;
/// How many marks a call may have; later ones are left out.
const MARKS: usize = 100;
/// How much is kept of an error.
const ERROR: usize = 4 * 1024;

/// How a request arrived.
#[derive(Clone)]
pub struct Arrival {
    /// When its first byte did.
    pub at: Instant,
    pub door: Door,
    /// The user or client that sent it.
    pub principal: Option<Principal>,
    /// The trace that its HTTP headers name.
    pub trace: Option<TraceId>,
}

impl Arrival {
    /// A request that arrives at this moment.
    pub fn now(door: Door, principal: Option<Principal>) -> Self {
        Self { at: Instant::now(), door, principal, trace: None }
    }
}

/// The id of a trace, as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(u128);

impl TraceId {
    /// The trace of a `traceparent`.
    pub fn of(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.split('-');
        let (version, trace, parent, _flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |text: &str, length| {
            text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        if !is_hex(version, 2) || version == "ff" || !is_hex(trace, 32) || !is_hex(parent, 16) {
            return None;
        }
        u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0).map(Self)
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

    fn as_str(self) -> &'static str {
        match self {
            CallMethod::Tool => "tools/call",
            CallMethod::Prompt => "prompts/get",
            CallMethod::Resource => "resources/read",
        }
    }
}

/// Where a request came in.
enum Origin {
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
    call: Mutex<Option<EndedCall>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let call = self.call.get_mut().ok().and_then(Option::take);
        if let Some(mut call) = call {
            let now = Instant::now();
            call.total = now.saturating_duration_since(call.origin.arrival().at);
            self.recorder.add(call, now);
        }
    }
}

/// What is known of a call.
pub(super) struct EndedCall {
    id: CallId,
    at_ms: i64,
    origin: Origin,
    /// The trace that the message itself names.
    trace: Option<TraceId>,
    method: CallMethod,
    /// Empty if its session knows it, or nobody does.
    agent: String,
    request_bytes: usize,
    response_bytes: usize,
    entry: Option<Arc<Entry>>,
    called: Option<CalledTool>,
    outcome: Option<Outcome>,
    error: Option<String>,
    detail: Option<String>,
    total: Duration,
    spent: Spent,
    attempts: u32,
    rounds: u32,
    server_era: Option<Era>,
    sent: Option<Instant>,
    heard: Option<Instant>,
    /// Since when it waits for another request of its client, with the input that the server asked for.
    paused: Option<Instant>,
    marks: Vec<(&'static str, Instant)>,
    arguments: Option<Bytes>,
    result: Option<Bytes>,
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
        let Some(method) = CallMethod::of(method).filter(|_| self.recorder.is_on()) else {
            return Trail::default();
        };
        let origin = origin();
        let now_ms = now_ms();
        let id = self.recorder.next_id(now_ms);
        let waited = i64::try_from(origin.arrival().at.elapsed().as_millis()).unwrap_or_default();
        let call = EndedCall {
            id,
            at_ms: now_ms - waited,
            origin,
            trace: None,
            method,
            agent: String::new(),
            request_bytes,
            response_bytes: 0,
            entry: None,
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
        };
        Trail(Some(Arc::new(Held { recorder: self.recorder.clone(), id, call: Mutex::new(Some(call)) })))
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
        Some(trail)
    }
}

impl Trail {
    fn note(&self, note: impl FnOnce(&mut EndedCall)) {
        let Some(held) = &self.0 else { return };
        let mut call: MutexGuard<'_, Option<EndedCall>> =
            held.call.lock().expect("no code panics while it holds a trail");
        if let Some(call) = call.as_mut() {
            note(call);
        }
    }

    /// Whether the request is recorded.
    pub fn is_recorded(&self) -> bool {
        self.0.is_some()
    }

    /// Does some work of the call: lines that are logged meanwhile have its id.
    pub async fn within<T>(&self, work: Pin<&mut impl Future<Output = T>>) -> T {
        match &self.0 {
            Some(held) => held.id.within(work).await,
            None => work.await,
        }
    }

    /// The trace that the message itself names wins over that of the headers.
    pub fn set_trace(&self, traceparent: &str) {
        if let Some(trace) = TraceId::of(traceparent) {
            self.note(|call| call.trace = Some(trace));
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

    /// The name that was asked for, if it leads nowhere.
    pub fn asked_for(&self, name: &str) {
        self.note(|call| {
            call.called.get_or_insert_with(|| CalledTool::Unlisted(name.to_owned()));
        });
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

    /// Notes why a request of a person has no result, if it has none. `name` is what was asked for.
    pub(super) fn settle<T>(&self, name: &str, result: Result<T, Error>) -> Result<T, Error> {
        result.inspect_err(|error| {
            self.asked_for(name);
            self.failed(error);
        })
    }

    /// Records nothing: another gateway does.
    pub fn forget(&self) {
        if let Some(held) = &self.0 {
            *held.call.lock().expect("no code panics while it holds a trail") = None;
        }
    }
}

impl EndedCall {
    fn outcome(&self) -> Outcome {
        self.outcome.unwrap_or(Outcome::Cancelled)
    }

    fn server(&self) -> &str {
        self.entry.as_ref().map_or("", |entry| entry.name().as_str())
    }

    fn name(&self) -> &str {
        match (&self.called, &self.entry) {
            (Some(CalledTool::Listed(position)), Some(entry)) => &entry.tool_at(*position).name,
            (Some(CalledTool::Unlisted(name)), _) => name,
            (Some(CalledTool::Listed(_)), None) | (None, _) => "",
        }
    }

    /// The kind and the name of who made the call.
    fn principal(&self) -> (&'static str, &str) {
        match &self.origin.arrival().principal {
            Some(principal @ Principal::User(_)) => ("user", principal.name().as_str()),
            Some(principal @ Principal::Client(_)) => ("client", principal.name().as_str()),
            None => ("anonymous", "anonymous"),
        }
    }

    /// The gateway's own time: what is left of the whole.
    fn own_time(&self) -> Duration {
        let Spent { queue, upstream, input, .. } = self.spent;
        self.total.saturating_sub(queue + upstream + input)
    }

    /// The call as it is counted.
    pub fn counted(&self) -> Counted {
        Counted {
            is_error: !matches!(self.outcome(), Outcome::Ok | Outcome::Cancelled),
            bytes: (self.request_bytes + self.response_bytes) as u64,
            duration: self.total,
            own_time: self.own_time(),
        }
    }

    /// Calls with the same key are counted under the same names.
    pub fn count_key(&self) -> CountKey {
        let tool = match (self.method, &self.called) {
            (CallMethod::Tool, Some(CalledTool::Listed(position))) => Some(*position),
            _ => None,
        };
        CountKey {
            entry: self.entry.as_ref().map_or(0, |entry| Arc::as_ptr(entry) as usize),
            tool,
            principal: self.origin.arrival().principal.as_ref().map(Principal::id),
        }
    }

    /// What the call is counted under, and the entry that the key depends on. Only names that exist are counted: callers can
    /// invent any number.
    pub fn counted_under(&self) -> (Vec<(CountedKind, String)>, Option<Arc<Entry>>) {
        let (kind, name) = self.principal();
        let mut names = vec![(CountedKind::Principal, format!("{kind}/{name}"))];
        if let Some(entry) = &self.entry {
            names.push((CountedKind::Server, entry.name().to_string()));
            if self.count_key().tool.is_some() {
                names.push((CountedKind::Tool, format!("{}__{}", entry.name(), self.name())));
            }
        }
        (names, self.entry.clone())
    }

    pub fn into_row(self, keeps_contents: bool) -> CallRow {
        let milliseconds = |duration: Duration| (duration.as_secs_f64() * 1e6).round() / 1e3;
        let arrival = self.origin.arrival();
        let since_arrival = |at: Instant| milliseconds(at.saturating_duration_since(arrival.at));
        let (agent, endpoint, era) = match &self.origin {
            Origin::Agent(caller) => {
                let known = || format!("{} {}", caller.client_name, caller.client_version);
                let agent = if self.agent.is_empty() { known() } else { self.agent.clone() };
                (agent.trim().to_owned(), endpoint_of(caller, arrival.door), caller.profile.era)
            }
            Origin::Person { path, .. } => (String::new(), path.to_string(), Era::Modern),
        };
        let is_agent = matches!(self.origin, Origin::Agent(_));
        let era_name = |era: Era| match era {
            Era::Legacy => "legacy",
            Era::Modern => "modern",
        };
        let marks = self
            .marks
            .iter()
            .map(|(kind, at)| CallMark { kind: (*kind).to_owned(), at_ms: since_arrival(*at) });
        let (kind, name) = self.principal();
        let record = CallRecord {
            id: self.id.to_string(),
            at_ms: self.at_ms,
            principal: RecordedPrincipal { kind: kind.to_owned(), name: name.to_owned() },
            agent,
            via: arrival.door.as_str().to_owned(),
            endpoint,
            method: self.method.as_str().to_owned(),
            server: self.server().to_owned(),
            name: self.name().to_owned(),
            outcome: self.outcome().as_str().to_owned(),
            error: self.error.as_deref().map(excerpt),
            detail: self.detail.as_deref().map(excerpt),
            duration_ms: milliseconds(self.total),
            upstream_ms: milliseconds(self.spent.upstream),
            queue_ms: milliseconds(self.spent.queue),
            input_ms: milliseconds(self.spent.input),
            gateway_ms: milliseconds(self.own_time()),
            request_bytes: self.request_bytes as u64,
            response_bytes: self.response_bytes as u64,
            attempts: self.attempts,
            client_era: if is_agent { era_name(era) } else { "" }.to_owned(),
            server_era: self.server_era.map_or("", era_name).to_owned(),
            trace_id: self.trace.or(arrival.trace).map(|TraceId(id)| format!("{id:032x}")),
            rounds: self.rounds,
            sent_ms: self.sent.map(since_arrival),
            first_byte_ms: self.heard.map(since_arrival),
            marks: marks.collect(),
        };
        let kept = |contents: Option<Bytes>| contents.filter(|_| keeps_contents).map(|bytes| bytes.to_vec());
        CallRow { record, arguments: kept(self.arguments), result: kept(self.result) }
    }
}

/// The path of an agent's endpoint.
fn endpoint_of(caller: &Caller, door: Door) -> String {
    let transport = if door == Door::Sse { "sse" } else { "mcp" };
    match &caller.viewer.scope {
        Scope::Everything => format!("/{transport}"),
        Scope::Group(name) => format!("/v0/groups/{name}/{transport}"),
        Scope::Server(name) => format!("/v0/servers/{name}/{transport}"),
        Scope::Link(link) => format!("/v0/servers/{}/{transport}", link.server),
    }
}

/// The beginning of bytes, copied: the whole of them may be large, and waits for the disk.
fn shortened(contents: &Bytes) -> Bytes {
    Bytes::copy_from_slice(&contents[..contents.len().min(CONTENTS)])
}

fn excerpt(text: &str) -> String {
    text[..text.floor_char_boundary(ERROR)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_of_a_valid_traceparent_is_known() {
        let valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(TraceId::of(valid), Some(TraceId(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736)));
        for wrong in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceId::of(wrong), None, "{wrong}");
        }
    }
}
