//! Whether writes to the database succeed. After a failed write, memory and database may differ; the store counts as
//! failing until they have been compared.

use std::sync::Arc;

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

#[derive(Clone, Debug, Default)]
pub(super) struct HealthSender(watch::Sender<Health>);

impl HealthSender {
    pub(super) fn fail(&self, error: &sqlx::Error) {
        self.fail_because(&describe(error));
    }

    pub(super) fn fail_because(&self, reason: &str) {
        self.0.send_modify(|health| {
            if health.is_ok() {
                tracing::error!(reason, "the database failed to store a change");
            }
            health.failures += 1;
            health.reason = Some(reason.into());
        });
    }

    /// Ends the failing state, unless more writes have failed than the given number.
    pub(super) fn confirm(&self, failures: u64) {
        self.0.send_if_modified(|health| {
            let is_over = health.failures == failures && !health.is_ok();
            if is_over {
                tracing::info!("the database stores changes again");
                health.reason = None;
            }
            is_over
        });
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Health> {
        self.0.subscribe()
    }
}
