//! The ids of calls.

use std::sync::atomic::{AtomicU64, Ordering};

use telemetry::CallId;

/// Numbers calls.
#[derive(Debug)]
pub struct CallIds {
    last: AtomicU64,
    writer: u32,
}

/// The bits of a number that count within a millisecond.
const COUNT_BITS: u32 = 16;

impl CallIds {
    pub fn new() -> Self {
        let mut writer = [0; 4];
        getrandom::fill(&mut writer).expect("the system has random numbers");
        Self { last: AtomicU64::new(0), writer: u32::from_le_bytes(writer) }
    }

    pub fn next(&self, now_ms: i64) -> CallId {
        let now = now_ms.unsigned_abs() << COUNT_BITS;
        let after = |last: u64| Some((last + 1).max(now));
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        CallId { number: (last.unwrap_or_default() + 1).max(now), writer: self.writer }
    }

    /// The end of all ids that are given here.
    pub fn suffix(&self) -> String {
        format!("{:08x}", self.writer)
    }

    /// Goes on after an id that was given before.
    pub fn go_on_after(&self, id: Option<String>) {
        let number = id.and_then(|id| u64::from_str_radix(id.get(..16)?, 16).ok());
        self.last.fetch_max(number.unwrap_or_default(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::now_ms;

    #[test]
    fn ids_grow_even_if_the_clock_jumps_back() {
        let ids = CallIds::new();
        let first = ids.next(now_ms());
        let far_ahead = (now_ms() + 1_000_000).unsigned_abs() << COUNT_BITS;
        ids.last.store(far_ahead, Ordering::Relaxed);
        let (second, third) = (ids.next(now_ms()), ids.next(now_ms()));
        assert!(first < second && second < third);
        assert!(first.to_string() < second.to_string() && second.to_string() < third.to_string());
        let restarted = CallIds::new();
        restarted.go_on_after(Some(third.to_string()));
        assert!(restarted.next(now_ms()).to_string()[..16] > third.to_string()[..16]);
        restarted.go_on_after(Some("x".into()));
    }
}
