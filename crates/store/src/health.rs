//! Whether writes to the database succeed. After a failed write, memory and database may differ; the store counts as
//! failing until they have been compared.

use std::fmt::{Debug, Formatter};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;

use super::failure::describe;

/// The health of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The number of writes that have failed since the start.
    pub failures: u64,
    /// Why the last one failed; `None` once memory and database are known to agree again.
    pub reason: Option<Arc<str>>,
}

impl Health {
    pub fn is_ok(&self) -> bool {
        self.reason.is_none()
    }
}

/// Gets the time of each write, from the task that wrote: it must not wait.
type WriteWatcher = Box<dyn Fn(Duration) + Send + Sync>;

/// Clones share what they report to.
#[derive(Clone, Debug, Default)]
pub(super) struct HealthSender {
    state: watch::Sender<Health>,
    writes: Arc<WriteReports>,
    /// Whether somebody else reports failures.
    is_quiet: bool,
}

#[derive(Default)]
struct WriteReports(OnceLock<WriteWatcher>);

impl Debug for WriteReports {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteReports").finish_non_exhaustive()
    }
}

impl HealthSender {
    /// For what is not a change: whoever writes it reports that it failed.
    pub(super) fn quiet() -> Self {
        Self { is_quiet: true, ..Self::default() }
    }

    pub(super) fn fail(&self, error: &sqlx::Error) {
        self.fail_because(&describe(error));
    }

    pub(super) fn fail_because(&self, reason: &str) {
        self.state.send_modify(|health| {
            if health.is_ok() && !self.is_quiet {
                tracing::error!(reason, "the database failed to store a change");
            }
            health.failures += 1;
            health.reason = Some(reason.into());
        });
    }

    /// Reports how long a write took, from asking for a connection to the end of its commit.
    pub(super) fn wrote(&self, elapsed: Duration) {
        if let Some(watcher) = self.writes.0.get() {
            watcher(elapsed);
        }
    }

    /// Sets who gets the times of writes, unless somebody does already.
    pub(super) fn watch_writes(&self, watcher: impl Fn(Duration) + Send + Sync + 'static) {
        let _ = self.writes.0.set(Box::new(watcher));
    }

    /// Ends the failing state, unless more writes have failed than the given number.
    pub(super) fn confirm(&self, failures: u64) {
        self.state.send_if_modified(|health| {
            let is_over = health.failures == failures && !health.is_ok();
            if is_over {
                tracing::info!("the database stores changes again");
                health.reason = None;
            }
            is_over
        });
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Health> {
        self.state.subscribe()
    }
}
