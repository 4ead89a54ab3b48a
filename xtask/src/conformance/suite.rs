//! The official suite, installed from the lock file into `.cache`, never system-wide. Results are evaluated elsewhere.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, Result};

use super::process::Process;
use crate::command;
use crate::packages::Packages;

const PACKAGE: &str = "node_modules/@modelcontextprotocol/conformance";
/// A long timeout: all scenarios of a client start at once, each with its own gateway.
const SCENARIO_LIMIT_MS: &str = "300000";

pub struct Suite {
    packages: Packages,
}

impl Suite {
    pub fn install(root: &Path) -> Result<Suite> {
        let packages =
            Packages::install(root, &root.join("tests/conformance"), &root.join(".cache/conformance"))?;
        Ok(Suite { packages })
    }

    /// The folder for the logs of all cases.
    pub fn results(&self) -> PathBuf {
        self.packages.folder.join("results")
    }

    pub fn requirements(&self, revision: &str) -> PathBuf {
        self.packages.folder.join(PACKAGE).join("requirements").join(format!("{revision}.yaml"))
    }

    /// The path of its program, for Node.
    pub fn program(&self) -> Result<String> {
        self.packages.path(&format!("{PACKAGE}/dist/index.js"))
    }

    /// Tests the server at `url`.
    pub fn run_server(&self, url: &str, revision: &str, folder: &Path) -> Result<ExitStatus> {
        self.run(&["server", "--url", url], revision, folder)
    }

    /// Tests the gateway as a client: the driver is started with each scenario's server.
    pub fn run_client(
        &self,
        root: &Path,
        program: &str,
        revision: &str,
        folder: &Path,
    ) -> Result<ExitStatus> {
        let driver = root.join("tests/conformance/client/driver.mjs");
        let driver = driver.to_str().context("the path of the driver is not text")?;
        // The suite passes this to a shell.
        let command = [self.packages.node()?, driver, program].map(|word| format!("'{word}'")).join(" ");
        self.run(&["client", "--command", &command, "--timeout", SCENARIO_LIMIT_MS], revision, folder)
    }

    /// Runs the suite. It creates one folder with results for each scenario in `folder`; its output goes to `suite.log`.
    fn run(&self, words: &[&str], revision: &str, folder: &Path) -> Result<ExitStatus> {
        let program = self.program()?;
        let results = folder.to_str().context("the path for results is not text")?;
        let line = [&[self.packages.node()?, &program], words, &["--requirements", revision, "-o", results]]
            .concat();
        let log = File::create(folder.join("suite.log"))?;
        let mut command = command::prepare(folder, &line);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.status().context("the conformance suite could not be started")
    }

    /// Starts the shim in front of the gateway at `url`. It adds the prefix of `server` to names in requests and removes it
    /// from names in responses.
    pub fn start_shim(&self, root: &Path, folder: &Path, url: &str, server: &str) -> Result<Process> {
        let script = root.join("tests/conformance/shim.mjs");
        let script = script.to_str().context("the path of the shim is not text")?;
        Process::start(folder, "shim", &[self.packages.node()?, script, url, &format!("{server}__")])
    }
}
