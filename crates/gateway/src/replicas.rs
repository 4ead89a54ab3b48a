//! The gateways on the same database: which one this is, and which others are alive.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::admission::check_versions;
use super::homes::Homes;
use super::leases::Leases;
use super::{Error, Gateway, now_ms, random_id};
use store::{Forgetting, Membership, Replica, Store};

/// How often a gateway tells the others that it is alive.
const BEAT: Duration = Duration::from_secs(5);
/// How long several events are collected before the others are told of them.
const SETTLING: Duration = Duration::from_millis(50);
/// The least time between two looks for a gateway that is not known, or not where it was.
const LOOK: Duration = Duration::from_millis(100);

/// How this gateway and the others are known on a shared database.
#[derive(Default)]
pub(super) struct Replicas {
    /// `None` where the database is not shared.
    pub own: ArcSwapOption<Membership>,
    pub alive: ArcSwap<Vec<Replica>>,
    pub leases: ArcSwap<Leases>,
    /// Notified when another gateway changed the leases.
    pub leases_changed: Notify,
    /// Whether this gateway takes no more leases.
    pub is_leaving: AtomicBool,
    pub homes: Homes,
    /// When a gateway was last looked for.
    looked: tokio::sync::Mutex<Option<Instant>>,
}

impl Replicas {
    /// Joins the gateways on the database. `address` is where they reach this one.
    pub async fn join(store: &Store, address: &str) -> Result<Self, Error> {
        let replicas = Self::default();
        if !store.is_shared() {
            return Ok(replicas);
        }
        let version = env!("CARGO_PKG_VERSION");
        // Two processes cannot listen at the same address: whoever was reached there before has ended.
        store.end_predecessors(address).await?;
        let member = store.join(&random_id(), address, version).await?;
        let member = member.ok_or_else(|| Error::invalid("too many gateways use this database"))?;
        let alive = store.beat(&member).await?.unwrap_or_default();
        // What is used of limits is kept for as long as any gateway runs.
        let is_first = alive.iter().all(|other| other.instance == member.instance);
        store.forget_quotas(if is_first { Forgetting::Everything } else { Forgetting::Old }).await?;
        // It may have joined at the same moment.
        if let Err(refused) = check_versions(alive.iter().map(|other| other.version.as_str())) {
            store.leave(&member).await?;
            return Err(refused);
        }
        replicas.own.store(Some(Arc::new(member)));
        replicas.alive.store(Arc::new(alive));
        Ok(replicas)
    }

    /// Tells the others that this gateway ends.
    pub async fn leave(&self, store: &Store) {
        if let Some(member) = self.own.swap(None)
            && let Err(error) = store.leave(&member).await
        {
            tracing::debug!(%error, "the other gateways will notice only later that this one has ended");
        }
    }
}

impl Gateway {
    /// The number of this gateway among those on its database; 0 if it is alone.
    pub fn slot(&self) -> u16 {
        self.replicas.own.load().as_ref().map_or(0, |member| member.slot)
    }

    /// How many gateways use the database, as far as this one knows.
    pub(super) fn replica_count(&self) -> u32 {
        u32::try_from(self.replicas.alive.load().len()).unwrap_or(u32::MAX).max(1)
    }

    /// Another gateway on the same database, if it is alive.
    pub fn replica(&self, slot: u16) -> Option<Replica> {
        self.replicas.alive.load().iter().find(|replica| replica.slot == slot).cloned()
    }

    /// The same, also if it joined only a moment ago: the database is asked, but not often.
    pub async fn find_replica(&self, slot: u16) -> Option<Replica> {
        if let Some(known) = self.replica(slot) {
            return Some(known);
        }
        self.look_for_others().await;
        self.replica(slot)
    }

    /// A gateway that cannot be reached where it was, if it is reached elsewhere now. The database is asked, but not often.
    pub async fn find_moved(&self, known: &Replica) -> Option<Replica> {
        self.look_for_others().await;
        let now = self.replica(known.slot)?;
        (now.instance == known.instance && now.address != known.address).then_some(now)
    }

    async fn look_for_others(&self) {
        let mut looked = self.replicas.looked.lock().await;
        if looked.is_none_or(|at| at.elapsed() > LOOK) {
            *looked = Some(Instant::now());
            self.beat().await;
        }
    }

    /// Tells the other gateways that they reach this one elsewhere from now on.
    pub async fn change_address(&self, address: String) {
        let Some(member) = self.replicas.own.load_full() else { return };
        self.replicas.own.store(Some(Arc::new(Membership { address, ..(*member).clone() })));
        self.beat().await;
    }

    /// Tells the others that this gateway is alive, and learns who else is. Runs for as long as the gateway does.
    pub(super) async fn keep_membership(self: Arc<Self>) {
        let mut news = self.news();
        loop {
            let something = async {
                tokio::select! {
                    () = self.replicas.leases_changed.notified() => {}
                    () = self.wait_for_status(&mut news) => {}
                }
                tokio::time::sleep(SETTLING).await;
            };
            let _ = tokio::time::timeout(BEAT, something).await;
            self.beat().await;
            self.renew_leases().await;
        }
    }

    async fn beat(&self) {
        let Some(member) = self.replicas.own.load_full() else { return };
        match self.store.beat(&member).await {
            Ok(Some(alive)) => {
                self.replicas.homes.found_database();
                self.replicas.alive.store(Arc::new(alive));
            }
            Ok(None) => self.join_again(&member).await,
            // Those that were alive may still be: without the database, nobody knows better.
            Err(error) => {
                self.replicas.homes.lost_database();
                tracing::debug!(%error, "cannot tell the other gateways that this one is alive");
            }
        }
    }

    /// Takes another slot. What this gateway gave numbers to before is no longer found through the others.
    async fn join_again(&self, before: &Membership) {
        match self.store.join(&before.instance, &before.address, &before.version).await {
            Ok(Some(member)) => {
                tracing::warn!(
                    slot = member.slot,
                    "was silent for too long, and joined the other gateways again"
                );
                self.replicas.homes.forget_all();
                self.replicas.own.store(Some(Arc::new(member)));
            }
            Ok(None) => tracing::warn!("too many gateways use this database"),
            Err(error) => tracing::debug!(%error, "cannot join the other gateways again"),
        }
    }

    /// Tells the gateways that come after this one that a session has ended.
    pub fn share_session_end(self: &Arc<Self>, serial: u64) {
        if !self.store.is_shared() {
            return;
        }
        let gateway = self.clone();
        self.tasks.spawn(async move {
            if let Err(error) = gateway.store.add_ended_session(serial, now_ms()).await {
                tracing::warn!(%error, "the end of a session is known only to this gateway");
            }
        });
    }

    /// The sessions that ended on gateways on the same database.
    pub async fn ended_sessions(&self) -> Vec<u64> {
        if !self.store.is_shared() {
            return Vec::new();
        }
        self.store.load_ended_sessions(now_ms()).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read which sessions have ended");
            Vec::new()
        })
    }

    /// Runs a task until it or the gateway ends.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(task).await });
    }

    /// Gives its leases back, and tells the others that this gateway ends.
    pub(super) async fn leave(&self) {
        self.release_leases().await;
        self.replicas.leave(&self.store).await;
    }
}
