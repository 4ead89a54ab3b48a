//! Runs the official conformance suite against our fixture, against the gateway with the fixture behind it, and
//! against the gateway as a client of the suite's own servers. The tables below say what is run; `reference.rs` has
//! the table of servers that others wrote; the other files beside this one install the suite, start servers and
//! evaluate the results.

pub mod gateway;
pub mod process;
mod reference;
mod report;
mod requirements;
mod suite;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::command;
use crate::run::Run;
use gateway::Gateway;
use process::Process;
pub use reference::run as of_reference_servers;
use report::Report;
use requirements::Requirements;
use suite::Suite;

/// One run of a requirement set against one address.
struct Case {
    name: &'static str,
    set: Set,
    transport: Transport,
    eras: Eras,
    target: Target,
}

/// A requirement set of the suite, with its number of scored scenarios: a set that shrinks must not go unnoticed.
struct Set {
    revision: &'static str,
    side: Side,
    scored: usize,
}

/// The side whose behaviour a set tests.
#[derive(Clone, Copy)]
pub enum Side {
    Server,
    Client,
}

impl Side {
    /// Its name in the suite.
    fn word(self) -> &'static str {
        match self {
            Side::Server => "server",
            Side::Client => "client",
        }
    }
}

/// The transport over which the gateway reaches the server behind it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    StreamableHttp,
    Stdio,
    Sse,
}

/// The eras of the protocol that the fixture supports.
#[derive(Clone, Copy)]
enum Eras {
    Both,
    LegacyOnly,
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
    /// The gateway's links to servers: the suite starts a server for each scenario, and a driver registers it.
    Links,
}

const LEGACY: Set = Set { revision: "2025-11-25", side: Side::Server, scored: 30 };
const MODERN: Set = Set { revision: "2026-07-28", side: Side::Server, scored: 37 };
const LEGACY_CLIENT: Set = Set { revision: "2025-11-25", side: Side::Client, scored: 18 };
const MODERN_CLIENT: Set = Set { revision: "2026-07-28", side: Side::Client, scored: 32 };

/// Scored scenarios of modern clients with legacy servers that cannot pass yet: the prefix of their names, and the
/// missing feature.
const AHEAD_ACROSS_ERAS: &[(&str, &str)] =
    &[("input-required-result-", "requests of a legacy server to a modern client are not passed on yet")];

/// The name under which the server is registered; its tools then begin with this and `__`.
const SERVER: &str = "conf";

use Eras::{Both, LegacyOnly};
use Target::{Aggregate, Direct, Links, Server};
use Transport::{Sse, Stdio, StreamableHttp};

#[rustfmt::skip]
const DIRECT: &[Case] = &[
    Case { name: "direct-legacy", set: LEGACY, transport: StreamableHttp, eras: Both, target: Direct },
    Case { name: "direct-modern", set: MODERN, transport: StreamableHttp, eras: Both, target: Direct },
    Case { name: "direct-legacy-only", set: LEGACY, transport: StreamableHttp, eras: LegacyOnly, target: Direct },
];

#[rustfmt::skip]
const GATEWAY: &[Case] = &[
    Case { name: "server-http-legacy", set: LEGACY, transport: StreamableHttp, eras: LegacyOnly, target: Server },
    Case { name: "server-stdio-legacy", set: LEGACY, transport: Stdio, eras: LegacyOnly, target: Server },
    Case { name: "server-sse-legacy", set: LEGACY, transport: Sse, eras: LegacyOnly, target: Server },
    Case { name: "aggregate-http-legacy", set: LEGACY, transport: StreamableHttp, eras: LegacyOnly, target: Aggregate },
    Case { name: "aggregate-stdio-legacy", set: LEGACY, transport: Stdio, eras: LegacyOnly, target: Aggregate },
    Case { name: "aggregate-sse-legacy", set: LEGACY, transport: Sse, eras: LegacyOnly, target: Aggregate },
    Case { name: "server-http-modern", set: MODERN, transport: StreamableHttp, eras: Both, target: Server },
    Case { name: "server-stdio-modern", set: MODERN, transport: Stdio, eras: Both, target: Server },
    Case { name: "aggregate-http-modern", set: MODERN, transport: StreamableHttp, eras: Both, target: Aggregate },
    Case { name: "aggregate-stdio-modern", set: MODERN, transport: Stdio, eras: Both, target: Aggregate },
    Case { name: "server-http-crossing", set: MODERN, transport: StreamableHttp, eras: LegacyOnly, target: Server },
    Case { name: "server-stdio-crossing", set: MODERN, transport: Stdio, eras: LegacyOnly, target: Server },
    Case { name: "aggregate-http-crossing", set: MODERN, transport: StreamableHttp, eras: LegacyOnly, target: Aggregate },
    Case { name: "aggregate-sse-crossing", set: MODERN, transport: Sse, eras: LegacyOnly, target: Aggregate },
];

#[rustfmt::skip]
const CLIENT: &[Case] = &[
    Case { name: "client-legacy", set: LEGACY_CLIENT, transport: StreamableHttp, eras: LegacyOnly, target: Links },
    Case { name: "client-modern", set: MODERN_CLIENT, transport: StreamableHttp, eras: Both, target: Links },
];

pub fn direct(run: &mut Run) -> Result<()> {
    judge(run, DIRECT)
}

pub fn through_gateway(run: &mut Run) -> Result<()> {
    judge(run, GATEWAY)
}

pub fn of_links(run: &mut Run) -> Result<()> {
    judge(run, CLIENT)
}

/// Runs all cases before it fails, so that one run shows all failures.
fn judge(run: &Run, cases: &[Case]) -> Result<()> {
    let wanted = |case: &&Case| run.filter.as_deref().is_none_or(|part| case.name.contains(part));
    let cases: Vec<&Case> = cases.iter().filter(wanted).collect();
    if cases.is_empty() {
        println!("  no case matches the filter");
        return Ok(());
    }
    let conformance = Conformance::prepare(run)?;
    let mut failed = Vec::new();
    for case in cases {
        let started = Instant::now();
        let (report, folder) = conformance.run(case).with_context(|| format!("case {}", case.name))?;
        let seconds = started.elapsed().as_secs_f64();
        println!("  {}, set {}: {} ({seconds:.1} s)", case.name, case.set.revision, report.summary());
        print!("{report}");
        if report.has_failures() {
            failed.push(format!("{} (all logs are in {})", case.name, folder.display()));
        }
    }
    if !failed.is_empty() {
        bail!("scored scenarios fail in {}", failed.join(", "));
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

    fn run(&self, case: &Case) -> Result<(Report, PathBuf)> {
        let folder = self.folder(case.name)?;
        let Set { revision, side, scored } = case.set;
        let mut requirements = self.requirements(&case.set)?;
        let status = match case.target {
            Links => self.suite.run_client(&self.root, &self.program("toolgate")?, revision, &folder)?,
            Direct | Server | Aggregate => {
                if revision == MODERN.revision && matches!(case.eras, LegacyOnly) {
                    requirements.put_off(AHEAD_ACROSS_ERAS);
                }
                self.run_server(&self.fixture(case)?, case.transport, case.target, revision, &folder)?
            }
        };
        let report = Report::read(&folder, side, &requirements)?;
        let complains_rightly = report.has_failures() || requirements.scored.len() < scored;
        if !status.success() && !complains_rightly {
            bail!("the suite ended with {status}, see {}", folder.join("suite.log").display());
        }
        Ok((report, folder))
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

    /// The command that starts the fixture for a case.
    fn fixture(&self, case: &Case) -> Result<Vec<String>> {
        let mut line = vec![self.program("conformance-fixture")?];
        let words: &[&str] = match case.transport {
            StreamableHttp => &["--http", "0"],
            Sse => &["--sse", "0"],
            Stdio => &["--stdio"],
        };
        line.extend(words.iter().map(|&word| word.to_owned()));
        if matches!(case.eras, LegacyOnly) && !matches!(case.transport, Sse) {
            line.push("--legacy".to_owned());
        }
        Ok(line)
    }

    /// Starts the server of this command line, and the gateway and the shim if the target needs them, and runs the suite
    /// against the target.
    fn run_server(
        &self,
        line: &[String],
        transport: Transport,
        target: Target,
        revision: &str,
        folder: &Path,
    ) -> Result<ExitStatus> {
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        // Each of these runs until the suite has finished.
        let mut background = Vec::new();
        let registration = if matches!(transport, Stdio) {
            let (program, arguments) = line.split_first().context("a server without a command")?;
            gateway::stdio(SERVER, program, arguments)
        } else {
            let process = Process::start(folder, "server", &line)?;
            let registration = gateway::remote(SERVER, transport, &process.url);
            background.push(process);
            registration
        };
        let url = match target {
            Direct | Links => background.first().context("the suite speaks HTTP only")?.url.clone(),
            Server | Aggregate => {
                let gateway = Gateway::start(folder, &self.program("toolgate")?)?;
                gateway.register(&registration)?;
                let url = match target {
                    Aggregate => {
                        let shim = self.suite.start_shim(&self.root, folder, &gateway.url(), SERVER)?;
                        let url = format!("{}/mcp", shim.url);
                        background.push(shim);
                        url
                    }
                    Direct | Links | Server => format!("{}/v0/servers/{SERVER}/mcp", gateway.url()),
                };
                background.push(gateway.into_process());
                url
            }
        };
        self.suite.run_server(&url, revision, folder)
    }

    fn program(&self, name: &str) -> Result<String> {
        let path = self.programs.join(name);
        Ok(path.to_str().with_context(|| format!("the path of {name} is not text"))?.to_owned())
    }
}
