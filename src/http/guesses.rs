//! Counts wrong tokens by the address they come from, so that tokens cannot be guessed by trying. Whoever sends a
//! valid token is never held up.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Instant;

/// So many wrong tokens at once,
const BURST: f64 = 300.0;
/// and so many in a second.
const PER_SECOND: f64 = 10.0;
/// Addresses that are remembered at most.
const MOST_SOURCES: usize = 100_000;

#[derive(Default)]
pub struct Guesses(Mutex<HashMap<IpAddr, Allowance>>);

/// How many more wrong tokens an address may send, as of then.
struct Allowance {
    left: f64,
    then: Instant,
}

impl Allowance {
    fn at(&self, now: Instant) -> f64 {
        let gained = now.saturating_duration_since(self.then).as_secs_f64() * PER_SECOND;
        BURST.min(self.left + gained)
    }
}

impl Guesses {
    /// Takes note of a wrong token. False when it is one too many.
    pub fn count(&self, source: IpAddr, now: Instant) -> bool {
        let mut sources = self.0.lock().expect("no code panics while it holds the sources");
        if sources.len() >= MOST_SOURCES && !sources.contains_key(&source) {
            // Those that may try everything again are as good as new.
            sources.retain(|_, allowance| allowance.at(now) < BURST);
            if sources.len() >= MOST_SOURCES {
                sources.clear();
            }
        }
        let allowance = sources.entry(source).or_insert(Allowance { left: BURST, then: now });
        let left = allowance.at(now);
        let is_within = left >= 1.0;
        *allowance = Allowance { left: if is_within { left - 1.0 } else { left }, then: now };
        is_within
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn tries(guesses: &Guesses, source: [u8; 4], now: Instant) -> usize {
        (0..1000).filter(|_| guesses.count(source.into(), now)).count()
    }

    #[test]
    fn a_burst_passes_and_then_a_few_each_second() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        assert_eq!(tries(&guesses, [1, 1, 1, 1], now), 300);
        assert_eq!(tries(&guesses, [1, 1, 1, 1], now), 0);
        assert_eq!(tries(&guesses, [1, 1, 1, 2], now), 300);
        assert_eq!(tries(&guesses, [1, 1, 1, 1], now + Duration::from_secs(2)), 20);
        assert_eq!(tries(&guesses, [1, 1, 1, 1], now + Duration::from_secs(1000)), 300);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (guesses, now) = (Guesses::default(), Instant::now());
        for number in 0..MOST_SOURCES as u32 + 10 {
            guesses.count(IpAddr::from(number.to_be_bytes()), now);
        }
        assert!(guesses.0.lock().unwrap().len() <= MOST_SOURCES);
    }
}
