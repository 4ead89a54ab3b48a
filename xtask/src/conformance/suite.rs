//! The official suite and the Node that it needs: installed from the lock file into `.cache`, never into the
//! machine. Nothing is judged here.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, Result};

use super::process::Process;
use crate::command;

const PACKAGE: &str = "node_modules/@modelcontextprotocol/conformance";
const NODE: &str = "node_modules/.bin/node";
/// Generous: all scenarios of a client start at once, each with a gateway of its own.
const SCENARIO_LIMIT_MS: &str = "300000";

pub struct Suite {
    pub folder: PathBuf,
}

impl Suite {
    /// Does nothing when what is there comes from the same lock file.
    pub fn install(root: &Path) -> Result<Suite> {
        let folder = root.join(".cache/conformance");
        let source = root.join("tests/conformance");
        let lock = fs::read(source.join("package-lock.json"))?;
        let stamp = folder.join("installed-lock.json");
        if !fs::read(&stamp).is_ok_and(|installed| installed == lock) {
            println!("  installing the conformance suite and its Node into {} ...", folder.display());
            fs::create_dir_all(&folder)?;
            for name in ["package.json", "package-lock.json"] {
                fs::copy(source.join(name), folder.join(name))?;
            }
            command::show(&folder, &["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"])?;
            fs::write(&stamp, lock)?;
        }
        Ok(Suite { folder })
    }

    pub fn requirements(&self, revision: &str) -> PathBuf {
        self.folder.join(PACKAGE).join("requirements").join(format!("{revision}.yaml"))
    }

    /// Judges the server at `url`.
    pub fn run_server(&self, url: &str, revision: &str, folder: &Path) -> Result<ExitStatus> {
        self.run(&["server", "--url", url], revision, folder)
    }

    /// Judges the gateway as a client: the driver is started with each scenario's server.
    pub fn run_client(
        &self,
        root: &Path,
        program: &str,
        revision: &str,
        folder: &Path,
    ) -> Result<ExitStatus> {
        let driver = root.join("tests/conformance/client/driver.mjs");
        let driver = driver.to_str().context("the path of the driver is not text")?;
        // The suite hands this to a shell.
        let command = [&self.path(NODE)?, driver, program].map(|word| format!("'{word}'")).join(" ");
        self.run(&["client", "--command", &command, "--timeout", SCENARIO_LIMIT_MS], revision, folder)
    }

    /// Leaves one folder with results for each scenario in `folder`, and what was printed in `suite.log`.
    fn run(&self, words: &[&str], revision: &str, folder: &Path) -> Result<ExitStatus> {
        let (node, program) = (self.path(NODE)?, self.path(&format!("{PACKAGE}/dist/index.js"))?);
        let results = folder.to_str().context("the path for results is not text")?;
        let line = [&[node.as_str(), &program], words, &["--requirements", revision, "-o", results]].concat();
        let log = File::create(folder.join("suite.log"))?;
        let mut command = command::prepare(folder, &line);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.status().context("the conformance suite could not be started")
    }

    /// In front of the gateway at `url`; names lose and get the prefix of `server` on the way.
    pub fn start_shim(&self, root: &Path, folder: &Path, url: &str, server: &str) -> Result<Process> {
        let script = root.join("tests/conformance/shim.mjs");
        let script = script.to_str().context("the path of the shim is not text")?;
        Process::start(folder, "shim", &[&self.path(NODE)?, script, url, &format!("{server}__")])
    }

    fn path(&self, inner: &str) -> Result<String> {
        let path = self.folder.join(inner);
        Ok(path.to_str().context("the path of the suite is not text")?.to_owned())
    }
}
