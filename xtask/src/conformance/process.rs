//! A program that runs beside the suite and prints its address first. Dropping the value kills it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::command;

/// A long timeout, for a debug build on a busy machine.
const UNTIL_READY: Duration = Duration::from_secs(30);

pub struct Process {
    pub url: String,
    child: Child,
}

impl Process {
    /// Starts a program and waits for the first line on stdout that has an address. Its log goes to `<name>.log`.
    pub fn start(folder: &Path, name: &str, line: &[&str]) -> Result<Process> {
        Self::start_with(folder, name, line, &[])
    }

    /// The same with variables.
    pub fn start_with(
        folder: &Path,
        name: &str,
        line: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Process> {
        let log = folder.join(format!("{name}.log"));
        let mut child = command::prepare(folder, line)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("{name} could not be started"))?;
        let printed = BufReader::new(child.stdout.take().context("the child has no stdout")?);
        let (sender, addresses) = mpsc::channel();
        // Reads to the end, so that the pipe is never full and the program never blocks.
        thread::spawn(move || {
            for line in printed.lines().map_while(Result::ok) {
                if let Some(url) = address(&line) {
                    let _ = sender.send(url.to_owned());
                }
            }
        });
        let mut process = Process { url: String::new(), child };
        process.url = addresses
            .recv_timeout(UNTIL_READY)
            .with_context(|| format!("{name} did not print its address; see {}", log.display()))?;
        Ok(process)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, so the error does not matter.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address(line: &str) -> Option<&str> {
    line.split_whitespace().find(|word| word.starts_with("http://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_among_other_words() {
        assert_eq!(address("toolgate v1 listens on http://127.0.0.1:80"), Some("http://127.0.0.1:80"));
        assert_eq!(address("nothing yet"), None);
    }
}
