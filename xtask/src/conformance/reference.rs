//! Runs the official suite against conformance servers made with the official SDKs, first directly and then through the
//! gateway. The gateway must not lose a scenario that passes directly. The suite speaks HTTP only, so a server's score
//! over HTTP is also what counts for its other transports.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::Target::{Aggregate, Direct, Server};
use super::Transport::{Sse, Stdio, StreamableHttp};
use super::report::Report;
use super::{Conformance, LEGACY, MODERN, Set, Target, Transport};
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

type Way = (Transport, Target);

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

/// The cases that run at once. They mostly wait: for time that a scenario gives a server, and for each other's programs.
const AT_ONCE: usize = 4;

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

/// A row and a way, with the name by which it can be selected and the command that starts its server.
struct Job {
    row: usize,
    way: Way,
    name: String,
    line: Vec<String>,
}

pub fn run(run: &mut Run) -> Result<()> {
    let wanted = |name: &str| run.filter.as_deref().is_none_or(|part| name.contains(part));
    let mut picked = Vec::new();
    for (row, &Row { server, ref set, ways, .. }) in ROWS.iter().enumerate() {
        let name = |way: &Way| format!("{}-{}-{}", server.name(), label(*way), era(set));
        let ways: Vec<&Way> = ways.iter().filter(|way| wanted(&name(way))).collect();
        if !ways.is_empty() {
            picked.push((row, (StreamableHttp, Direct), name(&(StreamableHttp, Direct))));
            picked.extend(ways.into_iter().map(|way| (row, *way, name(way))));
        }
    }
    if picked.is_empty() {
        println!("  no case matches the filter");
        return Ok(());
    }
    let conformance = Conformance::prepare(run)?;
    let mut jobs = Vec::new();
    for (row, way, name) in picked {
        jobs.push(Job { row, way, name, line: ROWS[row].server.line(&conformance, way.0)? });
    }
    compare(&measure(&conformance, &jobs)?)
}

/// The reports of all jobs, by row and column.
type Table = BTreeMap<(usize, usize), Report>;

fn measure(conformance: &Conformance, jobs: &[Job]) -> Result<Table> {
    let (next, table) = (AtomicUsize::new(0), Mutex::new(Table::new()));
    let work = || -> Result<()> {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let started = Instant::now();
            let report = measure_one(conformance, job).with_context(|| format!("case {}", job.name))?;
            println!("  {}: {} ({:.1} s)", job.name, report.summary(), started.elapsed().as_secs_f64());
            let column = COLUMNS.iter().position(|(way, _)| *way == job.way);
            let column = column.context("a way without a column")?;
            table.lock().expect("no worker panics with the table").insert((job.row, column), report);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    Ok(table.into_inner().expect("no worker panics with the table"))
}

fn measure_one(conformance: &Conformance, job: &Job) -> Result<Report> {
    let (set, (transport, target)) = (&ROWS[job.row].set, job.way);
    let folder = conformance.folder(&job.name)?;
    let requirements = conformance.requirements(set)?;
    let status = conformance.run_server(&job.line, transport, target, set.revision, &folder)?;
    let report = Report::read(&folder, set.side, &requirements)?;
    if !status.success() && !report.has_failures() {
        bail!("the suite ended with {status}, see {}", folder.join("suite.log").display());
    }
    Ok(report)
}

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
            let name = format!("{}-{}-{}", row.server.name(), label(*way), era(&row.set));
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

fn label(way: Way) -> &'static str {
    COLUMNS.iter().find(|(column, _)| *column == way).map_or("", |(_, title)| title)
}

fn era(set: &Set) -> &'static str {
    if set.revision == MODERN.revision { "modern" } else { "legacy" }
}
