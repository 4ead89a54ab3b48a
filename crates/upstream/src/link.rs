//! A live session with one upstream, shared by all callers: gives requests their ids and the marks of their era,
//! and hands what comes in to whom it belongs. How bytes travel is the business of the transports.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::CLIENT;
use super::calls::Calls;
use super::error::CallError;
use super::exchange::Exchange;
use super::http::Streamable;
use super::sse::EventStream;
use super::stdio::Child;
use model::{Capabilities, LogLevel};
use wire::authored::ClientInfo;
use wire::error::code;
use wire::text::quote;
use wire::{Era, Head, HeaderParam, Patch, Span, Version, authored, meta, walk};

/// After closing, requests under way (a session's end, a last notice) get this long.
const CLOSING: Duration = Duration::from_secs(4);

/// A stream usually opens within moments; one that does not is caught up with later.
const OPENING: Duration = Duration::from_secs(1);

/// An upstream that does not take a notice in this time has it or never will.
const TELLING: Duration = Duration::from_secs(5);

pub struct Link {
    pub(super) carrier: Carrier,
    pub(super) calls: Arc<Calls>,
    /// What callers of this link can be asked for, as declared to the upstream.
    pub(super) capabilities: Capabilities,
    /// Decided by the handshake.
    version: OnceLock<Version>,
    /// By tool: which arguments a modern upstream wants to see in headers too.
    header_params: ArcSwap<HashMap<String, Vec<HeaderParam>>>,
    /// Whether the stream for what the upstream says unasked is open, or there is none to wait for.
    hears: watch::Sender<bool>,
    /// Whether the lists have been asked for.
    has_read: AtomicBool,
    /// The log level that a legacy upstream was told.
    level: Mutex<Option<LogLevel>>,
    /// Resources that somebody wants to hear about, for the one subscription of a modern link.
    pub(super) wanted_resources: watch::Sender<BTreeSet<String>>,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

/// How the bytes travel.
pub enum Carrier {
    Stdio(Child),
    Http(Streamable),
    Sse(EventStream),
}

/// A request of the gateway's own wording.
pub struct LinkRequest<'a> {
    pub method: &'a str,
    /// The members of `params` besides `_meta`, values as JSON.
    pub params: &'a [(&'a str, &'a [u8])],
    /// Whether the caller wants to hear about progress.
    pub progress: bool,
    pub purpose: Purpose,
}

/// For whom a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// For a caller, whom the upstream may ask something meanwhile.
    Caller,
    /// For the gateway itself: lists, subscriptions, the handshake.
    OurOwn,
}

/// On whose behalf a message is passed on.
pub enum OnBehalf<'a> {
    /// A client with a handshake, of which a modern server learns with every request.
    Legacy {
        capabilities: Capabilities,
        client_name: &'a str,
        client_version: &'a str,
        log_level: Option<LogLevel>,
    },
    /// A client whose requests say all that themselves.
    Modern,
}

impl Link {
    pub fn new(carrier: Carrier, capabilities: Capabilities) -> Arc<Self> {
        let stop = CancellationToken::new();
        Arc::new(Self {
            carrier,
            calls: Arc::new(Calls::new(capabilities)),
            capabilities,
            version: OnceLock::new(),
            header_params: ArcSwap::default(),
            hears: watch::Sender::new(false),
            has_read: AtomicBool::new(false),
            level: Mutex::default(),
            wanted_resources: watch::Sender::default(),
            tasks: TaskTracker::new(),
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
        })
    }

    pub fn version(&self) -> Option<Version> {
        self.version.get().copied()
    }

    fn era(&self) -> Era {
        self.version().map_or(Era::Legacy, Version::era)
    }

    pub(super) fn agree_on(&self, version: Version) {
        let _ = self.version.set(version);
    }

    /// From now on the link hears what changes. If the lists were read before, they may have changed unheard.
    pub(super) fn hears_now(&self) {
        let is_first = !self.hears.send_replace(true);
        if is_first && self.has_read.load(Ordering::Acquire) {
            self.calls.signals.lists_changed();
        }
    }

    /// Waits, not for long, until what the server says outside of calls is heard.
    pub(super) async fn open_ears(&self) {
        let mut hears = self.hears.subscribe();
        let _ = tokio::time::timeout(OPENING, hears.wait_for(|hears| *hears)).await;
    }

    /// Called before the lists are read, so that no change goes unheard.
    pub(super) async fn about_to_read(&self) {
        self.open_ears().await;
        self.has_read.store(true, Ordering::Release);
    }

    pub(super) fn set_header_params(&self, params: HashMap<String, Vec<HeaderParam>>) {
        self.header_params.store(Arc::new(params));
    }

    pub async fn request(self: &Arc<Self>, request: LinkRequest<'_>) -> Result<Exchange, CallError> {
        let id = self.calls.next_id();
        let params = self.params_of(&request, id);
        let body = authored::request(id, request.method, Some(&params));
        self.send(id, body, self.version(), request.purpose).await
    }

    /// Passes a caller's request on: under the link's own id and token, with the edits that make it fit for the
    /// server, and with the marks of its era. Everything else stays as the caller wrote it.
    pub async fn forward(
        self: &Arc<Self>,
        head: &Head<'_>,
        edits: &[(Span, Vec<u8>)],
        behalf: &OnBehalf<'_>,
    ) -> Result<Exchange, CallError> {
        let id = self.calls.next_id();
        let number = id.to_string();
        let mut patch = Patch::new(head.body);
        if let Some(of) = &head.id {
            patch.replace(of.span.clone(), number.as_bytes());
        }
        for (span, with) in edits {
            patch.replace(span.clone(), with.as_slice());
        }
        let token = head.meta().and_then(|meta| meta.progress_token.as_ref());
        match (self.era(), behalf) {
            (Era::Modern, OnBehalf::Legacy { .. }) => {
                mark_modern(&mut patch, head, behalf, token.map(|_| id))
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
        self.send(id, body, self.version(), Purpose::Caller).await
    }

    /// Listening begins anew only if these are others than before.
    pub(super) fn want_resources(&self, uris: &BTreeSet<String>) {
        self.wanted_resources.send_if_modified(|wanted| {
            let is_new = wanted != uris;
            wanted.clone_from(uris);
            is_new
        });
    }

    pub fn is_modern(&self) -> bool {
        self.era() == Era::Modern
    }

    /// Sends a message that already carries `id`, under the given revision (none before the handshake).
    pub(super) async fn send(
        self: &Arc<Self>,
        id: u64,
        body: Bytes,
        version: Option<Version>,
        purpose: Purpose,
    ) -> Result<Exchange, CallError> {
        let ticket = self.calls.begin(id, purpose)?;
        // Built before sending: if this future is dropped half-way, the call is still cancelled and forgotten.
        let mut exchange =
            Exchange { link: self.clone(), id, ticket, stream: None, version, answered: false };
        let sent = match &self.carrier {
            Carrier::Stdio(child) => child.send(body).await,
            Carrier::Sse(stream) => stream.send(body).await,
            Carrier::Http(http) => {
                let params = self.header_params.load();
                // A plain JSON answer is waited for here; the end of the link must not be missed meanwhile.
                tokio::select! {
                    biased;
                    sent = http.send(body, version, &params) => {
                        sent.map(|stream| exchange.stream = Some(stream))
                    }
                    () = exchange.ticket.settled() => Ok(()),
                }
            }
        };
        // Refused by its status: the server may have become another one, of another era perhaps.
        if version.is_some() && version == self.version() && exchange.is_refused(&sent) {
            self.calls.signals.doubt();
        }
        if let Err(error) = sent {
            exchange.answered = true;
            return Err(error);
        }
        Ok(exchange)
    }

    /// Makes a request whose answer nobody waits for.
    pub(super) fn ask_in_passing(self: &Arc<Self>, method: &'static str, params: &[(&str, &[u8])]) {
        let (link, body, stop) = (self.clone(), authored::object(params), self.stop.clone());
        let ask = async move { link.ask(method, &body).await };
        self.tasks.spawn(async move { stop.run_until_cancelled(ask).await });
    }

    /// Makes a request of which only matters that the upstream has it.
    async fn ask(self: &Arc<Self>, method: &'static str, params: &[u8]) {
        let id = self.calls.next_id();
        let body = authored::request(id, method, Some(params));
        let asked = self.send(id, body, self.version(), Purpose::OurOwn).await;
        if let Err(error) = async { asked?.answer(Some(TELLING)).await }.await {
            tracing::debug!(method, %error, "a server did not answer");
        }
    }

    /// Tells a legacy upstream which log messages to send.
    pub(super) async fn set_level(self: &Arc<Self>, level: LogLevel) {
        *self.level.lock().expect("no code panics while it holds the level") = Some(level);
        self.ask("logging/setLevel", &authored::object(&[("level", &quote(level.as_str()))])).await;
    }

    /// Sees to it that a legacy upstream sends log messages of this level, before anything else is asked of it.
    pub async fn raise_level(self: &Arc<Self>, level: LogLevel) {
        let told = *self.level.lock().expect("no code panics while it holds the level");
        if !self.is_modern() && told.is_none_or(|told| told > level) {
            self.set_level(level).await;
        }
    }

    /// Sends a notice or an answer; whether it arrives shows elsewhere.
    pub(super) fn post(&self, message: Bytes) {
        match &self.carrier {
            Carrier::Stdio(child) => child.post(message),
            Carrier::Sse(stream) => stream.post(message),
            Carrier::Http(http) => http.post(message, self.version()),
        }
    }

    /// Sends a notice that must arrive before what comes next; if it does not, that will show.
    pub(super) async fn tell(&self, notice: Bytes) {
        let sent = async {
            match &self.carrier {
                Carrier::Stdio(child) => child.post(notice),
                Carrier::Sse(stream) => drop(stream.send(notice).await),
                Carrier::Http(http) => http.tell(&notice, self.version()).await,
            }
        };
        let _ = tokio::time::timeout(TELLING, sent).await;
    }

    /// A message came in, on the stream of the call `own` or on one that all calls share.
    pub(super) fn take_in(&self, message: Bytes, own: Option<u64>) {
        if let Some(reply) = self.calls.sort(message, own) {
            self.post(reply);
        }
    }

    pub(super) fn refuse(&self, request: &[u8]) {
        if let Ok(Head { id: Some(id), method, .. }) = Head::parse(request) {
            let text = format!("{} is not available to this caller", method.as_deref().unwrap_or("this"));
            self.post(authored::error(Some(id.raw()), code::METHOD_NOT_FOUND, &text, None));
        }
    }

    /// Tells the upstream that nobody waits for this answer any more.
    pub(super) fn cancel(&self, id: u64, sent_under: Option<Version>) {
        // The handshake itself is never cancelled, and over modern HTTP closing the response says it.
        let Some(agreed) = self.version() else { return };
        let closing_says_it = matches!(self.carrier, Carrier::Http(_)) && agreed.era() == Era::Modern;
        if sent_under == Some(agreed) && !closing_says_it && self.calls.lost().is_none() {
            let params = format!(r#"{{"requestId":{id},"reason":"the caller gave up"}}"#);
            self.post(authored::notice("notifications/cancelled", Some(params.as_bytes())));
        }
    }

    /// Lets go of a link that is of no more use. Over HTTP, calls in flight have streams of their own that may
    /// still end well.
    pub(super) fn abandon(&self, reason: &str) {
        match self.carrier {
            Carrier::Http(_) => {}
            Carrier::Stdio(_) | Carrier::Sse(_) => self.calls.lose(reason),
        }
        self.stop.cancel();
    }

    /// Ends the session in good order: the upstream is told where it can be, the process is ended.
    pub async fn close(&self) {
        self.calls.lose("the link was closed");
        if let Carrier::Http(http) = &self.carrier {
            http.end_session(self.version()).await;
        }
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(CLOSING, self.tasks.wait()).await.is_err() {
            tracing::warn!("a link's tasks did not end in time");
        }
    }

    fn params_of(&self, request: &LinkRequest<'_>, id: u64) -> Vec<u8> {
        let token = request.progress.then_some(id);
        let meta = match (self.era(), token) {
            (Era::Modern, token) => Some(modern_meta(token)),
            (Era::Legacy, Some(token)) => Some(format!(r#"{{"progressToken":{token}}}"#).into_bytes()),
            (Era::Legacy, None) => None,
        };
        let mut members = request.params.to_vec();
        members.extend(meta.as_deref().map(|meta| ("_meta", meta)));
        authored::object(&members)
    }
}

/// Gives a legacy client's request the `_meta` that a modern server wants.
fn mark_modern(patch: &mut Patch<'_>, head: &Head<'_>, behalf: &OnBehalf<'_>, token: Option<u64>) {
    let OnBehalf::Legacy { capabilities, client_name, client_version, log_level } = *behalf else { return };
    let client = match client_name.is_empty() {
        true => CLIENT,
        false => ClientInfo { name: client_name, version: client_version },
    };
    let capabilities = capabilities.to_json();
    let marks =
        authored::modern_meta(Version::MODERN, client, &capabilities, token, log_level.map(LogLevel::as_str));
    match (&head.params, head.meta()) {
        (Some(_), Some(present)) => {
            let whole = 0..marks.len();
            let members: Vec<_> = walk::members(&marks, &whole).collect();
            let set: Vec<_> = members.iter().map(|(key, _, value)| (&**key, &marks[value.clone()])).collect();
            patch.edit_members(&present.span, |_| false, &set);
        }
        (Some(params), None) => drop(patch.set_member(&params.span, "_meta", &marks)),
        (None, _) => {
            let params = [br#","params":{"_meta":"#.as_slice(), &marks, b"}"].concat();
            patch.insert(head.span.end - 1, params);
        }
    }
}

/// Takes from a modern client's request what a legacy server does not know.
fn unmark_modern(patch: &mut Patch<'_>, head: &Head<'_>, token: Option<&[u8]>) {
    let Some(present) = head.meta() else { return };
    let token = token.map(|token| (meta::PROGRESS_TOKEN, token));
    patch.edit_members(&present.span, |key| meta::REQUEST_KEYS.contains(&key), token.as_slice());
}

/// The `_meta` of a request that the gateway makes for a caller without capabilities.
pub fn modern_meta(progress_token: Option<u64>) -> Vec<u8> {
    authored::modern_meta(Version::MODERN, CLIENT, b"{}", progress_token, None)
}
