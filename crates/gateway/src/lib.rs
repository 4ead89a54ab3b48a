//! What the product does, and the only place that joins the store and the upstreams. Faces call it; it knows no face.
//! Reading order: `catalog` (everything registered), `caller` (who asks, at which endpoint), `members`, `view`, `lists`
//! and `greeting` (what an endpoint shows), `change`, `reconcile` and `catch_up` (what every change goes through, repairs
//! after a failed one, and the changes of other gateways), `servers`, `server_change`, `tools`, `prompts`, `resources` and `groups` (how people manage it),
//! `record`, `overview` and `difference` (what people see of it), `audit` (what is noted of changes), `oauth`, `authorizations` and `grants` (servers that
//! require OAuth), `identification`, `principals`, `init`, `users`, `clients`, `sign_in`, `revocation` and `retired_tokens` (who has
//! access), `usage` and `quota` (what they use of their limits), `destination`, `engine`, `stopwatch` and `ending` (how a request is sent to a
//! server, and its outcome), `trail`, `recorder` and `spans` (what is recorded of it), `wording`, `forward`, `request` and `invoke` (what it contains), `answer`, `result`,
//! `refusal`, `error` and `disclosure` (what comes back), `subscriptions`, `tasks`.
//!
//! Changes are made one at a time: they are stored first, then the catalog is swapped. Reads never wait for a change.

mod admission;
pub mod answer;
pub mod audience;
pub mod audit;
pub mod authorizations;
pub mod caller;
pub mod catalog;
mod catch_up;
mod change;
pub mod clients;
mod clock;
pub mod destination;
pub mod difference;
mod disclosure;
mod downgrade;
mod ending;
mod engine;
pub mod error;
pub mod explain;
pub mod forward;
mod gauges;
mod grants;
pub mod greeting;
pub mod groups;
mod homes;
pub mod identification;
mod idp_groups;
pub mod init;
pub mod input;
pub mod interview;
pub mod invoke;
mod last_seen;
mod leases;
mod limiter;
pub mod lists;
pub mod members;
pub mod oauth;
pub mod overview;
pub mod people;
pub mod principals;
pub mod prompts;
pub mod question;
mod quota;
pub mod reached;
pub mod recent_clients;
mod reconcile;
pub mod record;
pub mod recorder;
pub mod refusal;
mod replicas;
mod request;
pub mod resources;
mod result;
mod retired_tokens;
mod revocation;
pub mod rights;
mod runner;
mod server_change;
pub mod servers;
mod shared_uris;
pub mod sign_in;
mod spans;
mod stopwatch;
pub mod subscriptions;
pub mod tasks;
pub mod tools;
pub mod trail;
mod union;
mod unknown_resource;
pub mod usage;
pub mod users;
pub mod view;
pub mod why;
mod wording;

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use budget::Budgets;
use model::{AuditOutcome, By, LogLevel, Mode, Offering, ServerName, Status, Topic, WallClock, time};
use store::{OpaqueTokens, Store};
use telemetry::traces::Tracer;
use telemetry::{Metrics, Telemetry};
use upstream::credentials::Credentials;
use upstream::{Options, ServerEvent, Upstream};

pub use admission::check_use;
pub use catalog::{Catalog, Entry};
pub use disclosure::Disclosure;
pub use error::{Error, ErrorKind};

pub use store::{Health as StoreHealth, Replica};
pub use upstream::{Journal, JournalLine, JournalLines, JournalReader, KEPT_LINES, News};

use audience::OwnLists;
use audit::AuditSums;
use authorizations::FailedAuthorization;
use caller::{Owner, Profile, Viewer};
use catch_up::Progress;
use grants::Keeper;
use interview::Interviews;
use last_seen::LastSeen;
use lists::ListCache;
use principals::Principals;
use recent_clients::RecentClients;
use recorder::{Recorder, Recording};
use replicas::Replicas;
use retired_tokens::RetiredTokens;
use sign_in::SignedIn;
use subscriptions::{SubscribedTopic, Subscriptions};
use tasks::TaskNotice;
use usage::Usages;

/// Timeout for tasks that still run when all servers are stopped.
const LAST_TASKS: Duration = Duration::from_secs(5);
/// How many updates are queued for a slow receiver.
const UPDATES_BACKLOG: usize = 1024;
/// How long a client waits for servers to accept a log level.
const ANSWERING: Duration = Duration::from_secs(5);

/// Settings for gateways that share a database.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// How long the rights in memory count without a database that confirms them.
    pub stale_rights: Duration,
    /// Where other gateways reach this one.
    pub internal_url: String,
}

/// Settings for what lasts for a limited time.
#[derive(Clone, Debug)]
pub struct Lives {
    /// How long an authorization waits for a person, and how long it is kept after its end.
    pub authorization: Duration,
    /// By which credentials expire.
    pub clock: WallClock,
}

pub struct Gateway {
    store: Arc<Store>,
    /// The store, as upstreams use it to keep grants.
    keeper: Arc<Keeper>,
    /// How long an authorization waits for a person, and how long it is kept after its end.
    authorization_life: Duration,
    catalog: ArcSwap<Catalog>,
    retired_tokens: RetiredTokens,
    /// The grants and browser sessions of users.
    signed_in: SignedIn,
    /// Makes and reads the secrets of those.
    opaque_tokens: OpaqueTokens,
    clock: WallClock,
    /// Held during each change of the store and the catalog, so that the two do not diverge.
    turn: tokio::sync::Mutex<()>,
    /// How far the changes of other gateways on the same database have been followed.
    progress: Progress,
    /// The gateways on the same database.
    replicas: Replicas,
    /// Servers whose lists could not be stored yet.
    late_offerings: Mutex<BTreeSet<ServerName>>,
    /// Ended authorizations whose result could not be stored yet, with the error of those that failed.
    unsettled: Mutex<Vec<(String, Option<FailedAuthorization>)>>,
    /// Whether authorizations that the last stop interrupted still have to be marked as failed in the database.
    has_interrupted: AtomicBool,
    /// Servers that are being registered, changed or removed, which may take as long as connecting does.
    in_change: Mutex<HashSet<ServerName>>,
    upstream_options: Options,
    events: mpsc::UnboundedSender<ServerEvent>,
    lists: ListCache,
    own_lists: OwnLists,
    /// The owners for whom a stateful server changed its lists.
    own_lists_changed: broadcast::Sender<Owner>,
    subscriptions: Subscriptions,
    usages: Usages,
    interviews: Interviews,
    recent_clients: RecentClients,
    /// The records of calls.
    pub recorder: Arc<Recorder>,
    /// What happened too often to have entries of its own in the audit.
    audit_sums: AuditSums,
    last_seen: LastSeen,
    /// The most verbose level that any agent asked for.
    log_level: Mutex<Option<LogLevel>>,
    /// Signals that the catalog was swapped.
    changed: watch::Sender<()>,
    /// How many changes there were, without lists that were read for the first time for some callers.
    change_count: AtomicU64,
    /// Resources that were updated.
    updated: broadcast::Sender<Arc<SubscribedTopic>>,
    /// Notices about tasks that came outside of calls.
    task_notices: broadcast::Sender<Arc<TaskNotice>>,
    pub metrics: Arc<Metrics>,
    /// Makes the traces of calls; `None` if calls are not traced.
    tracer: Option<Arc<Tracer>>,
    pub mode: Mode,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Gateway {
    /// Starts from what is stored: the catalog is complete at once, servers connect in the background.
    pub async fn start(
        store: Store,
        mode: Mode,
        options: Options,
        lives: Lives,
        sharing: Sharing,
        recording: Recording,
        telemetry: Telemetry,
    ) -> Result<Arc<Self>, Error> {
        admission::claim_mode(&store, mode).await?;
        // The gateway starts even if the disk is full: it serves what it has, and writes later.
        let swept = match store.is_shared() {
            // Another gateway may be completing them.
            true => Ok(()),
            false => store.fail_interrupted_authorizations(now_ms()).await,
        };
        if let Err(error) = &swept {
            tracing::warn!(%error, "cannot mark interrupted authorizations as failed; trying again later");
        }
        let (store, metrics) = (Arc::new(store), Arc::new(telemetry.metrics));
        let writes = metrics.clone();
        store.watch_writes(move |elapsed| writes.store_written(elapsed));
        let replicas = Replicas::join(&store, &sharing.internal_url).await?;
        // What changes from here on is read again.
        let loading = async {
            let loaded = store.load(now_ms()).await?;
            let is_initialized = admission::is_initialized(loaded.mode.as_deref(), mode)?;
            Ok::<_, Error>((loaded, is_initialized))
        };
        let (mut loaded, is_initialized) = match loading.await {
            Ok(loaded) => loaded,
            Err(error) => {
                replicas.leave(&store).await;
                return Err(error);
            }
        };
        if !is_initialized {
            tracing::info!("not initialized yet; the response to POST /init contains the token of the admin");
        }
        let keeper = Arc::new(Keeper(store.clone()));
        let (events, received) = mpsc::unbounded_channel();
        let principals =
            Principals::new(&store, is_initialized, loaded.users, loaded.clients, loaded.idp_groups);
        let signed_in = SignedIn::new(loaded.held_grants, loaded.browser_sessions, loaded.epoch);
        let enabled = loaded.servers.iter().filter(|server| server.registration.flags.enabled);
        let enabled = enabled
            .map(|server| (server.registration.config.name.clone(), Status::Connecting, String::new()));
        replicas.renew_leases(&store, enabled.collect::<Vec<_>>().into_iter()).await?;
        let opaque_tokens = store.opaque_tokens().await?;
        // From here on nothing is waited for, so that what servers answer is not read before the first requests.
        let entries = loaded.servers.into_iter().map(|server| {
            let config = server.registration.config.clone();
            let grant = loaded.grants.remove(config.name.as_str());
            let grant = grant.and_then(|text| grants::read(&config.name, &text));
            let credentials = Credentials::new(&config, &options, keeper.clone(), grant, true);
            let offering = Arc::new(server.offering);
            let journal = Journal::default();
            let upstream = server.registration.flags.enabled.then(|| {
                let (reading, journal) = (replicas.reading_of(&config), journal.clone());
                let (options, events) = (options.clone(), events.clone());
                Upstream::resume(config, options, events, credentials, journal, &offering, reading)
            });
            let discovered = server.discovered_at_ms;
            Entry::new(server.registration, offering, upstream, journal, server.updated_at_ms, discovered)
        });
        let catalog = Catalog::new(entries, loaded.groups).with_principals(principals).following(0);
        let gateway = Arc::new(Self {
            catalog: ArcSwap::from_pointee(catalog),
            keeper: keeper.clone(),
            authorization_life: lives.authorization,
            retired_tokens: RetiredTokens::new(loaded.retired_tokens),
            signed_in,
            opaque_tokens,
            clock: lives.clock,
            turn: tokio::sync::Mutex::default(),
            progress: Progress::new(loaded.epoch, sharing.stale_rights),
            replicas,
            late_offerings: Mutex::default(),
            unsettled: Mutex::default(),
            has_interrupted: AtomicBool::new(swept.is_err()),
            in_change: Mutex::default(),
            usages: Usages::new(&options.budgets),
            interviews: Interviews::default(),
            recent_clients: RecentClients::default(),
            recorder: Arc::new(Recorder::new(recording, store.records())),
            audit_sums: AuditSums::default(),
            last_seen: LastSeen::default(),
            store,
            upstream_options: options,
            events,
            lists: ListCache::default(),
            own_lists: OwnLists::default(),
            own_lists_changed: broadcast::Sender::new(UPDATES_BACKLOG),
            subscriptions: Subscriptions::default(),
            log_level: Mutex::default(),
            changed: watch::Sender::default(),
            change_count: AtomicU64::default(),
            updated: broadcast::Sender::new(UPDATES_BACKLOG),
            task_notices: broadcast::Sender::new(UPDATES_BACKLOG),
            metrics,
            tracer: telemetry.tracer,
            mode,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        gateway.follow_leases();
        let follow = gateway.clone().follow(received);
        let stop = gateway.stop.clone();
        gateway.tasks.spawn(async move { stop.run_until_cancelled(follow).await });
        let (clean, stop) = (gateway.clone().keep_authorizations_clean(), gateway.stop.clone());
        gateway.tasks.spawn(async move { stop.run_until_cancelled(clean).await });
        let (follow, stop) = (gateway.clone().follow_database(), gateway.stop.clone());
        gateway.tasks.spawn(async move { stop.run_until_cancelled(follow).await });
        let (beat, stop) = (gateway.clone().keep_membership(), gateway.stop.clone());
        gateway.tasks.spawn(async move { stop.run_until_cancelled(beat).await });
        let (tidy, stop) = (gateway.clone().keep_credentials(), gateway.stop.clone());
        gateway.tasks.spawn(async move { stop.run_until_cancelled(tidy).await });
        let (heal, stop) = (gateway.clone().keep_store_healthy(), gateway.stop.clone());
        gateway.tasks.spawn(async move { stop.run_until_cancelled(heal).await });
        let (seen, stop) = (gateway.clone().keep_last_seen(), gateway.stop.clone());
        gateway.tasks.spawn(async move { stop.run_until_cancelled(seen).await });
        gateway.recorder.start();
        Ok(gateway)
    }

    /// The current snapshot, which does not change while it is read.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// Ends every link and process, then closes the store.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.stop_upstreams().await;
        self.tasks.close();
        self.tasks.wait().await;
        // A change that was still running may have added another one.
        self.stop_upstreams().await;
        self.upstream_options.tasks.close();
        if tokio::time::timeout(LAST_TASKS, self.upstream_options.tasks.wait()).await.is_err() {
            tracing::warn!("stopped waiting for links that do not close or grants that are not renewed");
        }
        self.write_last_sums().await;
        self.store_last_seen().await;
        self.write_last_uses().await;
        self.recorder.stop().await;
        self.leave().await;
        self.store.close().await;
    }

    async fn stop_upstreams(&self) {
        let mut ending = tokio::task::JoinSet::new();
        for upstream in self.catalog().entries().filter_map(|entry| entry.upstream.clone()) {
            ending.spawn(async move { upstream.stop().await });
        }
        ending.join_all().await;
    }

    /// Processes the events that upstreams report.
    async fn follow(self: Arc<Self>, mut events: mpsc::UnboundedReceiver<ServerEvent>) {
        while let Some(event) = events.recv().await {
            match event {
                ServerEvent::Offered(upstream, offering) => self.take_offering(&upstream, offering).await,
                ServerEvent::OfferedTo(upstream, profiles, offering) => {
                    self.take_lists_for(&upstream, &profiles, Some(&offering)).await;
                }
                ServerEvent::Forgotten(upstream, profiles) => {
                    self.take_lists_for(&upstream, &profiles, None).await;
                }
                // It is no error if nobody is subscribed.
                ServerEvent::Updated(upstream, link, uri) => {
                    let server = upstream.config().name.to_string();
                    let topic = Topic::Resource(uri);
                    let _ = self.updated.send(Arc::new(SubscribedTopic { server, topic, link }));
                }
                ServerEvent::Doubted(upstream) => self.pass_on_doubt(&upstream.config().name).await,
                ServerEvent::TaskNotice(upstream, link, notice) => {
                    let notice = TaskNotice::read(&upstream, link, notice);
                    let _ = notice.map(|notice| self.task_notices.send(Arc::new(notice)));
                }
            }
        }
    }

    /// Stores new lists and puts them into the catalog, unless the server was replaced in the meantime.
    async fn take_offering(self: &Arc<Self>, upstream: &Upstream, offering: Arc<Offering>) {
        // The store's health is not checked: new lists apply even while the disk is full.
        let _turn = self.turn_anyway().await;
        // The change before this one may have published newer lists, which must not be undone.
        let offering = upstream.offering().unwrap_or(offering);
        let catalog = self.catalog();
        let name = &upstream.config().name;
        let Some(entry) = catalog.get(name.as_str()) else { return };
        if !entry.upstream.as_ref().is_some_and(|current| current.is(upstream)) {
            return;
        }
        let now = now_ms();
        let is_same = entry.offering().same_as(&offering);
        // After a restart, most servers offer what they offered before. A shared database may have other lists.
        let stored = match is_same && !self.is_shared() {
            true => self.store.confirm_offering(name, &offering, now).await,
            false => self.store.update_offering(name, &offering, now).await,
        };
        if let Err(error) = stored {
            // The lists in memory are right, and `reconcile` stores them as soon as that works. In a database of its own it
            // finds by itself what differs.
            tracing::error!(server = %name, %error, "cannot store the lists of a server");
            if self.is_shared() {
                self.late_offerings
                    .lock()
                    .expect("no code panics while it holds the names")
                    .insert(name.clone());
            }
        }
        if !is_same {
            let by = By::system(name.as_str());
            self.sum_up(by, "server.change_lists", name.as_str(), AuditOutcome::Ok);
            tracing::info!(server = %name, tools = offering.tools.len(), "the lists of a server changed");
        }
        self.swap(catalog.with(entry.with_offering(offering, now)));
    }

    /// The limits of this gateway and what is used of them.
    pub fn budgets(&self) -> &Budgets {
        &self.upstream_options.budgets
    }

    /// A receiver that is notified each time the catalog is swapped.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// How many changes of the catalog there were. Lists that were read for the first time for some callers do not count.
    pub fn change_count(&self) -> u64 {
        self.change_count.load(Ordering::Acquire)
    }

    /// Events of servers from now on: the progress of connecting, and changes of their status.
    pub fn news(&self) -> broadcast::Receiver<News> {
        self.upstream_options.newsroom.watch()
    }

    /// Whether other gateways can use the same database.
    pub fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    /// Whether changes can be stored, as a receiver that is notified when this changes.
    pub fn store_health(&self) -> watch::Receiver<StoreHealth> {
        self.store.health()
    }

    /// Every resource that is updated from now on.
    pub fn resource_updates(&self) -> broadcast::Receiver<Arc<SubscribedTopic>> {
        self.updated.subscribe()
    }

    /// Every notice about a task that comes outside of a call from now on.
    pub fn task_notices(&self) -> broadcast::Receiver<Arc<TaskNotice>> {
        self.task_notices.subscribe()
    }

    /// The owners for whom a stateful server changes its lists from now on.
    pub fn own_list_changes(&self) -> broadcast::Receiver<Owner> {
        self.own_lists_changed.subscribe()
    }

    /// Sets the most verbose log level that any agent asked for, here and at all servers. Returns when the servers of this
    /// viewer have answered, or have had enough time to.
    pub async fn set_log_level(&self, level: LogLevel, viewer: &Viewer, profile: &Profile) {
        *self.log_level.lock().expect("no code panics while it holds the level") = Some(level);
        let catalog = self.catalog();
        let lens = catalog.lens(viewer);
        let mut answering = JoinSet::new();
        for entry in catalog.entries() {
            let Some(upstream) = entry.upstream.clone() else { continue };
            match lens.as_ref().is_some_and(|lens| lens.admits(entry)) && upstream.is_connected() {
                true => {
                    let profile = profile.clone();
                    answering.spawn(async move {
                        // The level belongs to the link that the caller's calls use.
                        let _ = upstream.link_for(&profile).await;
                        upstream.set_level(level).await;
                    });
                }
                false => drop(self.tasks.spawn(async move { upstream.set_level(level).await })),
            }
        }
        // One server that does not answer must not keep the client waiting for long.
        let _ = tokio::time::timeout(ANSWERING, answering.join_all()).await;
    }

    /// Whether calls of a session may open links of its own.
    pub fn has_stateful_servers(&self) -> bool {
        self.catalog.load().has_stateful_servers
    }

    /// Whether this owner has links of its own.
    pub fn has_links_of(&self, owner: Owner) -> bool {
        let catalog = self.catalog();
        let mut upstreams = catalog.entries().filter_map(|entry| entry.upstream.as_ref());
        catalog.has_stateful_servers && upstreams.any(|upstream| upstream.has_link_of(owner))
    }

    /// Begins to close the links of owners who are gone.
    pub fn release_links_of(&self, is_gone: impl Fn(Owner) -> bool) {
        for upstream in self.catalog().entries().filter_map(|entry| entry.upstream.as_ref()) {
            upstream.release(&is_gone);
        }
        self.forget_own_lists(is_gone);
    }

    /// Closes the links of callers without a session that have been idle for this long.
    pub async fn release_idle_links(&self, limit: Duration) {
        for upstream in self.catalog().entries().filter_map(|entry| entry.upstream.as_ref()) {
            upstream.release_idle(limit).await;
        }
        let catalog = self.catalog();
        let has_links = |owner| {
            catalog.entries().filter_map(|entry| entry.upstream.as_ref()).any(|of| of.has_link_of(owner))
        };
        self.forget_own_lists(|owner| !matches!(owner, Owner::Session(_)) && !has_links(owner));
    }
}

pub fn now_ms() -> i64 {
    time::milliseconds(SystemTime::now())
}

/// An id that nobody can guess: 32 random bytes in hex.
fn random_id() -> String {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).expect("the operating system always has random bytes");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
