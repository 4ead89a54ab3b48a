//! The count of server processes, for one server or for all. A process counts until it and all its descendants are gone.

use std::sync::Arc;

use tokio::sync::Notify;

use budget::{Bound, Budget, Refusals, Taken};

/// A bounded number of processes, of which some may be ending. Clones share it.
#[derive(Clone)]
pub struct ProcessCount {
    running: Budget,
    ending: Budget,
}

impl ProcessCount {
    pub fn of_server(limit: u64, refusals: &Refusals) -> Self {
        Self::new(Budget::new(Bound::Processes, limit, refusals), refusals)
    }

    /// Counts with a budget that others see too.
    pub fn new(running: Budget, refusals: &Refusals) -> Self {
        Self { running, ending: Budget::new(Bound::Processes, u64::MAX, refusals) }
    }

    /// Counts a process; `None` if there are too many already.
    pub fn add(&self) -> Option<Counted> {
        let running = self.running.try_take(1)?;
        Some(Counted { count: self.clone(), _ending: None, _running: running })
    }

    /// Counts a process as ending, until the guard is dropped.
    pub fn ends(&self) -> Option<Taken> {
        self.ending.try_take(1)
    }

    pub fn has_ending(&self) -> bool {
        self.ending.used() > 0
    }

    pub fn limit(&self) -> u64 {
        self.running.limit()
    }
}

/// A process that is counted once.
pub struct Counted {
    count: ProcessCount,
    _ending: Option<Taken>,
    _running: Taken,
}

/// The right of one process to exist, given back when it is gone.
pub struct ProcessSlot {
    of_server: Counted,
    of_all: Counted,
    /// The last field: those who wait are woken after the slot was given back.
    _freed: Wake,
}

struct Wake(Arc<Notify>);

impl ProcessSlot {
    pub fn new(of_server: Counted, of_all: Counted, freed: Arc<Notify>) -> Self {
        Self { of_server, of_all, _freed: Wake(freed) }
    }

    /// Marks the process as ending: it still counts, but not for long.
    pub fn ends(&mut self) {
        for counted in [&mut self.of_server, &mut self.of_all] {
            counted._ending = counted.count.ends();
        }
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}
