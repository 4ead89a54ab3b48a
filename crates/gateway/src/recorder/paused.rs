//! Calls that a modern server interrupted for input: their trails wait for the next request of their client.

use std::collections::{BTreeMap, HashMap, VecDeque};

use tokio::time::Instant;

use crate::trail::Trail;

/// How many calls wait for another request of their client at most; others are recorded at once.
const MOST_PAUSED: usize = 10_000;

/// Calls that wait for another request of their client.
#[derive(Default)]
pub struct Paused {
    /// By the time until which they wait, and a number.
    trails: BTreeMap<(Instant, u64), (Vec<u8>, Trail)>,
    /// The same times and numbers for each key, in order.
    by_key: HashMap<Vec<u8>, VecDeque<(Instant, u64)>>,
    last: u64,
}

impl Paused {
    pub fn add(&mut self, key: Vec<u8>, trail: Trail, until: Instant) {
        if self.trails.len() < MOST_PAUSED {
            self.last += 1;
            self.by_key.entry(key.clone()).or_default().push_back((until, self.last));
            self.trails.insert((until, self.last), (key, trail));
        }
    }

    /// Takes out the one that has waited longest under this key.
    pub fn take(&mut self, key: &[u8]) -> Option<Trail> {
        let waiting = self.by_key.get_mut(key)?;
        let first = waiting.pop_front();
        if waiting.is_empty() {
            self.by_key.remove(key);
        }
        self.trails.remove(&first?).map(|(_, trail)| trail)
    }

    /// Takes out one whose time is over.
    pub fn take_before(&mut self, now: Instant) -> Option<Trail> {
        let (_, (key, _)) = self.trails.first_key_value().filter(|((until, _), _)| *until <= now)?;
        // All of a key wait equally long, so it is the first of them.
        let key = key.clone();
        self.take(&key)
    }
}
