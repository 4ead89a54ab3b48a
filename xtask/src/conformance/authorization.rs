//! The gateway as an authorization server: the suite's scenarios for one, with a person in a browser. No requirement set has
//! them, since the specification of MCP does not describe authorization servers; all of them must pass.

use anyhow::{Context, Result, bail};

use super::report::Report;
use super::requirements::Requirements;
use super::{Conformance, Side};
use crate::run::Run;
use crate::sign_in::Browsing;

const SCENARIOS: &[&str] = &["authorization-server-metadata-endpoint", "authorization-code-grant"];
/// The checks of all scenarios. A scenario that the suite skips has none that succeeds.
const CHECKS: usize = 3;
/// What the suite asks for: an endpoint as `resource`, or none.
const CASES: &[&str] = &["endpoint", "everything"];

pub fn run(run: &mut Run) -> Result<()> {
    let name = "authorization";
    if !run.wants(name) {
        println!("  no case matches the filter");
        return Ok(());
    }
    let (conformance, browsing) = (Conformance::prepare(run)?, Browsing::prepare(run)?);
    let folder = conformance.folder(name)?;
    let results = folder.to_str().context("the path for results is not text")?;
    let suite = conformance.suite.program()?;
    browsing.test(&["suite.mjs"], &[("SUITE", &suite), ("RESULTS", results)])?;
    let scored = SCENARIOS.iter().map(|&scenario| scenario.to_owned()).collect();
    let requirements = Requirements { scored, ..Requirements::default() };
    let mut reports = Vec::new();
    for case in CASES {
        let report = Report::read(&folder.join(case), Side::AuthorizationServer, &requirements)?;
        println!("  {name}, {case}: {}", report.summary());
        if !report.has_failures() && report.checks() != CHECKS {
            bail!("{} checks of {case} succeed instead of {CHECKS}", report.checks());
        }
        reports.push((*case, report));
    }
    super::judge(&conformance, reports.iter().map(|(name, report)| (*name, report)))
}
