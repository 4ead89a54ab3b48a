//! A part of a limit on a pace that several gateways share: calls that were reserved for this one.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What this gateway has left of a shared limit. The limit itself may change from call to call.
#[derive(Debug, Default)]
pub struct Portion(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Calls per minute and burst.
    limit: (u32, u32),
    left: u32,
    /// Until then nothing can be reserved.
    refused_until: Option<Instant>,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortionTake {
    Taken,
    /// Nothing is left, and more has to be reserved.
    Empty,
    /// It is too early; the next call may come after this time.
    Refused(Duration),
}

impl Portion {
    /// Counts a call, if it is one of those that were reserved.
    pub fn take(&self, limit: (u32, u32), now: Instant) -> PortionTake {
        let mut state = self.state();
        if state.limit != limit {
            // What was reserved under another limit was counted under it.
            *state = State { limit, ..State::default() };
        }
        if state.left > 0 {
            state.left -= 1;
            return PortionTake::Taken;
        }
        match state.refused_until.map(|until| until.saturating_duration_since(now)) {
            Some(time) if !time.is_zero() => PortionTake::Refused(time),
            Some(_) | None => PortionTake::Empty,
        }
    }

    /// Adds calls that were reserved.
    pub fn add(&self, calls: u32) {
        let mut state = self.state();
        state.left = state.left.saturating_add(calls);
        state.refused_until = None;
    }

    /// Refuses calls for some time, since nothing could be reserved.
    pub fn refuse(&self, until: Instant) {
        self.state().refused_until = Some(until);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no code panics while it holds the state")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reserved_calls_pass() {
        let (portion, now) = (Portion::default(), Instant::now());
        assert_eq!(portion.take((60, 60), now), PortionTake::Empty);
        portion.add(2);
        assert_eq!(portion.take((60, 60), now), PortionTake::Taken);
        assert_eq!(portion.take((60, 60), now), PortionTake::Taken);
        assert_eq!(portion.take((60, 60), now), PortionTake::Empty);
        portion.refuse(now + Duration::from_secs(1));
        assert_eq!(portion.take((60, 60), now), PortionTake::Refused(Duration::from_secs(1)));
        assert_eq!(portion.take((60, 60), now + Duration::from_secs(1)), PortionTake::Empty);
    }

    #[test]
    fn a_changed_limit_begins_anew() {
        let (portion, now) = (Portion::default(), Instant::now());
        portion.take((60, 60), now);
        portion.add(5);
        assert_eq!(portion.take((10, 10), now), PortionTake::Empty);
        portion.refuse(now + Duration::from_secs(9));
        assert_eq!(portion.take((600, 10), now), PortionTake::Empty);
    }
}
