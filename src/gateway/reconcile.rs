//! After a failed write: memory holds exactly what was answered, so the database is made to agree with it before
//! anything else is changed. Also the task that does so as soon as the disk allows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::MutexGuard;

use super::{Error, Gateway, now_ms};
use crate::store::{GrantChange, StoreError};

/// The pause between two attempts to write to a database that fails.
const RETRY: Duration = Duration::from_secs(1);

/// The right to change the store and the catalog, which one change at a time has.
pub(super) type Turn<'a> = MutexGuard<'a, ()>;

impl Gateway {
    /// Waits for the turn of this change. An error when an earlier write failed and the database still cannot be
    /// written: nothing is changed then.
    pub(super) async fn turn(&self) -> Result<Turn<'_>, Error> {
        let turn = self.turn.lock().await;
        if !self.store.health().borrow().is_ok() {
            self.reconcile(&turn).await?;
        }
        Ok(turn)
    }

    /// Watches the store and repairs it whenever a write failed. Runs for as long as the gateway does.
    pub(super) async fn keep_store_healthy(self: Arc<Self>) {
        let mut health = self.store.health();
        while health.wait_for(|health| !health.is_ok()).await.is_ok() {
            if let Err(error) = self.turn().await {
                tracing::debug!(%error, "the database still cannot be written");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// Compares the database with the catalog and writes what differs.
    async fn reconcile(&self, _turn: &Turn<'_>) -> Result<(), StoreError> {
        let failures = self.store.health().borrow().failures;
        self.store.heal().await?;
        let corrected = self.correct_servers().await?
            + self.correct_groups().await?
            + self.correct_users().await?
            + self.correct_clients().await?;
        // Before any session is finished, which takes a turn first: those that are found now were interrupted.
        if self.has_interrupted.load(Ordering::Relaxed) {
            self.store.fail_interrupted_sessions(now_ms()).await?;
            self.has_interrupted.store(false, Ordering::Relaxed);
        }
        self.settle_late().await?;
        if corrected > 0 {
            tracing::warn!(corrected, "the database was corrected after a failed write");
        }
        self.store.confirm(failures);
        Ok(())
    }

    async fn correct_servers(&self) -> Result<usize, StoreError> {
        let (catalog, now) = (self.catalog(), now_ms());
        let mut corrected = 0;
        let mut right = BTreeSet::new();
        for stored in self.store.load_servers().await? {
            let name = &stored.registration.config.name;
            let Some(entry) = catalog.get(name.as_str()) else {
                self.store.delete_server(name).await?;
                corrected += 1;
                continue;
            };
            let is_right = entry.registration.to_json() == stored.registration.to_json()
                && entry.offering().same_as(&stored.offering);
            if is_right {
                right.insert(name.clone());
            }
        }
        // Replaced, not deleted and made anew, so that they keep their grants.
        for entry in catalog.entries().filter(|entry| !right.contains(entry.name())) {
            let (registration, offering) = (&entry.registration, entry.offering());
            self.store.replace_server(registration, offering, GrantChange::Keep, now).await?;
            corrected += 1;
        }
        Ok(corrected)
    }

    async fn correct_groups(&self) -> Result<usize, StoreError> {
        let (catalog, now) = (self.catalog(), now_ms());
        let stored = self.store.load_groups().await?;
        let right: Vec<_> = catalog.groups().collect();
        let mut corrected = 0;
        for group in stored.iter().filter(|group| !right.contains(group)) {
            self.store.delete_group(&group.name).await?;
            corrected += 1;
        }
        for group in right.into_iter().filter(|group| !stored.contains(group)) {
            self.store.put_group(group, now).await?;
            corrected += 1;
        }
        Ok(corrected)
    }

    /// Wrong rows go first: a token that one of them has may belong to somebody else.
    async fn correct_users(&self) -> Result<usize, StoreError> {
        let (catalog, now) = (self.catalog(), now_ms());
        let stored = self.store.load_users().await?;
        let right: Vec<_> = catalog.access().users().collect();
        let mut corrected = 0;
        for user in stored.iter().filter(|user| !right.contains(user)) {
            self.store.delete_user(&user.username).await?;
            corrected += 1;
        }
        for user in right.into_iter().filter(|user| !stored.contains(user)) {
            self.store.put_user(user, now).await?;
            corrected += 1;
        }
        if !catalog.access().is_initialized && self.store.mode().await?.is_some() {
            self.store.forget_mode().await?;
            corrected += 1;
        }
        Ok(corrected)
    }

    async fn correct_clients(&self) -> Result<usize, StoreError> {
        let (catalog, now) = (self.catalog(), now_ms());
        let stored = self.store.load_clients().await?;
        let right: Vec<_> = catalog.access().clients().collect();
        let mut corrected = 0;
        for client in stored.iter().filter(|client| !right.contains(client)) {
            self.store.delete_client(&client.name).await?;
            corrected += 1;
        }
        for client in right.into_iter().filter(|client| !stored.contains(client)) {
            self.store.put_client(client, now).await?;
            corrected += 1;
        }
        Ok(corrected)
    }
}
