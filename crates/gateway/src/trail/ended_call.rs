//! What is known of a call when it has ended, as it is counted and recorded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{CallMethod, Origin};
use crate::caller::{Caller, Scope};
use crate::catalog::{Catalog, Entry};
use crate::ending::CalledTool;
use crate::principals::Principal;
use crate::recorder::{CountKey, Counted};
use crate::spans::CallFacts;
use crate::stopwatch::Spent;
use model::call_record::CallMark;
use model::name::SEPARATOR;
use model::{CallRecord, Door, PrincipalId, RecordedPrincipal, Redactor};
use store::{CallRow, CountedKind};
use telemetry::traces::TraceContext;
use telemetry::{CallId, Outcome};
use wire::Era;

/// How much is kept of an error, and of a name that leads nowhere: as much as a URI may have.
const ERROR: usize = 4 * 1024;
const NAME: usize = 8 * 1024;

/// What is known of a call.
pub struct EndedCall {
    pub id: CallId,
    pub at_ms: i64,
    pub origin: Origin,
    /// The trace that the message itself names.
    pub trace: Option<TraceContext>,
    pub method: CallMethod,
    /// Empty if its session knows it, or nobody does.
    pub agent: String,
    pub request_bytes: usize,
    pub response_bytes: usize,
    pub entry: Option<Arc<Entry>>,
    /// The server of a name that leads nowhere.
    pub denied_at: Option<Arc<Entry>>,
    pub called: Option<CalledTool>,
    pub outcome: Option<Outcome>,
    pub error: Option<String>,
    pub detail: Option<String>,
    pub total: Duration,
    pub spent: Spent,
    pub attempts: u32,
    pub rounds: u32,
    pub server_era: Option<Era>,
    pub sent: Option<Instant>,
    pub heard: Option<Instant>,
    /// Since when it waits for another request of its client, with the input that the server asked for.
    pub paused: Option<Instant>,
    pub marks: Vec<(&'static str, Instant)>,
    pub arguments: Option<Bytes>,
    pub result: Option<Bytes>,
}

impl EndedCall {
    pub fn outcome(&self) -> Outcome {
        self.outcome.unwrap_or(Outcome::Cancelled)
    }

    pub fn facts(&self) -> CallFacts<'_> {
        CallFacts {
            id: self.id,
            method: self.method,
            caller: match &self.origin {
                Origin::Agent(caller) => Some(&**caller),
                Origin::Person { .. } => None,
            },
            server: self.server(),
            name: self.name(),
            outcome: self.outcome(),
        }
    }

    /// The user or client that makes the call.
    pub fn principal_id(&self) -> Option<PrincipalId> {
        match &self.origin {
            Origin::Agent(caller) => caller.viewer.principal,
            Origin::Person { arrival, .. } => arrival.principal.as_ref().map(Principal::id),
        }
    }

    /// Notes the name that was asked for, and the server that it seems to belong to.
    pub fn asked_for(&mut self, catalog: &Catalog, name: &str) {
        if self.called.is_some() {
            return;
        }
        let scope = match &self.origin {
            Origin::Agent(caller) => caller.viewer.scope.server(),
            Origin::Person { .. } => None,
        };
        let (server, native) = match scope {
            Some(server) => (server, name),
            None => name.split_once(SEPARATOR).unwrap_or(("", name)),
        };
        self.denied_at = catalog.get(server).cloned();
        let known = if self.denied_at.is_some() { native } else { name };
        let entry = self.denied_at.as_ref().filter(|_| self.method == CallMethod::Tool);
        let listed = entry.and_then(|entry| entry.tool_position(known)).map(CalledTool::Listed);
        let unlisted = || CalledTool::Unlisted(start_of(known, NAME).to_owned());
        self.called = Some(listed.unwrap_or_else(unlisted));
    }

    /// The server that was called, or that would have been.
    fn place(&self) -> Option<&Arc<Entry>> {
        self.entry.as_ref().or(self.denied_at.as_ref())
    }

    fn server(&self) -> &str {
        self.place().map_or("", |entry| entry.name().as_str())
    }

    pub fn name(&self) -> &str {
        match (&self.called, self.place()) {
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
            entry: self.place().map_or(0, |entry| Arc::as_ptr(entry) as usize),
            tool,
            principal: self.origin.arrival().principal.as_ref().map(Principal::id),
        }
    }

    /// What the call is counted under, and the entry that the key depends on. Only names that exist are counted: callers can
    /// invent any number.
    pub fn counted_under(&self) -> (Vec<(CountedKind, String)>, Option<Arc<Entry>>) {
        let (kind, name) = self.principal();
        let mut names = vec![(CountedKind::Principal, format!("{kind}/{name}"))];
        if let Some(entry) = self.place() {
            names.push((CountedKind::Server, entry.name().to_string()));
            if self.count_key().tool.is_some() {
                names.push((CountedKind::Tool, format!("{}__{}", entry.name(), self.name())));
            }
        }
        (names, self.place().cloned())
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
        // Errors are texts of the server, which may quote what it was told.
        let entry = self.entry.as_ref().filter(|_| self.error.is_some() || self.detail.is_some());
        let redactor = entry.map(|entry| Redactor::of(&entry.registration.config));
        let told = |text: &Option<String>| {
            let text = text.as_deref()?;
            Some(redactor.as_ref().map_or_else(|| excerpt(text), |redactor| excerpt(&redactor.redact(text))))
        };
        let (kind, name) = self.principal();
        let record = CallRecord {
            id: self.id.to_string(),
            at_ms: self.at_ms,
            principal: RecordedPrincipal {
                kind: kind.to_owned(),
                name: name.to_owned(),
                id: arrival.principal.as_ref().map_or(0, |principal| principal.id().0),
            },
            agent,
            via: arrival.door.as_str().to_owned(),
            endpoint,
            method: self.method.as_str().to_owned(),
            server: self.server().to_owned(),
            name: self.name().to_owned(),
            outcome: self.outcome().as_str().to_owned(),
            error: told(&self.error),
            detail: told(&self.detail),
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
            trace_id: self.trace.or(arrival.trace).map(|context| context.trace.to_string()),
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

fn excerpt(text: &str) -> String {
    start_of(text, ERROR).to_owned()
}

fn start_of(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
