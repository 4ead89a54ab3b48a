//! New ids for traces and spans: they differ within a process and, almost certainly, between processes. They are no secrets,
//! so they come from a counter whose values are mixed, which is faster than asking the system.

use std::num::{NonZeroU64, NonZeroU128};
use std::sync::atomic::{AtomicU64, Ordering};

use super::context::{SpanId, TraceId};

/// An odd number, so that the counter takes all values before it repeats one.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Debug)]
pub struct Ids {
    counter: AtomicU64,
    /// Makes the upper half of trace ids independent of the counter.
    upper: u64,
}

impl Ids {
    pub fn new() -> Self {
        let mut seed = [0; 16];
        getrandom::fill(&mut seed).expect("the system has random numbers");
        let seed = u128::from_le_bytes(seed);
        Self { counter: AtomicU64::new(seed as u64), upper: (seed >> 64) as u64 }
    }

    pub fn trace(&self) -> TraceId {
        let (upper, lower) = (self.next() ^ self.upper, self.next());
        let id = u128::from(upper) << 64 | u128::from(lower);
        TraceId(NonZeroU128::new(id).unwrap_or(NonZeroU128::MIN))
    }

    pub fn span(&self) -> SpanId {
        SpanId(NonZeroU64::new(self.next()).unwrap_or(NonZeroU64::MIN))
    }

    /// The next value of the counter, mixed as SplitMix64 does it: different inputs have different outputs.
    fn next(&self) -> u64 {
        let value = self.counter.fetch_add(STEP, Ordering::Relaxed);
        let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_differ_also_between_processes() {
        let (one, other) = (Ids::new(), Ids::new());
        let spans: HashSet<_> = (0..1000).flat_map(|_| [one.span().0, other.span().0]).collect();
        assert_eq!(spans.len(), 2000);
        let traces: HashSet<_> = (0..1000).flat_map(|_| [one.trace().0, other.trace().0]).collect();
        assert_eq!(traces.len(), 2000);
    }
}
