//! The command line as a user runs it: the real program with its own home folder, connected to one gateway.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use super::process::Ended;

/// Timeout of a command.
const LIMIT: Duration = Duration::from_secs(60);

pub struct Cli {
    pub registry: String,
    /// Home and working directory.
    pub home: TempDir,
}

impl Cli {
    /// For the gateway at an address.
    pub fn new(address: &str) -> Self {
        Self { registry: format!("http://{address}"), home: TempDir::new().unwrap() }
    }

    /// The command with an empty environment except PATH.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolgate"));
        command.args(arguments).current_dir(self.home.path()).env_clear().kill_on_drop(true);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.home.path());
        command.env("TOOLGATE_REGISTRY", &self.registry);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub async fn run(&self, arguments: &[&str]) -> Ended {
        finish(self.command(arguments).spawn().unwrap()).await
    }

    pub async fn run_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
        finish(self.command(arguments).envs(variables.iter().copied()).spawn().unwrap()).await
    }

    /// Runs with something to read on standard input.
    pub async fn run_fed(&self, arguments: &[&str], input: &str) -> Ended {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // If the program does not read its input, its output gives the reason.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        finish(child).await
    }

    /// The output of a command that must succeed.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> impl Future<Output = String> {
        let caller = std::panic::Location::caller();
        async move {
            let ended = self.run(arguments).await;
            assert_eq!(ended.code, Some(0), "{caller}: {arguments:?}: {ended:?}");
            ended.stdout
        }
    }

    /// The JSON result of a command that must succeed.
    pub async fn json(&self, arguments: &[&str]) -> Value {
        let printed = self.ok(&[arguments, &["--output", "json"]].concat()).await;
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {printed}"))
    }

    /// The error of a command that must fail, with an empty standard output.
    pub async fn fails(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{arguments:?}: {ended:?}");
        ended.complaint()
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.home.path().join(name), text).unwrap();
    }

    pub fn read(&self, name: impl AsRef<Path>) -> String {
        let path = self.home.path().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

impl Ended {
    /// The reason of the failure on standard error: its line, and those after it.
    #[track_caller]
    pub fn complaint(&self) -> String {
        let lines: Vec<&str> = self.stderr.lines().filter(|line| line.starts_with("toolgate: ")).collect();
        assert_eq!(lines.len(), 1, "{self:?}");
        self.stderr[self.stderr.find(lines[0]).unwrap()..].trim_end().to_owned()
    }
}

pub async fn finish(child: Child) -> Ended {
    let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await.expect("it ends").unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
