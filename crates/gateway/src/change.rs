//! What every change goes through: it runs to its end, takes its turn, and after it was stored, swaps the catalog. What
//! a change stores and which catalog it makes is in the file of its noun.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::MutexGuard;

use super::catalog::Catalog;
use super::{Error, Gateway};

/// The right to change the store and the catalog; one change at a time has it.
pub(super) type Turn<'a> = MutexGuard<'a, ()>;

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
    pub(super) async fn turn(&self) -> Result<Turn<'_>, Error> {
        let turn = self.turn.lock().await;
        if !self.store.health().borrow().is_ok() {
            self.reconcile(&turn).await?;
        }
        Ok(turn)
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
