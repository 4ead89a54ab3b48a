//! The outcomes of calls, as counted in `/metrics`.

use std::collections::BTreeMap;

use super::{TestApp, eventually};

/// The number of calls by server, tool and outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<(String, String, String), u64>);

impl Tally {
    /// Reads the counts so far; the gateway must have telemetry switched on.
    pub async fn of(app: &TestApp) -> Self {
        let text = app.get("/metrics").await.expect(200).text();
        let mut tally = Self::default();
        for line in text.lines().filter_map(|line| line.strip_prefix("toolgate_tool_calls_total{")) {
            let (labels, count) = line.split_once("} ").expect("a series has a value");
            let label = |name: &str| {
                let value = labels.split(',').find_map(|label| label.strip_prefix(&format!("{name}=\"")));
                value.expect("every label is there").trim_end_matches('"').to_owned()
            };
            let key = (label("server"), label("tool"), label("outcome"));
            *tally.0.entry(key).or_default() += count.parse::<u64>().expect("a count is a number");
        }
        tally
    }

    /// The number of all calls, with any outcome.
    pub fn sum(&self) -> u64 {
        self.0.values().sum()
    }

    /// The number of calls of each outcome.
    pub fn by_outcome(&self) -> BTreeMap<&str, u64> {
        let mut counts = BTreeMap::new();
        for ((_, _, outcome), count) in &self.0 {
            *counts.entry(outcome.as_str()).or_default() += count;
        }
        counts
    }

    /// The counts since an earlier tally.
    pub fn since(&self, earlier: &Tally) -> Vec<(&str, &str, &str, u64)> {
        let before = |key| earlier.0.get(key).copied().unwrap_or_default();
        let changed = self.0.iter().filter(|(key, count)| **count > before(key));
        changed
            .map(|(key, count)| (key.0.as_str(), key.1.as_str(), key.2.as_str(), count - before(key)))
            .collect()
    }

    /// Waits until this many calls are counted, and returns the counts.
    pub async fn reaches(app: &TestApp, sum: u64) -> Self {
        let what = format!("{sum} calls are counted");
        eventually(&what, async || Self::of(app).await.sum() >= sum).await;
        Self::of(app).await
    }
}
