//! Evaluates the suite's result files by what the requirement set scores. A failed check of a scored scenario is a
//! failure, and so is a scored scenario without a result; everything else is only listed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Side;
use super::requirements::Requirements;

/// Length of the suffix that follows a scenario's name in the name of its folder: `-2026-07-28T12-00-00-000Z`.
const STAMP: usize = 25;
const LONGEST_MESSAGE: usize = 400;

#[derive(Default)]
pub struct Report {
    scored: usize,
    /// The scored scenarios that fail.
    failed: BTreeSet<String>,
    checks: usize,
    failures: Vec<String>,
    warnings: Vec<String>,
    /// Scenarios that are not scored, with the reason and the outcome.
    aside: Vec<String>,
}

impl Report {
    pub fn read(folder: &Path, side: Side, requirements: &Requirements) -> Result<Report> {
        let mut found = BTreeMap::new();
        collect(folder, "", &mut found)?;
        let prefix = match side {
            Side::Server => "server-",
            Side::Client => "",
        };
        let plain = |(name, checks): (String, Value)| Some((name.strip_prefix(prefix)?.to_owned(), checks));
        Ok(Report::weigh(&found.into_iter().filter_map(plain).collect(), requirements))
    }

    fn weigh(results: &BTreeMap<String, Value>, requirements: &Requirements) -> Report {
        let mut report = Report { scored: requirements.scored.len(), ..Report::default() };
        for scenario in &requirements.scored {
            let before = report.failures.len();
            let checks = checks(results, scenario);
            if checks.is_empty() {
                report.failures.push(format!("{scenario}: no result"));
            }
            for check in checks {
                let line = || {
                    let id = check["id"].as_str().unwrap_or_default();
                    format!("{scenario} / {id}: {}", message(check))
                };
                match check["status"].as_str() {
                    Some("SUCCESS") => report.checks += 1,
                    Some("INFO" | "SKIPPED") => {}
                    Some("WARNING") => report.warnings.push(line()),
                    _ => report.failures.push(line()),
                }
            }
            if report.failures.len() > before {
                report.failed.insert(scenario.clone());
            }
        }
        for (scenario, reason) in &requirements.not_scored {
            let checks = checks(results, scenario);
            let failed = checks.iter().filter(|check| check["status"] == "FAILURE").count();
            let outcome = match (checks.len(), failed) {
                (0, _) => "no result".to_owned(),
                (_, 0) => "passes".to_owned(),
                (all, failed) => format!("{failed} of {all} checks fail"),
            };
            report.aside.push(format!("{scenario} ({reason}): {outcome}"));
        }
        report
    }

    pub fn has_failures(&self) -> bool {
        !self.failures.is_empty()
    }

    pub fn summary(&self) -> String {
        format!("{} of {} scored scenarios pass, {} checks", self.passed(), self.scored, self.checks)
    }

    /// The number of scored scenarios that pass.
    pub fn passed(&self) -> usize {
        self.scored - self.failed.len()
    }

    /// The failures in scenarios that pass in another report.
    pub fn failures_beside(&self, other: &Report) -> Vec<&str> {
        let lost = |line: &&String| {
            let scenario = line.split([' ', ':']).next().unwrap_or_default();
            !other.failed.contains(scenario)
        };
        self.failures.iter().filter(lost).map(String::as_str).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (label, lines) in
            [("FAILED", &self.failures), ("warning", &self.warnings), ("not scored", &self.aside)]
        {
            for line in lines {
                writeln!(out, "    {label}: {line}")?;
            }
        }
        Ok(())
    }
}

/// Reads the results. The name of a scenario may contain a slash; its folder is then nested.
fn collect(folder: &Path, above: &str, results: &mut BTreeMap<String, Value>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let file = entry.path().join("checks.json");
        if file.exists() {
            let checks: Value = serde_json::from_slice(&fs::read(&file)?)
                .with_context(|| format!("{} is not JSON", file.display()))?;
            let scenario = name.get(..name.len().saturating_sub(STAMP)).unwrap_or_default();
            results.insert(format!("{above}{scenario}"), checks);
        } else if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{above}{name}/"), results)?;
        }
    }
    Ok(())
}

fn checks<'a>(results: &'a BTreeMap<String, Value>, scenario: &str) -> &'a [Value] {
    results.get(scenario).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn message(check: &Value) -> String {
    let message = check["errorMessage"].as_str().or(check["description"].as_str()).unwrap_or_default();
    let mut short: String = message.chars().take(LONGEST_MESSAGE).collect();
    if short.len() < message.len() {
        short.push_str(" ...");
    }
    short.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn weigh(results: &[(&str, Value)]) -> Report {
        let results = results.iter().map(|(name, checks)| ((*name).to_owned(), checks.clone())).collect();
        let requirements = Requirements {
            scored: ["ping".to_owned()].into(),
            not_scored: [("tasks".to_owned(), "extension".to_owned())].into(),
        };
        Report::weigh(&results, &requirements)
    }

    #[test]
    fn a_scored_scenario_without_a_result_fails() {
        let report = weigh(&[]);
        assert!(report.has_failures());
        assert_eq!(report.summary(), "0 of 1 scored scenarios pass, 0 checks");
    }

    #[test]
    fn warnings_and_what_is_not_scored_are_only_listed() {
        let checks = json!([
            { "id": "ping", "status": "SUCCESS" },
            { "id": "name", "status": "WARNING", "errorMessage": "too long" },
        ]);
        let report = weigh(&[("ping", checks), ("tasks", json!([{ "id": "a", "status": "FAILURE" }]))]);
        assert!(!report.has_failures());
        assert_eq!(
            report.to_string(),
            "    warning: ping / name: too long\n    not scored: tasks (extension): 1 of 1 checks fail\n"
        );
    }

    #[test]
    fn only_failures_that_the_other_report_has_not_are_told() {
        let failure = json!([{ "id": "a", "status": "FAILURE", "errorMessage": "wrong" }]);
        let (good, bad) = (weigh(&[("ping", json!([{ "status": "SUCCESS" }]))]), weigh(&[("ping", failure)]));
        assert_eq!(bad.failures_beside(&good), ["ping / a: wrong"]);
        assert!(bad.failures_beside(&bad).is_empty() && good.failures_beside(&bad).is_empty());
    }

    #[test]
    fn one_failed_check_fails_its_scenario() {
        let checks = json!([{ "id": "a", "status": "SUCCESS" }, { "id": "b", "status": "FAILURE" }]);
        assert_eq!(weigh(&[("ping", checks)]).summary(), "0 of 1 scored scenarios pass, 1 checks");
    }
}
