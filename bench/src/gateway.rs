//! The measured gateway: a process in a temporary folder, which ends with this program. Also the requests of users
//! to it.

use std::env;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::grant::PUBLIC_URL;
use crate::target::Target;
use crate::{Message, Wire, system};

const STARTING: Duration = Duration::from_secs(60);
const SETTLING: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);
/// Pauses without work, one after the other, after which a gateway has nothing to do.
const CALM: usize = 5;
const STOPPING: Duration = Duration::from_secs(120);

/// What a gateway records of calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    /// What it records if nothing else is said.
    Usual,
    /// It counts all, and writes the records of few. Records are written at their own pace, which differs from run to run.
    Counting,
    Off,
}

/// How a gateway is started. Gateways started with clones of it share a folder, and so a database.
#[derive(Clone)]
pub struct Launch {
    program: PathBuf,
    mode: &'static str,
    /// A command line in front of the program, such as that of a profiler.
    wrapper: Vec<String>,
    folder: Arc<TempDir>,
    recording: Recording,
}

impl Launch {
    pub fn new(program: impl Into<PathBuf>, mode: &'static str) -> Result<Self> {
        let program: PathBuf = program.into();
        let program = program.canonicalize().with_context(|| format!("there is no {}", program.display()))?;
        let folder = Arc::new(tempfile::tempdir()?);
        Ok(Self { program, mode, wrapper: Vec::new(), folder, recording: Recording::Usual })
    }

    pub fn recording(mut self, recording: Recording) -> Self {
        self.recording = recording;
        self
    }

    pub fn under<T: Into<String>>(mut self, wrapper: impl IntoIterator<Item = T>) -> Self {
        self.wrapper = wrapper.into_iter().map(Into::into).collect();
        self
    }

    fn command(&self) -> Command {
        let mut command = match self.wrapper.split_first() {
            Some((first, others)) => {
                let mut command = Command::new(first);
                command.args(others).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command.arg("start").current_dir(self.folder.path()).kill_on_drop(true).env_clear();
        command.envs([
            ("PORT", "0"),
            ("HOST", "127.0.0.1"),
            ("SERVER_MODE", self.mode),
            ("RUST_LOG", "error"),
            ("PUBLIC_URL", PUBLIC_URL),
        ]);
        match self.recording {
            Recording::Usual => {}
            Recording::Counting => {
                command.env("CALL_LOG_RATE", "1");
            }
            Recording::Off => {
                command.env("CALL_LOG", "off");
            }
        }
        command.env("HOME", self.folder.path()).env("PATH", env::var_os("PATH").unwrap_or_default());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }
}

pub struct Gateway {
    launch: Launch,
    child: Child,
    pub address: String,
    /// The token of the admin; empty in development mode.
    admin: String,
}

impl Gateway {
    /// Starts a gateway with a new database.
    pub async fn start(launch: Launch) -> Result<Self> {
        let is_enterprise = launch.mode == "enterprise";
        let mut gateway = Self::start_as(launch, String::new()).await?;
        if is_enterprise {
            let answer = gateway.ask("POST", "/init", &json!({})).await?;
            gateway.admin = answer["admin_access_token"].as_str().context("no token of an admin")?.to_owned();
        }
        Ok(gateway)
    }

    /// Starts a gateway with the database that another one has left.
    pub async fn resume(launch: Launch) -> Result<Self> {
        Self::start_as(launch, String::new()).await
    }

    async fn start_as(launch: Launch, admin: String) -> Result<Self> {
        let mut child = launch.command().spawn().context("cannot start the gateway")?;
        let mut lines = BufReader::new(child.stdout.take().context("stdout is piped")?).lines();
        let first =
            tokio::time::timeout(STARTING, lines.next_line()).await.context("the gateway is silent")??;
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let address = first.as_deref().and_then(|line| line.split_once("http://")).context("no address")?.1;
        Ok(Self { launch, child, address: address.to_owned(), admin })
    }

    /// Stops the gateway as a service manager does, and waits until it has ended.
    pub async fn stop(mut self) -> Result<ExitStatus> {
        system::terminate(self.process()?)?;
        let ended = tokio::time::timeout(STOPPING, self.child.wait()).await;
        Ok(ended.context("the gateway does not end")??)
    }

    /// Waits until the gateway has nothing to do, since what it does by itself would be measured too.
    pub async fn settle(&self) -> Result<()> {
        let deadline = Instant::now() + SETTLING;
        let mut calm = 0;
        while calm < CALM {
            ensure!(Instant::now() < deadline, "the gateway is busy by itself");
            let before = system::busy_time(self.process()?)?;
            tokio::time::sleep(PAUSE).await;
            let used = system::busy_time(self.process()?)?.saturating_sub(before);
            calm = if used < PAUSE / 20 { calm + 1 } else { 0 };
        }
        Ok(())
    }

    /// The process of the gateway itself, also if a tracer started it.
    pub fn process(&self) -> Result<u32> {
        let first = self.child.id().context("the gateway has ended")?;
        match self.launch.wrapper.iter().any(|word| word == "strace") {
            true => system::child_of(first).context("the tracer has no child"),
            false => Ok(first),
        }
    }

    pub async fn connect(&self) -> Result<Wire> {
        Wire::connect(&self.address).await
    }

    /// Registers a server that is reached over HTTP.
    pub async fn register(&self, name: &str, url: &str) -> Result<()> {
        let server = json!({"name": name, "transport": "streamable_http", "url": url});
        self.ask("POST", "/api/v0/servers", &server).await?;
        Ok(())
    }

    /// Creates a client and returns its token.
    pub async fn create_client(&self, name: &str, allow_list: &[String]) -> Result<String> {
        let client = json!({"name": name, "allow_list": allow_list});
        let answer = self.ask("POST", "/api/v0/clients", &client).await?;
        Ok(answer["access_token"].as_str().context("a client without a token")?.to_owned())
    }

    /// Sends a request to the REST API, which must succeed.
    pub async fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let answer = self.fetch(method, path, body).await?;
        Ok(serde_json::from_slice(&answer.body).unwrap_or_default())
    }

    /// The same, but returns the response as it is.
    pub async fn fetch(&self, method: &str, path: &str, body: &Value) -> Result<Message> {
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let request = Target::new(&self.address, &self.admin).at(path).request(method, "", &body);
        let answer = self.exchange_bytes(&request).await?;
        let text = || String::from_utf8_lossy(&answer.body).into_owned();
        ensure!(answer.head.starts_with("HTTP/1.1 20"), "{method} {path}: {} {}", answer.head, text());
        Ok(answer)
    }

    /// Sends a request without a token; the headers are lines.
    pub async fn exchange(&self, method: &str, path: &str, headers: &str, body: &str) -> Result<Message> {
        let (host, length) = (&self.address, body.len());
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}Content-Length: {length}\r\n\r\n");
        self.exchange_bytes(format!("{head}{body}").as_bytes()).await
    }

    async fn exchange_bytes(&self, request: &[u8]) -> Result<Message> {
        let mut wire = self.connect().await?;
        wire.send(request).await?;
        wire.receive().await?.context("the gateway closed the connection")
    }
}
