//! Ends credentials that expire, and stores when they were last used. Both happen once a minute, beside all requests.

use std::sync::Arc;
use std::time::Duration;

use super::super::{Error, Gateway};
use super::{SESSION_IDLE_MS, SESSION_LIFE_MS};

/// The pause between two rounds.
const PAUSE: Duration = Duration::from_secs(60);
/// How much longer than needed an idle session is kept: the last use of it may not be stored yet.
const SPARE_MS: i64 = 5 * 60 * 1000;
/// How long the last uses may take to be written.
const LAST_USES: Duration = Duration::from_secs(2);

impl Gateway {
    /// Runs for as long as the gateway does.
    pub(in super::super) async fn keep_credentials(self: Arc<Self>) {
        loop {
            tokio::time::sleep(PAUSE).await;
            if let Err(error) = self.tidy_credentials().await {
                tracing::debug!(%error, "cannot tidy credentials up; trying again later");
            }
        }
    }

    /// Stores when credentials were last used, and ends those that expired.
    pub async fn tidy_credentials(&self) -> Result<(), Error> {
        self.write_uses().await?;
        let now = self.clock.now_ms();
        loop {
            let (began, used) = (now - SESSION_LIFE_MS, now - SESSION_IDLE_MS - SPARE_MS);
            let (may_be_more, users) = self.store.end_expired(now, began, used).await?;
            for user in users {
                let held = self.store.held_credentials(user).await?;
                self.signed_in.take_over(user, &held.value, held.epoch);
            }
            if !may_be_more {
                return Ok(());
            }
        }
    }

    /// Stores the last uses, when the gateway stops.
    pub(in super::super) async fn write_last_uses(&self) {
        match tokio::time::timeout(LAST_USES, self.write_uses()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot store when credentials were last used"),
            Err(_) => tracing::warn!("stopped waiting for the last uses of credentials to be stored"),
        }
    }

    /// A use that cannot be written is lost; the next one is written again.
    async fn write_uses(&self) -> Result<(), Error> {
        let uses = self.signed_in.take_uses();
        if !uses.is_empty() {
            self.store.note_uses(&uses).await?;
        }
        Ok(())
    }
}
