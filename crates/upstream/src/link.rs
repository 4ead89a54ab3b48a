//! A live session with one server, shared by all callers: agrees on a version, routes incoming messages, and closes
//! cleanly. Requests are made in `request`; the transports carry the bytes.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::calls::Calls;
use super::error::CallError;
use super::http::Streamable;
use super::probe::Handshake;
use super::sse::EventStream;
use super::stdio::Child;
use model::{Capabilities, LogLevel, Topic};
use wire::error::code;
use wire::{Era, Head, HeaderParam, Version, authored};

/// Timeout after closing for the link's tasks, which may still send the end of the session or a last notice.
const CLOSING: Duration = Duration::from_secs(4);

/// Timeout for the last messages before a link is closed.
const FLUSHING: Duration = Duration::from_secs(1);

/// How long to wait for the stream outside of calls to open. If it opens later, the lists are read again.
const OPENING: Duration = Duration::from_secs(1);

/// Timeout for sending a notice; past it, the upstream has the notice or will never get it.
pub(super) const TELLING: Duration = Duration::from_secs(5);

pub struct Link {
    pub(super) carrier: Carrier,
    pub(super) calls: Arc<Calls>,
    /// The client capabilities declared to the upstream: what it may ask callers of this link for.
    pub(super) capabilities: Capabilities,
    /// Set by the handshake.
    version: OnceLock<Version>,
    handshake: OnceLock<Handshake>,
    /// By tool: the arguments that a modern upstream requires in headers too.
    pub(super) header_params: ArcSwap<HashMap<String, Vec<HeaderParam>>>,
    /// Whether the stream for messages outside of calls is open, or there is no such stream to wait for.
    hears: watch::Sender<bool>,
    /// Whether reading the lists has begun.
    has_read: AtomicBool,
    /// The log level that was last sent to a legacy upstream.
    pub(super) level: Mutex<Option<LogLevel>>,
    /// What is subscribed, for the one `subscriptions/listen` of a modern link.
    pub(super) wanted_topics: watch::Sender<BTreeSet<Topic>>,
    /// The answer to the last `subscriptions/listen` of a modern link.
    pub(super) grant: Arc<watch::Sender<Grant>>,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

/// What a modern server granted of the topics that it was asked to announce.
#[derive(Clone, Debug, Default)]
pub struct Grant {
    pub asked: BTreeSet<Topic>,
    pub granted: BTreeSet<Topic>,
}

/// The transport of a link. The two import each other: the link owns the transport, which delivers messages to it.
pub enum Carrier {
    Stdio(Child),
    Http(Streamable),
    Sse(EventStream),
}

impl Link {
    pub fn new(carrier: Carrier, capabilities: Capabilities) -> Arc<Self> {
        let stop = CancellationToken::new();
        Arc::new(Self {
            carrier,
            calls: Arc::new(Calls::new(capabilities.clone())),
            capabilities,
            version: OnceLock::new(),
            handshake: OnceLock::new(),
            header_params: ArcSwap::default(),
            hears: watch::Sender::new(false),
            has_read: AtomicBool::new(false),
            level: Mutex::default(),
            wanted_topics: watch::Sender::default(),
            grant: Arc::default(),
            tasks: TaskTracker::new(),
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
        })
    }

    pub fn version(&self) -> Option<Version> {
        self.version.get().copied()
    }

    /// The id of the session that an upstream opened for this link, if it has sessions.
    pub fn session_id(&self) -> Option<&str> {
        match &self.carrier {
            Carrier::Http(http) => http.session_id(),
            Carrier::Stdio(_) | Carrier::Sse(_) => None,
        }
    }

    pub(super) fn era(&self) -> Era {
        self.version().map_or(Era::Legacy, Version::era)
    }

    pub(super) fn agree_on(&self, version: Version) {
        let _ = self.version.set(version);
    }

    /// Keeps what the server said in the handshake.
    pub(super) fn introduce(&self, handshake: Handshake) {
        self.agree_on(handshake.version);
        let _ = self.handshake.set(handshake);
    }

    /// What the server said in the handshake; `None` before it.
    pub(super) fn handshake(&self) -> Option<&Handshake> {
        self.handshake.get()
    }

    /// Whether a modern server said that it also speaks the legacy era; `None` if it did not say so.
    pub(super) fn also_legacy(&self) -> Option<bool> {
        self.handshake().and_then(|handshake| handshake.also_legacy.then_some(true))
    }

    /// Marks the stream for messages outside of calls as open. If the lists were read before, they are read again,
    /// since they may have changed unnoticed.
    pub(super) fn hears_now(&self) {
        let is_first = !self.hears.send_replace(true);
        if is_first && self.has_read.load(Ordering::Acquire) {
            self.calls.signals.lists_changed();
        }
    }

    /// Waits until the stream for messages outside of calls is open, with a short timeout.
    pub(super) async fn open_ears(&self) {
        let mut hears = self.hears.subscribe();
        let _ = tokio::time::timeout(OPENING, hears.wait_for(|hears| *hears)).await;
    }

    /// Must be called before the lists are read, so that no change goes unnoticed.
    pub(super) async fn about_to_read(&self) {
        self.open_ears().await;
        self.has_read.store(true, Ordering::Release);
    }

    pub(super) fn set_header_params(&self, params: HashMap<String, Vec<HeaderParam>>) {
        self.header_params.store(Arc::new(params));
    }

    /// Takes over the arguments of these tools; what is known about others stays.
    pub(super) fn learn_header_params(&self, params: HashMap<String, Vec<HeaderParam>>) {
        self.header_params.rcu(|known| {
            let mut all = HashMap::clone(known);
            for (tool, wanted) in &params {
                match wanted.is_empty() {
                    true => drop(all.remove(tool)),
                    false => drop(all.insert(tool.clone(), wanted.clone())),
                }
            }
            all
        });
    }

    /// Adds the arguments of tools that the link does not have yet: callers with different capabilities share it.
    pub(super) fn add_header_params(&self, further: HashMap<String, Vec<HeaderParam>>) {
        self.header_params.rcu(|known| {
            let mut all = further.clone();
            all.extend(known.iter().map(|(tool, params)| (tool.clone(), params.clone())));
            all
        });
    }

    /// Sets the subscribed topics; a modern link subscribes again only if they changed.
    pub(super) fn want_topics(&self, topics: &BTreeSet<Topic>) {
        self.wanted_topics.send_if_modified(|wanted| {
            let is_new = wanted != topics;
            wanted.clone_from(topics);
            is_new
        });
    }

    /// Adds a topic to the subscribed ones or removes it.
    pub(super) fn want_topic(&self, topic: &Topic, is_wanted: bool) {
        self.wanted_topics.send_if_modified(|wanted| match is_wanted {
            true => wanted.insert(topic.clone()),
            false => wanted.remove(topic),
        });
    }

    /// Waits until a modern server has answered whether it announces updates of a topic.
    pub async fn grants(&self, topic: &Topic) -> Result<bool, CallError> {
        let mut grant = self.grant.subscribe();
        let answered = grant.wait_for(|grant| grant.asked.contains(topic));
        match tokio::time::timeout(TELLING, answered).await {
            Ok(Ok(grant)) => Ok(grant.granted.contains(topic)),
            Ok(Err(_)) => Err(CallError::Lost("the link was closed".into())),
            Err(_) => Err(CallError::TimedOut(TELLING)),
        }
    }

    pub fn is_modern(&self) -> bool {
        self.era() == Era::Modern
    }

    /// Sends a notice or an answer without waiting for its delivery.
    pub(super) fn post(&self, message: Bytes) {
        match &self.carrier {
            Carrier::Stdio(child) => child.post(message),
            Carrier::Sse(stream) => stream.post(message, None),
            Carrier::Http(http) => http.post(message, self.version(), None),
        }
    }

    /// Sends the answer to a request of the upstream during a call.
    pub(super) fn post_answer(&self, answer: Bytes, call: u64) {
        match &self.carrier {
            Carrier::Stdio(_) => self.post(answer),
            Carrier::Sse(stream) => stream.post(answer, Some(call)),
            Carrier::Http(http) => http.post(answer, self.version(), Some(call)),
        }
    }

    /// Sends a notice that must arrive before the next message. If it does not, later requests fail.
    pub(super) async fn tell(&self, notice: Bytes) {
        let sent = async {
            match &self.carrier {
                Carrier::Stdio(child) => child.post(notice),
                Carrier::Sse(stream) => drop(stream.send(notice).await),
                Carrier::Http(http) => drop(http.tell(&notice, self.version()).await),
            }
        };
        let _ = tokio::time::timeout(TELLING, sent).await;
    }

    /// Routes a message that came in on the stream of the call `own`, or on one that all calls share.
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

    /// Tells the upstream that a call is cancelled.
    pub(super) fn cancel(&self, id: u64, sent_under: Option<Version>) {
        // The handshake itself is never cancelled, and over modern HTTP closing the response cancels the call.
        let Some(agreed) = self.version() else { return };
        let closing_cancels = matches!(self.carrier, Carrier::Http(_)) && agreed.era() == Era::Modern;
        if sent_under == Some(agreed) && !closing_cancels && self.calls.lost().is_none() {
            let params = format!(r#"{{"requestId":{id},"reason":"the caller gave up"}}"#);
            self.post(authored::notice("notifications/cancelled", Some(params.as_bytes())));
        }
    }

    /// Tells the upstream that all calls of callers are cancelled.
    fn cancel_callers(&self) {
        for id in self.calls.of_callers() {
            self.cancel(id, self.version());
        }
    }

    /// Waits until everything that was posted is delivered.
    async fn flush(&self) {
        match &self.carrier {
            Carrier::Stdio(child) => child.flush().await,
            Carrier::Sse(stream) => stream.flush().await,
            Carrier::Http(http) => http.flush().await,
        }
    }

    /// Stops a link that is unusable. Over HTTP, calls in flight have streams of their own and may still succeed.
    pub(super) fn abandon(&self, reason: &str) {
        match self.carrier {
            Carrier::Http(_) => {}
            Carrier::Stdio(_) | Carrier::Sse(_) => self.calls.lose(reason),
        }
        self.stop.cancel();
    }

    /// Marks its process, if it has one, as ending. The link must be closed after that.
    pub(super) fn begins_to_end(&self) {
        if let Carrier::Stdio(child) = &self.carrier {
            child.end.begins();
        }
    }

    /// Closes the link cleanly: ends the session at the upstream where possible, and ends the process.
    pub async fn close(&self) {
        self.begins_to_end();
        self.cancel_callers();
        self.calls.lose("the link was closed");
        // What ended together with the link is cancelled before it.
        let _ = tokio::time::timeout(FLUSHING, self.flush()).await;
        if let Carrier::Http(http) = &self.carrier {
            http.end_session(self.version()).await;
        }
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(CLOSING, self.tasks.wait()).await.is_err() {
            tracing::warn!("a link's tasks did not end in time");
        }
    }
}
