//! Wiring: builds the parts from the configuration, accepts connections, and shuts everything down in order when the
//! `stop` token of [`App::serve`] is cancelled.

mod code_pages;
mod connection;
mod events;
mod front;
mod in_use;
mod peer_links;
mod peers;
mod plain;
mod response;
mod resting;
mod span_exporter;
mod starting;
mod stream;
mod tls;
mod unusual;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, LazyLock, OnceLock, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use crate::config::{Bind, Config};
use crate::http::assets::Assets;
use crate::http::source_limit::SourceLimit;
use crate::http::{About, Face, FaceParts, WebSettings, client_metadata};
use crate::oauth::external::ExternalTokens;
use crate::oauth::{AuthorizationServer, Outside, ServerSettings};
use crate::routes::{self, LateRouter};
use budget::Budgets;
use gateway::sign_in::PeopleRules;
use gateway::{Gateway, Lives, Sharing, init, now_ms};
use mcp::{Mcp, Seals};
use model::{AuditHead, Mode, Secret, time};
use store::{self, DatabaseAddress, OpenOptions, Store, UnmigratedStore};
use telemetry::{Metrics, Telemetry};
use upstream::sign_in::{ClientDocuments, IdentityProvider, JwtIssuer, Web};
use upstream::stdio::{ChildSettings, ChildUser, Guards};

use front::Front;
use in_use::Shared;
use peers::{Internal, InternalSeals};
use resting::Connections;
use span_exporter::SpanExporter;
use starting::Starting;
use tls::Tls;

/// What the gateway reads of a plain request, for fuzzing.
pub use plain::head::{PlainRequest, read_plain};
/// Makes this process the subreaper of processes whose guard was killed, so that the gateway can end them. Only for a
/// process that runs nothing but a gateway.
pub use upstream::stdio::adopt_orphans;
pub use upstream::stdio::{hide_memory, raise_descriptor_limit};

/// How long a start may take before requests are answered with the fact that it is going on. Until then connections queue up
/// and are served a moment later. Longer than a start takes on a busy machine: whoever sees that the gateway is alive expects it
/// to serve requests.
const SHORT_START: Duration = Duration::from_secs(2);
/// How long a gateway on a shared database accepts connections after it was told to stop: load balancers need some time to
/// notice that it is not ready.
const NOTICE: Duration = Duration::from_secs(1);
/// How long the other gateways may take to learn where they reach this one while it stops.
const MOVING: Duration = Duration::from_millis(500);
/// How long a shutdown waits for requests in flight.
const DRAIN: Duration = Duration::from_secs(10);
/// How long connections may take to send their last responses, once all calls were ended.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long a shutdown waits for child processes that are still ending, such as those of a server just removed.
const LAST_PROCESSES: Duration = Duration::from_secs(5);
/// How often free memory is given back to the system.
const GIVE_BACK_INTERVAL: Duration = Duration::from_secs(1);
/// Backlog of the listening socket. With the usual 128, a burst of connections overflows it, and clients retry only
/// after a second. The system may cap it lower.
const BACKLOG: u32 = 4096;

pub struct App {
    gateway: Arc<Gateway>,
    guards: Guards,
    front: Front,
    tls: Option<Arc<Tls>>,
    draining: CancellationToken,
    closing: CancellationToken,
    /// Sends spans to a collector; `None` if calls are not traced.
    spans: Option<SpanExporter>,
    listeners: Vec<Arc<TcpListener>>,
    /// Where other gateways reach this one.
    internal_url: Url,
    bind: Bind,
    /// `None` if the gateway started so fast that nobody was answered meanwhile.
    starting: Option<Starting>,
    /// Returns memory that is free to the system.
    give_back: Option<fn()>,
}

impl App {
    /// Opens the listening sockets and starts all parts. If that takes long, requests are answered with the fact that the
    /// gateway is starting; otherwise connections queue up until [`App::serve`] runs.
    pub async fn build(config: &Config) -> anyhow::Result<Self> {
        let tls = config.tls.as_ref().map(Tls::load).transpose()?.map(Arc::new);
        let listeners: Vec<_> = listen(&config.bind, config.port).await?.into_iter().map(Arc::new).collect();
        let budgets = Budgets::new(config.limits);
        // Boxed, since it is large and is moved.
        let mut building = Box::pin(Self::build_on(config, tls.clone(), listeners.clone(), budgets.clone()));
        if let Ok(built) = tokio::time::timeout(SHORT_START, &mut building).await {
            return built;
        }
        if let Some(address) = listeners.first().and_then(|first| first.local_addr().ok()) {
            tracing::debug!(%address, "listening, but not ready yet");
        }
        let starting = Starting::begin(&listeners, tls, budgets);
        let built = building.await?;
        starting.end();
        Ok(Self { starting: Some(starting), ..built })
    }

    async fn build_on(
        config: &Config,
        tls: Option<Arc<Tls>>,
        listeners: Vec<Arc<TcpListener>>,
        budgets: Budgets,
    ) -> anyhow::Result<Self> {
        let store = open_own_store(config).await?;
        if store.has_previous_key().await? {
            tracing::warn!(
                "the secret key of the database is being replaced; set TOOLGATE_SECRET_KEY to the new key and restart"
            );
        }
        let seals = Seals { sessions: store.seal_for("session"), states: store.seal_for("request state") };
        let internal_seals = InternalSeals {
            requests: store.seal_for("request of a replica"),
            responses: store.seal_for("response of a replica"),
        };
        let internal_url = internal_url(config, &listeners)?;
        let sharing = Sharing { stale_rights: config.stale_rights, internal_url: internal_url.to_string() };
        let guards = Guards::default();
        let children = ChildSettings {
            env: config.child_env.clone(),
            user: config.stdio_user.as_deref().map(child_user).transpose()?,
            descriptors: config.child_descriptors,
        };
        let (tls_client, dialer) = (upstream::Tls::default(), upstream::Dialer::default());
        let sign_in = authorization_server(config, &store, &tls_client).map(Arc::new);
        let options = upstream::Options {
            init_timeout: config.init_timeout,
            guard: config.program.clone(),
            guards: guards.clone(),
            children,
            tls: tls_client.clone(),
            tasks: TaskTracker::new(),
            newsroom: upstream::Newsroom::default(),
            processes: upstream::ProcessSlots::new(&budgets),
            budgets,
            oauth: upstream::oauth::OAuthIdentity {
                allow_private: config.oauth_allow_private,
                client_metadata_url: config.public_url.as_ref().map(client_metadata::address),
            },
            dialer: dialer.clone(),
        };
        let traces = config.traces.as_ref();
        let spans = traces.map(|settings| SpanExporter::start(settings, &tls_client)).transpose()?;
        let telemetry = Telemetry {
            metrics: Metrics::new(env!("CARGO_PKG_VERSION")),
            tracer: spans.as_ref().map(SpanExporter::tracer),
        };
        let gateway = Gateway::start(
            store,
            config.mode,
            options,
            Lives { authorization: config.oauth_session_life, clock: config.clock.clone() },
            sharing,
            config.recording,
            telemetry,
        )
        .await?;
        gateway.keep_audit(config.auditing);
        if let Some(token) = config.sign_in.admin_token.clone() {
            let initialized = gateway.initialize_with(token).await;
            initialized.context("the gateway cannot be initialized with ADMIN_TOKEN_FILE")?;
        }
        let settings = WebSettings {
            public_url: config.public_url.clone(),
            trust_proxy: config.trust_proxy,
            allowed_origins: config.allowed_origins.clone(),
            allowed_hosts: config.allowed_hosts.clone(),
            is_loopback: config.bind.is_loopback(),
            init_secret: config.init_secret.clone(),
            is_tls: config.tls.is_some(),
            telemetry: config.telemetry,
        };
        let about = About {
            started: Instant::now(),
            config_source: config.source.clone(),
            database: match &config.database {
                DatabaseAddress::File(path) => format!("SQLite, {}", path.display()),
                DatabaseAddress::Postgres(address) => format!("Postgres, {address}"),
            },
            openapi: LazyLock::new(routes::openapi),
            assets: LazyLock::new(Assets::default),
        };
        let (draining, closing) = (CancellationToken::new(), CancellationToken::new());
        let peers = Internal::new(gateway.clone(), internal_seals, tls_client);
        let others: Weak<Internal> = Arc::downgrade(&peers);
        let face = Face::new(FaceParts {
            gateway: gateway.clone(),
            settings,
            guesses: SourceLimit::of_guesses(),
            sign_in,
            about,
            others,
            mcp: OnceLock::new(),
            draining: draining.clone(),
            closing: closing.clone(),
        });
        if face.sign_in.is_some() {
            gateway.set_admin_groups(&config.sign_in.admin_groups).await;
        }
        if config.mode == Mode::Enterprise {
            let provider = face.sign_in.as_ref().and_then(|server| server.provider.clone());
            gateway.look_after_people(provider, people_rules(config));
        }
        let router = LateRouter::new(face.clone());
        let mcp = Mcp::start(gateway.clone(), seals, peers.clone(), config.session_idle_timeout);
        let _ = face.mcp.set(Arc::downgrade(&mcp));
        peers.serve(&mcp, router.clone());
        let dialing: Arc<dyn upstream::GatewayDialer> = peers.clone();
        dialer.set(Arc::downgrade(&dialing));
        Ok(Self {
            gateway,
            guards,
            front: Front { router, mcp, face, peers },
            tls,
            draining,
            closing,
            spans,
            listeners,
            internal_url,
            bind: config.bind.clone(),
            starting: None,
            give_back: None,
        })
    }

    /// Sets the function that returns free memory to the system; it is called regularly.
    pub fn giving_back(self, give_back: fn()) -> Self {
        Self { give_back: Some(give_back), ..self }
    }

    /// Returns the addresses that the gateway listens on.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Returns what the faces of the product are about, for callers that have no face of their own.
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Tells whether the gateway is initialized. In enterprise mode that takes a `POST /init`.
    pub fn is_initialized(&self) -> bool {
        self.gateway.is_initialized()
    }

    /// Returns the number of registered servers.
    pub fn server_count(&self) -> usize {
        self.gateway.catalog().entries().count()
    }

    /// Serves requests until `stop` is cancelled; cancelling `hurry` stops waiting for load balancers and for requests in
    /// flight.
    pub async fn serve(self, stop: CancellationToken, hurry: CancellationToken) {
        let shutdown = CancellationToken::new();
        let connections = TaskTracker::new();
        let budgets = self.gateway.budgets().clone();
        let shared = Arc::new(Shared {
            front: self.front.clone(),
            tls: self.tls.clone(),
            connections: Connections::new(budgets.connections.clone()),
            budgets,
            draining: self.draining.clone(),
            shutdown: shutdown.clone(),
        });
        for listener in self.listeners {
            connections.spawn(accept(listener, connections.clone(), shared.clone()));
        }
        if let Some(starting) = self.starting {
            connections.spawn(take_over(starting, connections.clone(), shared.clone()));
        }
        connections.spawn(shared.connections.clone().close_idle(shutdown.clone()));
        if let Some(give_back) = self.give_back {
            let shutdown = shutdown.clone();
            connections
                .spawn(async move { shutdown.run_until_cancelled(give_back_regularly(give_back)).await });
        }
        if let Some(tls) = self.tls {
            connections.spawn(tls.follow(shutdown.clone()));
        }
        stop.cancelled().await;
        self.draining.cancel();
        // A gateway alone has nobody to leave its clients to.
        let (finished, internal_connections) = (CancellationToken::new(), TaskTracker::new());
        if self.gateway.is_shared() {
            let _ = tokio::time::timeout(NOTICE, hurry.cancelled()).await;
            let shared = Arc::new(shared.until(finished.clone()));
            let staying =
                stay_reachable(&self.gateway, &self.bind, &self.internal_url, &internal_connections, shared);
            if let Ok(Err(error)) = tokio::time::timeout(MOVING, staying).await {
                tracing::warn!("other gateways cannot reach this one while it finishes its calls: {error:#}");
            }
            self.front.peers.finish();
        }
        shutdown.cancel();
        let leaving = self.gateway.clone();
        self.gateway.spawn(async move { leaving.release_leases().await });
        self.front.mcp.end_streams();
        self.closing.cancel();
        connections.close();
        internal_connections.close();
        let last = async {
            connections.wait().await;
            finished.cancel();
            internal_connections.wait().await;
        };
        tokio::select! {
            () = last => {}
            () = tokio::time::sleep(DRAIN) => tracing::warn!("stopped waiting for requests in flight"),
            () = hurry.cancelled() => {}
        }
        finished.cancel();
        self.gateway.stop().await;
        self.front.peers.stop().await;
        self.front.mcp.stop().await;
        self.guards.wait(LAST_PROCESSES).await;
        // Callers of calls that were just ended still get their error.
        let all = async { tokio::join!(connections.wait(), internal_connections.wait()) };
        let _ = tokio::time::timeout(LAST_WORDS, all).await;
        if let Some(spans) = &self.spans {
            spans.stop().await;
        }
    }
}

fn people_rules(config: &Config) -> PeopleRules {
    let settings = &config.sign_in;
    PeopleRules { allowed_groups: settings.allowed_groups.clone(), max_days: settings.max_days }
}

/// The authorization server; `None` if nobody can sign in.
fn authorization_server(config: &Config, store: &Store, tls: &upstream::Tls) -> Option<AuthorizationServer> {
    let (settings, clock) = (&config.sign_in, &config.clock);
    let url = config.public_url.clone().filter(|_| config.mode == Mode::Enterprise && settings.is_on)?;
    let documents = ClientDocuments::new(settings.software.hosts.clone(), tls.clone(), clock.clone());
    let provider = settings.identity_provider(&url);
    let provider = provider.map(|settings| IdentityProvider::new(settings, tls.clone(), clock.clone()));
    let people = people_rules(config);
    let external = settings.jwt.as_ref().map(|jwt| {
        let issuer = JwtIssuer::new(&jwt.issuer, settings.claims.clone(), tls.clone(), clock.clone());
        ExternalTokens::new(issuer, jwt.audience.clone(), url.clone(), people.clone())
    });
    let settings = ServerSettings {
        url,
        rules: settings.software.clone(),
        has_registration: settings.registration_is_open,
        external_issuer: settings.jwt.as_ref().map(|jwt| jwt.issuer.clone()),
    };
    let (provider, web) = (provider.map(Arc::new), Web::new(tls.clone()));
    Some(AuthorizationServer::new(settings, store, Outside { documents, provider, people, external, web }))
}

/// Opens another port for the other gateways, and tells them its address: clients answer or cancel calls that are being
/// finished through them. Load balancers do not know it.
async fn stay_reachable(
    gateway: &Gateway,
    bind: &Bind,
    internal_url: &Url,
    connections: &TaskTracker,
    shared: Arc<Shared>,
) -> anyhow::Result<()> {
    let listeners = listen(bind, 0).await?;
    let port = listeners.first().context("there is a listener")?.local_addr()?.port();
    for listener in listeners {
        connections.spawn(accept(Arc::new(listener), connections.clone(), shared.clone()));
    }
    connections.spawn(shared.connections.clone().close_idle(shared.shutdown.clone()));
    let mut url = internal_url.clone();
    url.set_port(Some(port)).map_err(|()| anyhow!("{internal_url} cannot have a port"))?;
    gateway.change_address(url.into()).await;
    Ok(())
}

/// Where other gateways on the same database reach this one: the setting, or its address on the interface that reaches the
/// database.
fn internal_url(config: &Config, listeners: &[Arc<TcpListener>]) -> anyhow::Result<Url> {
    if let Some(url) = &config.internal_url {
        return Ok(url.clone());
    }
    let port = listeners.first().context("there is a listener")?.local_addr()?.port();
    let database = match &config.database {
        DatabaseAddress::Postgres(address) if !config.bind.is_loopback() => address.host_and_port(),
        DatabaseAddress::Postgres(_) | DatabaseAddress::File(_) => None,
    };
    let own = database.and_then(|place| {
        // Nothing is sent: this only chooses the interface.
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect(place).ok()?;
        Some(socket.local_addr().ok()?.ip())
    });
    let host = own.unwrap_or(std::net::Ipv4Addr::LOCALHOST.into());
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    Ok(Url::parse(&format!("{scheme}://{}", SocketAddr::new(host, port)))?)
}

/// Finds the user that runs the processes of servers.
fn child_user(user: &str) -> anyhow::Result<ChildUser> {
    ChildUser::find(user).map_err(|reason| anyhow!("STDIO_USER={user} is wrong: {reason}"))
}

/// Replaces the admin's token. The database must exist, and no gateway may be running on it.
pub async fn reset_admin(config: &Config) -> anyhow::Result<Secret> {
    if let Some(path) = config.database.file().filter(|path| !path.exists()) {
        bail!("there is no database {}; name it with --sqlite-db-path or SQLITE_DB_PATH", path.display());
    }
    let store = open_store(config).await?;
    let admin = init::reset_admin(&store).await;
    store.close().await;
    Ok(admin?)
}

/// Copies the database to a file. A gateway may be running on it.
pub async fn backup(config: &Config, target: &Path) -> anyhow::Result<store::Copied> {
    let now = time::rfc3339(now_ms());
    Ok(store::backup(&store_options(config), target, &now).await?)
}

/// Checks the database for damage. A gateway may be running on it.
pub async fn check(config: &Config) -> anyhow::Result<Vec<store::Finding>> {
    Ok(store::check(&store_options(config)).await?)
}

/// Checks the audit of the database. A gateway may be running on it.
pub async fn verify_audit(config: &Config, noted: Option<AuditHead>) -> anyhow::Result<store::AuditReport> {
    Ok(store::verify_audit(&store_options(config), noted).await?)
}

/// Opens the database of a gateway. One that it may not use stays as it is.
async fn open_own_store(config: &Config) -> anyhow::Result<Store> {
    let unmigrated = UnmigratedStore::open(store_options(config)).await?;
    let checked = match unmigrated.current_use().await {
        Ok(used) => gateway::check_use(&used, config.mode).map_err(anyhow::Error::from),
        Err(error) => Err(error.into()),
    };
    if let Err(error) = checked {
        unmigrated.close().await;
        return Err(error);
    }
    Ok(unmigrated.migrate().await?)
}

async fn open_store(config: &Config) -> anyhow::Result<Store> {
    Ok(Store::open(store_options(config)).await?)
}

fn store_options(config: &Config) -> OpenOptions {
    OpenOptions { database: config.database.clone(), secret_key: config.secret_key.clone() }
}

async fn accept(listener: Arc<TcpListener>, tasks: TaskTracker, shared: Arc<Shared>) {
    while let Some(accepted) = shared.shutdown.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, peer)) => {
                tasks.spawn(connection::serve(stream, peer.ip().to_canonical(), shared.clone()));
            }
            Err(error) => {
                // Most likely the process is out of file descriptors: a connection must close first.
                tracing::error!(%error, "cannot accept connections");
                drop(shared.connections.evict());
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Serves the connections that were opened while the gateway started and have not been used.
async fn take_over(mut starting: Starting, tasks: TaskTracker, shared: Arc<Shared>) {
    while let Some(Some((socket, peer))) = shared.shutdown.run_until_cancelled(starting.next_unused()).await {
        tasks.spawn(connection::serve(socket, peer, shared.clone()));
    }
}

/// Gives free memory back once a second, or less often if that takes long: it may not cost more than a hundredth of the
/// time. After the first second, the code that only starting needed is given back, too.
async fn give_back_regularly(give_back: fn()) {
    tokio::time::sleep(GIVE_BACK_INTERVAL).await;
    code_pages::let_go();
    loop {
        let begun = Instant::now();
        give_back();
        tokio::time::sleep(GIVE_BACK_INTERVAL.max(100 * begun.elapsed())).await;
    }
}

async fn listen(bind: &Bind, port: u16) -> anyhow::Result<Vec<TcpListener>> {
    let mut listeners: Vec<TcpListener> = Vec::new();
    for address in bind.addresses() {
        // With port 0, the system picks a port for the first address, and the other address uses the same one.
        let any_port = port == 0 && !listeners.is_empty();
        let port =
            listeners.first().and_then(|first| first.local_addr().ok()).map_or(port, |first| first.port());
        match open(SocketAddr::new(address, port)) {
            Ok(listener) => listeners.push(listener),
            // Another process has that port on this address: try again with a new one. The listeners opened so far
            // stay open meanwhile, so the same port is not picked twice.
            Err(error) if any_port && error.kind() == std::io::ErrorKind::AddrInUse => {
                return Box::pin(listen(bind, 0)).await;
            }
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                bail!("port {port} is already in use on {address}; choose another with --port or PORT");
            }
            // A machine without IPv6 has only the first loopback address.
            Err(error) if !listeners.is_empty() => {
                tracing::debug!(%address, %error, "not listening on this address")
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot listen on {address}, port {port}"));
            }
        }
    }
    Ok(listeners)
}

fn open(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
