//! What is done with a call when it ends: it is counted, and kept for the task that writes if it may get a record.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use foldhash::fast::RandomState;

use super::QUEUE;
use super::sum::Sum;
use crate::catalog::{Entry, ToolPosition};
use crate::trail::EndedCall;
use model::PrincipalId;
use store::CountedKind;

/// What has ended since the task that writes last looked.
pub struct Intake {
    pub counts: HashMap<CountKey, Group, RandomState>,
    #[allow(clippy::vec_box)] // They come in boxes. Taken out here, each would be copied under the lock.
    pub queue: Vec<Box<EndedCall>>,
    /// How many calls per second get a record, and how many may get one now.
    rate: f64,
    allowance: f64,
    filled: Instant,
}

/// What calls have in common that are counted under the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountKey {
    /// The address of the entry in the catalog.
    pub entry: usize,
    pub tool: Option<ToolPosition>,
    pub principal: Option<PrincipalId>,
}

impl Hash for CountKey {
    /// Hashes one word instead of five.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let tool = self.tool.map_or(0, |ToolPosition(position)| position as u64 + 1);
        let principal = self.principal.map_or(0, |PrincipalId(id)| id);
        state.write_u64(self.entry as u64 ^ tool.rotate_left(48) ^ principal.rotate_left(24));
    }
}

/// Calls that are counted under the same names.
pub struct Group {
    pub names: Vec<(CountedKind, String)>,
    pub sum: Sum,
    /// As long as it is held, no other entry has its address.
    _entry: Option<Arc<Entry>>,
}

impl Intake {
    pub fn new(rate: u32) -> Self {
        let rate = f64::from(rate);
        let filled = Instant::now();
        Self { counts: HashMap::default(), queue: Vec::new(), rate, allowance: rate, filled }
    }

    /// Counts a call, and keeps it for the task that writes if there is room; returns whether it was kept.
    pub fn add(&mut self, call: Box<EndedCall>, now: Instant) -> bool {
        let group = self.counts.entry(call.count_key()).or_insert_with(|| {
            let (names, entry) = call.counted_under();
            Group { names, sum: Sum::default(), _entry: entry }
        });
        group.sum.add_one(call.counted());
        let gained = self.rate * now.saturating_duration_since(self.filled).as_secs_f64();
        (self.allowance, self.filled) = ((self.allowance + gained).min(self.rate), now.max(self.filled));
        let is_kept = self.allowance >= 1.0 && self.queue.len() < QUEUE;
        if is_kept {
            self.allowance -= 1.0;
            self.queue.push(call);
        }
        is_kept
    }
}
