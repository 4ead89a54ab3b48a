//! Runs other programs in the root of the repository. A command line is a slice whose first item is the program;
//! no shell is involved.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

/// Runs a command that inherits our terminal.
pub fn show(root: &Path, line: &[&str]) -> Result<()> {
    show_with(root, line, &[])
}

pub fn show_with(root: &Path, line: &[&str], variables: &[(&str, &str)]) -> Result<()> {
    let mut command = prepare(root, line);
    command.envs(variables.iter().copied());
    let status = command.status().with_context(|| not_started(line))?;
    check(line, status)
}

/// Runs a command, passes its output on line by line, and calls a function with each line.
pub fn watch(
    root: &Path,
    line: &[&str],
    variables: &[(&str, &str)],
    mut look: impl FnMut(&str),
) -> Result<()> {
    let mut command = prepare(root, line);
    command.envs(variables.iter().copied()).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| not_started(line))?;
    let mut printed = BufReader::new(child.stdout.take().context("the child has no stdout")?);
    let mut bytes = Vec::new();
    // Bytes, not `lines()`: the output of a test may not be UTF-8.
    while printed.read_until(b'\n', &mut bytes)? > 0 {
        std::io::stdout().write_all(&bytes)?;
        look(String::from_utf8_lossy(&bytes).trim_end());
        bytes.clear();
    }
    check(line, child.wait()?)
}

/// Runs a command and returns its stdout.
pub fn read(root: &Path, line: &[&str]) -> Result<String> {
    let output = prepare(root, line).stderr(Stdio::inherit()).output().with_context(|| not_started(line))?;
    check(line, output.status)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether the command can be started and succeeds. Its output is discarded.
pub fn works(root: &Path, line: &[&str]) -> bool {
    let mut command = prepare(root, line);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Prepares a command without starting it, for callers that need its streams.
pub fn prepare(root: &Path, line: &[&str]) -> Command {
    let (program, arguments) = line.split_first().unwrap_or((&"", &[]));
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root);
    // `cargo run` sets these variables for xtask itself. Build scripts that watch them (ring's does) would
    // run again each time the same build is started once from here and once by hand.
    for (name, _) in env::vars_os() {
        let told = name.to_string_lossy();
        if told.starts_with("CARGO_PKG_") || told.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Returns the path of a program of this workspace, which is beside this one.
pub fn program(name: &str) -> Result<String> {
    let this = env::current_exe().context("the path of xtask is unknown")?;
    let path = this.parent().context("xtask is in no folder")?.join(name);
    Ok(path.to_str().context("the path of a program is not text")?.to_owned())
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
