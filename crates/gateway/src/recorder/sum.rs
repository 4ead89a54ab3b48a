//! Calls that are counted together.

use std::time::Duration;

use model::Histogram;
use store::{CallCount, CountedKind};

/// One call, as it is counted.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    pub is_error: bool,
    pub bytes: u64,
    pub duration: Duration,
    pub own_time: Duration,
}

/// Calls that were counted together.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    pub calls: u64,
    pub errors: u64,
    pub bytes: u64,
    pub durations: Histogram,
    pub own_times: Histogram,
}

impl Sum {
    pub fn add_one(&mut self, counted: Counted) {
        self.calls += 1;
        self.errors += u64::from(counted.is_error);
        self.bytes += counted.bytes;
        self.durations.add(counted.duration);
        self.own_times.add(counted.own_time);
    }

    pub fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.bytes += other.bytes;
        self.durations.merge(&other.durations);
        self.own_times.merge(&other.own_times);
    }

    pub fn add(&mut self, count: &CallCount) {
        self.calls += count.calls;
        self.errors += count.errors;
        self.bytes += count.bytes;
        self.durations.merge(&count.durations);
        self.own_times.merge(&count.own_times);
    }

    pub fn empty_count(&self, span_ms: i64, at_ms: i64, kind: CountedKind, name: &str) -> CallCount {
        let (durations, own_times) = Default::default();
        let (calls, errors, bytes) = (0, 0, 0);
        CallCount { span_ms, at_ms, kind, name: name.to_owned(), calls, errors, bytes, durations, own_times }
    }

    pub fn add_to(&self, count: &mut CallCount) {
        count.calls += self.calls;
        count.errors += self.errors;
        count.bytes += self.bytes;
        count.durations.merge(&self.durations);
        count.own_times.merge(&self.own_times);
    }
}
