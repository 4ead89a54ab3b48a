//! Further links to a server beside its first: one for each set of capabilities that callers declare, since a link
//! declares one set, and one for each session where the server is stateful. They are opened when first needed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::OnceCell;

use super::connect::connect_further;
use super::error::CallError;
use super::link::{Carrier, Link};
use super::supervise::Upstream;
use crate::model::{Capabilities, SessionMode};

/// So many processes of one server at most, the first included, for different sets of capabilities.
const MAX_PROCESSES: usize = 4;

#[derive(Default)]
pub struct Pool(Mutex<HashMap<Key, Slot>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    capabilities: Capabilities,
    /// The session that the link belongs to; none where it is shared.
    session: Option<u64>,
}

/// Opened by the first who needs it while the others wait.
type Slot = Arc<OnceCell<Arc<Link>>>;

impl Upstream {
    /// The link for a caller with these capabilities and, perhaps, a session. The first link serves everybody who
    /// declares nothing; modern servers are told with every request, so there it serves all.
    pub async fn link_for(
        &self,
        capabilities: Capabilities,
        session: Option<u64>,
    ) -> Result<Arc<Link>, CallError> {
        let first = self.link().await?;
        let session = session.filter(|_| self.config().session_mode == SessionMode::Stateful);
        let is_process = matches!(first.carrier, Carrier::Stdio(_));
        let capabilities = if first.is_modern() { Capabilities::NONE } else { capabilities };
        let needs_own = session.is_some() && (is_process || !first.is_modern());
        if !needs_own && capabilities.is_empty() {
            return Ok(first);
        }
        let Some(slot) = self.0.pool.slot(Key { capabilities, session }, is_process) else {
            return Ok(first);
        };
        if let Some(link) = slot.get() {
            return Ok(link.clone());
        }
        // In a box, since it is large and rarely needed.
        Box::pin(self.open(&slot, capabilities)).await
    }

    async fn open(&self, slot: &Slot, capabilities: Capabilities) -> Result<Arc<Link>, CallError> {
        let shared = &self.0;
        let open = || async {
            let (config, options) = (&shared.config, &shared.options);
            let (era, tokens) = (shared.era(), shared.tokens.as_ref());
            let opened = connect_further(config, options, capabilities, era, &shared.stderr, tokens);
            let gone = || CallError::NotSent("the server was removed, replaced or disabled".into());
            let opened = shared.stop.run_until_cancelled(opened).await.ok_or_else(gone)?;
            let link = opened.map_err(|error| CallError::NotSent(error.to_string()))?;
            if let Some(offering) = self.offering() {
                shared.restore_level(&link, &offering);
            }
            self.heed(&link);
            Ok(link)
        };
        slot.get_or_try_init(open).await.cloned()
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

    pub fn has_link_of(&self, session: u64) -> bool {
        self.0.pool.has_any(|key| key.session == Some(session))
    }

    /// Closes what belongs to a session that is over.
    pub async fn release(&self, session: u64) {
        for slot in self.0.pool.take(|key| key.session == Some(session)) {
            if let Some(link) = slot.get() {
                link.close().await;
            }
        }
    }
}

impl Pool {
    /// `None` when the first link must do.
    fn slot(&self, key: Key, is_process: bool) -> Option<Slot> {
        let mut slots = self.0.lock().expect("no code panics while it holds the slots");
        slots.retain(|_, slot| slot.get().is_none_or(|link| !link.calls.is_lost()));
        let shared = slots.keys().filter(|key| key.session.is_none()).count();
        let is_full = is_process && key.session.is_none() && shared + 1 >= MAX_PROCESSES;
        if is_full && !slots.contains_key(&key) {
            // What the chosen process did not declare is not available to this caller.
            let fitting = slots.iter().filter(|(other, _)| {
                other.session.is_none() && other.capabilities.is_subset_of(key.capabilities)
            });
            return fitting.max_by_key(|(other, _)| other.capabilities.len()).map(|(_, slot)| slot.clone());
        }
        Some(slots.entry(key).or_default().clone())
    }

    /// Lets go of a link that turned out to be of no more use.
    pub fn forget(&self, link: &Arc<Link>) {
        let mut slots = self.0.lock().expect("no code panics while it holds the slots");
        slots.retain(|_, slot| slot.get().is_none_or(|held| !Arc::ptr_eq(held, link)));
    }

    pub fn links(&self) -> Vec<Arc<Link>> {
        let slots = self.0.lock().expect("no code panics while it holds the slots");
        slots.values().filter_map(|slot| slot.get().cloned()).collect()
    }

    fn has_any(&self, is_meant: impl Fn(&Key) -> bool) -> bool {
        let slots = self.0.lock().expect("no code panics while it holds the slots");
        slots.iter().any(|(key, slot)| is_meant(key) && slot.get().is_some_and(|link| !link.calls.is_lost()))
    }

    pub fn take_all(&self) -> Vec<Slot> {
        self.take(|_| true)
    }

    fn take(&self, is_meant: impl Fn(&Key) -> bool) -> Vec<Slot> {
        let mut slots = self.0.lock().expect("no code panics while it holds the slots");
        let keys: Vec<_> = slots.keys().filter(|key| is_meant(key)).copied().collect();
        keys.iter().filter_map(|key| slots.remove(key)).collect()
    }
}
