//! A rate limit for what strangers may do, per source. A source is an IPv4 address or an IPv6 network of 64 bits, which is what
//! one customer has.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;
use std::time::Instant;

/// Largest number of sources that are tracked.
const MOST_SOURCES: usize = 100_000;

/// A token bucket for each source.
pub struct SourceLimit {
    burst: f64,
    /// Refill rate per second.
    per_second: f64,
    sources: Mutex<HashMap<IpAddr, Allowance>>,
}

/// The token bucket of one source: how much it may still do, at time `then`.
struct Allowance {
    left: f64,
    then: Instant,
}

impl SourceLimit {
    pub fn new(burst: f64, per_second: f64) -> Self {
        Self { burst, per_second, sources: Mutex::default() }
    }

    /// So many in a minute, all of which may come at once.
    pub fn per_minute(count: u32) -> Self {
        Self::new(count.into(), f64::from(count) / 60.0)
    }

    /// The limit for wrong tokens, against guessing. Requests with a valid token are not limited.
    pub fn of_guesses() -> Self {
        Self::new(300.0, 10.0)
    }

    fn left(&self, allowance: &Allowance, now: Instant) -> f64 {
        let gained = now.saturating_duration_since(allowance.then).as_secs_f64() * self.per_second;
        self.burst.min(allowance.left + gained)
    }

    /// Counts one more. Returns false if its source exceeds the limit.
    pub fn count(&self, address: IpAddr, now: Instant) -> bool {
        let source = source_of(address);
        let mut sources = self.sources.lock().expect("no code panics while it holds the sources");
        if sources.len() >= MOST_SOURCES && !sources.contains_key(&source) {
            // A full bucket is the same as none.
            sources.retain(|_, allowance| self.left(allowance, now) < self.burst);
            if sources.len() >= MOST_SOURCES {
                sources.clear();
            }
        }
        let allowance = sources.entry(source).or_insert(Allowance { left: self.burst, then: now });
        let left = self.left(allowance, now);
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

    fn tries(guesses: &SourceLimit, source: [u8; 4], now: Instant) -> usize {
        (0..1000).filter(|_| guesses.count(source.into(), now)).count()
    }

    #[test]
    fn a_burst_passes_and_then_a_few_each_second() {
        let (guesses, now) = (SourceLimit::of_guesses(), Instant::now());
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
        let (guesses, now) = (SourceLimit::of_guesses(), Instant::now());
        let count = |address: &str| guesses.count(address.parse().unwrap(), now);
        let passed = (0..1000).filter(|number| count(&format!("2001:db8:1:2::{number:x}"))).count();
        assert_eq!((passed, count("2001:db8:1:3::1")), (300, true));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (guesses, now) = (SourceLimit::of_guesses(), Instant::now());
        for number in 0..MOST_SOURCES as u32 + 10 {
            guesses.count(IpAddr::from(number.to_be_bytes()), now);
        }
        assert!(guesses.sources.lock().unwrap().len() <= MOST_SOURCES);
    }
}
