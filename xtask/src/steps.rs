//! The tables of steps: what `cargo xtask test` and `cargo xtask extra` do, in this order.
//! A new step is a row here and a function below; `run.rs` runs the rows.

use anyhow::Result;

use crate::bench;
use crate::chaos;
use crate::clients;
use crate::command;
use crate::conformance;
use crate::dashboard;
use crate::deployment;
use crate::fuzz;
use crate::postgres;
use crate::release;
use crate::run::{Need, Run, Step};
use crate::shells;
use crate::sign_in;

pub const TEST: &[Step] = &[
    Step { name: "format", needs: &[RUSTFMT], run: format },
    Step { name: "clippy", needs: &[CLIPPY], run: clippy },
    Step { name: "tests", needs: &[], run: tests },
    ON_POSTGRES,
    Step { name: "faults", needs: &[], run: chaos::short },
    Step { name: "attacks", needs: &[], run: chaos::attacks },
    Step { name: "documentation", needs: &[], run: documentation },
    Step { name: "fuzzing", needs: &[], run: fuzzing },
    Step { name: "budget", needs: COUNTERS, run: bench::compare_with_budget },
    // The step before has built the program.
    Step { name: "installation", needs: &[], run: release::check },
    COMPLETION_IN_SHELLS,
    DEPLOYMENT_FILES,
    DEPLOYMENT_BALANCER,
    DEPLOYMENT_SERVICE,
    CONFORMANCE_DIRECT,
    CONFORMANCE_GATEWAY,
    CONFORMANCE_REPLICAS,
    CONFORMANCE_BRIDGE,
    CONFORMANCE_LINKS,
    CONFORMANCE_REFERENCE,
    CONFORMANCE_AUTHORIZATION,
    REAL_CLIENTS,
    SIGNING_IN,
    DASHBOARD,
    BROWSER,
];

pub const CONFORMANCE: &[Step] = &[
    CONFORMANCE_DIRECT,
    CONFORMANCE_GATEWAY,
    CONFORMANCE_REPLICAS,
    CONFORMANCE_BRIDGE,
    CONFORMANCE_LINKS,
    CONFORMANCE_REFERENCE,
    CONFORMANCE_AUTHORIZATION,
];

pub const SCORES: &[Step] = &[
    CONFORMANCE_DIRECT,
    Step { name: "scores of the conformance suite", needs: &[NPM], run: conformance::write_scores },
];

pub const CLIENTS: &[Step] = &[REAL_CLIENTS];

pub const SIGN_IN: &[Step] = &[SIGNING_IN];

pub const POSTGRES: &[Step] = &[ON_POSTGRES];

pub const COMPLETION: &[Step] = &[COMPLETION_IN_SHELLS];

pub const DEPLOY: &[Step] = &[DEPLOYMENT_FILES, DEPLOYMENT_BALANCER, DEPLOYMENT_SERVICE];

pub const SOURCES: &[Step] = &[DASHBOARD];

pub const BROWSE: &[Step] = &[BROWSER];

pub const WEB: &[Step] = &[Step { name: "build of the dashboard", needs: &[NPM], run: dashboard::update }];

pub const EXTRA: &[Step] = &[Step { name: "dependencies", needs: &[CARGO_DENY], run: dependencies }];

const ON_POSTGRES: Step = Step { name: "tests on Postgres", needs: &[INITDB], run: postgres::tests };

const COMPLETION_IN_SHELLS: Step =
    Step { name: "completion in shells", needs: &[ZSH, FISH], run: shells::complete };

const DEPLOYMENT_FILES: Step =
    Step { name: "deployment: images, compose and chart", needs: &[PYTHON], run: deployment::files };
const DEPLOYMENT_BALANCER: Step =
    Step { name: "deployment: balancer", needs: &[NGINX], run: deployment::balancer };
const DEPLOYMENT_SERVICE: Step =
    Step { name: "deployment: service", needs: &[SYSTEMD], run: deployment::service };

/// Tests the fixture alone first: otherwise a failure behind the gateway could be the fixture's fault.
const CONFORMANCE_DIRECT: Step =
    Step { name: "conformance of the fixture", needs: &[NPM], run: conformance::direct };
const CONFORMANCE_GATEWAY: Step =
    Step { name: "conformance through the gateway", needs: &[NPM], run: conformance::through_gateway };
const CONFORMANCE_REPLICAS: Step =
    Step { name: "conformance through a balancer", needs: &[NPM, INITDB], run: conformance::replicas };
const CONFORMANCE_BRIDGE: Step =
    Step { name: "conformance of toolgate stdio", needs: &[NPM], run: conformance::bridge };
const CONFORMANCE_LINKS: Step =
    Step { name: "conformance of the gateway as a client", needs: &[NPM], run: conformance::of_links };
const CONFORMANCE_REFERENCE: Step = Step {
    name: "conformance with the servers of other SDKs",
    needs: &[NPM, PYTHON],
    run: conformance::of_reference_servers,
};

const CONFORMANCE_AUTHORIZATION: Step = Step {
    name: "conformance of the authorization server",
    needs: &[NPM, PYTHON, CHROMIUM],
    run: conformance::of_authorization,
};

const REAL_CLIENTS: Step =
    Step { name: "real clients", needs: &[NPM, PYTHON, CURL, SCRIPT, INITDB], run: clients::run };

const SIGNING_IN: Step = Step { name: "signing in", needs: &[NPM, PYTHON, CHROMIUM], run: sign_in::run };

/// Checks the sources, runs the unit tests, and checks that the committed build is up to date.
const DASHBOARD: Step = Step { name: "dashboard", needs: &[NPM], run: dashboard::check };
const BROWSER: Step =
    Step { name: "dashboard in a browser", needs: &[NPM, CHROMIUM], run: dashboard::browse };

/// What counts instructions and system calls.
pub const COUNTERS: &[Need] = &[VALGRIND, STRACE, TASKSET];
/// What gives a program a processor of its own.
pub const PINNING: &[Need] = &[TASKSET];
/// What joins the counts of an instrumented program into a profile.
pub const PROFILES: &[Need] = &[PROFDATA];
/// What the gateway is compared with.
pub const PROXY: &[Need] = &[NGINX];

const RUSTFMT: Need =
    Need::Works { probe: &["cargo", "fmt", "--version"], remedy: "rustup component add rustfmt" };
const CLIPPY: Need =
    Need::Works { probe: &["cargo", "clippy", "--version"], remedy: "rustup component add clippy" };
const CARGO_DENY: Need =
    Need::Works { probe: &["cargo", "deny", "--version"], remedy: "cargo install --locked cargo-deny" };
const NPM: Need = Need::Debian { probe: &["npm", "--version"], packages: &["nodejs", "npm"] };
/// Debian keeps the programs of each version in a folder of its own.
const INITDB: Need = Need::Debian {
    probe: &["sh", "-c", "command -v initdb || ls /usr/lib/postgresql/*/bin/initdb"],
    packages: &["postgresql"],
};
const CURL: Need = Need::Debian { probe: &["curl", "--version"], packages: &["curl"] };
/// Runs a program in a terminal.
const SCRIPT: Need = Need::Debian { probe: &["script", "--version"], packages: &["bsdutils"] };
const ZSH: Need = Need::Debian { probe: &["zsh", "--version"], packages: &["zsh"] };
const FISH: Need = Need::Debian { probe: &["fish", "--version"], packages: &["fish"] };
const CHROMIUM: Need = Need::Debian { probe: &["chromium", "--version"], packages: &["chromium"] };
const VALGRIND: Need = Need::Debian { probe: &["valgrind", "--version"], packages: &["valgrind"] };
/// It must also be allowed to trace, which some containers forbid.
const STRACE: Need = Need::Debian { probe: &["strace", "-o", "/dev/null", "true"], packages: &["strace"] };
const TASKSET: Need = Need::Debian { probe: &["taskset", "--version"], packages: &["util-linux"] };
const NGINX: Need = Need::Debian { probe: &["/usr/sbin/nginx", "-v"], packages: &["nginx-light"] };
/// Reads what programs of our compiler count, and writes what compilers of this version and of later ones read.
const PROFDATA: Need =
    Need::Debian { probe: &["llvm-profdata-19", "merge", "--version"], packages: &["llvm-19"] };
const SYSTEMD: Need = Need::Debian { probe: &["systemd-analyze", "--version"], packages: &["systemd"] };
const PYTHON: Need = Need::Debian {
    // `timeout` is in Python 3.11 and newer.
    probe: &["python3", "-c", "import venv, ensurepip; from asyncio import timeout"],
    packages: &["python3", "python3-venv"],
};

fn format(run: &mut Run) -> Result<()> {
    command::show(&run.root, &["cargo", "fmt", "--all", "--check"])
}

fn clippy(run: &mut Run) -> Result<()> {
    // The second one is not among all targets, since plain `cargo test` leaves it out.
    for targets in ["--all-targets", "--test=replicas"] {
        let line = ["cargo", "clippy", "--workspace", targets, "--locked", "--", "-D", "warnings"];
        command::show(&run.root, &line)?;
    }
    Ok(())
}

fn tests(run: &mut Run) -> Result<()> {
    let mut line = vec!["cargo", "test", "--workspace", "--locked"];
    let filter = run.filter.clone();
    line.extend(filter.as_deref());
    run.tests(&line, &[])
}

/// Checks links between items. Links between pages are checked by `tests/tidy.rs`.
fn documentation(run: &mut Run) -> Result<()> {
    let line = ["cargo", "doc", "--workspace", "--no-deps", "--document-private-items", "--locked"];
    command::show_with(&run.root, &line, &[("RUSTDOCFLAGS", "-D warnings")])
}

fn dependencies(run: &mut Run) -> Result<()> {
    command::show(&run.root, &["cargo", "deny", "--locked", "check"])
}

/// Runs each target for a short time; `cargo xtask fuzz` takes longer.
fn fuzzing(run: &mut Run) -> Result<()> {
    fuzz::run(&run.root, &["--seconds", "10"])
}
