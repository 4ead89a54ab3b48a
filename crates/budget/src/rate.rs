//! A limit on a pace: so many calls per minute, with a burst.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

const MINUTE: u64 = 60_000_000_000;

/// A limit of calls per minute. The state is the time at which all calls so far will be "paid off" if each takes its
/// share of a minute. A call is refused if that time is further ahead than the burst allows. The limit itself may
/// change from call to call: calls that are not paid off yet count as calls, whatever share they had.
#[derive(Debug)]
pub struct RateLimiter {
    begun: Instant,
    state: Mutex<State>,
}

/// Times are in nanoseconds, since `begun`.
#[derive(Debug)]
struct State {
    paid_off: u64,
    /// The share of a call in `paid_off`.
    share: u64,
}

impl Default for RateLimiter {
    fn default() -> Self {
        Self { begun: Instant::now(), state: Mutex::new(State { paid_off: 0, share: 1 }) }
    }
}

impl RateLimiter {
    /// Counts a call. If it is too early, nothing is counted, and the error is the time until the next one may come.
    pub fn take(&self, calls_per_minute: u32, burst: u32, now: Instant) -> Result<(), Duration> {
        let now = u64::try_from(now.saturating_duration_since(self.begun).as_nanos()).unwrap_or(u64::MAX);
        let share = MINUTE / u64::from(calls_per_minute.max(1));
        let ahead = share.saturating_mul(burst.max(1).into());
        let mut state = self.state();
        // More than the burst is unpaid if a larger burst was allowed before: the rest is forgotten, so that the new
        // limit holds at once.
        let unpaid = state.unpaid(now, share).min(ahead);
        let next = unpaid.saturating_add(share);
        let taken = if next <= ahead { Ok(next) } else { Err(Duration::from_nanos(next - ahead)) };
        let unpaid = taken.unwrap_or(unpaid);
        *state = State { paid_off: now.saturating_add(unpaid), share };
        taken.map(drop)
    }

    /// Takes back a call that was counted but not made, since another limit refused it.
    pub fn give_back(&self) {
        let mut state = self.state();
        state.paid_off = state.paid_off.saturating_sub(state.share);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the state")
    }
}

impl State {
    /// The time until all calls so far are paid off, if each takes this share.
    fn unpaid(&self, now: u64, share: u64) -> u64 {
        let unpaid = self.paid_off.saturating_sub(now);
        if self.share == share {
            return unpaid;
        }
        let scaled = u128::from(unpaid) * u128::from(share) / u128::from(self.share.max(1));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_pace_counts() {
        let limiter = RateLimiter::default();
        let at = |seconds: f64| limiter.begun + Duration::from_secs_f64(seconds);
        let take = |seconds| limiter.take(60, 3, at(seconds));
        assert!((0..3).all(|_| take(0.0).is_ok()));
        assert_eq!(take(0.0), Err(Duration::from_secs(1)));
        assert_eq!(take(0.25), Err(Duration::from_millis(750)));
        assert!(take(1.0).is_ok() && take(1.0).is_err());
        // A pause refills the burst, and no more than that.
        assert_eq!((0..10).filter(|_| take(1000.0).is_ok()).count(), 3);
        limiter.give_back();
        assert!(take(1000.0).is_ok() && take(1000.0).is_err());
    }

    #[test]
    fn a_changed_limit_holds_at_once_and_earlier_calls_count_as_calls() {
        let limiter = RateLimiter::default();
        let now = limiter.begun;
        assert!((0..5).all(|_| limiter.take(1, 5, now).is_ok()));
        assert_eq!(limiter.take(1, 5, now), Err(Duration::from_secs(60)));
        // A raised limit has room at once, less the calls that are not paid off.
        assert_eq!((0..20).filter(|_| limiter.take(600, 10, now).is_ok()).count(), 5);
        // A lowered one has none, and no more than its own burst has to be paid off.
        assert_eq!(limiter.take(60, 2, now), Err(Duration::from_secs(1)));
        assert!(limiter.take(60, 2, now + Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn no_number_makes_it_overflow() {
        let limiter = RateLimiter::default();
        let later = limiter.begun + Duration::from_secs(1 << 32);
        for (pace, burst) in [(0, 0), (1, u32::MAX), (u32::MAX, u32::MAX), (u32::MAX, 1)] {
            let _ = limiter.take(pace, burst, limiter.begun);
            let _ = limiter.take(pace, burst, later);
            limiter.give_back();
        }
    }
}
