//! A limit on a pace: so many calls per minute, with a burst.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MINUTE: u64 = 60_000_000_000;

/// A limit of calls per minute. The whole state is one number: the time at which all calls so far will be "paid off" if
/// each takes its share of a minute. A call is refused if that time is further ahead than the burst allows.
#[derive(Debug)]
pub struct RateLimiter {
    begun: Instant,
    /// Nanoseconds since `begun`.
    paid_off: AtomicU64,
}

impl Default for RateLimiter {
    fn default() -> Self {
        Self { begun: Instant::now(), paid_off: AtomicU64::default() }
    }
}

impl RateLimiter {
    /// Counts a call. If it is too early, nothing is counted, and the error is the time until the next one may come.
    pub fn take(&self, calls_per_minute: u32, burst: u32, now: Instant) -> Result<(), Duration> {
        let now = u64::try_from(now.saturating_duration_since(self.begun).as_nanos()).unwrap_or(u64::MAX);
        let share = MINUTE / u64::from(calls_per_minute.max(1));
        let ahead = share.saturating_mul(burst.max(1).into());
        let next = |paid_off: u64| paid_off.max(now).saturating_add(share);
        let taken = self.paid_off.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |paid_off| {
            Some(next(paid_off)).filter(|next| *next <= now.saturating_add(ahead))
        });
        taken.map(drop).map_err(|paid_off| Duration::from_nanos(next(paid_off) - now - ahead))
    }

    /// Takes back a call that was counted but not made, since another limit refused it.
    pub fn give_back(&self, calls_per_minute: u32) {
        let share = MINUTE / u64::from(calls_per_minute.max(1));
        let _ = self.paid_off.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |paid_off| {
            Some(paid_off.saturating_sub(share))
        });
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
        limiter.give_back(60);
        assert!(take(1000.0).is_ok() && take(1000.0).is_err());
    }

    #[test]
    fn no_number_makes_it_overflow() {
        let limiter = RateLimiter::default();
        let later = limiter.begun + Duration::from_secs(1 << 32);
        for (pace, burst) in [(0, 0), (1, u32::MAX), (u32::MAX, u32::MAX), (u32::MAX, 1)] {
            let _ = limiter.take(pace, burst, limiter.begun);
            let _ = limiter.take(pace, burst, later);
            limiter.give_back(pace);
        }
    }
}
