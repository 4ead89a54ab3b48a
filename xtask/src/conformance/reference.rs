//! Runs the official suite against conformance servers made with the official SDKs, first directly and then through the
//! gateway. The gateway must not lose a scenario that passes directly. The suite speaks HTTP only, so a server's score
//! over HTTP is also what counts for its other transports.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use super::Target::{Aggregate, Direct, Server};
use super::Transport::{Sse, Stdio, StreamableHttp};
use super::report::Report;
use super::{Case, Conformance, LEGACY, MODERN, Set, Transport, Way};
use crate::clients;
use crate::python::{Python, Sdk};
use crate::run::Run;

/// One server with one set: its score without the gateway, and the ways through the gateway that must score the same.
struct Row {
    server: Implementation,
    set: Set,
    directly: usize,
    ways: &'static [Way],
}

/// A server for the suite.
#[derive(Clone, Copy)]
enum Implementation {
    /// Shipped with the SDK; speaks the legacy era only.
    Python1,
    /// Shipped with the SDK; speaks both eras.
    Python2,
    /// Our own with the SDK 1.x, which ships none; speaks the legacy era only.
    TypeScript1,
}

/// The columns of the printed table.
#[rustfmt::skip]
const COLUMNS: &[(Way, &str)] = &[
    ((StreamableHttp, Direct), "directly"),
    ((StreamableHttp, Server), "http"),
    ((StreamableHttp, Aggregate), "http-all"),
    ((Stdio, Server), "stdio"),
    ((Stdio, Aggregate), "stdio-all"),
    ((Sse, Server), "sse"),
    ((Sse, Aggregate), "sse-all"),
];

const EVERY: &[Way] = &[
    (StreamableHttp, Server),
    (StreamableHttp, Aggregate),
    (Stdio, Server),
    (Stdio, Aggregate),
    (Sse, Server),
];
const WITHOUT_SSE: &[Way] =
    &[(StreamableHttp, Server), (StreamableHttp, Aggregate), (Stdio, Server), (Stdio, Aggregate)];
const SOME: &[Way] = &[(StreamableHttp, Server), (Stdio, Server), (Sse, Aggregate)];
const OTHERS: &[Way] = &[(StreamableHttp, Aggregate), (Stdio, Aggregate), (Sse, Server)];

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { server: Implementation::Python2, set: LEGACY, directly: 30, ways: EVERY },
    Row { server: Implementation::Python2, set: MODERN, directly: 37, ways: WITHOUT_SSE },
    Row { server: Implementation::Python1, set: LEGACY, directly: 30, ways: SOME },
    Row { server: Implementation::TypeScript1, set: LEGACY, directly: 30, ways: OTHERS },
];

impl Row {
    /// The name of a case, by which it can be selected.
    fn name(&self, way: Way) -> String {
        let label = COLUMNS.iter().find(|(column, _)| *column == way).map_or("", |(_, title)| title);
        format!("{}-{label}-{}", self.server.name(), self.set.era())
    }
}

impl Implementation {
    fn name(self) -> &'static str {
        match self {
            Implementation::Python1 => "python-1",
            Implementation::Python2 => "python-2",
            Implementation::TypeScript1 => "typescript-1",
        }
    }

    fn line(self, conformance: &Conformance, transport: Transport) -> Result<Vec<String>> {
        let word = match transport {
            StreamableHttp => "http",
            Stdio => "stdio",
            Sse => "sse",
        };
        let root = &conformance.root;
        let sdk = match self {
            Implementation::Python1 => Sdk::One,
            Implementation::Python2 => Sdk::Two,
            Implementation::TypeScript1 => {
                let packages = clients::install(root)?;
                return Ok(vec![
                    packages.node()?.to_owned(),
                    packages.path("reference.mjs")?,
                    word.to_owned(),
                ]);
            }
        };
        let python = Python::install(root, sdk)?;
        let script = root.join("tests/conformance/python/reference.py");
        let script = script.to_str().context("the path of a script is not text")?.to_owned();
        Ok(vec![python.program("python")?, script, python.reference(root, sdk)?, word.to_owned()])
    }
}

pub fn run(run: &mut Run) -> Result<()> {
    let mut picked = Vec::new();
    for (index, row) in ROWS.iter().enumerate() {
        let ways = row.ways.iter().filter(|way| run.wants(&row.name(**way)));
        let ways: Vec<(usize, Way)> = ways.map(|way| (index, *way)).collect();
        if !ways.is_empty() {
            picked.push((index, (StreamableHttp, Direct)));
            picked.extend(ways);
        }
    }
    if picked.is_empty() {
        println!("  no case matches the filter");
        return Ok(());
    }
    let conformance = Conformance::prepare(run)?;
    let mut cases = Vec::new();
    for (row, way) in &picked {
        let Row { server, set, .. } = ROWS[*row];
        let line = server.line(&conformance, way.0)?;
        cases.push(Case { name: ROWS[*row].name(*way), set, line, way: *way, excluded: Vec::new() });
    }
    let reports = conformance.measure_all(&cases)?;
    let mut table = Table::new();
    for ((row, way), report) in picked.into_iter().zip(reports) {
        let column = COLUMNS.iter().position(|(column, _)| *column == way);
        table.insert((row, column.context("a way without a column")?), report);
    }
    compare(&table)
}

/// The reports of all cases, by row and column.
type Table = BTreeMap<(usize, usize), Report>;

/// Prints the scores as a table, and every scenario that the gateway loses.
fn compare(table: &Table) -> Result<()> {
    let titles: Vec<String> = COLUMNS.iter().map(|(_, title)| format!("{title:>9}")).collect();
    println!("  {:<12} {:<10} {}", "server", "set", titles.join(" "));
    let mut failed = Vec::new();
    for (index, row) in ROWS.iter().enumerate() {
        let Some(direct) = table.get(&(index, 0)) else { continue };
        let mut cells = String::new();
        for (column, (way, _)) in COLUMNS.iter().enumerate() {
            let report = table.get(&(index, column));
            let score = report.map_or("-".to_owned(), |report| report.passed().to_string());
            cells.push_str(&format!(" {score:>9}"));
            let name = row.name(*way);
            for line in report.into_iter().flat_map(|report| report.failures_beside(direct)) {
                failed.push(format!("{name}: {line}"));
            }
        }
        println!("  {:<12} {:<10}{cells}", row.server.name(), row.set.revision);
        if direct.passed() != row.directly {
            let server = row.server.name();
            failed.push(format!("{server} directly: {} instead of {}", direct.passed(), row.directly));
        }
    }
    for line in &failed {
        println!("    FAILED: {line}");
    }
    if !failed.is_empty() {
        bail!("{} checks fail that pass directly, or should", failed.len());
    }
    Ok(())
}
