//! The report of a part: counts of faults and operations, broken promises, figures.

use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of broken promises that are printed; the rest are only counted.
const SHOWN: usize = 20;

#[derive(Debug, Default)]
pub struct Report {
    part: String,
    faults: BTreeMap<String, u64>,
    operations: BTreeMap<String, u64>,
    violations: Vec<String>,
    figures: Vec<(String, String)>,
}

impl Report {
    pub fn new(part: &str) -> Self {
        Self { part: part.to_owned(), ..Self::default() }
    }

    /// Counts an injected fault by its kind.
    pub fn fault(&mut self, kind: &str) {
        *self.faults.entry(kind.to_owned()).or_default() += 1;
    }

    /// Counts an operation by its kind and outcome, such as `create group: refused`.
    pub fn operation(&mut self, kind: &str) {
        *self.operations.entry(kind.to_owned()).or_default() += 1;
    }

    /// Records a broken promise.
    pub fn violation(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    /// Records a measured value.
    pub fn figure(&mut self, name: &str, value: impl fmt::Display) {
        self.figures.push((name.to_owned(), value.to_string()));
    }

    pub fn violations(&self) -> usize {
        self.violations.len()
    }

    /// Adds the counts and findings of another report of the same part.
    pub fn merge(&mut self, other: Report) {
        for (kind, count) in other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (kind, count) in other.operations {
            *self.operations.entry(kind).or_default() += count;
        }
        self.violations.extend(other.violations);
        self.figures.extend(other.figures);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (title, counts) in [("fault", &self.faults), ("operation", &self.operations)] {
            for (kind, count) in counts {
                writeln!(f, "  {title:<10} {kind:<44} {count:>8}")?;
            }
        }
        for (name, value) in &self.figures {
            writeln!(f, "  {:<10} {name:<44} {value:>8}", "figure")?;
        }
        for violation in self.violations.iter().take(SHOWN) {
            writeln!(f, "  VIOLATION  {violation}")?;
        }
        if self.violations.len() > SHOWN {
            writeln!(f, "  VIOLATION  and {} more", self.violations.len() - SHOWN)?;
        }
        Ok(())
    }
}

/// One row per part.
pub fn table(reports: &[Report]) -> String {
    let mut rows = vec![
        "| part | faults | operations | violations | figures |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    for report in reports {
        let figures: Vec<_> = report.figures.iter().map(|(name, value)| format!("{name} {value}")).collect();
        rows.push(format!(
            "| {} | {} | {} | {} | {} |",
            report.part,
            report.faults.values().sum::<u64>(),
            report.operations.values().sum::<u64>(),
            report.violations.len(),
            figures.join(", ")
        ));
    }
    rows.join("\n")
}
