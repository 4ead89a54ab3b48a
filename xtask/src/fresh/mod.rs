//! `cargo xtask fresh`: runs the two commands of the README in a bare Debian 12, to prove that they need nothing that
//! only a developer's machine has. Needs root.

mod chroot;
mod host;
mod interrupt;

use std::fs::{self, File, TryLockError};
use std::net::TcpListener;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command;
use crate::run::{self, Run};
use chroot::Chroot;
use interrupt::Interrupt;

const DEBOOTSTRAP: &[&str] = &["debootstrap", "debian-archive-keyring"];
/// The gateway's default port.
const PORT: u16 = 8080;
/// Shell script that runs the first command of the README.
const START: &str = include_str!("start.sh");

pub fn run(words: &[&str]) -> ExitCode {
    let outcome = Interrupt::watch().and_then(|interrupt| {
        let outcome = match words {
            [] => prove(&interrupt, Afterwards::Remove),
            ["--keep"] => prove(&interrupt, Afterwards::Keep),
            ["--enter"] => enter(&interrupt, &["/bin/bash"]),
            ["--enter", line @ ..] => enter(&interrupt, line),
            _ => bail!("`cargo xtask fresh` takes --keep, or --enter with a command"),
        };
        Ok((outcome, interrupt))
    });
    match outcome {
        Ok((Ok(()), _)) => ExitCode::SUCCESS,
        Ok((Err(_), interrupt)) if interrupt.happened() => {
            println!("interrupted");
            ExitCode::from(130)
        }
        Ok((Err(error), _)) | Err(error) => {
            println!("FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What happens to the folder at the end.
enum Afterwards {
    Remove,
    Keep,
}

fn prove(interrupt: &Interrupt, afterwards: Afterwards) -> Result<()> {
    let run = Run::new(None);
    check_root(&run)?;
    let commands = commands(&fs::read_to_string(run.root.join("README.md"))?)?;
    if !command::works(&run.root, &["debootstrap", "--version"]) && !run::install(&run.root, DEBOOTSTRAP) {
        bail!("debootstrap is missing; to get it: apt-get install {}", DEBOOTSTRAP.join(" "));
    }
    let _lock = lock(&run)?;
    let chroot = Chroot::at(&run, interrupt);
    chroot.remove()?;
    let outcome = prove_in(&run, &chroot, &commands);
    let removed = match afterwards {
        Afterwards::Remove => chroot.remove(),
        Afterwards::Keep => {
            println!("left in {}; to look around: cargo xtask fresh --enter", chroot.folder().display());
            Ok(())
        }
    };
    outcome.and(removed)
}

fn prove_in(run: &Run, chroot: &Chroot, [start, test]: &[String; 2]) -> Result<()> {
    let debian = timed("Debian 12 with a C compiler, git and curl", || chroot.make_debian())?;
    let rust = timed("rustup", || chroot.install_rustup())?;
    chroot.clone_head(&run.root)?;
    let port = match TcpListener::bind(("127.0.0.1", PORT)) {
        Ok(_) => PORT,
        Err(_) => TcpListener::bind("127.0.0.1:0")?.local_addr()?.port(),
    };
    let port = port.to_string();
    let started = timed(start, || chroot.run(&["sh", "-euc", START, "sh", start], &[("PORT", &port)]))?;
    let tested = timed(test, || chroot.run(&["sh", "-euc", test], &[("CI", "true")]))?;
    println!("in a bare Debian 12 (made in {debian}, rustup in {rust}):");
    println!("  {start}: healthy, and ended with 0, in {started}");
    println!("  CI=true {test}: ok, in {tested}");
    Ok(())
}

fn enter(interrupt: &Interrupt, line: &[&str]) -> Result<()> {
    let run = Run::new(None);
    check_root(&run)?;
    let _lock = lock(&run)?;
    let chroot = Chroot::at(&run, interrupt);
    if !chroot.folder().exists() {
        bail!("there is no chroot; `cargo xtask fresh --keep` leaves one");
    }
    chroot.enter(line)
}

fn check_root(run: &Run) -> Result<()> {
    if !run::is_root(&run.root) {
        bail!(
            "only root can make a chroot; \
             try: cargo build --package xtask && sudo --preserve-env target/debug/xtask fresh"
        );
    }
    Ok(())
}

/// Allows one run at a time in a checkout, because they share the folder.
fn lock(run: &Run) -> Result<File> {
    let path = run.root.join(".cache/fresh.lock");
    fs::create_dir_all(run.root.join(".cache"))?;
    let file = File::create(&path).with_context(|| format!("{} cannot be written", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!("another `cargo xtask fresh` runs in this checkout"),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

fn timed(title: &str, work: impl FnOnce() -> Result<()>) -> Result<String> {
    println!("fresh: {title} ...");
    let begun = Instant::now();
    work().with_context(|| format!("{title} failed after {}", minutes(begun.elapsed())))?;
    let taken = minutes(begun.elapsed());
    println!("fresh: {title}: ok, {taken}");
    Ok(taken)
}

fn minutes(time: Duration) -> String {
    format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60)
}

/// The two commands in the README's first code block: start, then test.
fn commands(readme: &str) -> Result<[String; 2]> {
    let block = readme.split("```").nth(1).context("the README has no code block")?;
    let lines: Vec<String> = block
        .lines()
        // The rest of the opening line says what kind of block it is.
        .skip(1)
        .map(|line| line.split('#').next().unwrap_or_default().trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    lines.try_into().map_err(|_| anyhow::anyhow!("the README does not begin with two commands"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_those_of_the_readme() {
        let readme = Run::new(None).root.join("README.md");
        let [start, test] = commands(&fs::read_to_string(readme).unwrap()).unwrap();
        assert_eq!(start, "cargo run --release -- start");
        assert_eq!(test, "cargo xtask test");
        assert!(commands("```\none\n```").is_err());
    }
}
