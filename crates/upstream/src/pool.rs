//! Further links to a server besides its first: one for each set of capabilities that callers declare, since a link
//! declares one set, and one for each session or caller where the server is stateful. They are opened when first
//! needed, in `further`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;

use super::link::Link;
use model::{Capabilities, PrincipalId};

/// The most shared processes of one server, the first included, for different sets of capabilities.
const MAX_SHARED: usize = 4;

#[derive(Default)]
pub struct LinkPool(Mutex<HashMap<LinkKey, SharedLink>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkKey {
    pub capabilities: Capabilities,
    /// The owner of the link; `None` if it is shared.
    pub owner: Option<Owner>,
}

/// The owner of links to a stateful server. Callers of one principal may be several owners: each session is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A session of an agent.
    Session(u64),
    /// A user or client without sessions.
    Principal(PrincipalId),
    /// All callers without sessions in development mode, where callers are not identified.
    Anybody,
}

pub type SharedLink = Arc<PooledLink>;

pub struct PooledLink {
    /// Opened by the first caller that needs it, while others wait.
    pub link: OnceCell<Arc<Link>>,
    last_used: Mutex<Instant>,
}

impl PooledLink {
    pub fn touch(&self) {
        *self.last_used.lock().expect("no code panics while it holds a time") = Instant::now();
    }

    /// Marks the process of a link that is taken out. While the pool is locked: nobody may find neither an idle process
    /// nor one that is ending.
    fn ends(&self) {
        if let Some(link) = self.link.get() {
            link.begins_to_end();
        }
    }

    /// When it was last used; `None` while it is in use or not open yet. Everybody who uses the link, or is about to,
    /// holds it or its slot.
    fn unused_since(self: &Arc<Self>) -> Option<Instant> {
        let link = self.link.get()?;
        let is_free = Arc::strong_count(self) == 1 && Arc::strong_count(link) == 1;
        is_free.then(|| *self.last_used.lock().expect("no code panics while it holds a time"))
    }

    /// Whether it has been idle for longer than `limit`. A link with calls in flight is not idle.
    pub fn is_idle(&self, limit: Duration) -> bool {
        if self.link.get().is_none_or(|link| link.calls.has_callers()) {
            self.touch();
        }
        self.last_used.lock().expect("no code panics while it holds a time").elapsed() > limit
    }
}

/// The link that nobody has used for the longest time.
fn longest_idle(slots: &HashMap<LinkKey, SharedLink>) -> Option<(LinkKey, Instant)> {
    let idle = slots.iter().filter_map(|(key, slot)| Some((*key, slot.unused_since()?)));
    idle.min_by_key(|(_, since)| *since)
}

impl LinkPool {
    /// The slot for a key, created if needed; `None` when the caller must use the first link.
    pub fn slot(&self, key: LinkKey, is_process: bool) -> Option<SharedLink> {
        let mut slots = self.0.lock().expect("no code panics while it holds the slots");
        let is_usable = |slot: &SharedLink| slot.link.get().is_none_or(|link| !link.calls.is_lost());
        if let Some(slot) = slots.get(&key).filter(|slot| is_usable(slot)) {
            return Some(slot.clone());
        }
        // Only when a new slot is needed: a call should not iterate over the links of all others.
        slots.retain(|_, slot| is_usable(slot));
        let shared = slots.keys().filter(|key| key.owner.is_none()).count();
        let is_full = is_process && key.owner.is_none() && shared + 1 >= MAX_SHARED;
        if is_full {
            // Capabilities that the chosen process did not declare are not available to this caller.
            let fitting = slots.iter().filter(|(other, _)| {
                other.owner.is_none() && other.capabilities.is_subset_of(key.capabilities)
            });
            return fitting.max_by_key(|(other, _)| other.capabilities.len()).map(|(_, slot)| slot.clone());
        }
        let place = || Arc::new(PooledLink { link: OnceCell::new(), last_used: Mutex::new(Instant::now()) });
        Some(slots.entry(key).or_insert_with(place).clone())
    }

    /// Removes a link that turned out to be unusable.
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

    /// When the link that has been idle longest was last used; `None` if all are in use.
    pub fn idle_since(&self) -> Option<Instant> {
        let slots = self.0.lock().expect("no code panics while it holds the slots");
        longest_idle(&slots).map(|(_, since)| since)
    }

    /// Takes out the link that has been idle longest.
    pub fn take_idle(&self) -> Option<Arc<Link>> {
        let mut slots = self.0.lock().expect("no code panics while it holds the slots");
        let (key, _) = longest_idle(&slots)?;
        let slot = slots.remove(&key)?;
        slot.ends();
        slot.link.get().cloned()
    }

    pub fn take_links(&self) -> Vec<Arc<Link>> {
        self.take(|_, _| true).iter().filter_map(|slot| slot.link.get().cloned()).collect()
    }

    pub fn take(&self, is_meant: impl Fn(&LinkKey, &SharedLink) -> bool) -> Vec<SharedLink> {
        let mut slots = self.0.lock().expect("no code panics while it holds the slots");
        let taken = slots.extract_if(|key, slot| is_meant(key, slot)).map(|(_, slot)| slot);
        taken.inspect(|slot| slot.ends()).collect()
    }
}
