//! Further links to a server beside its first: one for each set of capabilities that callers declare, since a link
//! declares one set, and one for each session or caller where the server is stateful. They are opened
//! when first needed, in `further`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;

use super::link::Link;
use model::{Capabilities, PrincipalId};

/// So many processes of one server at most, the first included, for different sets of capabilities.
const MAX_PROCESSES: usize = 4;

#[derive(Default)]
pub struct LinkPool(Mutex<HashMap<LinkKey, SharedLink>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkKey {
    pub capabilities: Capabilities,
    /// Whose link it is; none where it is shared.
    pub owner: Option<Owner>,
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

pub type SharedLink = Arc<PooledLink>;

pub struct PooledLink {
    /// Opened by the first who needs it while the others wait.
    pub link: OnceCell<Arc<Link>>,
    last_used: Mutex<Instant>,
}

impl PooledLink {
    pub fn touch(&self) {
        *self.last_used.lock().expect("no code panics while it holds a time") = Instant::now();
    }

    /// Whether it was last used longer ago than that. One with calls in flight is in use.
    pub fn is_idle(&self, limit: Duration) -> bool {
        if self.link.get().is_none_or(|link| link.calls.has_callers()) {
            self.touch();
        }
        self.last_used.lock().expect("no code panics while it holds a time").elapsed() > limit
    }
}

impl LinkPool {
    /// `None` when the first link must do.
    pub fn slot(&self, key: LinkKey, is_process: bool) -> Option<SharedLink> {
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

    pub fn has_any(&self, is_meant: impl Fn(&LinkKey) -> bool) -> bool {
        let slots = self.0.lock().expect("no code panics while it holds the slots");
        slots
            .iter()
            .any(|(key, slot)| is_meant(key) && slot.link.get().is_some_and(|link| !link.calls.is_lost()))
    }

    pub fn take_links(&self) -> Vec<Arc<Link>> {
        self.take(|_, _| true).iter().filter_map(|slot| slot.link.get().cloned()).collect()
    }

    pub fn take(&self, is_meant: impl Fn(&LinkKey, &SharedLink) -> bool) -> Vec<SharedLink> {
        let mut slots = self.0.lock().expect("no code panics while it holds the slots");
        slots.extract_if(|key, slot| is_meant(key, slot)).map(|(_, slot)| slot).collect()
    }
}
