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

    /// Forwards a caller's request: with the link's own id and progress token, with the given edits, and with the
    /// `_meta` of the server's era. Everything else stays as the caller wrote it. `round` are members of `params` that a
    /// modern server asked for and a legacy caller cannot write.
    pub async fn forward(
        self: &Arc<Self>,
        head: &Head<'_>,
        edits: &[(Span, Vec<u8>)],
        round: &[(&str, Vec<u8>)],
        behalf: &OnBehalf<'_>,
        purpose: Purpose,
    ) -> Result<Exchange, CallError> {
        let id = self.calls.next_id();
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
                mark_modern(&mut patch, head, round, behalf, token.map(|_| id))
            }
            (Era::Legacy, OnBehalf::Modern) => {
                unmark_modern(&mut patch, head, token.map(|_| number.as_bytes()))
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
            (Era::Legacy, None) => None,
        };
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
    round: &[(&str, Vec<u8>)],
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
    let mut set: Vec<(&str, &[u8])> = round.iter().map(|(key, value)| (*key, value.as_slice())).collect();
    match head.meta() {
        Some(present) => {
            let whole = 0..marks.len();
            let members: Vec<_> = walk::members(&marks, &whole).collect();
            let marks: Vec<_> =
                members.iter().map(|(key, _, value)| (&**key, &marks[value.clone()])).collect();
            patch.edit_members(&present.span, |_| false, &marks);
        }
        None => set.push(("_meta", &marks)),
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
fn unmark_modern(patch: &mut Patch<'_>, head: &Head<'_>, token: Option<&[u8]>) {
    if let Some(params) = head.params.as_ref().filter(|params| params.round_key.is_some()) {
        patch.edit_members(&params.span, |key| ["requestState", "inputResponses"].contains(&key), &[]);
    }
    let Some(present) = head.meta() else { return };
    let token = token.map(|token| (meta::PROGRESS_TOKEN, token));
    patch.edit_members(&present.span, |key| meta::REQUEST_KEYS.contains(&key), token.as_slice());
}

/// The `_meta` of a request that the gateway writes, for a client with these capabilities.
pub fn modern_meta(capabilities: &[u8], progress_token: Option<u64>, log_level: Option<LogLevel>) -> Vec<u8> {
    let log_level = log_level.map(LogLevel::as_str);
    authored::modern_meta(Version::MODERN, CLIENT, capabilities, progress_token, log_level)
}
