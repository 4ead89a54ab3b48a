//! The budget file, and the comparison with it. The file is a small part of TOML: a table for each row, and numbers.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::counts::Counts;

/// What instructions and allocations may exceed, as a part of the budget.
const MARGIN: f64 = 0.05;
/// A part of an allocation is noise.
const ALLOCATION_NOISE: f64 = 0.05;
/// What system calls may exceed.
const SYSTEM_CALL_MARGIN: f64 = 0.5;
/// From this difference on, the budget should be lowered.
const SLACK: f64 = 0.1;
/// Less than one system call is noise.
const SYSTEM_CALL_SLACK: f64 = 0.9;

const INTRODUCTION: &str = "\
# What an operation may cost the gateway; `cargo xtask budget` compares, `cargo xtask budget --write` writes this file.
# Counted are the instructions (valgrind's callgrind) and the allocations of the release build, and its
# system calls (strace), with one client on one connection and everything on one processor: the difference of two runs,
# of which one does 200 to 2,000 operations more, divided by their number. Rows that begin with `part_` are single
# functions of crates/wire. The rows are a table in bench/src/bin/bench-budget/rows.rs.
# Instructions and allocations may exceed the budget by 5 %, since some functions are chosen by processor; system calls
# by 0.5. A budget is the most of three tries, and a row is over it only if it is in each of three tries. System calls of
# `call_stdio` include the two of the server itself, and those of its guard.
";

#[derive(Default, Debug)]
pub struct Budget {
    pub processor: String,
    rows: BTreeMap<String, BTreeMap<String, f64>>,
}

impl Budget {
    pub fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| {
            format!("{} cannot be read; `cargo xtask budget --write` writes it", file.display())
        })?;
        Self::parse(&text).with_context(|| format!("{} is not a budget", file.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut budget = Self::default();
        let mut row = None;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                row = Some(budget.rows.entry(name.to_owned()).or_default());
                continue;
            }
            let (key, value) = line.split_once('=').with_context(|| format!("unexpected: {line}"))?;
            match (&mut row, key.trim(), value.trim()) {
                (None, "processor", name) => budget.processor = name.trim_matches('"').to_owned(),
                (None, ..) => bail!("unexpected: {line}"),
                (Some(row), key, number) => {
                    row.insert(
                        key.to_owned(),
                        number.parse().with_context(|| format!("unexpected: {line}"))?,
                    );
                }
            }
        }
        Ok(budget)
    }

    pub fn row(&self, name: &str) -> Option<&BTreeMap<String, f64>> {
        self.rows.get(name)
    }

    /// Whether no count is over the budget of the row.
    pub fn allows(&self, name: &str, counts: &Counts) -> bool {
        let within = |figure: Figure| {
            self.row(name).and_then(|row| row.get(figure.name)).is_some_and(|budget| !figure.is_over(*budget))
        };
        figures(counts).into_iter().all(within)
    }
}

pub fn write(file: &Path, rows: &[(&str, Counts)]) -> Result<()> {
    let mut text = format!("{INTRODUCTION}\nprocessor = \"{}\"\n", std::env::consts::ARCH);
    for (name, counts) in rows {
        text.push_str(&format!("\n[{name}]\n"));
        for figure in figures(counts) {
            text.push_str(&format!("{} = {}\n", figure.name, figure.text(figure.value)));
        }
    }
    fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))
}

/// A count of a row.
struct Figure {
    name: &'static str,
    value: f64,
    digits: usize,
    /// What the value may be above the budget, as a part of it and in addition.
    margin: (f64, f64),
    /// What the value may be below the budget before the budget should be lowered.
    slack: (f64, f64),
}

impl Figure {
    fn is_over(&self, budget: f64) -> bool {
        let (part, more) = self.margin;
        self.value > budget * (1.0 + part) + more
    }

    fn text(&self, value: f64) -> String {
        // Never "-0.0".
        format!("{:.*}", self.digits, value.max(0.0))
    }
}

fn figures(counts: &Counts) -> Vec<Figure> {
    let instructions = Figure {
        name: "instructions",
        value: counts.instructions,
        digits: 0,
        margin: (MARGIN, 0.0),
        slack: (SLACK, 0.0),
    };
    let allocations = Figure {
        name: "allocations",
        value: counts.allocations,
        digits: 1,
        margin: (MARGIN, ALLOCATION_NOISE),
        slack: (SLACK, ALLOCATION_NOISE),
    };
    let system_calls = counts.system_calls.map(|value| Figure {
        name: "system_calls",
        value,
        digits: 1,
        margin: (0.0, SYSTEM_CALL_MARGIN),
        slack: (0.0, SYSTEM_CALL_SLACK),
    });
    [instructions, allocations].into_iter().chain(system_calls).collect()
}

/// What the comparison found, in sentences.
#[derive(Default)]
pub struct Verdict {
    over: Vec<String>,
    under: Vec<String>,
}

impl Verdict {
    /// Compares a row with its budget; returns its figures as text.
    pub fn judge(
        &mut self,
        name: &str,
        counts: &Counts,
        budget: Option<&BTreeMap<String, f64>>,
        is_writing: bool,
    ) -> String {
        let mut line = Vec::new();
        for figure in figures(counts) {
            let (measured, what) = (figure.text(figure.value), figure.name);
            let Some(budget) = budget.and_then(|row| row.get(what)).copied() else {
                line.push(format!("{measured} {what}"));
                if !is_writing {
                    self.over.push(format!("{name}: {what} have no budget, measured {measured}"));
                }
                continue;
            };
            let difference = match budget {
                0.0 => format!("{:+.1}", figure.value),
                budget => format!("{:+.1} %", (figure.value / budget - 1.0) * 100.0),
            };
            line.push(format!("{measured} {what} ({difference})"));
            let budget_text = figure.text(budget);
            let sentence = format!("{name}: {what}: budget {budget_text}, measured {measured}, {difference}");
            let (slack, less) = figure.slack;
            if figure.is_over(budget) {
                self.over.push(sentence);
            } else if figure.value < budget * (1.0 - slack) - less {
                self.under.push(sentence);
            }
        }
        line.join(", ")
    }

    /// Notes the rows of the file that were not measured.
    pub fn note_stale(&mut self, budget: &Budget, is_measured: impl Fn(&str) -> bool) {
        for name in budget.rows.keys().filter(|name| !is_measured(name)) {
            self.over.push(format!("{name}: has a budget, but is not measured"));
        }
    }

    pub fn is_over(&self) -> bool {
        !self.over.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.under.is_empty() {
            writeln!(out, "Well under budget; lower the budget with `cargo xtask budget --write`:")?;
            self.under.iter().try_for_each(|sentence| writeln!(out, "  {sentence}"))?;
        }
        if !self.over.is_empty() {
            writeln!(out, "Over budget:")?;
            self.over.iter().try_for_each(|sentence| writeln!(out, "  {sentence}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(instructions: f64, system_calls: f64) -> Verdict {
        let text = "# a comment\nprocessor = \"x86_64\"\n\n[call]\ninstructions = 1000\nallocations = 10.0\nsystem_calls = 6.0\n";
        let budget = Budget::parse(text).unwrap();
        assert_eq!(budget.processor, "x86_64");
        let counts = Counts { instructions, allocations: 10.0, system_calls: Some(system_calls) };
        let mut verdict = Verdict::default();
        verdict.judge("call", &counts, budget.row("call"), false);
        verdict
    }

    #[test]
    fn more_than_the_margin_is_over_and_named() {
        assert!(!judged(1050.0, 6.5).is_over());
        assert_eq!(
            judged(1051.0, 6.0).to_string(),
            "Over budget:\n  call: instructions: budget 1000, measured 1051, +5.1 %\n"
        );
        assert!(judged(1000.0, 6.6).is_over());
    }

    #[test]
    fn much_less_is_said_and_passes() {
        assert_eq!(judged(900.0, 6.0).to_string(), "");
        let verdict = judged(899.0, 6.0);
        assert!(!verdict.is_over());
        assert!(verdict.to_string().contains("call: instructions: budget 1000, measured 899, -10.1 %"));
    }

    #[test]
    fn a_row_without_a_budget_and_a_budget_without_a_row_fail() {
        let counts = Counts { instructions: 5.0, allocations: 1.0, system_calls: None };
        let mut verdict = Verdict::default();
        verdict.judge("new", &counts, None, false);
        assert!(verdict.is_over());
        let mut verdict = Verdict::default();
        verdict.note_stale(&Budget::parse("[old]\ninstructions = 1\n").unwrap(), |_| false);
        assert!(verdict.to_string().contains("old: has a budget"));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("budget.toml");
        let counts = Counts { instructions: 103_120.4, allocations: 98.02, system_calls: Some(7.0) };
        write(&file, &[("call", counts)]).unwrap();
        let budget = Budget::read(&file).unwrap();
        let row = budget.row("call").unwrap();
        assert_eq!((row["instructions"], row["allocations"], row["system_calls"]), (103_120.0, 98.0, 7.0));
    }
}
