//! What every change goes through: it runs to its end, takes its turn, and after it was stored, swaps the catalog. What
//! a change stores and which catalog it makes is in the file of its noun.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::MutexGuard;

use super::catalog::Catalog;
use super::{Error, Gateway};
use store::SharedTurn;

/// The right to change the store and the catalog; one change at a time has it.
pub(super) struct Turn<'a> {
    /// Among the gateways on the same database, if others may use it. Given back first.
    shared: Option<SharedTurn>,
    _local: MutexGuard<'a, ()>,
}

impl Gateway {
    /// Runs a change to its end even if the request that asked for it is cancelled, so nothing is left half done.
    pub(super) async fn to_the_end<T, F>(
        self: &Arc<Self>,
        change: impl FnOnce(Arc<Self>) -> F,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let running = self.tasks.spawn(change(self.clone()));
        running
            .await
            .unwrap_or_else(|error| Err(Error::internal(format!("a change was interrupted: {error}"))))
    }

    /// Waits for the turn of this change. Fails if an earlier write failed and the database still cannot be written;
    /// nothing is changed then.
    pub(super) async fn turn(self: &Arc<Self>) -> Result<Turn<'_>, Error> {
        let mut turn = self.local_turn().await;
        turn.shared = self.store.shared_turn().await?;
        if !self.store.health().borrow().is_ok() {
            self.reconcile(&turn).await?;
        }
        if turn.shared.as_ref().is_some_and(|shared| shared.epoch != self.progress.reached()) {
            self.catch_up(&turn).await?;
        }
        Ok(turn)
    }

    /// The turn of a change that applies even while the database fails. It is shared if that is possible.
    pub(super) async fn turn_anyway(self: &Arc<Self>) -> Turn<'_> {
        let mut turn = self.local_turn().await;
        match self.store.shared_turn().await {
            Ok(shared) => turn.shared = shared,
            Err(error) => tracing::debug!(%error, "a change cannot take its turn among the gateways"),
        }
        turn
    }

    /// The turn of a change that affects only this gateway.
    pub(super) async fn local_turn(&self) -> Turn<'_> {
        Turn { shared: None, _local: self.turn.lock().await }
    }

    /// Publishes a new catalog and signals the change.
    pub(super) fn swap(&self, catalog: Catalog) {
        self.change_count.fetch_add(1, Ordering::AcqRel);
        self.publish(catalog);
        self.changed.send_replace(());
    }

    /// Publishes a new catalog without a signal. The caller holds the turn.
    pub(super) fn publish(&self, catalog: Catalog) {
        let catalog = Arc::new(catalog.following(self.catalog.load().generation));
        self.catalog.store(catalog.clone());
        self.lists.follow(&catalog);
    }
}
