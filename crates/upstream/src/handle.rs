//! A supervised server as callers see it: its state, its link, what it offers. The task in `supervisor` keeps it
//! connected and sends events to the gateway.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Options;
use super::connect::ConnectTarget;
use super::credentials::Credentials;
use super::error::{CallError, ConnectError, seconds};
use super::failures::{FailureNote, Failures};
use super::journal::Journal;
use super::link::Link;
use super::lists::{Discovery, teach_headers};
use super::news::News;
use super::profile::Profile;
use super::reading::{MOVED, Reading};
use super::slots::ServerSlots;
use super::stdio::Stderr;
use budget::{Bound, Budget, Budgets, Exceeded};
use model::{LogLevel, Offering, Redactor, ServerConfig, Status, Topic, excerpt, name};
use wire::{Era, Version};

/// How long a call waits for a server with `max_concurrency`.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// How many further links to a server are opened at the same time.
pub(super) const HANDSHAKES_AT_ONCE: usize = 8;
/// The most remarks about further links that the status has.
const MOST_REMARKS: usize = 5;

/// The current state of a server.
#[derive(Clone)]
pub struct LinkState {
    pub status: Status,
    pub reason: String,
    pub(super) link: Option<Arc<Link>>,
    /// Whether the next caller that needs the server opens the link. The status is that of another gateway then.
    pub(super) is_resting: bool,
}

impl LinkState {
    /// Whether there is no link until a caller needs it.
    pub fn is_resting(&self) -> bool {
        self.is_resting
    }
}

/// An event that the gateway is told of.
pub enum ServerEvent {
    /// The lists were read and differ from those known before.
    Offered(Upstream, Arc<Offering>),
    /// The lists that callers with these profiles see were read and differ from those known before.
    OfferedTo(Upstream, Vec<Profile>, Arc<Offering>),
    /// The lists for these profiles are not known any more.
    Forgotten(Upstream, Vec<Profile>),
    /// A resource changed that is subscribed on the link of this profile.
    Updated(Upstream, Profile, String),
    /// A notice about a task came on the link of this profile, outside of any call.
    TaskNotice(Upstream, Profile, Bytes),
    /// The lists may have changed, and another gateway reads them.
    Doubted(Upstream),
}

/// A handle to a supervised server; clones share it.
#[derive(Clone)]
pub struct Upstream(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub config: ServerConfig,
    pub options: Options,
    pub events: mpsc::UnboundedSender<ServerEvent>,
    /// `None` where the server cannot use OAuth.
    pub credentials: Option<Arc<Credentials>>,
    pub state: watch::Sender<LinkState>,
    pub reading: watch::Sender<Reading>,
    /// The status of the server at the gateway that reads its lists, and the reason for it.
    pub elsewhere: Mutex<(Status, String)>,
    /// The offering as last read from the lists.
    pub offering: ArcSwapOption<Offering>,
    /// The standard error of its processes, and the journal of the server.
    pub stderr: Stderr,
    pub failures: Failures,
    /// The era found last time; forgotten when the link fails.
    pub known_era: Mutex<Option<Era>>,
    /// Whether a modern server also speaks the legacy era; `None` until somebody needs to know.
    pub also_legacy: Mutex<Option<bool>>,
    /// Held while that is found out.
    pub finding_era: tokio::sync::Mutex<()>,
    /// Limits how many further links are opened at the same time.
    pub handshakes: Semaphore,
    /// What the lists were last found to be, and remarks about further links, both for the status.
    pub last_discovery: Mutex<Option<Discovery>>,
    pub remarks: Mutex<Vec<String>>,
    /// Notified when a caller needs a server that failed.
    pub wanted: Notify,
    /// Notified when a caller needs a link that rests.
    pub woken: Notify,
    pub refreshes: mpsc::UnboundedSender<Refresh>,
    /// The further links, and the processes of all links.
    pub slots: Arc<ServerSlots>,
    /// The most verbose log level that any caller asked for.
    pub level: Mutex<Option<LogLevel>>,
    /// What is subscribed on the first link.
    pub wanted_topics: Mutex<BTreeSet<Topic>>,
    pub permits: Option<Arc<Semaphore>>,
    /// Calls that wait for a permit.
    pub waiting: Budget,
    /// How often its process was started again after it ended.
    pub restarts: AtomicU64,
    pub stop: CancellationToken,
    pub task: TaskTracker,
}

pub type Refresh = oneshot::Sender<Result<Arc<Offering>, ConnectError>>;

impl Upstream {
    pub fn config(&self) -> &ServerConfig {
        &self.0.config
    }

    pub fn state(&self) -> LinkState {
        self.0.state.borrow().clone()
    }

    /// The offering as last read from the lists; `None` before the first time.
    pub fn offering(&self) -> Option<Arc<Offering>> {
        self.0.offering.load_full()
    }

    pub fn budgets(&self) -> &Budgets {
        &self.0.options.budgets
    }

    /// The OAuth credentials for this server; `None` where it cannot use OAuth.
    pub fn credentials(&self) -> Option<&Arc<Credentials>> {
        self.0.credentials.as_ref()
    }

    pub fn journal(&self) -> &Journal {
        &self.0.stderr.journal
    }

    /// Records a failed call, for people who look for the cause later.
    pub fn note_failure(&self, tool: &str, reason: &str) {
        let reason = self.0.failures.note(tool, reason, &Redactor::of(&self.0.config));
        self.journal().note(&format!("a call of {tool} failed: {reason}"));
        self.0.options.newsroom.tell(News::Failure);
    }

    /// The last failed calls, oldest first.
    pub fn failures(&self) -> Vec<FailureNote> {
        self.0.failures.all()
    }

    pub fn is(&self, other: &Upstream) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The current link. Waits while the server is connecting. If it failed, returns the error at once and starts a new
    /// attempt.
    pub async fn link(&self) -> Result<Arc<Link>, CallError> {
        let ready = self.0.state.borrow().link.clone();
        if let Some(link) = ready.filter(|link| !link.calls.is_lost()) {
            return Ok(link);
        }
        // Boxed, since the future is large and rarely needed.
        Box::pin(self.wait_for_link()).await
    }

    async fn wait_for_link(&self) -> Result<Arc<Link>, CallError> {
        let mut states = self.0.state.subscribe();
        let limit = self.0.options.init_timeout;
        // A link that was just lost stays in the state until the supervisor notices.
        let is_lost = |state: &LinkState| state.link.as_ref().is_some_and(|link| link.calls.is_lost());
        let decided = states.wait_for(|state| {
            if state.is_resting {
                self.0.woken.notify_one();
            }
            state.status != Status::Connecting && !state.is_resting && !is_lost(state)
        });
        let gone = || CallError::NotSent("the server was removed, replaced or disabled".into());
        let decided = self.0.stop.run_until_cancelled(tokio::time::timeout(limit, decided)).await;
        match decided.ok_or_else(gone)? {
            Ok(Ok(state)) => match &state.link {
                Some(link) => Ok(link.clone()),
                None => {
                    self.0.wanted.notify_waiters();
                    Err(CallError::NotSent(state.reason.clone()))
                }
            },
            Ok(Err(_)) => Err(gone()),
            Err(_) => Err(CallError::NotSent(format!("still connecting after {}", seconds(limit)))),
        }
    }

    /// Whether the number of concurrent calls is limited, so that a call needs a permit.
    pub fn has_slots(&self) -> bool {
        self.0.permits.is_some()
    }

    /// Waits for a permit under the server's `max_concurrency`; `None` where that has no limit. The number of calls that
    /// wait is limited, and so is the time.
    pub async fn permit(&self) -> Result<Option<OwnedSemaphorePermit>, Exceeded> {
        let Some(permits) = &self.0.permits else { return Ok(None) };
        if let Ok(permit) = permits.clone().try_acquire_owned() {
            return Ok(Some(permit));
        }
        let _waiting = self.0.waiting.take(1)?;
        match tokio::time::timeout(LONGEST_WAIT, permits.clone().acquire_owned()).await {
            Ok(permit) => Ok(permit.ok()),
            Err(_) => Err(self.0.options.budgets.exceeded(Bound::WaitingTime, LONGEST_WAIT.as_secs())),
        }
    }

    /// The number of calls that wait for a permit.
    pub fn waiting_calls(&self) -> u64 {
        self.0.waiting.used()
    }

    /// The number of open links besides the first.
    pub fn further_links(&self) -> usize {
        self.0.slots.pool.links().len()
    }

    /// How often the process of the first link was started again after it ended.
    pub fn process_restarts(&self) -> u64 {
        self.0.restarts.load(Ordering::Relaxed)
    }

    /// Reports a failed call that shows `link` to be unusable: from now on callers wait for the next link.
    pub fn report(&self, link: &Arc<Link>, error: &CallError) {
        let reason = self.0.presentable(&error.to_string());
        let is_current = |state: &mut LinkState| {
            let current = state.link.as_ref().is_some_and(|current| Arc::ptr_eq(current, link));
            if current {
                let reason = reason.clone();
                *state = LinkState { status: Status::Connecting, reason, link: None, is_resting: false };
            }
            current
        };
        if self.0.slots.pool.forget(link).is_some() {
            link.calls.signals.suspect(&error.to_string());
        }
        if self.0.state.send_if_modified(is_current) {
            self.0.tell_status();
            self.0.forget_era();
            link.calls.signals.suspect(&error.to_string());
        }
    }

    /// Reads the lists now (connecting first where needed) and returns the offering.
    pub async fn refresh(&self) -> Result<Arc<Offering>, ConnectError> {
        let (done, offering) = oneshot::channel();
        let gone = || ConnectError::Failed("the server was removed".into());
        self.0.refreshes.send(done).map_err(|_| gone())?;
        offering.await.map_err(|_| gone())?
    }

    /// Ends the supervising task and closes all links.
    pub async fn stop(&self) {
        self.0.stop.cancel();
        self.0.task.wait().await;
        if let Some(credentials) = &self.0.credentials {
            credentials.settle().await;
        }
        for link in self.0.slots.pool.take(|_| true) {
            link.close().await;
        }
    }

    /// Makes the supervisor read the lists again soon.
    pub fn doubt_lists(&self) {
        if let Some(link) = &self.0.state.borrow().link {
            link.calls.signals.lists_changed();
        }
    }

    /// Sets the log level of the server, also for links that are opened later. Returns when the open links have been
    /// told.
    pub async fn set_level(&self, level: LogLevel) {
        *self.0.level.lock().expect("no code panics while it holds the level") = Some(level);
        let first = self.0.state.borrow().link.clone();
        let Some(offering) = self.offering().filter(|offering| offering.declares("logging")) else { return };
        let links = self.0.slots.pool.links().into_iter().chain(first);
        let telling: Vec<_> = links.filter_map(|link| self.0.restore_level(&link, &offering)).collect();
        for told in telling {
            let _ = told.await;
        }
    }

    /// Takes over the log level of another upstream of the same server, and the subscriptions on each of its links.
    pub fn take_over(&self, level: Option<LogLevel>, subscribed: HashMap<Profile, BTreeSet<Topic>>) {
        *self.0.level.lock().expect("no code panics while it holds the level") = level;
        let link = self.0.state.borrow().link.clone();
        let era = link.as_ref().map(|link| link.era()).or_else(|| self.0.first_era());
        for (profile, topics) in subscribed {
            match profile.is_first(era) {
                true => {
                    *self.0.wanted_topics.lock().expect("no code panics while it holds the topics") = topics
                }
                false => self.restore_branch(&profile, topics),
            }
        }
        if let (Some(link), Some(offering)) = (link, self.offering()) {
            self.0.restore(&link, &offering);
        }
    }

    /// Adds a topic to those that are subscribed on the link of this profile, or removes it.
    pub fn want_topic(&self, at: &Profile, topic: &Topic, is_wanted: bool) {
        if !at.is_first(self.0.first_era()) {
            return self.want_on_branch(at, topic, is_wanted);
        }
        let mut wanted = self.0.wanted_topics.lock().expect("no code panics while it holds the topics");
        let is_new = if is_wanted { wanted.insert(topic.clone()) } else { wanted.remove(topic) };
        let state = self.0.state.borrow();
        match &state.link {
            Some(link) if is_new => link.want_topic(topic, is_wanted),
            // It is subscribed when the link is open.
            None if is_wanted && state.is_resting => self.0.woken.notify_one(),
            Some(_) | None => {}
        }
    }

    /// Decides which gateway reads the lists from now on.
    pub fn set_reading(&self, reading: Reading) {
        let mut before = reading;
        self.0.reading.send_if_modified(|current| {
            before = std::mem::replace(current, reading);
            before != reading
        });
        if before.moves_to(reading) {
            // The supervisor ends the first link.
            for link in self.0.slots.pool.links() {
                link.calls.signals.suspect(MOVED);
            }
        }
    }

    /// Which gateway reads the lists.
    pub fn reading(&self) -> Reading {
        *self.0.reading.borrow()
    }

    /// Takes over what the gateway that reads the lists knows of the server.
    pub fn learn(&self, status: Status, reason: &str) {
        let told = (status, reason.to_owned());
        let mut elsewhere = self.0.elsewhere.lock().expect("no code panics while it holds the status");
        if *elsewhere == told || *self.0.reading.borrow() == Reading::Here {
            return;
        }
        *elsewhere = told;
        drop(elsewhere);
        let link = self.0.state.borrow().link.clone();
        if let Some(link) = link {
            self.0.show_served(&link);
        } else if self.0.state.borrow().is_resting {
            self.0.show_resting();
        }
    }

    /// Takes over the lists that another gateway has read.
    pub fn learn_lists(&self, offering: &Arc<Offering>) {
        if *self.0.reading.borrow() != Reading::Here {
            self.0.offering.store(Some(offering.clone()));
            if let Some(link) = &self.0.state.borrow().link {
                teach_headers(link, offering);
            }
        }
    }
}

impl Shared {
    pub fn target(&self) -> ConnectTarget<'_> {
        ConnectTarget {
            config: &self.config,
            options: &self.options,
            stderr: &self.stderr,
            slots: &self.slots,
            credentials: self.credentials.as_ref(),
            reading: *self.reading.borrow(),
        }
    }

    pub fn show(&self, status: Status, reason: impl Into<String>, link: Option<Arc<Link>>) {
        let reason = self.presentable(&reason.into());
        let before = self.state.borrow();
        let is_new = before.status != status || before.reason != reason;
        drop(before);
        if status == Status::Degraded && is_new {
            self.stderr.journal.note(&format!("degraded: {reason}"));
        }
        self.state.send_replace(LinkState { status, reason, link, is_resting: false });
        self.tell_status();
    }

    /// Shows a link that the next caller opens.
    pub fn show_resting(&self) {
        let (status, reason) =
            self.elsewhere.lock().expect("no code panics while it holds the status").clone();
        self.state.send_replace(LinkState { status, reason, link: None, is_resting: true });
        self.tell_status();
    }

    /// Shows a link to a server whose lists another gateway reads.
    pub fn show_served(&self, link: &Arc<Link>) {
        let (status, reason) =
            self.elsewhere.lock().expect("no code panics while it holds the status").clone();
        let (status, reason) = match status {
            Status::Degraded => (status, reason),
            Status::Connecting | Status::Connected | Status::Failed | Status::Disabled => {
                (Status::Connected, String::new())
            }
        };
        self.show(status, reason, Some(link.clone()));
    }

    /// A reason without secrets and cut to a sentence: it may quote the server, for example the names of its tools.
    fn presentable(&self, reason: &str) -> String {
        excerpt::cut(Redactor::of(&self.config).redact(reason), excerpt::SENTENCE)
    }

    /// Notes in the journal what happened, without secrets.
    pub fn note(&self, happened: &str) {
        self.stderr.journal.note(&self.presentable(happened));
    }

    /// Notes in the journal that there is a link; `how` says which one.
    pub fn note_connected(&self, how: &str, link: &Link, offering: &Offering) {
        let version = link.version().map_or("of an unknown revision", Version::as_str);
        self.note(&format!("{how}, protocol {version}: {}", counted(offering)));
    }

    fn tell_status(&self) {
        self.options.newsroom.tell(News::Status(self.config.name.clone()));
    }

    pub fn show_connected(&self, link: &Arc<Link>, discovery: &Discovery) {
        let mut problems = discovery.problems.clone();
        let lacking = self.credentials.as_ref().map(|credentials| credentials.lacking()).unwrap_or_default();
        if !lacking.is_empty() {
            problems.push(format!(
                "authorization required: some requests need the scopes {:?}; authorize it again with \
                 POST /api/v0/servers/{}/reauthorize",
                lacking.join(" "),
                self.config.name
            ));
        }
        let mut remarks = discovery.remarks.clone();
        remarks
            .extend(self.remarks.lock().expect("no code panics while it holds the remarks").iter().cloned());
        *self.last_discovery.lock().expect("no code panics while it holds the lists") =
            Some(discovery.clone());
        let status = match problems.is_empty() {
            true => {
                remarks.extend(remark_on_names(&self.config, &discovery.offering));
                Status::Connected
            }
            false => {
                remarks.extend(problems);
                Status::Degraded
            }
        };
        self.show(status, remarks.join("; "), Some(link.clone()));
    }

    /// Prepares a new link for callers: the log level, and which arguments belong into headers.
    pub fn prepare(&self, link: &Arc<Link>, offering: &Offering) {
        self.restore_level(link, offering);
        teach_headers(link, offering);
    }

    /// Prepares a new link, and subscribes on it.
    pub fn restore(&self, link: &Arc<Link>, offering: &Offering) {
        self.prepare(link, offering);
        let wanted = self.wanted_topics.lock().expect("no code panics while it holds the topics").clone();
        self.restore_topics(link, &wanted);
    }

    /// Whether anything is subscribed on the first link.
    pub fn has_topics(&self) -> bool {
        !self.wanted_topics.lock().expect("no code panics while it holds the topics").is_empty()
    }

    /// Applies the log level to a link, in a task. Modern servers get it with every request instead.
    pub fn restore_level(&self, link: &Arc<Link>, offering: &Offering) -> Option<JoinHandle<()>> {
        let level = *self.level.lock().expect("no code panics while it holds the level");
        let level = level.filter(|_| offering.declares("logging") && !link.is_modern())?;
        let (telling, stop) = (link.clone(), link.stop.clone());
        Some(link.tasks.spawn(async move {
            stop.run_until_cancelled(telling.set_level(level)).await;
        }))
    }

    /// Adds a remark about further links to the status.
    pub fn remark(&self, remark: String) {
        let mut remarks = self.remarks.lock().expect("no code panics while it holds the remarks");
        if remarks.len() >= MOST_REMARKS || remarks.contains(&remark) {
            return;
        }
        remarks.push(remark);
        drop(remarks);
        let discovery = self.last_discovery.lock().expect("no code panics while it holds the lists").clone();
        let link = self.state.borrow().link.clone();
        if let (Some(link), Some(discovery)) = (link, discovery) {
            self.show_connected(&link, &discovery);
        }
    }

    pub fn speaks_legacy(&self) -> Option<bool> {
        *self.also_legacy.lock().expect("no code panics while it holds the verdict")
    }

    pub fn set_speaks_legacy(&self, verdict: Option<bool>) {
        *self.also_legacy.lock().expect("no code panics while it holds the verdict") = verdict;
    }

    pub fn forget_era(&self) {
        self.remember_era(None);
    }

    pub fn remember_era(&self, era: Option<Era>) {
        *self.known_era.lock().expect("no code panics while it holds the era") = era;
    }

    /// The era of the first link, or of the one before while there is none.
    pub fn first_era(&self) -> Option<Era> {
        let listed = self.offering.load();
        let listed = listed.as_ref().and_then(|offering| Version::parse(&offering.protocol_version));
        self.era().or(listed.map(Version::era))
    }

    pub fn era(&self) -> Option<Era> {
        *self.known_era.lock().expect("no code panics while it holds the era")
    }
}

/// How much a server offers: `2 tools, 1 prompt, 0 resources`.
pub(super) fn counted(offering: &Offering) -> String {
    let count = |count: usize, noun| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let Offering { tools, prompts, resources, .. } = offering;
    [count(tools.len(), "tool"), count(prompts.len(), "prompt"), count(resources.len(), "resource")]
        .join(", ")
}

/// A remark about tool names that some clients refuse; such names are passed on unchanged.
fn remark_on_names(config: &ServerConfig, offering: &Offering) -> Option<String> {
    let names = offering.tools.iter().map(|tool| config.name.qualify(&tool.name));
    let odd: Vec<_> = names.filter(|name| !name::is_usual_tool_name(name)).collect();
    match odd.as_slice() {
        [] => None,
        [one] => Some(format!(
            "some clients refuse this tool name (more than 64 characters, or unusual characters): {one}"
        )),
        [first, ..] => Some(format!(
            "some clients refuse {} tool names (more than 64 characters, or unusual characters), such as {first}",
            odd.len()
        )),
    }
}
