//! Rate limit for wrong tokens, per source, against guessing. A source is an IPv4 address or an IPv6 network of 64 bits,
//! which is what one customer has. Requests with a valid token are not limited.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;
use std::time::Instant;

/// Burst size.
const BURST: f64 = 300.0;
/// Refill rate per second.
const PER_SECOND: f64 = 10.0;
/// Largest number of sources that are tracked.
const MOST_SOURCES: usize = 100_000;

/// A token bucket for each source.
#[derive(Default)]
pub struct Guesses(Mutex<HashMap<IpAddr, Allowance>>);

/// The token bucket of one source: how many wrong tokens it may still send, at time `then`.
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
    /// Counts a wrong token. Returns false if its source exceeds the limit.
    pub fn count(&self, address: IpAddr, now: Instant) -> bool {
        let source = source_of(address);
        let mut sources = self.0.lock().expect("no code panics while it holds the sources");
        if sources.len() >= MOST_SOURCES && !sources.contains_key(&source) {
            // A full bucket is the same as none.
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

/// Returns an IPv4 address as it is, and the network of an IPv6 address.
pub fn source_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
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
    fn the_addresses_of_one_ipv6_network_count_together() {
        let source = |address: &str| source_of(address.parse().unwrap()).to_string();
        assert_eq!(source("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(source("2001:db8:1:2::"), source("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(source("2001:db8:1:2::1"), source("2001:db8:1:3::1"));
        assert_eq!(source("::ffff:192.0.2.1"), "192.0.2.1");
        let (guesses, now) = (Guesses::default(), Instant::now());
        let count = |address: &str| guesses.count(address.parse().unwrap(), now);
        let passed = (0..1000).filter(|number| count(&format!("2001:db8:1:2::{number:x}"))).count();
        assert_eq!((passed, count("2001:db8:1:3::1")), (300, true));
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
