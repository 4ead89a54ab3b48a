//! Runs real, third-party clients against the gateway with a real server behind it.
//! What each client does and expects is in its own script under `tests/clients`.

mod capable;
mod install;

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::command;
use crate::conformance::Transport;
use crate::conformance::gateway::{self, Gateway};
use crate::conformance::process::Process;
use crate::python::{Python, Sdk};
use crate::run::Run;
use capable::Capable;
pub use install::install;

/// Name, runner and script of each client. Each script gets the address of the gateway; the capable clients, which declare
/// all capabilities, also get the addresses that
/// `capable.rs` returns.
#[rustfmt::skip]
const CLIENTS: &[(&str, Runner, &str)] = &[
    ("TypeScript SDK", Runner::Node, "sdk.mjs"),
    ("modern TypeScript SDK", Runner::Node, "modern.mjs"),
    ("inspector", Runner::Node, "inspector.mjs"),
    ("Python SDK", Runner::Python(Sdk::Two), "legacy.py"),
    ("modern Python SDK", Runner::Python(Sdk::Two), "modern.py"),
    ("Rust SDK", Runner::Program, "rmcp-client"),
    ("capable TypeScript clients", Runner::Node, "capable.mjs"),
    ("capable Python SDK", Runner::Python(Sdk::Two), "capable.py"),
    ("capable Python SDK 1 and LangChain", Runner::Python(Sdk::One), "capable_1.py"),
    ("capable FastMCP", Runner::Python(Sdk::Two), "capable_fastmcp.py"),
    ("real servers", Runner::Python(Sdk::Two), "servers.py"),
];

#[derive(Clone, Copy)]
enum Runner {
    Node,
    Python(Sdk),
    /// A program of this workspace.
    Program,
}

pub fn run(run: &mut Run) -> Result<()> {
    let wanted = |name: &str| run.filter.as_deref().is_none_or(|part| name.contains(part));
    let clients: Vec<_> = CLIENTS.iter().filter(|(name, ..)| wanted(name)).collect();
    if clients.is_empty() {
        println!("  no client matches the filter");
        return Ok(());
    }
    // Builds the whole workspace, like the tests, so that nothing is built twice with different features.
    command::show(&run.root, &["cargo", "build", "--workspace", "--bins", "--locked", "--quiet"])?;
    let installed = install(&run.root)?;
    let pythons = [Sdk::One, Sdk::Two].map(|sdk| Python::install(&run.root, sdk).map(|python| (sdk, python)));
    let pythons = pythons.into_iter().collect::<Result<Vec<_>>>()?;
    let python = |wanted: Sdk| {
        let found = pythons.iter().find(|(sdk, _)| *sdk == wanted);
        found.context("an SDK that is not installed")?.1.program("python")
    };
    let results = installed.folder.join("results");
    if results.exists() {
        fs::remove_dir_all(&results)?;
    }
    fs::create_dir_all(&results)?;

    // The servers and the gateway run until the last client has finished.
    let node = installed.node()?;
    let everything = installed.path("everything.mjs")?;
    let http = Process::start(&results, "http", &[node, &everything, "streamableHttp"])?;
    let sse = Process::start(&results, "sse", &[node, &everything, "sse"])?;
    let fixture =
        Process::start(&results, "fixture", &[&program("conformance-fixture")?, "--http", "0", "--legacy"])?;
    let modern = Process::start(&results, "modern", &[&program("conformance-fixture")?, "--http", "0"])?;
    let gateway = Gateway::start(&results, &program("toolgate")?)?;
    let server = installed.path("node_modules/@modelcontextprotocol/server-everything/dist/index.js")?;
    gateway.register(&gateway::stdio("stdio", node, &[&server, "stdio"]))?;
    gateway.register(&gateway::remote("http", Transport::StreamableHttp, &http.url))?;
    gateway.register(&gateway::remote("sse", Transport::Sse, &sse.url))?;
    // The other server shows tools that ask the user only to clients that declare the capability; this one to all.
    gateway.register(&gateway::remote("fixture", Transport::StreamableHttp, &fixture.url))?;
    gateway.register(&gateway::remote("modern", Transport::StreamableHttp, &modern.url))?;

    let (shop_python, shop_script) = (python(Sdk::Two)?, installed.path("workshop.py")?);
    let shop = capable::start_workshop(&results, &shop_python, &shop_script)?;
    let addresses = capable::register(
        &gateway,
        &[
            Capable { name: "workshop", url: &shop.url, line: [&shop_python, &shop_script, "stdio"] },
            Capable { name: "everything", url: &http.url, line: [node, &server, "stdio"] },
        ],
    )?;

    let mut failed = Vec::new();
    for (name, runner, script) in clients {
        let started = Instant::now();
        let line = match runner {
            Runner::Node => vec![node.to_owned(), installed.path(script)?],
            Runner::Python(sdk) => vec![python(*sdk)?, installed.path(script)?],
            Runner::Program => vec![program(script)?],
        };
        let mut line: Vec<&str> = line.iter().map(String::as_str).collect();
        let url = gateway.url();
        line.push(&url);
        let variables = [("NODE", node), ("ADDRESSES", addresses.as_str())];
        let outcome = command::show_with(&installed.folder, &line, &variables);
        println!("  {name}: {:.1} s", started.elapsed().as_secs_f64());
        if outcome.is_err() {
            failed.push(*name);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {} (the logs of gateway and servers are in {})", failed.join(", "), results.display());
    }
    Ok(())
}

fn program(name: &str) -> Result<String> {
    let this = std::env::current_exe().context("the path of xtask is unknown")?;
    let path = this.parent().context("xtask is in no folder")?.join(name);
    Ok(path.to_str().context("the path of a program is not text")?.to_owned())
}
