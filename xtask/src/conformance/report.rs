//! Evaluates the suite's result files by what the requirement set scores. A failed check of a scored scenario is a
//! failure, and so are a scored scenario without a result and an excluded one that does not fail as it should; everything
//! else is only listed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::ExitStatus;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Side;
use super::exclusions::Exclusion;
use super::requirements::Requirements;

/// Length of the suffix that follows a scenario's name in the name of its folder: `-2026-07-28T12-00-00-000Z`.
const STAMP: usize = 25;
const LONGEST_MESSAGE: usize = 400;

/// What a line of a report is about; they are printed in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Note {
    Failed,
    Warning,
    Excluded,
    NotScored,
}

#[derive(Default)]
pub struct Report {
    scored: usize,
    /// The scored scenarios that fail.
    failed: BTreeSet<String>,
    checks: usize,
    failures: Vec<String>,
    warnings: Vec<String>,
    /// Scored scenarios that cannot pass, with the reason and the outcome.
    excluded: Vec<String>,
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
            Side::AuthorizationServer => "authorization-server-",
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
        for Exclusion { scenario, symptom, reason, .. } in &requirements.excluded {
            let checks = checks(results, scenario);
            let failed = || checks.iter().filter(|check| check["status"] == "FAILURE");
            if failed().next().is_none() {
                report.failures.push(format!("{scenario}: does not fail, although it is excluded"));
            }
            for check in failed().filter(|check| message(check) != *symptom) {
                report
                    .failures
                    .push(format!("{scenario}: is excluded for another reason: {}", message(check)));
            }
            report.excluded.push(format!("{scenario} ({reason}): {}", outcome(checks)));
        }
        for (scenario, reason) in &requirements.not_scored {
            report.aside.push(format!("{scenario} ({reason}): {}", outcome(checks(results, scenario))));
        }
        report
    }

    pub fn has_failures(&self) -> bool {
        !self.failures.is_empty()
    }

    /// The checks that succeed.
    pub fn checks(&self) -> usize {
        self.checks
    }

    pub fn summary(&self) -> String {
        let excluded = match self.excluded.len() {
            0 => String::new(),
            count => format!(", {count} excluded"),
        };
        format!("{} scored scenarios pass{excluded}, {} checks", self.score(), self.checks)
    }

    /// The scored scenarios that pass, of all that the set has: what is excluded counts as not passed.
    pub fn score(&self) -> String {
        format!("{} of {}", self.passed(), self.scored + self.excluded.len())
    }

    /// The suite must not fail for a reason that is not in its results.
    pub fn agrees_with(self, status: ExitStatus, folder: &Path) -> Result<Report> {
        if !status.success() && !self.has_failures() && self.excluded.is_empty() {
            bail!("the suite ended with {status}, see {}", folder.join("suite.log").display());
        }
        Ok(self)
    }

    /// What there is to tell apart from the score.
    pub fn notes(&self) -> impl Iterator<Item = (Note, &str)> {
        let lines = [
            (Note::Failed, &self.failures),
            (Note::Warning, &self.warnings),
            (Note::Excluded, &self.excluded),
            (Note::NotScored, &self.aside),
        ];
        lines.into_iter().flat_map(|(note, lines)| lines.iter().map(move |line| (note, line.as_str())))
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

fn outcome(checks: &[Value]) -> String {
    let failed = checks.iter().filter(|check| check["status"] == "FAILURE").count();
    match (checks.len(), failed) {
        (0, _) => "no result".to_owned(),
        (_, 0) => "passes".to_owned(),
        (all, failed) => format!("{failed} of {all} checks fail"),
    }
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

    use super::super::exclusions::EXAMPLE;
    use super::*;

    fn weigh_all(results: &[(&str, Value)]) -> Report {
        let results = results.iter().map(|(name, checks)| ((*name).to_owned(), checks.clone())).collect();
        let requirements = Requirements {
            scored: ["ping".to_owned()].into(),
            excluded: vec![&EXAMPLE],
            not_scored: [("tasks".to_owned(), "extension".to_owned())].into(),
        };
        Report::weigh(&results, &requirements)
    }

    /// The report with these results and that of the excluded scenario.
    fn weigh(results: &[(&str, Value)]) -> Report {
        weigh_all(&[results, &[("echo", as_excluded())]].concat())
    }

    fn as_excluded() -> Value {
        json!([{ "id": "echo", "status": "FAILURE", "errorMessage": EXAMPLE.symptom }])
    }

    #[test]
    fn a_scored_scenario_without_a_result_fails() {
        let report = weigh(&[]);
        assert!(report.has_failures());
        assert_eq!(report.summary(), "0 of 2 scored scenarios pass, 1 excluded, 0 checks");
    }

    #[test]
    fn warnings_and_what_is_not_scored_are_only_listed() {
        let checks = json!([
            { "id": "ping", "status": "SUCCESS" },
            { "id": "name", "status": "WARNING", "errorMessage": "too long" },
        ]);
        let report = weigh(&[("ping", checks), ("tasks", json!([{ "id": "a", "status": "FAILURE" }]))]);
        assert!(!report.has_failures());
        let notes: Vec<(Note, &str)> = report.notes().collect();
        assert_eq!(
            notes,
            [
                (Note::Warning, "ping / name: too long"),
                (Note::Excluded, "echo (there is no wall): 1 of 1 checks fail"),
                (Note::NotScored, "tasks (extension): 1 of 1 checks fail"),
            ]
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
        let summary = "0 of 2 scored scenarios pass, 1 excluded, 1 checks";
        assert_eq!(weigh(&[("ping", checks)]).summary(), summary);
    }

    #[test]
    fn an_excluded_scenario_must_fail_for_its_own_reason() {
        let with = |echo: Value| weigh_all(&[("ping", json!([{ "status": "SUCCESS" }])), ("echo", echo)]);
        let expected = with(as_excluded());
        assert!(!expected.has_failures());
        assert_eq!(expected.score(), "1 of 2");
        assert!(with(json!([{ "status": "SUCCESS" }])).has_failures());
        assert!(with(json!([{ "status": "FAILURE", "errorMessage": "no gateway" }])).has_failures());
        assert!(with(json!([])).has_failures());
    }
}
