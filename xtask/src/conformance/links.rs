//! The gateway as a client: the suite starts a server for each scenario, and a driver registers it in a gateway.

use std::time::Instant;

use anyhow::{Context, Result};

use super::report::Report;
use super::{Conformance, Set, Side};
use crate::run::Run;

const LEGACY: Set = Set { revision: "2025-11-25", side: Side::Client, scored: 18 };
const MODERN: Set = Set { revision: "2026-07-28", side: Side::Client, scored: 32 };

pub fn run(run: &mut Run) -> Result<()> {
    let mut sets = vec![("client-legacy", LEGACY), ("client-modern", MODERN)];
    sets.retain(|(name, _)| run.wants(name));
    if sets.is_empty() {
        println!("  no case matches the filter");
        return Ok(());
    }
    let conformance = Conformance::prepare(run)?;
    let mut reports = Vec::new();
    // One after the other: the suite starts all scenarios of a set at once.
    for (name, set) in sets {
        let started = Instant::now();
        let report = measure(&conformance, name, &set).with_context(|| format!("case {name}"))?;
        let seconds = started.elapsed().as_secs_f64();
        println!("  {name}, set {}: {} ({seconds:.1} s)", set.revision, report.summary());
        reports.push((name, report));
    }
    super::judge(&conformance, reports.iter().map(|(name, report)| (*name, report)))
}

fn measure(conformance: &Conformance, name: &str, set: &Set) -> Result<Report> {
    let requirements = conformance.requirements(set)?;
    let folder = conformance.folder(name)?;
    let program = conformance.program("toolgate")?;
    let status = conformance.suite.run_client(&conformance.root, &program, set.revision, &folder)?;
    Report::read(&folder, set.side, &requirements)?.agrees_with(status, &folder)
}
