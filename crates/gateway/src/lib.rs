//! What the product does, and the only place that joins the store and the upstreams. Faces call it; it knows none.
//! Reading order: `catalog` (what there is), `members` and `view` (what an endpoint shows of it), `servers`, `change`,
//! `tools`, `prompts`, `resources` and `groups` (what people do with it), `oauth` and `authorizations` (servers that want
//! OAuth), `principals`, `users`, `clients` and `revocation` (who may), `destination`, `engine` and `ending` (how a request
//! travels to a server, and what came of it), `wording`, `forward` and `request` (what it says).
//!
//! Changes are made one at a time: store first, then the catalog is swapped. Reading never waits for a change.

pub mod answer;
pub mod authorizations;
pub mod caller;
pub mod catalog;
mod change;
pub mod clients;
pub mod destination;
pub mod difference;
mod ending;
mod engine;
pub mod error;
pub mod forward;
mod grants;
pub mod greeting;
pub mod groups;
pub mod init;
pub mod invoke;
pub mod lists;
pub mod members;
pub mod oauth;
pub mod overview;
pub mod principals;
pub mod prompts;
mod reconcile;
pub mod record;
pub mod refusal;
mod request;
pub mod resources;
mod result;
mod revocation;
pub mod servers;
pub mod subscriptions;
pub mod tools;
pub mod users;
pub mod view;
mod wording;

use std::collections::HashSet;
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use tokio::sync::{broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use model::{LogLevel, Mode, Offering, ServerName, time};
use store::Store;
use telemetry::Metrics;
use upstream::credentials::Credentials;
use upstream::{Options, Owner, ServerEvent, Upstream};

pub use catalog::{Catalog, Entry};
pub use error::{Error, ErrorKind};

pub use store::Health as StoreHealth;
pub use upstream::News;

use grants::Keeper;
use lists::ListCache;
use principals::Principals;
use subscriptions::Subscriptions;

/// What still goes on when all servers are stopped gets this long.
const LAST_TASKS: Duration = Duration::from_secs(5);
/// Updates that may wait for somebody who is slow to pass them on.
const UPDATES_BACKLOG: usize = 1024;

pub struct Gateway {
    store: Arc<Store>,
    /// The store, as upstreams see it.
    keeper: Arc<Keeper>,
    /// How long an authorization waits for a person, and how long its end is remembered.
    authorization_life: Duration,
    catalog: ArcSwap<Catalog>,
    /// Whoever changes the store and the catalog holds this: the two never tell different stories for long.
    turn: tokio::sync::Mutex<()>,
    /// Authorizations whose end could not be stored yet, with the reason of those that failed.
    unsettled: Mutex<Vec<(String, Option<String>)>>,
    /// Whether authorizations that the last stop interrupted still have to be ended in the database.
    has_interrupted: AtomicBool,
    /// Servers that are being registered, replaced or removed, which may take as long as connecting does.
    in_change: Mutex<HashSet<ServerName>>,
    upstream_options: Options,
    events: mpsc::UnboundedSender<ServerEvent>,
    lists: ListCache,
    subscriptions: Subscriptions,
    /// The most verbose that any agent asked for.
    log_level: Mutex<Option<LogLevel>>,
    /// Says that the catalog was swapped.
    changed: watch::Sender<()>,
    /// Server and URI of resources that were updated.
    updated: broadcast::Sender<(String, String)>,
    pub metrics: Arc<Metrics>,
    pub mode: Mode,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Gateway {
    /// Starts from what is stored: the catalog is there at once, servers connect in the background.
    pub async fn start(
        store: Store,
        mode: Mode,
        options: Options,
        authorization_life: Duration,
        metrics: Metrics,
    ) -> Result<Arc<Self>, Error> {
        let is_initialized = check_mode(&store, mode).await?;
        if !is_initialized {
            tracing::info!("not initialized yet; the answer to POST /init has the token of the admin");
        }
        // On a full disk the gateway starts all the same: what it has is served, what it must write waits.
        let swept = store.fail_interrupted_authorizations(now_ms()).await;
        if let Err(error) = &swept {
            tracing::warn!(%error, "authorizations that the last stop interrupted still count as under way");
        }
        let store = Arc::new(store);
        let keeper = Arc::new(Keeper(store.clone()));
        let mut grants = store.load_grants().await?;
        let (events, received) = mpsc::unbounded_channel();
        let (stored, groups) = (store.load_servers().await?, store.load_groups().await?);
        let (users, clients) = (store.load_users().await?, store.load_clients().await?);
        let principals = Principals::new(&store, is_initialized, users, clients);
        let entries = stored.into_iter().map(|server| {
            let config = server.registration.config.clone();
            let grant =
                grants.remove(config.name.as_str()).and_then(|text| grants::read(&config.name, &text));
            let credentials = Credentials::new(&config, &options, keeper.clone(), grant, true);
            let upstream = server.registration.flags.enabled.then(|| {
                Upstream::resume(config, options.clone(), events.clone(), credentials, &server.offering)
            });
            let discovered = server.discovered_at_ms;
            Entry::new(
                server.registration,
                Arc::new(server.offering),
                upstream,
                server.updated_at_ms,
                discovered,
            )
        });
        let gateway = Arc::new(Self {
            catalog: ArcSwap::from_pointee(
                Catalog::new(entries, groups).with_principals(principals).following(0),
            ),
            store,
            keeper: keeper.clone(),
            authorization_life,
            turn: tokio::sync::Mutex::default(),
            unsettled: Mutex::default(),
            has_interrupted: AtomicBool::new(swept.is_err()),
            in_change: Mutex::default(),
            upstream_options: options,
            events,
            lists: ListCache::default(),
            subscriptions: Subscriptions::default(),
            log_level: Mutex::default(),
            changed: watch::Sender::default(),
            updated: broadcast::Sender::new(UPDATES_BACKLOG),
            metrics: Arc::new(metrics),
            mode,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        let follow = gateway.clone().follow(received);
        let stop = gateway.stop.clone();
        gateway.tasks.spawn(async move { stop.run_until_cancelled(follow).await });
        let (clean, stop) = (gateway.clone().keep_authorizations_clean(), gateway.stop.clone());
        gateway.tasks.spawn(async move { stop.run_until_cancelled(clean).await });
        let (heal, stop) = (gateway.clone().keep_store_healthy(), gateway.stop.clone());
        gateway.tasks.spawn(async move { stop.run_until_cancelled(heal).await });
        Ok(gateway)
    }

    /// The state of things at this moment; it does not change under the reader's hands.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load_full()
    }

    /// Ends every link and process, then the store.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.stop_upstreams().await;
        self.tasks.close();
        self.tasks.wait().await;
        // A change that was just being made may have brought in another one.
        self.stop_upstreams().await;
        self.upstream_options.tasks.close();
        if tokio::time::timeout(LAST_TASKS, self.upstream_options.tasks.wait()).await.is_err() {
            tracing::warn!("gave up on links that do not close or grants that are not renewed");
        }
        self.store.close().await;
    }

    async fn stop_upstreams(&self) {
        let mut ending = tokio::task::JoinSet::new();
        for upstream in self.catalog().entries().filter_map(|entry| entry.upstream.clone()) {
            ending.spawn(async move { upstream.stop().await });
        }
        ending.join_all().await;
    }

    /// Takes over what upstreams find out by themselves.
    async fn follow(self: Arc<Self>, mut events: mpsc::UnboundedReceiver<ServerEvent>) {
        while let Some(event) = events.recv().await {
            match event {
                ServerEvent::Offered(upstream, offering) => self.take_offering(&upstream, offering).await,
                // That nobody listens is no error.
                ServerEvent::Updated(upstream, uri) => {
                    let _ = self.updated.send((upstream.config().name.to_string(), uri));
                }
            }
        }
    }

    /// Stores and shows new lists, unless the server was replaced in the meantime.
    async fn take_offering(&self, upstream: &Upstream, offering: Arc<Offering>) {
        // Without a look at the store's health: what servers say counts while the disk is full, too.
        let _turn = self.turn.lock().await;
        // Whoever had the turn before may have shown a later reading, which must not be undone.
        let offering = upstream.offering().unwrap_or(offering);
        let catalog = self.catalog();
        let name = &upstream.config().name;
        let Some(entry) = catalog.get(name.as_str()) else { return };
        if !entry.upstream.as_ref().is_some_and(|current| current.is(upstream)) {
            return;
        }
        let now = now_ms();
        if let Err(error) = self.store.update_offering(name, &offering, now).await {
            // The lists are right in memory, and `reconcile` stores them as soon as that works.
            tracing::error!(server = %name, %error, "cannot store the lists of a server");
        }
        let tools = offering.tools.len();
        tracing::info!(server = %name, tools, "the lists of a server changed");
        self.swap(catalog.with(entry.with_offering(offering, now)));
    }

    /// Shows a new catalog and tells of it.
    fn swap(&self, catalog: Catalog) {
        self.publish(catalog);
        self.changed.send_replace(());
    }

    /// The caller holds the turn.
    fn publish(&self, catalog: Catalog) {
        let catalog = Arc::new(catalog.following(self.catalog.load().generation));
        self.catalog.store(catalog.clone());
        self.lists.follow(&catalog);
    }

    /// Resolves each time the catalog was swapped.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// What happens to servers from now on: how connecting goes, and whose status changed.
    pub fn news(&self) -> broadcast::Receiver<News> {
        self.upstream_options.newsroom.watch()
    }

    /// Whether changes can be stored, and the news of that.
    pub fn store_health(&self) -> watch::Receiver<StoreHealth> {
        self.store.health()
    }

    /// Server and URI of every resource that is updated from now on.
    pub fn resource_updates(&self) -> broadcast::Receiver<(String, String)> {
        self.updated.subscribe()
    }

    /// The most verbose log level that any agent asked for.
    pub fn set_log_level(&self, level: LogLevel) {
        *self.log_level.lock().expect("no code panics while it holds the level") = Some(level);
        for upstream in self.catalog().entries().filter_map(|entry| entry.upstream.as_ref()) {
            upstream.set_level(level);
        }
    }

    /// Whether calls of a session may open upstream sessions of its own.
    pub fn has_stateful_servers(&self) -> bool {
        self.catalog.load().has_stateful_servers
    }

    /// Whether upstream sessions belong to this owner.
    pub fn has_links_of(&self, owner: Owner) -> bool {
        let catalog = self.catalog();
        let mut upstreams = catalog.entries().filter_map(|entry| entry.upstream.as_ref());
        catalog.has_stateful_servers && upstreams.any(|upstream| upstream.has_link_of(owner))
    }

    /// Closes the upstream sessions of an owner who is gone.
    pub async fn release_links_of(&self, owner: Owner) {
        for upstream in self.catalog().entries().filter_map(|entry| entry.upstream.as_ref()) {
            upstream.release(owner).await;
        }
    }

    /// Closes the upstream sessions that callers without a session have not used for so long.
    pub async fn release_idle_links(&self, limit: Duration) {
        for upstream in self.catalog().entries().filter_map(|entry| entry.upstream.as_ref()) {
            upstream.release_idle(limit).await;
        }
    }

    /// Runs a change to its end even if the request that asked for it goes away: nothing is left half done.
    async fn to_the_end<T, F>(self: &Arc<Self>, change: impl FnOnce(Arc<Self>) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let running = self.tasks.spawn(change(self.clone()));
        running
            .await
            .unwrap_or_else(|error| Err(Error::internal(format!("a change was interrupted: {error}"))))
    }
}

/// The mode belongs to the database: users and tokens of one mode mean nothing in the other. Says whether the
/// gateway is initialized: development needs nobody for that, enterprise its first admin.
async fn check_mode(store: &Store, mode: Mode) -> Result<bool, Error> {
    match (store.mode().await?, mode) {
        (None, Mode::Development) => {
            store.set_mode(mode.as_str()).await?;
            Ok(true)
        }
        (None, Mode::Enterprise) => Ok(false),
        (Some(stored), mode) if stored == mode.as_str() => Ok(true),
        (Some(stored), mode) => Err(Error::invalid(format!(
            "this database was initialized in {stored} mode and cannot be started in {mode} mode; \
             set SERVER_MODE={stored} or use another database",
            mode = mode.as_str()
        ))),
    }
}

pub fn now_ms() -> i64 {
    time::milliseconds(SystemTime::now())
}
