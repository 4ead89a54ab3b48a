//! Measurements: the latency of a bystander, and the resources of the process.

use std::fs;
use std::time::Duration;

/// Latencies of one phase.
#[derive(Debug)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The 99th percentile.
    pub fn p99(&self) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.get((sorted.len() * 99 / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

/// The open descriptors of a process.
pub fn descriptors(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count)
}

/// Resident memory of a process in MiB: the current value and the peak.
pub fn memory(process: u32) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or_default()
            / 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

/// `12.3 ms`
pub fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_99th_percentile_ignores_the_one_in_a_hundred() {
        let mut latencies = Latencies::new();
        (1..=200).for_each(|number| latencies.add(Duration::from_millis(number)));
        assert_eq!(latencies.p99(), Duration::from_millis(199));
        assert_eq!(Latencies::new().p99(), Duration::ZERO);
    }
}
