//! The count of server processes, for one server or for all. A process counts until it and all its descendants are gone.

use std::sync::{Arc, Mutex};

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
    pub fn add(&self) -> Option<Taken> {
        self.running.try_take(1)
    }

    pub fn has_ending(&self) -> bool {
        self.ending.used() > 0
    }

    pub fn limit(&self) -> u64 {
        self.running.limit()
    }
}

/// The right of one process to exist, given back when it is gone.
pub struct ProcessSlot {
    /// Dropped in this order: whoever finds that no process is ending must find the place of the last one.
    _counted: [Taken; 2],
    end: Over,
    _freed: Wake,
}

/// Marks a process as ending: it still counts, but not for long. Clones share it.
#[derive(Clone)]
pub struct ProcessEnd {
    counts: [ProcessCount; 2],
    state: Arc<Mutex<EndState>>,
}

enum EndState {
    Running,
    Ending { _counted: [Option<Taken>; 2] },
    Over,
}

/// Ends the mark of a process that is gone.
struct Over(ProcessEnd);

/// Wakes those who wait for a slot.
struct Wake(Arc<Notify>);

impl ProcessSlot {
    /// A slot for a process that is counted by `counts`.
    pub fn new(counts: [ProcessCount; 2], counted: [Taken; 2], freed: Arc<Notify>) -> Self {
        let end = ProcessEnd { counts, state: Arc::new(Mutex::new(EndState::Running)) };
        Self { _counted: counted, end: Over(end), _freed: Wake(freed) }
    }

    pub fn end(&self) -> &ProcessEnd {
        &self.end.0
    }
}

impl ProcessEnd {
    pub fn begins(&self) {
        let mut state = self.state.lock().expect("no code panics while it holds the state");
        if let EndState::Running = *state {
            let counted = self.counts.each_ref().map(|count| count.ending.try_take(1));
            *state = EndState::Ending { _counted: counted };
        }
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        *self.0.state.lock().expect("no code panics while it holds the state") = EndState::Over;
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}
