//! Runs the official conformance suite. `matrix.rs` has clients and servers of all eras, with our fixture; `links.rs` has
//! the gateway as a client of the suite's own servers; `authorization.rs` has the gateway as an authorization server;
//! `reference.rs` has servers that others wrote. The other files beside this one install the suite, start servers, run cases
//! at once and evaluate the results.

mod authorization;
mod exclusions;
pub mod gateway;
mod links;
mod matrix;
mod page;
mod pool;
pub mod process;
mod reference;
mod report;
mod requirements;
mod suite;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::{Context, Result, bail};

use crate::command;
use crate::run::Run;
pub use authorization::run as of_authorization;
use exclusions::Exclusion;
use gateway::Gateway;
pub use links::run as of_links;
pub use matrix::{bridge, check as through_gateway, direct, replicas, write as write_scores};
use process::Process;
pub use reference::run as of_reference_servers;
use report::{Note, Report};
use requirements::Requirements;
use suite::Suite;

/// One run of a set for servers against one address.
struct Case {
    name: String,
    set: Set,
    /// The command that starts the server.
    line: Vec<String>,
    way: Way,
    /// The scored scenarios that need not pass.
    excluded: Vec<&'static Exclusion>,
}

/// A requirement set of the suite, with its number of scored scenarios: a set that shrinks must not go unnoticed.
#[derive(Clone, Copy)]
struct Set {
    revision: &'static str,
    side: Side,
    scored: usize,
}

const LEGACY: Set = Set { revision: "2025-11-25", side: Side::Server, scored: 30 };
const MODERN: Set = Set { revision: "2026-07-28", side: Side::Server, scored: 37 };

impl Set {
    /// The era of the clients in a set for servers.
    fn era(&self) -> &'static str {
        if self.revision == MODERN.revision { "modern" } else { "legacy" }
    }
}

/// The side whose behaviour a set tests.
#[derive(Clone, Copy)]
pub enum Side {
    Server,
    Client,
    AuthorizationServer,
}

impl Side {
    /// Its name in the suite.
    fn word(self) -> &'static str {
        match self {
            Side::Server => "server",
            Side::Client => "client",
            Side::AuthorizationServer => "authorization",
        }
    }
}

type Way = (Transport, Target);

/// The transport over which the gateway reaches the server behind it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    StreamableHttp,
    Stdio,
    Sse,
}

/// The eras of the protocol that a server knows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Eras {
    Both,
    LegacyOnly,
    ModernOnly,
}

/// What the suite connects to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The server itself.
    Direct,
    /// The gateway's endpoint for one server, where names have no prefix.
    Server,
    /// The gateway's endpoint for all servers, through the shim that removes the prefix from names.
    Aggregate,
    /// A second gateway, whose server is `toolgate stdio` in front of the first.
    Bridge,
    /// The same as `Server` at several gateways behind a balancer.
    ReplicasServer,
    /// The same as `Aggregate` at several gateways behind a balancer.
    ReplicasAggregate,
}

impl Target {
    fn has_replicas(self) -> bool {
        matches!(self, Target::ReplicasServer | Target::ReplicasAggregate)
    }

    fn is_aggregate(self) -> bool {
        matches!(self, Target::Aggregate | Target::ReplicasAggregate)
    }
}

/// The name under which the server is registered; its tools then begin with this and `__`.
const SERVER: &str = "conf";

/// A tool of every server that needs no arguments.
const TOOL: &str = "test_simple_text";

/// Prints what the reports have to tell, each line once with the cases that it concerns, and fails if there are failures.
fn judge<'a>(conformance: &Conformance, reports: impl Iterator<Item = (&'a str, &'a Report)>) -> Result<()> {
    let mut told: BTreeMap<(Note, &str), Vec<&str>> = BTreeMap::new();
    let (mut count, mut failed) = (0, Vec::new());
    for (name, report) in reports {
        count += 1;
        for note in report.notes() {
            told.entry(note).or_default().push(name);
        }
        if report.has_failures() {
            failed.push(name);
        }
    }
    for ((note, line), names) in told {
        let label = match note {
            Note::Failed => "FAILED",
            Note::Warning => "warning",
            Note::Excluded => "excluded",
            Note::NotScored => "not scored",
        };
        println!("    {label}: {line}");
        if names.len() < count {
            println!("      in {}", names.join(", "));
        }
    }
    if !failed.is_empty() {
        let logs = conformance.suite.results();
        bail!("scored scenarios fail in {} (all logs are in {})", failed.join(", "), logs.display());
    }
    Ok(())
}

struct Conformance {
    suite: Suite,
    root: PathBuf,
    /// The folder into which cargo puts the programs of this workspace.
    programs: PathBuf,
}

impl Conformance {
    fn prepare(run: &Run) -> Result<Conformance> {
        // Builds the whole workspace, like the tests: with fewer packages cargo would choose other features
        // and build the dependencies again.
        command::show(&run.root, &["cargo", "build", "--workspace", "--bins", "--locked", "--quiet"])?;
        let this = env::current_exe().context("the path of xtask is unknown")?;
        let programs = this.parent().context("xtask is in no folder")?.to_owned();
        Ok(Conformance { suite: Suite::install(&run.root)?, root: run.root.clone(), programs })
    }

    fn measure(&self, case: &Case) -> Result<Report> {
        let folder = self.folder(&case.name)?;
        let mut requirements = self.requirements(&case.set)?;
        requirements.exclude(&case.excluded)?;
        let status = self.run_server(case, &folder)?;
        Report::read(&folder, case.set.side, &requirements)?.agrees_with(status, &folder)
    }

    /// An empty folder for the results and logs of a case.
    fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.suite.results().join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    fn requirements(&self, set: &Set) -> Result<Requirements> {
        let Set { revision, side, scored } = *set;
        let requirements = Requirements::read(&self.suite.requirements(revision), side)?;
        if requirements.scored.len() != scored {
            bail!("set {revision} has {} scored scenarios instead of {scored}", requirements.scored.len());
        }
        Ok(requirements)
    }

    /// Starts the server of a case, and the gateway and the shim if the target needs them, and runs the suite against
    /// the target.
    fn run_server(&self, case: &Case, folder: &Path) -> Result<ExitStatus> {
        let (transport, target) = case.way;
        let line: Vec<&str> = case.line.iter().map(String::as_str).collect();
        // Each of these runs until the suite has finished.
        let (mut background, mut gateways) = (Vec::new(), Vec::new());
        let registration = if transport == Transport::Stdio {
            let (program, arguments) = line.split_first().context("a server without a command")?;
            gateway::stdio(SERVER, program, arguments)
        } else {
            let process = Process::start(folder, "server", &line)?;
            let registration = gateway::remote(SERVER, transport, &process.url);
            background.push(process);
            registration
        };
        let url = match target {
            Target::Direct => background.first().context("the suite speaks HTTP only")?.url.clone(),
            Target::Server
            | Target::Aggregate
            | Target::Bridge
            | Target::ReplicasServer
            | Target::ReplicasAggregate => {
                let program = self.program("toolgate")?;
                let mut gateway = match target.has_replicas() {
                    true => Gateway::start_replicas(folder, &program)?,
                    false => Gateway::start(folder, &program)?,
                };
                gateway.register(&registration)?;
                if target.has_replicas() {
                    gateway.call_everywhere(&format!("{SERVER}__{TOOL}"))?;
                }
                if target == Target::Bridge {
                    let second = folder.join("second");
                    fs::create_dir_all(&second)?;
                    let arguments = ["stdio", "--registry", &gateway.url(), "--server", SERVER];
                    let registration = gateway::stdio(SERVER, &program, &arguments);
                    gateways.push(gateway);
                    gateway = Gateway::start(&second, &program)?;
                    gateway.register(&registration)?;
                }
                let url = if target.is_aggregate() {
                    let shim = self.suite.start_shim(&self.root, folder, &gateway.url(), SERVER)?;
                    let url = format!("{}/mcp", shim.url);
                    background.push(shim);
                    url
                } else {
                    format!("{}/v0/servers/{SERVER}/mcp", gateway.url())
                };
                gateways.push(gateway);
                url
            }
        };
        self.suite.run_server(&url, case.set.revision, folder)
    }

    fn program(&self, name: &str) -> Result<String> {
        let path = self.programs.join(name);
        Ok(path.to_str().with_context(|| format!("the path of {name} is not text"))?.to_owned())
    }
}
