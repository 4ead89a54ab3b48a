//! Wiring: builds the parts from the configuration, accepts connections, and shuts everything down in order when the
//! `shutdown` token of [`App::serve`] is cancelled.

mod connection;
mod events;
mod front;
mod in_use;
mod plain;
mod response;
mod resting;
mod stream;
mod tls;
mod unusual;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Bind, Config};
use crate::http::assets::Assets;
use crate::http::{About, Face, WebSettings, client_metadata};
use crate::routes;
use budget::Budgets;
use gateway::{Gateway, init, now_ms};
use mcp::{Mcp, Seals};
use model::{Secret, time};
use store::{self, OpenOptions, Store};
use telemetry::Metrics;
use upstream::stdio::{ChildSettings, ChildUser, Guards};

use front::Front;
use in_use::Shared;
use resting::Connections;
use tls::Tls;

/// What the gateway reads of a plain request, for fuzzing.
pub use plain::head::{PlainRequest, read_plain};
/// Makes this process the subreaper of processes whose guard was killed, so that the gateway can end them. Only for a
/// process that runs nothing but a gateway.
pub use upstream::stdio::adopt_orphans;
pub use upstream::stdio::{hide_memory, raise_descriptor_limit};

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
    closing: CancellationToken,
    listeners: Vec<TcpListener>,
    /// Returns memory that is free to the system.
    give_back: Option<fn()>,
}

impl App {
    /// Opens the listening sockets and starts all parts. Connections queue up from here on until [`App::serve`] runs.
    pub async fn build(config: &Config) -> anyhow::Result<Self> {
        let tls = config.tls.as_ref().map(Tls::load).transpose()?.map(Arc::new);
        let listeners = listen(&config.bind, config.port).await?;
        let store = open_store(config).await?;
        let seals = Seals { sessions: store.seal_for("session"), states: store.seal_for("request state") };
        let guards = Guards::default();
        let children = ChildSettings {
            env: config.child_env.clone(),
            user: config.stdio_user.as_deref().map(child_user).transpose()?,
            descriptors: config.child_descriptors,
        };
        let budgets = Budgets::new(config.limits);
        let options = upstream::Options {
            init_timeout: config.init_timeout,
            guard: config.program.clone(),
            guards: guards.clone(),
            children,
            tls: upstream::Tls::default(),
            tasks: TaskTracker::new(),
            newsroom: upstream::Newsroom::default(),
            processes: upstream::ProcessSlots::new(&budgets),
            budgets,
            oauth: upstream::oauth::OAuthIdentity {
                allow_private: config.oauth_allow_private,
                client_metadata_url: config.public_url.as_ref().map(client_metadata::address),
            },
        };
        let gateway =
            Gateway::start(store, config.mode, options, config.oauth_session_life, Metrics::default())
                .await?;
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
            database: format!("SQLite, {}", config.sqlite_path.display()),
            openapi: LazyLock::new(routes::openapi),
            assets: Assets::default(),
        };
        let closing = CancellationToken::new();
        let face = Face {
            gateway: gateway.clone(),
            settings: Arc::new(settings),
            guesses: Arc::default(),
            about: Arc::new(about),
            closing: closing.clone(),
        };
        let router = routes::router(face.clone());
        let mcp = Mcp::start(gateway.clone(), seals, config.session_idle_timeout);
        Ok(Self {
            gateway,
            guards,
            front: Front { router, mcp, face },
            tls,
            closing,
            listeners,
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

    /// Tells whether the gateway is initialized. In enterprise mode that takes a `POST /init`.
    pub fn is_initialized(&self) -> bool {
        self.gateway.is_initialized()
    }

    /// Returns the number of registered servers.
    pub fn server_count(&self) -> usize {
        self.gateway.catalog().entries().count()
    }

    /// Serves requests until `shutdown` is cancelled; cancelling `hurry` stops waiting for requests in flight.
    pub async fn serve(self, shutdown: CancellationToken, hurry: CancellationToken) {
        let connections = TaskTracker::new();
        let budgets = self.gateway.budgets().clone();
        let shared = Arc::new(Shared {
            front: self.front.clone(),
            tls: self.tls.clone(),
            connections: Connections::new(budgets.connections.clone()),
            budgets,
            shutdown: shutdown.clone(),
        });
        for listener in self.listeners {
            connections.spawn(accept(listener, connections.clone(), shared.clone()));
        }
        connections.spawn(shared.connections.clone().close_idle(shutdown.clone()));
        if let Some(give_back) = self.give_back {
            let stop = shutdown.clone();
            connections.spawn(async move { stop.run_until_cancelled(give_back_regularly(give_back)).await });
        }
        if let Some(tls) = self.tls {
            connections.spawn(tls.follow(shutdown.clone()));
        }
        shutdown.cancelled().await;
        self.front.mcp.end_streams();
        self.closing.cancel();
        connections.close();
        tokio::select! {
            () = connections.wait() => {}
            () = tokio::time::sleep(DRAIN) => tracing::warn!("stopped waiting for requests in flight"),
            () = hurry.cancelled() => {}
        }
        self.gateway.stop().await;
        self.front.mcp.stop().await;
        self.guards.wait(LAST_PROCESSES).await;
        // Callers of calls that were just ended still get their error.
        let _ = tokio::time::timeout(LAST_WORDS, connections.wait()).await;
    }
}

/// Finds the user that runs the processes of servers.
fn child_user(user: &str) -> anyhow::Result<ChildUser> {
    ChildUser::find(user).map_err(|reason| anyhow!("STDIO_USER={user} is wrong: {reason}"))
}

/// Replaces the admin's token. The database must exist, and no gateway may be running on it.
pub async fn reset_admin(config: &Config) -> anyhow::Result<Secret> {
    if !config.sqlite_path.exists() {
        bail!(
            "there is no database {}; name it with --sqlite-db-path or SQLITE_DB_PATH",
            config.sqlite_path.display()
        );
    }
    let store = open_store(config).await?;
    let admin = init::reset_admin(&store).await;
    store.close().await;
    Ok(admin?.token.secret().clone())
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

async fn open_store(config: &Config) -> anyhow::Result<Store> {
    Ok(Store::open(store_options(config)).await?)
}

fn store_options(config: &Config) -> OpenOptions {
    OpenOptions { path: config.sqlite_path.clone(), secret_key: config.secret_key.clone() }
}

async fn accept(listener: TcpListener, tasks: TaskTracker, shared: Arc<Shared>) {
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

/// Gives free memory back once a second, or less often if that takes long: it may not cost more than a hundredth of the
/// time.
async fn give_back_regularly(give_back: fn()) {
    let mut pause = GIVE_BACK_INTERVAL;
    loop {
        tokio::time::sleep(pause).await;
        let begun = Instant::now();
        give_back();
        pause = GIVE_BACK_INTERVAL.max(100 * begun.elapsed());
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
