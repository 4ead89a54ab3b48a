//! Requests over a link: sets their ids and the `_meta` of the server's era, and sends them. An exchange receives what
//! comes back.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::CLIENT;
use super::calls::Purpose;
use super::error::CallError;
use super::exchange::Exchange;
use super::link::{Carrier, Link, TELLING};
use model::{Capabilities, LogLevel};
use wire::authored::ClientInfo;
use wire::headers::{self, RoutingValues};
use wire::text::quote;
use wire::{Era, Head, Patch, Span, Text, Version, authored, meta, text, walk};

/// A request that the gateway writes itself.
pub struct LinkRequest<'a> {
    pub method: &'a str,
    /// The members of `params` besides `_meta`, values as JSON.
    pub params: &'a [(&'a str, &'a [u8])],
    /// The client capabilities that a modern server is told, as JSON.
    pub capabilities: &'a [u8],
    /// Whether the caller wants progress notices.
    pub progress: bool,
    /// The lowest level of log messages that a modern server is asked for.
    pub log_level: Option<LogLevel>,
    pub purpose: Purpose,
    /// The members of `_meta` that name its trace, values as JSON; none if it is not traced.
    pub trace: &'a [(&'static str, Vec<u8>)],
}

/// What is changed in a message that is forwarded, besides what depends on the link.
pub struct Additions<'a> {
    /// Parts of the message, and what replaces them.
    pub edits: &'a [(Span, Vec<u8>)],
    /// Members of `params` that a modern server asked for and a legacy caller cannot write.
    pub round: &'a [(&'static str, Vec<u8>)],
    /// The members of `_meta` that name the trace of the call, in place of the caller's; none if it is not traced.
    pub trace: &'a [(&'static str, Vec<u8>)],
}

impl<'a> Additions<'a> {
    /// The members that name the trace.
    fn trace(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.trace.iter().map(|(key, value)| (*key, value.as_slice()))
    }

    /// Whether a member of the caller's `_meta` is about another span than the one that the server is told.
    fn is_outdated(&self, key: &str) -> bool {
        !self.trace.is_empty() && key == meta::TRACESTATE
    }
}

/// The kind of client on whose behalf a message is forwarded.
pub enum OnBehalf<'a> {
    /// A client with a handshake. A modern server gets these fields with every request.
    Legacy {
        capabilities: &'a Capabilities,
        client_name: &'a str,
        client_version: &'a str,
        log_level: Option<LogLevel>,
    },
    /// A client whose requests carry these fields themselves.
    Modern,
}

impl Link {
    pub async fn request(self: &Arc<Self>, request: LinkRequest<'_>) -> Result<Exchange, CallError> {
        let id = self.calls.next_id();
        let params = self.params_of(&request, id);
        let body = authored::request(id, request.method, Some(&params));
        self.send(id, body, self.version(), request.purpose, None).await
    }

    /// Forwards a caller's request: with the link's own id and progress token, with the given additions, and with the
    /// `_meta` of the server's era. Everything else stays as the caller wrote it.
    pub async fn forward(
        self: &Arc<Self>,
        head: &Head<'_>,
        additions: &Additions<'_>,
        behalf: &OnBehalf<'_>,
        purpose: Purpose,
    ) -> Result<Exchange, CallError> {
        let (id, edits) = (self.calls.next_id(), additions.edits);
        let number = id.to_string();
        let mut patch = Patch::new(head.body);
        if let Some(of) = &head.id {
            patch.replace(of.span.clone(), number.as_bytes());
        }
        // A legacy server gets no state, which may be that of a server that was modern before.
        let is_crossing = self.era() == Era::Legacy && matches!(behalf, OnBehalf::Modern);
        let state = head.params.as_ref().and_then(|params| params.request_state.as_ref());
        let state = state.filter(|_| is_crossing).map(|state| &state.span);
        for (span, with) in edits.iter().filter(|(span, _)| Some(span) != state) {
            patch.replace(span.clone(), with.as_slice());
        }
        let token = head.meta().and_then(|meta| meta.progress_token.as_ref());
        match (self.era(), behalf) {
            (Era::Modern, OnBehalf::Legacy { .. }) => {
                mark_modern(&mut patch, head, additions, behalf, token.map(|_| id))
            }
            (Era::Legacy, OnBehalf::Modern) => {
                unmark_modern(&mut patch, head, additions, token.map(|_| number.as_bytes()))
            }
            (Era::Legacy, OnBehalf::Legacy { .. }) | (Era::Modern, OnBehalf::Modern)
                if !additions.trace.is_empty() =>
            {
                mark_trace(&mut patch, head, additions, token.map(|_| number.as_bytes()));
            }
            (Era::Legacy, OnBehalf::Legacy { .. }) | (Era::Modern, OnBehalf::Modern) => {
                if let Some(token) = token {
                    patch.replace(token.span.clone(), number.as_bytes());
                }
            }
        }
        let body = patch.apply();
        if let Some(task) = awaited_task(head, edits) {
            self.calls.awaits_task(id, &task);
        }
        let name = headers::routed_text(head).and_then(|name| as_sent(name, edits));
        let routing = RoutingValues { method: head.method.as_deref().unwrap_or_default(), name };
        self.send(id, body, self.version(), purpose, Some(&routing)).await
    }

    /// Sends a message that already carries `id`, with the given revision (`None` before the handshake). `routing` is
    /// what a modern message repeats in its headers, if it is known.
    pub(super) async fn send(
        self: &Arc<Self>,
        id: u64,
        body: Bytes,
        version: Option<Version>,
        purpose: Purpose,
        routing: Option<&RoutingValues<'_>>,
    ) -> Result<Exchange, CallError> {
        let ticket = self.calls.begin(id, purpose)?;
        // Built before sending: if this future is dropped half-way, the call is still cancelled and deregistered.
        let mut exchange =
            Exchange { link: self.clone(), id, ticket, stream: None, version, answered: false };
        let sent = match &self.carrier {
            Carrier::Stdio(child) => child.send(body).await,
            Carrier::Sse(stream) => stream.send(body).await,
            Carrier::Http(http) => {
                let params = self.header_params.load();
                // This waits for a plain JSON answer, and must notice when the link is lost meanwhile.
                tokio::select! {
                    biased;
                    sent = http.send(body, version, routing, &params) => {
                        sent.map(|stream| exchange.stream = Some(stream))
                    }
                    () = exchange.ticket.settled() => Ok(()),
                }
            }
        };
        // Refused with an HTTP status: the server may have been replaced by another one, perhaps of another era.
        if version.is_some() && version == self.version() && exchange.is_refused(&sent) {
            self.calls.signals.doubt();
        }
        if let Err(error) = sent {
            exchange.answered = true;
            return Err(error);
        }
        Ok(exchange)
    }

    /// Sends a request in the background and ignores its result.
    pub(super) fn ask_in_passing(self: &Arc<Self>, method: &'static str, params: &[(&str, &[u8])]) {
        let (link, body, stop) = (self.clone(), authored::object(params), self.stop.clone());
        let ask = async move { link.ask(method, &body).await };
        self.tasks.spawn(async move { stop.run_until_cancelled(ask).await });
    }

    /// Sends a request and ignores its result.
    async fn ask(self: &Arc<Self>, method: &'static str, params: &[u8]) {
        let id = self.calls.next_id();
        let body = authored::request(id, method, Some(params));
        let asked = self.send(id, body, self.version(), Purpose::OurOwn, None).await;
        if let Err(error) = async { asked?.answer(Some(TELLING)).await }.await {
            tracing::debug!(method, reason = error.kind(), "a request to a server failed");
        }
    }

    /// Sets the log level of a legacy upstream.
    pub(super) async fn set_level(self: &Arc<Self>, level: LogLevel) {
        *self.level.lock().expect("no code panics while it holds the level") = Some(level);
        self.ask("logging/setLevel", &authored::object(&[("level", &quote(level.as_str()))])).await;
    }

    /// Makes sure that a legacy upstream sends log messages of this level, before the next request is sent.
    pub async fn raise_level(self: &Arc<Self>, level: LogLevel) {
        let told = *self.level.lock().expect("no code panics while it holds the level");
        if !self.is_modern() && told.is_none_or(|told| told > level) {
            self.set_level(level).await;
        }
    }

    fn params_of(&self, request: &LinkRequest<'_>, id: u64) -> Vec<u8> {
        let token = request.progress.then_some(id);
        let meta = match (self.era(), token) {
            (Era::Modern, token) => Some(modern_meta(request.capabilities, token, request.log_level)),
            (Era::Legacy, Some(token)) => Some(format!(r#"{{"progressToken":{token}}}"#).into_bytes()),
            (Era::Legacy, None) if request.trace.is_empty() => None,
            (Era::Legacy, None) => Some(b"{}".to_vec()),
        };
        let meta = meta.map(|meta| match request.trace.is_empty() {
            true => meta,
            false => {
                let trace: Vec<_> =
                    request.trace.iter().map(|(key, value)| (*key, value.as_slice())).collect();
                let mut patch = Patch::new(&meta);
                patch.edit_members(&(0..meta.len()), |_| false, &trace);
                patch.apply().to_vec()
            }
        });
        let mut members = request.params.to_vec();
        members.extend(meta.as_deref().map(|meta| ("_meta", meta)));
        authored::object(&members)
    }
}

/// The task whose result a request waits for, under the id that the server knows.
fn awaited_task<'a>(head: &'a Head<'_>, edits: &'a [(Span, Vec<u8>)]) -> Option<Cow<'a, str>> {
    let params = head.params.as_ref().filter(|_| head.method.as_deref() == Some("tasks/result"))?;
    as_sent(params.task_id.as_ref()?, edits)
}

/// A text of the message after the edits.
fn as_sent<'a>(text: &'a Text<'_>, edits: &'a [(Span, Vec<u8>)]) -> Option<Cow<'a, str>> {
    match edits.iter().find(|(span, _)| *span == text.span) {
        Some((_, edited)) => text::unescape(edited),
        None => Some(Cow::Borrowed(text.as_str())),
    }
}

/// Adds to a legacy client's request the `_meta` that a modern server requires.
fn mark_modern(
    patch: &mut Patch<'_>,
    head: &Head<'_>,
    additions: &Additions<'_>,
    behalf: &OnBehalf<'_>,
    token: Option<u64>,
) {
    let OnBehalf::Legacy { capabilities, client_name, client_version, log_level } = *behalf else { return };
    let client = match client_name.is_empty() {
        true => CLIENT,
        false => ClientInfo { name: client_name, version: client_version },
    };
    let capabilities = capabilities.to_json();
    let marks =
        authored::modern_meta(Version::MODERN, client, &capabilities, token, log_level.map(LogLevel::as_str));
    let mut set: Vec<(&str, &[u8])> =
        additions.round.iter().map(|(key, value)| (*key, value.as_slice())).collect();
    let whole = 0..marks.len();
    let members: Vec<_> = match head.meta().is_some() || !additions.trace.is_empty() {
        true => walk::members(&marks, &whole).collect(),
        false => Vec::new(),
    };
    let marked = members.iter().map(|(key, _, value)| (&**key, &marks[value.clone()]));
    let marked: Vec<_> = marked.chain(additions.trace()).collect();
    let with_trace;
    match head.meta() {
        Some(present) => drop(patch.edit_members(&present.span, |key| additions.is_outdated(key), &marked)),
        None if additions.trace.is_empty() => set.push(("_meta", &marks)),
        None => {
            with_trace = authored::object(&marked);
            set.push(("_meta", &with_trace));
        }
    }
    match &head.params {
        Some(params) => drop(patch.edit_members(&params.span, |_| false, &set)),
        None => {
            let params = [br#","params":"#.as_slice(), &authored::object(&set)].concat();
            patch.insert(head.span.end - 1, params);
        }
    }
}

/// Removes from a modern client's request what a legacy server does not know: `_meta` keys, and input for another round.
fn unmark_modern(patch: &mut Patch<'_>, head: &Head<'_>, additions: &Additions<'_>, token: Option<&[u8]>) {
    if let Some(params) = head.params.as_ref().filter(|params| params.round_key.is_some()) {
        patch.edit_members(&params.span, |key| ["requestState", "inputResponses"].contains(&key), &[]);
    }
    let Some(present) = head.meta() else { return };
    let token = token.map(|token| (meta::PROGRESS_TOKEN, token));
    if additions.trace.is_empty() {
        patch.edit_members(&present.span, |key| meta::REQUEST_KEYS.contains(&key), token.as_slice());
        return;
    }
    let set: Vec<_> = token.into_iter().chain(additions.trace()).collect();
    let is_unwanted = |key: &str| meta::REQUEST_KEYS.contains(&key) || additions.is_outdated(key);
    patch.edit_members(&present.span, is_unwanted, &set);
}

/// Tells the server the trace of a request that needs no other change of its `_meta` than that of the progress token.
fn mark_trace(patch: &mut Patch<'_>, head: &Head<'_>, additions: &Additions<'_>, token: Option<&[u8]>) {
    let token = token.map(|token| (meta::PROGRESS_TOKEN, token));
    let set: Vec<_> = token.into_iter().chain(additions.trace()).collect();
    match (head.meta(), &head.params) {
        (Some(present), _) => drop(patch.edit_members(&present.span, |key| additions.is_outdated(key), &set)),
        (None, Some(params)) => drop(patch.set_member(&params.span, "_meta", &authored::object(&set))),
        (None, None) => {}
    }
}

/// The `_meta` of a request that the gateway writes, for a client with these capabilities.
pub fn modern_meta(capabilities: &[u8], progress_token: Option<u64>, log_level: Option<LogLevel>) -> Vec<u8> {
    let log_level = log_level.map(LogLevel::as_str);
    authored::modern_meta(Version::MODERN, CLIENT, capabilities, progress_token, log_level)
}
