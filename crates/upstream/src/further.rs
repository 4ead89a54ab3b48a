//! Opens, finds and closes further links of a server; `pool` keeps them.

use std::sync::Arc;
use std::time::Duration;

use super::connect::connect_further;
use super::error::CallError;
use super::handle::Upstream;
use super::link::{Carrier, Link};
use super::pool::{LinkKey, Owner, SharedLink};
use model::{Capabilities, SessionMode};

impl Upstream {
    /// The link for a caller with these capabilities; `owner` gets one of its own where the server is stateful. The
    /// first link serves all callers without capabilities. Modern servers get the capabilities with each request, so
    /// there they need no further link.
    pub async fn link_for(
        &self,
        capabilities: Capabilities,
        owner: Option<Owner>,
    ) -> Result<Arc<Link>, CallError> {
        let first = self.link().await?;
        let owner = owner.filter(|_| self.config().session_mode == SessionMode::Stateful);
        let is_process = matches!(first.carrier, Carrier::Stdio(_));
        let capabilities = if first.is_modern() { Capabilities::NONE } else { capabilities };
        let needs_own = owner.is_some() && (is_process || !first.is_modern());
        if !needs_own && capabilities.is_empty() {
            return Ok(first);
        }
        let Some(slot) = self.0.slots.pool.slot(LinkKey { capabilities, owner }, is_process) else {
            return Ok(first);
        };
        slot.touch();
        if let Some(link) = slot.link.get() {
            return Ok(link.clone());
        }
        // Boxed, since the future is large and rarely needed.
        Box::pin(self.open(&slot, capabilities)).await
    }

    async fn open(&self, slot: &SharedLink, capabilities: Capabilities) -> Result<Arc<Link>, CallError> {
        let shared = &self.0;
        let open = || async {
            let target = shared.target();
            let opened = connect_further(&target, capabilities, shared.era());
            let gone = || CallError::NotSent("the server was removed, replaced or disabled".into());
            let opened = shared.stop.run_until_cancelled(opened).await.ok_or_else(gone)?;
            let link = opened.map_err(|error| CallError::NotSent(error.to_string()))?;
            if let Some(offering) = self.offering() {
                shared.restore_level(&link, &offering);
            }
            self.heed(&link);
            Ok(link)
        };
        slot.link.get_or_try_init(open).await.cloned()
    }

    /// Passes on list changes that are announced on a further link: the lists are read over the first link.
    fn heed(&self, link: &Link) {
        let (upstream, calls, stop) = (self.clone(), link.calls.clone(), link.stop.clone());
        let heed = async move {
            while !calls.is_lost() {
                calls.signals.wait().await;
                if calls.signals.take_lists_changed() {
                    upstream.doubt_lists();
                }
            }
        };
        link.tasks.spawn(async move { stop.run_until_cancelled(heed).await });
    }

    pub fn has_link_of(&self, owner: Owner) -> bool {
        self.0.slots.pool.has_any(|key| key.owner == Some(owner))
    }

    /// Closes the links of an owner that is gone.
    pub async fn release(&self, owner: Owner) {
        close_all(self.0.slots.pool.take(|key, _| key.owner == Some(owner))).await;
    }

    /// Closes links of callers without sessions that were idle for longer than `limit`. Links of sessions are closed
    /// with their session.
    pub async fn release_idle(&self, limit: Duration) {
        let is_over = |key: &LinkKey, slot: &SharedLink| match key.owner {
            Some(Owner::Principal(_) | Owner::Anybody) => slot.is_idle(limit),
            Some(Owner::Session(_)) | None => false,
        };
        close_all(self.0.slots.pool.take(is_over)).await;
    }
}

async fn close_all(slots: Vec<SharedLink>) {
    for slot in slots {
        if let Some(link) = slot.link.get() {
            link.close().await;
        }
    }
}
