//! Runs other programs in the repository's root. A command line is a slice whose first word is the program;
//! no shell is involved.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

/// Runs with our terminal as its own.
pub fn show(root: &Path, line: &[&str]) -> Result<()> {
    show_with(root, line, &[])
}

pub fn show_with(root: &Path, line: &[&str], variables: &[(&str, &str)]) -> Result<()> {
    let mut command = prepare(root, line);
    command.envs(variables.iter().copied());
    let status = command.status().with_context(|| not_started(line))?;
    check(line, status)
}

/// Runs and passes on what it prints line by line, with a look at each.
pub fn watch(root: &Path, line: &[&str], mut look: impl FnMut(&str)) -> Result<()> {
    let mut child = prepare(root, line).stdout(Stdio::piped()).spawn().with_context(|| not_started(line))?;
    let mut printed = BufReader::new(child.stdout.take().context("the child has no stdout")?);
    let mut bytes = Vec::new();
    // Bytes, not `lines()`: a test may print what is not UTF-8.
    while printed.read_until(b'\n', &mut bytes)? > 0 {
        std::io::stdout().write_all(&bytes)?;
        look(String::from_utf8_lossy(&bytes).trim_end());
        bytes.clear();
    }
    check(line, child.wait()?)
}

/// Runs and returns what it printed on stdout.
pub fn read(root: &Path, line: &[&str]) -> Result<String> {
    let output = prepare(root, line).stderr(Stdio::inherit()).output().with_context(|| not_started(line))?;
    check(line, output.status)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether the command can be started and succeeds; silent.
pub fn works(root: &Path, line: &[&str]) -> bool {
    let mut command = prepare(root, line);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A command that was not started yet, for those who want its streams.
pub fn prepare(root: &Path, line: &[&str]) -> Command {
    let (program, arguments) = line.split_first().unwrap_or((&"", &[]));
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root);
    // `cargo run` describes xtask to xtask in these. Build scripts that watch them (ring's does) would
    // be run again each time the same build is started from here and by hand.
    for (name, _) in env::vars_os() {
        let told = name.to_string_lossy();
        if told.starts_with("CARGO_PKG_") || told.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

fn check(line: &[&str], status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("`{}` ended with {status}", line.join(" "));
    }
    Ok(())
}

fn not_started(line: &[&str]) -> String {
    format!("`{}` could not be started", line.join(" "))
}
