//! The program under test: started in its own folder, used over HTTP, stopped or killed.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::http::{Request, Response};

/// Longer than any start or stop takes.
const LIMIT: Duration = Duration::from_secs(60);

pub struct Gateway {
    child: Child,
    /// `host:port`, after `https://` if it serves TLS.
    pub address: String,
    /// Its standard error so far.
    pub log: Arc<Mutex<String>>,
}

/// How to start the program.
#[derive(Clone, Debug)]
pub struct Settings {
    pub program: PathBuf,
    pub folder: PathBuf,
    pub variables: Vec<(String, String)>,
    /// The limit of descriptors, soft and hard.
    pub descriptors: Option<u64>,
}

impl Settings {
    pub fn new(program: &Path, folder: &Path) -> Self {
        Self {
            program: program.to_owned(),
            folder: folder.to_owned(),
            variables: Vec::new(),
            descriptors: None,
        }
    }

    pub fn variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    pub fn descriptors(mut self, limit: u64) -> Self {
        self.descriptors = Some(limit);
        self
    }

    /// Starts the program and waits until it listens. The error contains its output.
    pub async fn start(&self) -> Result<Gateway> {
        let mut command = Command::new(&self.program);
        command.arg("start").current_dir(&self.folder).kill_on_drop(true);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("PORT", "0");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(limit) = self.descriptors {
            // SAFETY: between fork and exec only this system call is made.
            #[allow(unsafe_code)]
            unsafe {
                command.pre_exec(move || {
                    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
                    libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
                    Ok(())
                })
            };
        }
        let mut child =
            command.spawn().with_context(|| format!("cannot start {}", self.program.display()))?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        let mut stderr = BufReader::new(child.stderr.take().context("stderr is piped")?);
        let mut lines = BufReader::new(stdout).lines();
        let first =
            tokio::time::timeout(LIMIT, lines.next_line()).await.context("the program is silent")??;
        let Some(first) = first else {
            let mut said = String::new();
            stderr.read_to_string(&mut said).await?;
            bail!("the program did not start: {}", said.trim());
        };
        let start = first.find("http").with_context(|| format!("no address in {first:?}"))?;
        let address = first[start..].trim_start_matches("http://");
        let log = Arc::new(Mutex::new(String::new()));
        let kept = log.clone();
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        tokio::spawn(async move {
            let mut lines = stderr.lines();
            while let Ok(Some(line)) = lines.next_line().await {
                kept.lock().expect("no code panics while it holds the log").extend([&line, "\n"]);
            }
        });
        Ok(Gateway { child, address: address.to_owned(), log })
    }
}

impl Gateway {
    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// The first line of its log that reports a panic.
    pub fn panic(&self) -> Option<String> {
        let log = self.log.lock().expect("no code panics while it holds the log");
        log.lines().find(|line| line.contains("panicked at")).map(str::to_owned)
    }

    pub async fn send(&self, request: Request) -> Result<Response> {
        request.send(&self.address).await
    }

    pub async fn get(&self, path: &str) -> Result<Response> {
        self.send(Request::new("GET", path)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Response> {
        self.send(Request::new("POST", path).json(body)).await
    }

    /// Kills it immediately (SIGKILL), like a power cut.
    pub async fn kill(mut self) -> Result<()> {
        self.child.kill().await.context("cannot kill the program")
    }

    /// Sends SIGTERM and waits until the process has ended.
    pub async fn terminate(mut self) -> Result<ExitStatus> {
        signal(self.id(), libc::SIGTERM);
        let ended = tokio::time::timeout(LIMIT, self.child.wait()).await;
        Ok(ended.context("the program does not stop")??)
    }
}

/// Sends a signal to a process; does nothing if the process has ended.
pub fn signal(process: u32, signal: libc::c_int) {
    if let Ok(process) = i32::try_from(process)
        && process > 0
    {
        // SAFETY: a plain system call without memory.
        #[allow(unsafe_code)]
        unsafe {
            libc::kill(process, signal)
        };
    }
}

/// Waits until a condition holds; returns false after the limit.
pub async fn eventually(limit: Duration, mut condition: impl AsyncFnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if condition().await {
            return true;
        }
        if begun.elapsed() > limit {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
