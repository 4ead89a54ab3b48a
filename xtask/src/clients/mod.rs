//! Runs real, third-party clients against the gateway with a real server behind it.
//! What each client does and expects is in its own script under `tests/clients`.

mod capable;
mod install;
mod pairs;

use std::fs;
use std::path::{Path, PathBuf};
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
use pairs::Pairs;

/// Name, runner, script and servers of each client. Each script gets the address of the gateway, and the Python with the
/// current SDK in `PYTHON`.
#[rustfmt::skip]
const CLIENTS: &[(&str, Runner, &str, Behind)] = &[
    ("TypeScript SDK", Runner::Node, "sdk.mjs", Behind::Common),
    ("modern TypeScript SDK", Runner::Node, "modern.mjs", Behind::Common),
    ("inspector", Runner::Node, "inspector.mjs", Behind::Common),
    ("Python SDK", Runner::Python(Sdk::Two), "legacy.py", Behind::Common),
    ("modern Python SDK", Runner::Python(Sdk::Two), "modern.py", Behind::Common),
    ("Rust SDK", Runner::Program, "rmcp-client", Behind::Common),
    ("traces of the Python SDK", Runner::Python(Sdk::Two), "traces.py", Behind::Common),
    ("TypeScript SDK through a balancer", Runner::Node, "sdk.mjs", Behind::Balanced),
    ("modern TypeScript SDK through a balancer", Runner::Node, "modern.mjs", Behind::Balanced),
    ("Python SDK through a balancer", Runner::Python(Sdk::Two), "legacy.py", Behind::Balanced),
    ("modern Python SDK through a balancer", Runner::Python(Sdk::Two), "modern.py", Behind::Balanced),
    ("snippets of the dashboard", Runner::Node, "snippets.mjs", Behind::Common),
    ("snippets of pages", Runner::Node, "pages.mjs", Behind::Common),
    ("snippets of the command line", Runner::Node, "printed.mjs", Behind::Common),
    ("capable TypeScript clients", Runner::Node, "capable.mjs", Behind::Capable),
    ("capable inspector", Runner::Node, "capable_inspector.mjs", Behind::Capable),
    ("capable Python SDK", Runner::Python(Sdk::Two), "capable.py", Behind::Capable),
    ("capable Python SDK 1 and LangChain", Runner::Python(Sdk::One), "capable_1.py", Behind::Capable),
    ("capable FastMCP", Runner::Python(Sdk::Two), "capable_fastmcp.py", Behind::Capable),
    ("pairs of TypeScript clients", Runner::Node, "capable.mjs", Behind::Pairs),
    ("pairs of Python SDK", Runner::Python(Sdk::Two), "capable.py", Behind::Pairs),
    ("pairs of Python SDK 1", Runner::Python(Sdk::One), "capable_1.py", Behind::Pairs),
    ("pairs of FastMCP", Runner::Python(Sdk::Two), "capable_fastmcp.py", Behind::Pairs),
    ("real servers", Runner::Python(Sdk::Two), "servers.py", Behind::Nothing),
];

/// The servers behind the gateway of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behind {
    /// Those that all clients without capabilities share, in one gateway.
    Common,
    /// The same in several gateways behind a balancer. The script gets `BALANCED=1`.
    Balanced,
    /// Those of `capable.rs`, in a gateway of its own: a stdio server gets few processes, one for each set of capabilities,
    /// and the sets of other clients would take them. The script also gets the addresses, in `ADDRESSES`.
    Capable,
    /// Those of `pairs.rs`, in a gateway of its own for the same reason. The script gets them in `PAIRS`.
    Pairs,
    /// None: the script registers its own, and gets the path of Node in `NODE`.
    Nothing,
}

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
    let fixture = Process::start(
        &results,
        "fixture",
        &[&command::program("conformance-fixture")?, "--http", "0", "--legacy"],
    )?;
    let modern =
        Process::start(&results, "modern", &[&command::program("conformance-fixture")?, "--http", "0"])?;
    let (toolgate, xtask) = (command::program("toolgate")?, command::program("xtask")?);
    let gateway = Gateway::start(&results, &toolgate)?;
    let is_balanced = clients.iter().any(|(_, _, _, behind)| *behind == Behind::Balanced);
    let balanced = is_balanced.then(|| Gateway::start_replicas(&results, &toolgate)).transpose()?;
    let server = installed.path("node_modules/@modelcontextprotocol/server-everything/dist/index.js")?;
    let common = [
        gateway::stdio("stdio", node, &[&server, "stdio"]),
        gateway::remote("http", Transport::StreamableHttp, &http.url),
        gateway::remote("sse", Transport::Sse, &sse.url),
        // The other server shows tools that ask the user only to clients that declare the capability; this one to all.
        gateway::remote("fixture", Transport::StreamableHttp, &fixture.url),
        gateway::remote("modern", Transport::StreamableHttp, &modern.url),
    ];
    for gateway in [Some(&gateway), balanced.as_ref()].into_iter().flatten() {
        common.iter().try_for_each(|registration| gateway.register(registration))?;
    }

    let (shop_python, shop_script) = (python(Sdk::Two)?, installed.path("workshop.py")?);
    let shop = capable::start_workshop(&results, &shop_python, &shop_script)?;
    let capable = [
        Capable { name: "workshop", url: &shop.url, line: [&shop_python, &shop_script, "stdio"] },
        Capable { name: "everything", url: &http.url, line: [node, &server, "stdio"] },
    ];

    let is_paired = clients.iter().any(|(_, _, _, behind)| *behind == Behind::Pairs);
    let pythons = [python(Sdk::One)?, shop_python.clone()];
    let pairs = is_paired.then(|| Pairs::start(&results, &installed, &pythons)).transpose()?;

    let mut failed = Vec::new();
    for (name, runner, script, behind) in clients {
        let started = Instant::now();
        let line = match runner {
            Runner::Node => vec![node.to_owned(), installed.path(script)?],
            Runner::Python(sdk) => vec![python(*sdk)?, installed.path(script)?],
            Runner::Program => vec![command::program(script)?],
        };
        let mut line: Vec<&str> = line.iter().map(String::as_str).collect();
        let own = match behind {
            Behind::Common | Behind::Balanced => None,
            Behind::Capable | Behind::Pairs | Behind::Nothing => {
                Some(Gateway::start(&fresh(&results, name)?, &toolgate)?)
            }
        };
        let (addresses, asking) = match (behind, &own, &pairs) {
            (Behind::Capable, Some(own), _) => (capable::register(own, &capable)?, String::new()),
            (Behind::Pairs, Some(own), Some(pairs)) => (String::new(), pairs.register(own)?),
            _ => Default::default(),
        };
        let shared = balanced.as_ref().filter(|_| *behind == Behind::Balanced).unwrap_or(&gateway);
        let url = own.as_ref().unwrap_or(shared).url();
        line.push(&url);
        let variables = [
            ("NODE", node),
            ("PYTHON", &shop_python),
            ("TOOLGATE", &toolgate),
            ("XTASK", &xtask),
            ("HTTP", &http.url),
            ("SSE", &sse.url),
            ("ADDRESSES", &addresses),
            ("PAIRS", &asking),
            ("BALANCED", if *behind == Behind::Balanced { "1" } else { "" }),
        ];
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

/// A folder for the database and the log of a gateway.
fn fresh(results: &Path, name: &str) -> Result<PathBuf> {
    let folder = results.join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}
