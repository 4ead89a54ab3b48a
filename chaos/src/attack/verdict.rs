//! The verdict on an attack: what was tried, what came back, what broke, and what a bystander noticed.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::bystander::Seen;

/// How many failures of an attack are printed.
const SHOWN: usize = 8;

/// An attack under way, which collects what came back and what should not have.
#[derive(Debug)]
pub struct Attack {
    name: &'static str,
    tried: &'static str,
    back: Vec<String>,
    /// How often each thing went wrong.
    failures: BTreeMap<String, usize>,
}

/// A judged attack.
#[derive(Debug)]
pub struct Verdict {
    attack: Attack,
    /// What the bystander measured during the attack.
    seen: Seen,
    /// Memory of the gateway in MiB: before, the peak, afterwards.
    memory: [u64; 3],
}

impl Attack {
    pub fn new(name: &'static str, tried: &'static str) -> Self {
        Self { name, tried, back: Vec::new(), failures: BTreeMap::new() }
    }

    pub fn came_back(&mut self, what: impl Into<String>) {
        self.back.push(what.into());
    }

    pub fn fail(&mut self, what: impl Into<String>) {
        *self.failures.entry(what.into()).or_default() += 1;
    }

    /// Fails the attack with this sentence unless the condition holds.
    pub fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.fail(what());
        }
    }

    pub fn judge(self, seen: Seen, memory: [u64; 3]) -> Verdict {
        Verdict { attack: self, seen, memory }
    }
}

impl Verdict {
    pub fn passed(&self) -> bool {
        self.attack.failures.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attack { name, tried, back, failures } = &self.attack;
        let verdict = if self.passed() { "PASS" } else { "FAIL" };
        write!(f, "  {verdict}  {name}: {tried}: {}; bystander {}", back.join(", "), self.seen)?;
        for (failure, count) in failures.iter().take(SHOWN) {
            write!(f, "\n        {count} × {failure}")?;
        }
        if failures.len() > SHOWN {
            write!(f, "\n        and {} others", failures.len() - SHOWN)?;
        }
        Ok(())
    }
}

/// One row per attack.
pub fn table(verdicts: &[Verdict]) -> String {
    let mut rows = vec![
        "| attack | verdict | bystander's p99 | its slowest call | its calls | refused | memory before, peak, after (MiB) |"
            .to_owned(),
        "|---|---|---|---|---|---|---|".to_owned(),
    ];
    for verdict in verdicts {
        let [before, peak, after] = verdict.memory;
        // Some attacks are over before the bystander calls.
        let time = |took: Duration| match verdict.seen.answered {
            0 => "–".to_owned(),
            _ => format!("{:.1} ms", took.as_secs_f64() * 1000.0),
        };
        rows.push(format!(
            "| {} | {} | {} | {} | {} | {} | {before}, {peak}, {after} |",
            verdict.attack.name,
            if verdict.passed() { "PASS" } else { "FAIL" },
            time(verdict.seen.p99),
            time(verdict.seen.slowest),
            verdict.seen.answered,
            verdict.seen.refused,
        ));
    }
    rows.join("\n")
}
