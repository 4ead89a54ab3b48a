//! One registered server, kept alive: connects, reads the lists again when they may have changed, reconnects with
//! back-off when the link is lost, and tells the gateway what it finds. Callers get the link from here.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Options;
use super::connect::{Discovery, connect, read_again};
use super::error::{CallError, ConnectError, seconds};
use super::link::Link;
use super::stdio::StderrTail;
use crate::model::{Offering, Redactor, ServerConfig, Status};
use crate::wire::Era;

/// Lists are read again at the latest after this, and never sooner than the other after the last time.
const LONGEST_TTL: Duration = Duration::from_secs(600);
const SHORTEST_TTL: Duration = Duration::from_secs(30);
/// A link lost sooner than this after connecting counts towards a crash loop.
const SHORT_LIFE: Duration = Duration::from_secs(10);
/// So many short lives are healed at once; more of them back off.
const FREE_RESTARTS: u32 = 2;
const LONGEST_BACK_OFF: Duration = Duration::from_secs(60);
/// Pause between two readings that a server asked for; it doubles while they bring nothing new.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// How a server is doing right now.
#[derive(Clone)]
pub struct State {
    pub status: Status,
    pub reason: String,
    link: Option<Arc<Link>>,
}

/// What the gateway should know without asking.
pub enum Event {
    /// The lists were read and differ from those known before.
    Offered(Upstream, Arc<Offering>),
}

/// A handle to the supervised server; clones share it.
#[derive(Clone)]
pub struct Upstream(Arc<Shared>);

struct Shared {
    config: ServerConfig,
    options: Options,
    events: mpsc::UnboundedSender<Event>,
    state: watch::Sender<State>,
    /// What the lists said the last time they were read.
    offering: ArcSwapOption<Offering>,
    stderr: StderrTail,
    /// The era found the last time; forgotten when something fails.
    known_era: Mutex<Option<Era>>,
    /// A caller wants the server back now.
    wanted: Notify,
    refreshes: mpsc::UnboundedSender<Refresh>,
    permits: Option<Arc<Semaphore>>,
    stop: CancellationToken,
    task: TaskTracker,
}

type Refresh = oneshot::Sender<Result<Arc<Offering>, ConnectError>>;

impl Upstream {
    /// Connects now and hands over what was found; the supervisor takes over from there.
    pub async fn connect(
        config: ServerConfig,
        options: Options,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<(Self, Discovery), ConnectError> {
        let stderr = StderrTail::default();
        let (link, discovery) = connect(&config, &options, None, &stderr).await?;
        let known = link.version().map(|version| version.era());
        let upstream = Self::start(config, options, events, known, stderr, Some((link, discovery.clone())));
        Ok((upstream, discovery))
    }

    /// Connects in the background. `offering` is what is stored of the server.
    pub fn resume(
        config: ServerConfig,
        options: Options,
        events: mpsc::UnboundedSender<Event>,
        offering: &Offering,
    ) -> Self {
        let known = crate::wire::Version::parse(&offering.protocol_version).map(|version| version.era());
        Self::start(config, options, events, known, StderrTail::default(), None)
    }

    fn start(
        config: ServerConfig,
        options: Options,
        events: mpsc::UnboundedSender<Event>,
        known_era: Option<Era>,
        stderr: StderrTail,
        connected: Option<(Arc<Link>, Discovery)>,
    ) -> Self {
        let (refreshes, refresh_requests) = mpsc::unbounded_channel();
        let permits =
            usize::try_from(config.max_concurrency).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let shared = Arc::new(Shared {
            config,
            options,
            events,
            state: watch::Sender::new(State {
                status: Status::Connecting,
                reason: String::new(),
                link: None,
            }),
            offering: ArcSwapOption::new(connected.as_ref().map(|(_, discovery)| discovery.offering.clone())),
            stderr,
            known_era: Mutex::new(known_era),
            wanted: Notify::new(),
            refreshes,
            permits: (permits > 0).then(|| Arc::new(Semaphore::new(permits))),
            stop: CancellationToken::new(),
            task: TaskTracker::new(),
        });
        if let Some((link, discovery)) = &connected {
            shared.show_connected(link, discovery);
        }
        let upstream = Self(shared.clone());
        let supervisor = Supervisor { upstream: upstream.clone(), refreshes: refresh_requests };
        shared.task.spawn(supervisor.run(connected));
        shared.task.close();
        upstream
    }

    pub fn config(&self) -> &ServerConfig {
        &self.0.config
    }

    pub fn state(&self) -> State {
        self.0.state.borrow().clone()
    }

    /// What the lists said the last time they were read; none before the first time.
    pub fn offering(&self) -> Option<Arc<Offering>> {
        self.0.offering.load_full()
    }

    pub fn stderr(&self) -> Vec<String> {
        self.0.stderr.lines()
    }

    pub fn is(&self, other: &Upstream) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The link to use now. Waits while the server is connecting; a failed one answers at once and is tried again.
    pub async fn link(&self) -> Result<Arc<Link>, CallError> {
        let mut states = self.0.state.subscribe();
        let limit = self.0.options.init_timeout;
        let decided = states.wait_for(|state| state.status != Status::Connecting);
        let gone = || CallError::NotSent("the server was removed, replaced or disabled".into());
        let decided = self.0.stop.run_until_cancelled(tokio::time::timeout(limit, decided)).await;
        match decided.ok_or_else(gone)? {
            Ok(Ok(state)) => match &state.link {
                Some(link) => Ok(link.clone()),
                None => {
                    self.0.wanted.notify_one();
                    Err(CallError::NotSent(state.reason.clone()))
                }
            },
            Ok(Err(_)) => Err(gone()),
            Err(_) => Err(CallError::NotSent(format!("still connecting after {}", seconds(limit)))),
        }
    }

    /// Waits for a free place under the server's `max_concurrency`.
    pub async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        match &self.0.permits {
            Some(permits) => permits.clone().acquire_owned().await.ok(),
            None => None,
        }
    }

    /// A call on `link` failed in a way that says the link is of no more use: from now on callers wait for the next.
    pub fn report(&self, link: &Arc<Link>, error: &CallError) {
        let is_current = |state: &mut State| {
            let current = state.link.as_ref().is_some_and(|current| Arc::ptr_eq(current, link));
            if current {
                *state = State { status: Status::Connecting, reason: error.to_string(), link: None };
            }
            current
        };
        if self.0.state.send_if_modified(is_current) {
            self.0.forget_era();
            link.calls.signals.suspect(&error.to_string());
        }
    }

    /// Reads the lists now (connecting first where needed) and returns what they say.
    pub async fn refresh(&self) -> Result<Arc<Offering>, ConnectError> {
        let (done, offering) = oneshot::channel();
        let gone = || ConnectError::Failed("the server was removed".into());
        self.0.refreshes.send(done).map_err(|_| gone())?;
        offering.await.map_err(|_| gone())?
    }

    /// Ends the link and everything that belongs to it.
    pub async fn stop(&self) {
        self.0.stop.cancel();
        self.0.task.wait().await;
    }
}

impl Shared {
    fn show(&self, status: Status, reason: impl Into<String>, link: Option<Arc<Link>>) {
        // Reasons may quote the server, for example the names of its tools.
        let reason = Redactor::of(&self.config).redact(&reason.into());
        self.state.send_replace(State { status, reason, link });
    }

    fn show_connected(&self, link: &Arc<Link>, discovery: &Discovery) {
        let (status, reason) = match discovery.problems.is_empty() {
            true => (Status::Connected, remark_on_names(&self.config, &discovery.offering)),
            false => (Status::Degraded, discovery.problems.join("; ")),
        };
        self.show(status, reason, Some(link.clone()));
    }

    fn forget_era(&self) {
        self.remember_era(None);
    }

    fn remember_era(&self, era: Option<Era>) {
        *self.known_era.lock().expect("no code panics while it holds the era") = era;
    }

    fn era(&self) -> Option<Era> {
        *self.known_era.lock().expect("no code panics while it holds the era")
    }
}

/// The task behind an [`Upstream`].
struct Supervisor {
    upstream: Upstream,
    refreshes: mpsc::UnboundedReceiver<Refresh>,
}

/// Why a link is not attended any longer.
enum Ended {
    Stopped,
    /// The session or process is gone; calls in flight have failed already.
    Lost(String),
}

impl Supervisor {
    async fn run(mut self, connected: Option<(Arc<Link>, Discovery)>) {
        let mut waiting: Vec<Refresh> = Vec::new();
        let mut next = connected;
        let mut short_lives = 0;
        loop {
            let Some((link, discovery)) = (match next.take() {
                Some(connected) => Some(connected),
                None => self.reconnect(&mut waiting).await,
            }) else {
                return;
            };
            self.offer(&discovery.offering);
            for done in waiting.drain(..) {
                let _ = done.send(Ok(discovery.offering.clone()));
            }
            let since = Instant::now();
            let ended = self.attend(&link, discovery).await;
            match ended {
                Ended::Stopped => return link.close().await,
                Ended::Lost(reason) => {
                    link.unwatch.cancel();
                    let server = &self.shared().config.name;
                    tracing::warn!(%server, reason, "lost the link to a server");
                    short_lives = if since.elapsed() < SHORT_LIFE { short_lives + 1 } else { 0 };
                    if short_lives <= FREE_RESTARTS {
                        self.shared().show(Status::Connecting, reason, None);
                        continue;
                    }
                    self.shared().show(Status::Failed, format!("it keeps ending: {reason}"), None);
                    if !self.pause(back_off(short_lives - FREE_RESTARTS), &mut waiting).await {
                        return;
                    }
                }
            }
        }
    }

    fn shared(&self) -> &Shared {
        &self.upstream.0
    }

    /// Tries until it works; `None` when the server is stopped first.
    async fn reconnect(&mut self, waiting: &mut Vec<Refresh>) -> Option<(Arc<Link>, Discovery)> {
        for failures in 1u32.. {
            let shared = self.upstream.0.clone();
            let attempt = connect(&shared.config, &shared.options, shared.era(), &shared.stderr);
            match shared.stop.run_until_cancelled(attempt).await? {
                Ok((link, discovery)) => {
                    shared.remember_era(link.version().map(|version| version.era()));
                    shared.show_connected(&link, &discovery);
                    tracing::info!(server = %shared.config.name, "connected");
                    return Some((link, discovery));
                }
                Err(error) => {
                    shared.forget_era();
                    tracing::warn!(server = %shared.config.name, reason = %error, "cannot connect to a server");
                    shared.show(Status::Failed, error.to_string(), None);
                    for done in waiting.drain(..) {
                        let _ = done.send(Err(error.clone()));
                    }
                    if !self.pause(back_off(failures), waiting).await {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Waits before the next attempt; somebody who wants the server ends the wait. False when stopped.
    async fn pause(&mut self, time: Duration, waiting: &mut Vec<Refresh>) -> bool {
        let shared = self.upstream.0.clone();
        tokio::select! {
            () = shared.stop.cancelled() => return false,
            () = tokio::time::sleep(time) => {}
            () = shared.wanted.notified() => {}
            Some(refresh) = self.refreshes.recv() => waiting.push(refresh),
        }
        true
    }

    /// Looks after a working link until it ends.
    async fn attend(&mut self, link: &Arc<Link>, mut discovery: Discovery) -> Ended {
        let shared = self.upstream.0.clone();
        let mut next_reading = Instant::now() + reading_interval(&discovery.offering);
        let mut pause = FIRST_PAUSE;
        // When to read what the server announced; meanwhile everything else goes on.
        let mut announced: Option<Instant> = None;
        loop {
            let mut asked: Vec<Refresh> = Vec::new();
            let due = announced.map_or(next_reading, |announced| announced.min(next_reading));
            tokio::select! {
                () = shared.stop.cancelled() => return Ended::Stopped,
                () = link.calls.signals.wait() => {
                    if let Some(reason) = link.calls.lost().or_else(|| link.calls.signals.take_suspect()) {
                        return Ended::Lost(reason);
                    }
                    if link.calls.signals.take_lists_changed() {
                        announced.get_or_insert(Instant::now() + pause);
                    }
                    continue;
                }
                () = tokio::time::sleep_until(due) => {}
                Some(refresh) = self.refreshes.recv() => asked.push(refresh),
            }
            announced = None;
            let reading = read_again(link, &shared.config, &shared.options, &discovery.offering);
            let Some(reading) = shared.stop.run_until_cancelled(reading).await else { return Ended::Stopped };
            while let Ok(refresh) = self.refreshes.try_recv() {
                asked.push(refresh);
            }
            match reading {
                Ok(found) => {
                    let is_new = !found.offering.same_as(&discovery.offering);
                    pause = if is_new { FIRST_PAUSE } else { (pause * 2).min(SHORTEST_TTL) };
                    discovery = found;
                    next_reading = Instant::now() + reading_interval(&discovery.offering);
                    shared.show_connected(link, &discovery);
                    self.offer(&discovery.offering);
                    for done in asked {
                        let _ = done.send(Ok(discovery.offering.clone()));
                    }
                }
                Err(error) => {
                    next_reading = Instant::now() + SHORTEST_TTL;
                    for done in asked {
                        let _ = done.send(Err(error.clone()));
                    }
                    if let Some(reason) = link.calls.lost() {
                        return Ended::Lost(reason);
                    }
                    match error {
                        // The server can no longer be spoken to; a new session may help, or shows why not.
                        ConnectError::Unauthorized(reason) => return Ended::Lost(reason),
                        ConnectError::Unreachable(reason) => return Ended::Lost(reason),
                        ConnectError::Failed(reason) => {
                            let reason = format!("its lists could not be read again: {reason}");
                            shared.show(Status::Degraded, reason, Some(link.clone()));
                        }
                    }
                }
            }
        }
    }

    fn offer(&self, offering: &Arc<Offering>) {
        let known = self.shared().offering.swap(Some(offering.clone()));
        if !known.is_some_and(|known| known.same_as(offering)) {
            let _ = self.shared().events.send(Event::Offered(self.upstream.clone(), offering.clone()));
        }
    }
}

/// When the lists should be read again although nobody said that they changed.
fn reading_interval(offering: &Offering) -> Duration {
    match offering.ttl_ms {
        None | Some(0) => LONGEST_TTL,
        Some(ttl) => Duration::from_millis(ttl).clamp(SHORTEST_TTL, LONGEST_TTL),
    }
}

/// 1 s, 2 s, 4 s and so on, up to a minute.
fn back_off(failures: u32) -> Duration {
    Duration::from_secs(1u64 << (failures.saturating_sub(1)).min(6)).min(LONGEST_BACK_OFF)
}

/// Names that some clients refuse are passed on as they are, but people should know.
fn remark_on_names(config: &ServerConfig, offering: &Offering) -> String {
    let is_usual = |name: &str| {
        name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    let names = offering.tools.iter().map(|tool| config.name.qualify(&tool.name));
    let odd: Vec<_> = names.filter(|name| !is_usual(name)).collect();
    match odd.as_slice() {
        [] => String::new(),
        [one] => format!("some clients refuse this tool name (over 64 characters or unusual ones): {one}"),
        [first, ..] => format!(
            "some clients refuse {} tool names (over 64 characters or unusual ones), {first} among them",
            odd.len()
        ),
    }
}
