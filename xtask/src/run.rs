//! Runs a table of steps: prints each step and how long it took, stops at the first failure,
//! and ends with one line that has the result. The steps themselves are in `steps.rs`.

use std::env;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::command;
use crate::tally::Tally;

/// Tells a test program how many tests it runs at once.
const THREADS: &str = "RUST_TEST_THREADS";
const TESTS_PER_PROCESSOR: usize = 2;

pub struct Step {
    pub name: &'static str,
    pub needs: &'static [Need],
    pub run: fn(&mut Run) -> Result<()>,
}

/// What must be installed on the machine before a step can run.
pub enum Need {
    /// A command that must succeed, and how to get it.
    Works { probe: &'static [&'static str], remedy: &'static str },
    /// A command that must succeed, and the Debian packages that contain it, which are installed if we are root.
    Debian { probe: &'static [&'static str], packages: &'static [&'static str] },
}

pub struct Run {
    pub root: PathBuf,
    pub filter: Option<String>,
    pub tally: Option<Tally>,
}

impl Run {
    pub fn new(filter: Option<String>) -> Run {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        Run { root: root.parent().unwrap_or(root).to_owned(), filter, tally: None }
    }

    /// Whether a case with this name is to be run.
    pub fn wants(&self, name: &str) -> bool {
        self.filter.as_deref().is_none_or(|part| name.contains(part))
    }

    pub fn walk(mut self, steps: &[Step]) -> ExitCode {
        let begun = Instant::now();
        let strict = is_strict();
        let mut skipped = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            let title = format!("[{}/{}] {}", index + 1, steps.len(), step.name);
            if let Some(reason) = step.needs.iter().find_map(|need| need.missing(&self.root)) {
                if strict {
                    return self
                        .fail(&title, &format!("cannot run, and with CI=true no step is skipped: {reason}"));
                }
                println!("{title}: skipped, {reason}");
                skipped.push(step.name);
                continue;
            }
            println!("{title} ...");
            let started = Instant::now();
            if let Err(error) = (step.run)(&mut self) {
                return self.fail(&title, &format!("{error:#}"));
            }
            println!("{title}: ok, {:.1} s", started.elapsed().as_secs_f64());
        }
        let without = match skipped.as_slice() {
            [] => String::new(),
            names => format!(", skipped: {}", names.join(", ")),
        };
        println!("done in {:.1} s{without}", begun.elapsed().as_secs_f64());
        self.print_tally();
        ExitCode::SUCCESS
    }

    /// Fails if something is missing that cannot be installed.
    pub fn require(&self, needs: &[Need]) -> Result<()> {
        match needs.iter().find_map(|need| need.missing(&self.root)) {
            Some(reason) => bail!("{reason}"),
            None => Ok(()),
        }
    }

    /// Runs tests and counts them. Most of them wait for something most of the time, so more of them run at once than there are
    /// processors.
    pub fn tests(&mut self, line: &[&str], variables: &[(&str, &str)]) -> Result<()> {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = env::var(THREADS).unwrap_or_else(|_| (TESTS_PER_PROCESSOR * processors).to_string());
        let variables = [variables, &[(THREADS, &threads)]].concat();
        let mut tally = self.tally.take().unwrap_or_default();
        let outcome = command::watch(&self.root, line, &variables, |printed| tally.read(printed));
        self.tally = Some(tally);
        outcome
    }

    /// Says that a part of a step cannot run here; with `CI=true` that fails.
    pub fn leave_out(&self, part: &str, reason: &str) -> Result<()> {
        if is_strict() {
            bail!("{part}: cannot run, and with CI=true nothing is left out: {reason}");
        }
        println!("  {part}: left out, {reason}");
        Ok(())
    }

    fn fail(&self, title: &str, reason: &str) -> ExitCode {
        self.print_tally();
        println!("FAILED at {title}: {reason}");
        ExitCode::FAILURE
    }

    fn print_tally(&self) {
        if let Some(tally) = &self.tally {
            println!("{tally}");
        }
    }
}

/// Whether what cannot run here is a failure.
fn is_strict() -> bool {
    env::var("CI").is_ok_and(|value| matches!(value.as_str(), "true" | "1"))
}

impl Need {
    fn missing(&self, root: &Path) -> Option<String> {
        match self {
            Need::Works { probe, remedy } => (!command::works(root, probe))
                .then(|| format!("`{}` does not work here; to get it: {remedy}", probe.join(" "))),
            Need::Debian { probe, packages } => {
                if command::works(root, probe) || install(root, packages) && command::works(root, probe) {
                    return None;
                }
                let packages = packages.join(" ");
                Some(format!(
                    "`{}` does not work here; to get it: apt-get install {packages}",
                    probe.join(" ")
                ))
            }
        }
    }
}

/// Installs Debian packages, if that is possible without a password.
pub fn install(root: &Path, packages: &[&str]) -> bool {
    if !is_root(root) || !command::works(root, &["apt-get", "--version"]) {
        return false;
    }
    println!("installing the Debian packages {} ...", packages.join(", "));
    let install = [&["apt-get", "install", "--yes", "--no-install-recommends"], packages].concat();
    let quiet = [("DEBIAN_FRONTEND", "noninteractive")];
    command::show_with(root, &["apt-get", "update"], &quiet).is_ok()
        && command::show_with(root, &install, &quiet).is_ok()
}

pub fn is_root(root: &Path) -> bool {
    command::read(root, &["id", "-u"]).is_ok_and(|id| id.trim() == "0")
}

/// Does the work of a command that is no step, and prints how it ended.
pub fn once(work: impl FnOnce(&Run) -> Result<()>) -> ExitCode {
    let begun = Instant::now();
    match work(&Run::new(None)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_the_way_to_get_it() {
        let need = Need::Works { probe: &["no-such-program-here", "--version"], remedy: "install it" };
        let reason = need.missing(Path::new(".")).unwrap();
        assert_eq!(reason, "`no-such-program-here --version` does not work here; to get it: install it");
    }
}
