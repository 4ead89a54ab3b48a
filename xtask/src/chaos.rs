//! Fault injection: builds the program under test, the fault layer and the harness in `chaos/`, and runs the harness.
//! What is broken and what must hold is in the harness; its exit code is the verdict.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;

use crate::command;
use crate::run::Run;

const HARNESS: &str = "toolgate-chaos";
/// The seed of the short run, so that it is the same for everybody.
const SEED: &str = "1";
/// The duration of the short run, shared by the four parts.
const SECONDS: &str = "60";

/// A short run of every part against the debug build, as a step of `cargo xtask test`.
pub fn short(run: &mut Run) -> Result<()> {
    build_and_run(run, &[], &["--seconds", SECONDS, "--seed", SEED])
}

/// The command: the words go to the harness, the release build is tested.
pub fn run(words: &[&str]) -> ExitCode {
    let run = Run::new(None);
    let begun = Instant::now();
    match build_and_run(&run, &["--release"], words) {
        Ok(()) => {
            println!("done in {:.1} s", begun.elapsed().as_secs_f64());
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn build_and_run(run: &Run, profile: &[&str], words: &[&str]) -> Result<()> {
    let build = ["cargo", "build", "--locked", "-p", "toolgate", "-p", "toolgate-faults", "-p", HARNESS];
    command::show(&run.root, &[&build, profile].concat())?;
    // By cargo, which knows where it built to.
    let start = ["cargo", "run", "--quiet", "--locked", "-p", HARNESS];
    command::show(&run.root, &[&start, profile, &["--"], words].concat())
}
