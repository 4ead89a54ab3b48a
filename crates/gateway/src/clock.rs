//! The time limit of a call that asks its caller something: it stands still while the caller owes an answer, which has a
//! time limit of its own. Calls without questions have a plain deadline instead.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use budget::{Bound, Budgets, Exceeded};

pub struct Clock {
    state: Mutex<ClockState>,
    /// Say how long a caller may owe an answer.
    budgets: Budgets,
    changed: Notify,
}

struct ClockState {
    /// When the server's time is over, as far as no answer is owed; `None` if it is not limited.
    deadline: Option<Instant>,
    /// How many answers are owed.
    owed: usize,
    /// Since when the clock stands still.
    since: Instant,
    /// For how long it has stood still, up to when it last went on.
    stood_still: Duration,
    /// When the caller was last asked something, or last answered: since then it owes an answer.
    asked: Instant,
}

/// Who exceeded their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    Server,
    Caller(Exceeded),
}

/// Stops the clock of a call until it is dropped.
pub struct Pause(Arc<Clock>);

impl Clock {
    pub fn new(deadline: Option<Instant>, budgets: Budgets) -> Arc<Self> {
        let now = Instant::now();
        let state =
            Mutex::new(ClockState { deadline, owed: 0, since: now, stood_still: Duration::ZERO, asked: now });
        Arc::new(Self { state, budgets, changed: Notify::new() })
    }

    pub fn pause(self: &Arc<Self>) -> Pause {
        let mut state = self.lock();
        let now = Instant::now();
        if state.owed == 0 {
            state.since = now;
        }
        state.owed += 1;
        state.asked = now;
        drop(state);
        self.changed.notify_one();
        Pause(self.clone())
    }

    /// Waits until the server or the caller has exceeded its time.
    pub async fn overdue(&self) -> Overdue {
        loop {
            let (until, is_callers) = self.limit();
            let over = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => break is_callers.then(|| self.unanswered()),
                () = self.changed.notified() => {}
            }
        }
        .map_or(Overdue::Server, Overdue::Caller)
    }

    /// When the time is over, and whether it is the caller's.
    fn limit(&self) -> (Option<Instant>, bool) {
        let state = self.lock();
        match state.owed {
            0 => (state.deadline, false),
            _ => (Some(state.asked + self.budgets.limits.answer_time), true),
        }
    }

    /// For how long the caller has owed answers.
    pub fn owed_for(&self, now: std::time::Instant) -> Duration {
        let state = self.lock();
        let current = match state.owed {
            0 => Duration::ZERO,
            _ => now.saturating_duration_since(state.since.into_std()),
        };
        state.stood_still + current
    }

    fn unanswered(&self) -> Exceeded {
        self.budgets.exceeded(Bound::AnswerTime, self.budgets.limits.answer_time.as_secs())
    }

    fn lock(&self) -> MutexGuard<'_, ClockState> {
        self.state.lock().expect("no code panics while it holds a clock")
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.owed -= 1;
        state.asked = Instant::now();
        if state.owed == 0 {
            let stood_still = state.since.elapsed();
            state.stood_still += stood_still;
            state.deadline = state.deadline.map(|deadline| deadline + stood_still);
        }
        drop(state);
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
impl Clock {
    /// Makes the caller owe an answer since then or owe none, and have owed answers for this long before.
    pub fn set_owed(&self, since: Option<std::time::Instant>, before: Duration) {
        let mut state = self.lock();
        state.owed = since.is_some().into();
        state.since = since.map_or(state.since, Instant::from_std);
        state.stood_still = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use budget::Limits;

    fn budgets() -> Budgets {
        Budgets::new(Limits { answer_time: 10 * SECOND, ..Limits::default() })
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// Makes the clock stand still since earlier.
    fn backdate(clock: &Clock, by: Duration) {
        let mut state = clock.lock();
        state.since -= by;
        state.asked -= by;
    }

    #[test]
    fn time_in_which_an_answer_is_owed_does_not_count() {
        let deadline = Instant::now() + 2 * SECOND;
        let clock = Clock::new(Some(deadline), budgets());
        assert_eq!(clock.limit(), (Some(deadline), false));
        let (first, second) = (clock.pause(), clock.pause());
        backdate(&clock, 5 * SECOND);
        drop(first);
        let (until, is_callers) = clock.limit();
        assert!(is_callers, "one answer is still owed");
        assert!(until.unwrap() > Instant::now() + 9 * SECOND, "and has its own time");
        drop(second);
        let (until, is_callers) = clock.limit();
        assert!(!is_callers && until.unwrap() >= deadline + 5 * SECOND);
        assert!(clock.owed_for(std::time::Instant::now()) >= 5 * SECOND);
    }

    #[tokio::test]
    async fn an_answer_has_a_time_limit_of_its_own() {
        let clock = Clock::new(None, budgets());
        let pause = clock.pause();
        backdate(&clock, 10 * SECOND);
        assert!(matches!(clock.overdue().await, Overdue::Caller(_)));
        drop(pause);
        assert_eq!(clock.limit(), (None, false));
    }
}
