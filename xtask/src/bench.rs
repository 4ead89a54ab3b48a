//! The benchmarks in `bench/`: builds them and the program under test with the release profile, and starts them. What is
//! measured, and what the result means, is in their sources.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::command;
use crate::run::{self, Run};
use crate::steps;

const TOOLGATE: &str = "--toolgate";

/// The counts of instructions, allocations and system calls, as a step of `cargo xtask test`.
pub fn compare_with_budget(run: &mut Run) -> Result<()> {
    start(run, "bench-budget", &[])
}

/// `cargo xtask budget`: passes the arguments to the program.
pub fn budget(words: &[&str]) -> ExitCode {
    run::once(|run| {
        run.require(steps::COUNTERS)?;
        start(run, "bench-budget", words)
    })
}

/// `cargo xtask bench`: passes the arguments to the program. It does without nginx if that cannot be installed.
pub fn workloads(words: &[&str]) -> ExitCode {
    run::once(|run| {
        run.require(steps::PINNING)?;
        if let Err(reason) = run.require(steps::PROXY) {
            println!("without nginx: {reason:#}");
        }
        start(run, "bench-workloads", words)
    })
}

/// Builds and starts a program of `bench/`, which finds the other programs beside itself.
pub fn start(run: &Run, program: &str, words: &[&str]) -> Result<()> {
    // One after the other: built together, they would share the features of their dependencies, and the program would not
    // be the one that people build.
    for package in ["toolgate", "toolgate-bench"] {
        // Perhaps another program is measured than that of this checkout.
        if package == "toolgate-bench" || !words.contains(&TOOLGATE) {
            build(run, &["--quiet", "-p", package], &[])?;
        }
    }
    let program = target()?.join("release").join(program);
    let program = program.to_str().context("the path of the program is not UTF-8")?;
    command::show(&run.root, &[&[program], words].concat())
}

/// Builds with the profile of calls, also if `RUSTC_WRAPPER` is set: the budget is that of a program with it.
pub fn build(run: &Run, arguments: &[&str], variables: &[(&str, &str)]) -> Result<()> {
    let wrapper = run.root.join("bench/profile/rustc.sh");
    let wrapper = ("RUSTC_WRAPPER", wrapper.to_str().context("the path of the repository is not UTF-8")?);
    let line = [&["cargo", "build", "--release", "--locked"], arguments].concat();
    command::show_with(&run.root, &line, &[&[wrapper], variables].concat())
}

/// The folder that cargo builds into.
pub fn target() -> Result<PathBuf> {
    let this = std::env::current_exe().context("the path of xtask is unknown")?;
    Ok(this.ancestors().nth(2).context("xtask is not in a target folder")?.to_owned())
}
