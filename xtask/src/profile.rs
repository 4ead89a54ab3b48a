//! The profile of calls, `bench/profile/calls.profdata`: how often each part of the program runs while agents use it. The
//! compiler gets it with every release build (`bench/profile/rustc.sh`).

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::bench;
use crate::command;
use crate::run::{self, Run};
use crate::steps;

const PROFILE: &str = "bench/profile/calls.profdata";
/// Tells `bench/profile/rustc.sh` where the program that it compiles is to write what it counts.
const COUNTING: &str = "TOOLGATE_PROFILE";

/// `cargo xtask profile`: builds a program that counts, runs the benchmarks with it, and joins what it has written.
pub fn run() -> ExitCode {
    run::once(|run| {
        run.require(steps::PINNING)?;
        run.require(steps::PROFILES)?;
        write(run)
    })
}

fn write(run: &Run) -> Result<()> {
    let target = bench::target()?.join("profile");
    let counts = target.join("counts");
    if counts.exists() {
        fs::remove_dir_all(&counts).with_context(|| format!("{} cannot be removed", counts.display()))?;
    }
    let text = |path: &std::path::Path| path.to_str().map(str::to_owned).context("a path is not UTF-8");
    let (program, folder) = (text(&target.join("release/toolgate"))?, text(&target)?);
    let counts = text(&counts)?;
    // In a folder of its own: cargo does not see that the compiler does something else.
    bench::build(run, &["-p", "toolgate", "--target-dir", &folder], &[(COUNTING, &counts)])?;
    let works = ["--toolgate", &program, "--rounds", "1", "--seconds", "2", "workloads", "rest", "ways"];
    bench::start(run, "bench-workloads", &works)?;
    command::show(&run.root, &["llvm-profdata-19", "merge", "--sparse", "-o", PROFILE, &counts])?;
    println!("written to {PROFILE}; now `cargo xtask budget --functions`, then `cargo xtask budget --write`");
    Ok(())
}
