//! Further links to a server beside its first: one for each set of capabilities that callers declare, since a link
//! declares one set, and one for each session or caller where the server is stateful. They are opened when first needed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;

use super::connect::connect_further;
use super::error::CallError;
use super::link::{Carrier, Link};
use super::supervise::Upstream;
use model::{Capabilities, PrincipalId, SessionMode};

/// So many processes of one server at most, the first included, for different sets of capabilities.
const MAX_PROCESSES: usize = 4;

#[derive(Default)]
pub struct LinkPool(Mutex<HashMap<LinkKey, SharedLink>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LinkKey {
    capabilities: Capabilities,
    /// Whose link it is; none where it is shared.
    owner: Option<Owner>,
}

/// Who has links of their own to a stateful server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A session of an agent.
    Session(u64),
    /// A user or client without sessions.
    Principal(PrincipalId),
    /// Everybody else who has none, where nobody is asked who they are.
    Anybody,
}

type SharedLink = Arc<PooledLink>;

struct PooledLink {
    /// Opened by the first who needs it while the others wait.
    link: OnceCell<Arc<Link>>,
    last_used: Mutex<Instant>,
}

impl PooledLink {
    fn touch(&self) {
        *self.last_used.lock().expect("no code panics while it holds a time") = Instant::now();
    }

    /// Whether it was last used longer ago than that. One with calls in flight is in use.
    fn is_idle(&self, limit: Duration) -> bool {
        if self.link.get().is_none_or(|link| link.calls.has_callers()) {
            self.touch();
        }
        self.last_used.lock().expect("no code panics while it holds a time").elapsed() > limit
    }
}

impl Upstream {
    /// The link for a caller with these capabilities, who owns one where the server is stateful. The first link serves
    /// everybody who declares nothing; modern servers are told with every request, so there it serves all.
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
        let Some(slot) = self.0.pool.slot(LinkKey { capabilities, owner }, is_process) else {
            return Ok(first);
        };
        slot.touch();
        if let Some(link) = slot.link.get() {
            return Ok(link.clone());
        }
        // In a box, since it is large and rarely needed.
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

    /// What a server announces on a further link concerns the lists that are read over the first.
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
        self.0.pool.has_any(|key| key.owner == Some(owner))
    }

    /// Closes what belongs to somebody who is gone.
    pub async fn release(&self, owner: Owner) {
        close_all(self.0.pool.take(|key, _| key.owner == Some(owner))).await;
    }

    /// Closes what callers without sessions have not used for so long. Sessions have an end of their own.
    pub async fn release_idle(&self, limit: Duration) {
        let is_over = |key: &LinkKey, slot: &SharedLink| match key.owner {
            Some(Owner::Principal(_) | Owner::Anybody) => slot.is_idle(limit),
            Some(Owner::Session(_)) | None => false,
        };
        close_all(self.0.pool.take(is_over)).await;
    }
}

async fn close_all(slots: Vec<SharedLink>) {
    for slot in slots {
        if let Some(link) = slot.link.get() {
            link.close().await;
        }
    }
}

impl LinkPool {
    /// `None` when the first link must do.
    fn slot(&self, key: LinkKey, is_process: bool) -> Option<SharedLink> {
        let mut slots = self.0.lock().expect("no code panics while it holds the slots");
        let is_usable = |slot: &SharedLink| slot.link.get().is_none_or(|link| !link.calls.is_lost());
        if let Some(slot) = slots.get(&key).filter(|slot| is_usable(slot)) {
            return Some(slot.clone());
        }
        // Only when a new one is needed: calls should not walk through the links of all others.
        slots.retain(|_, slot| is_usable(slot));
        let shared = slots.keys().filter(|key| key.owner.is_none()).count();
        let is_full = is_process && key.owner.is_none() && shared + 1 >= MAX_PROCESSES;
        if is_full {
            // What the chosen process did not declare is not available to this caller.
            let fitting = slots.iter().filter(|(other, _)| {
                other.owner.is_none() && other.capabilities.is_subset_of(key.capabilities)
            });
            return fitting.max_by_key(|(other, _)| other.capabilities.len()).map(|(_, slot)| slot.clone());
        }
        let place = || Arc::new(PooledLink { link: OnceCell::new(), last_used: Mutex::new(Instant::now()) });
        Some(slots.entry(key).or_insert_with(place).clone())
    }

    /// Lets go of a link that turned out to be of no more use.
    pub fn forget(&self, link: &Arc<Link>) {
        let mut slots = self.0.lock().expect("no code panics while it holds the slots");
        slots.retain(|_, slot| slot.link.get().is_none_or(|held| !Arc::ptr_eq(held, link)));
    }

    pub fn links(&self) -> Vec<Arc<Link>> {
        let slots = self.0.lock().expect("no code panics while it holds the slots");
        slots.values().filter_map(|slot| slot.link.get().cloned()).collect()
    }

    fn has_any(&self, is_meant: impl Fn(&LinkKey) -> bool) -> bool {
        let slots = self.0.lock().expect("no code panics while it holds the slots");
        slots
            .iter()
            .any(|(key, slot)| is_meant(key) && slot.link.get().is_some_and(|link| !link.calls.is_lost()))
    }

    pub fn take_links(&self) -> Vec<Arc<Link>> {
        self.take(|_, _| true).iter().filter_map(|slot| slot.link.get().cloned()).collect()
    }

    fn take(&self, is_meant: impl Fn(&LinkKey, &SharedLink) -> bool) -> Vec<SharedLink> {
        let mut slots = self.0.lock().expect("no code panics while it holds the slots");
        slots.extract_if(|key, slot| is_meant(key, slot)).map(|(_, slot)| slot).collect()
    }
}
