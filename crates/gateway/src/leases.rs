//! Which gateway on a shared database reads the lists of which server. The others take them from the database, and connect to
//! the server when a caller needs it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Gateway;
use super::record::state_of;
use super::replicas::Replicas;
use model::{Placement, ServerConfig, ServerName, Status};
use store::{Lease, Store, StoreError, Taking};
use upstream::{News, Reading};

/// The leases of all servers, by server.
pub(super) type Leases = HashMap<String, Lease>;

impl Replicas {
    /// Which gateway reads the lists of a server, and runs its processes if only one does.
    pub fn reading_of(&self, config: &ServerConfig) -> Reading {
        let server = config.name.as_str();
        if self.reads_here(server) {
            return Reading::Here;
        }
        match config.placement {
            Placement::Each => Reading::Elsewhere,
            Placement::One => {
                let (leases, alive) = (self.leases.load(), self.alive.load());
                let lease = leases.get(server);
                let holder = lease.and_then(|lease| alive.iter().find(|of| of.instance == lease.instance));
                Reading::Through(holder.map(|holder| holder.slot))
            }
        }
    }

    /// Whether this gateway reads the lists of a server.
    pub fn reads_here(&self, server: &str) -> bool {
        let own = self.own.load();
        let Some(member) = own.as_ref() else { return true };
        self.leases.load().get(server).is_some_and(|lease| lease.instance == member.instance)
    }

    /// Whether this gateway should take a lease that nobody has: all gateways choose the same one.
    fn is_next(&self, server: &str, instance: &str) -> bool {
        let rank = |instance: &str| {
            let mut hasher = DefaultHasher::new();
            (server, instance).hash(&mut hasher);
            hasher.finish()
        };
        let own = rank(instance);
        self.alive.load().iter().all(|other| rank(&other.instance) <= own)
    }

    /// Reads all leases, takes those that this gateway should have, and tells what it knows of their servers.
    pub async fn renew_leases(
        &self,
        store: &Store,
        servers: impl Iterator<Item = (ServerName, Status, String)> + Send,
    ) -> Result<(), StoreError> {
        let Some(member) = self.own.load_full() else { return Ok(()) };
        let mut leases = read(store).await?;
        let alive = self.alive.load_full();
        let wanted = servers.filter_map(|(server, status, reason)| {
            let is_wanted = match leases.get(server.as_str()) {
                Some(lease) if lease.instance == member.instance => {
                    lease.status != status.as_str() || lease.reason != reason
                }
                Some(lease) if alive.iter().any(|other| other.instance == lease.instance) => false,
                Some(_) | None => self.is_next(server.as_str(), &member.instance),
            };
            let (server, status, instance) =
                (server.to_string(), status.as_str().to_owned(), member.instance.clone());
            is_wanted.then_some(Lease { server, instance, status, reason })
        });
        let wanted: Vec<_> = wanted.collect();
        if !wanted.is_empty() {
            store.take_leases(&wanted, Taking::Free).await?;
            leases = read(store).await?;
        }
        self.leases.store(Arc::new(leases));
        Ok(())
    }
}

async fn read(store: &Store) -> Result<Leases, StoreError> {
    Ok(store.leases().await?.into_iter().map(|lease| (lease.server.clone(), lease)).collect())
}

impl Gateway {
    /// Takes the lease of a server that this gateway has just connected.
    pub(super) async fn take_lease(&self, server: &ServerName, status: Status) {
        let Some(member) = self.replicas.own.load_full() else { return };
        let (server, status) = (server.to_string(), status.as_str().to_owned());
        let lease = Lease { server, instance: member.instance.clone(), status, reason: String::new() };
        let taken = async {
            self.store.take_leases(&[lease], Taking::Any).await?;
            read(&self.store).await
        };
        match taken.await {
            Ok(leases) => self.replicas.leases.store(Arc::new(leases)),
            Err(error) => tracing::debug!(%error, "cannot take the lease of a server"),
        }
    }

    /// Learns which gateway reads the lists of servers that this one did not know.
    pub(super) async fn read_leases(&self) {
        if !self.store.is_shared() {
            return;
        }
        match read(&self.store).await {
            Ok(leases) => self.replicas.leases.store(Arc::new(leases)),
            Err(error) => tracing::debug!(%error, "cannot read who reads the lists of servers"),
        }
    }

    /// Renews the leases of this gateway, and makes its servers follow all of them.
    pub(super) async fn renew_leases(&self) {
        if self.replicas.is_leaving.load(Ordering::Acquire) {
            return;
        }
        let catalog = self.catalog();
        let servers = catalog.entries().filter(|entry| entry.upstream.is_some()).map(|entry| {
            let (status, reason) = state_of(entry);
            (entry.name().clone(), status, reason)
        });
        let servers: Vec<_> = servers.collect();
        if let Err(error) = self.replicas.renew_leases(&self.store, servers.into_iter()).await {
            tracing::debug!(%error, "cannot renew who reads the lists of servers");
            return;
        }
        self.follow_leases();
    }

    /// Makes the servers follow the leases.
    pub(super) fn follow_leases(&self) {
        let leases = self.replicas.leases.load_full();
        for entry in self.catalog().entries() {
            let Some(upstream) = &entry.upstream else { continue };
            upstream.set_reading(self.replicas.reading_of(&entry.registration.config));
            if let Some(lease) = leases.get(entry.name().as_str())
                && let Some(status) = Status::parse(&lease.status)
            {
                upstream.learn(status, &lease.reason);
            }
        }
    }

    /// Makes the gateways agree soon on the one that runs a server, if it is not known.
    pub(super) fn look_for_runner(&self, reading: Reading) {
        if reading == Reading::Through(None) {
            self.replicas.leases_changed.notify_one();
        }
    }

    /// Waits until the others have something to learn of a server whose lists this gateway reads.
    pub(super) async fn wait_for_status(&self, news: &mut tokio::sync::broadcast::Receiver<News>) {
        use tokio::sync::broadcast::error::RecvError;
        loop {
            match news.recv().await {
                Ok(News::Status(server)) if self.replicas.reads_here(server.as_str()) => {
                    return;
                }
                Err(RecvError::Lagged(_)) => return,
                Ok(News::Status(_) | News::Step(..) | News::Failure) => {}
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Tells the gateway that reads the lists of a server that they may have changed.
    pub(super) async fn pass_on_doubt(&self, server: &ServerName) {
        if let Err(error) = self.store.doubt_lists(server).await {
            tracing::debug!(%error, "cannot tell another gateway that lists may have changed");
        }
    }

    /// Lets the other gateways read the lists of all servers.
    pub async fn release_leases(&self) {
        let Some(member) = self.replicas.own.load_full() else { return };
        self.replicas.is_leaving.store(true, Ordering::Release);
        if let Err(error) = self.store.release_leases(&member).await {
            tracing::debug!(%error, "the other gateways will read the lists of servers only later");
        }
    }
}
