//! A gateway inside this process, for `toolgate stdio` where none runs. It listens on a free port of the loopback
//! address.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::app::App;
use crate::cli::{output, start};
use crate::config::{Bind, StartFlags};
use store::OpenStoreError;

pub struct Embedded {
    address: SocketAddr,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
}

impl Embedded {
    /// Starts a gateway with the settings of `toolgate start`, except for the address. `registry` is where none runs.
    pub async fn start(sqlite_db_path: Option<PathBuf>, registry: &str) -> anyhow::Result<Self> {
        let mut config = start::prepare(&StartFlags { sqlite_db_path, ..StartFlags::default() })?;
        config.bind = Bind::Address(Ipv4Addr::LOCALHOST.into());
        config.port = 0;
        config.tls = None;
        config.public_url = None;
        let app = App::build(&config).await.map_err(|error| explain(error, registry))?;
        let address = app.addresses().first().copied().context("there is no address to listen on")?;
        output::message(&format!(
            "toolgate: no gateway runs at {registry}; running one here with the database {}",
            config.database
        ));
        let shutdown = CancellationToken::new();
        // Nobody is left to wait for an answer when it stops.
        let serving = tokio::spawn(app.serve(shutdown.clone(), shutdown.clone()));
        Ok(Self { address, shutdown, serving })
    }

    pub fn registry(&self) -> anyhow::Result<Url> {
        Ok(Url::parse(&format!("http://{}", self.address))?)
    }

    pub async fn stop(self) {
        self.shutdown.cancel();
        let _ = self.serving.await;
    }
}

/// Adds advice to the error about a database that another process uses.
fn explain(error: anyhow::Error, registry: &str) -> anyhow::Error {
    match error.downcast_ref::<OpenStoreError>() {
        Some(OpenStoreError::InUse { .. }) => anyhow::anyhow!(
            "{error}, which does not listen at {registry}; name the address of that gateway with --registry, or run \
             one for all clients with `toolgate start`"
        ),
        Some(_) | None => error,
    }
}
