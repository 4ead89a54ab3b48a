//! Fault injection and attacks: builds the program under test, the fault layer and the harnesses in `chaos/`, and runs
//! a harness. The faults, the attacks and the checks are in the harness; its exit code is the result.

use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::command;
use crate::run::{self, Run};

/// Seed of the steps. It is fixed, and chosen so that every kind of fault occurs.
const SEED: &str = "4";
/// Duration of the short run in seconds, shared by the four parts.
const SECONDS: &str = "60";

/// The harness that injects faults.
pub const CHAOS: &str = "chaos";
/// The harness that attacks the limits.
pub const ATTACK: &str = "attack";

/// A short run of every part against the debug build, as a step of `cargo xtask test`.
pub fn short(run: &mut Run) -> Result<()> {
    build_debug(run)?;
    start(run, "debug", CHAOS, &["--seconds", SECONDS, "--seed", SEED])
}

/// Every attack against the debug build, as a step of `cargo xtask test`.
pub fn attacks(run: &mut Run) -> Result<()> {
    build_debug(run)?;
    start(run, "debug", ATTACK, &["--seed", SEED])
}

/// Builds the whole workspace, like the tests, so that nothing is built twice with different features.
fn build_debug(run: &Run) -> Result<()> {
    let build = ["cargo", "build", "--workspace", "--lib", "--bins", "--locked", "--quiet"];
    command::show(&run.root, &build)
}

/// `cargo xtask chaos` and `cargo xtask attack`: passes the arguments to the harness and tests the release build.
pub fn run(harness: &str, words: &[&str]) -> ExitCode {
    let packages = ["-p", "toolgate", "-p", "toolgate-chaos", "-p", "toolgate-faults"];
    let build = [&["cargo", "build", "--release", "--locked"], packages.as_slice()].concat();
    run::once(|run| {
        command::show(&run.root, &build)?;
        start(run, "release", harness, words)
    })
}

/// Starts a harness, which finds the program and the fault layer beside itself.
fn start(run: &Run, profile: &str, harness: &str, words: &[&str]) -> Result<()> {
    let this = std::env::current_exe().context("the path of xtask is unknown")?;
    let target = this.ancestors().nth(2).context("xtask is not in a target folder")?;
    let harness = target.join(profile).join(harness);
    let harness = harness.to_str().context("the path of the harness is not UTF-8")?;
    command::show(&run.root, &[&[harness], words].concat())
}
