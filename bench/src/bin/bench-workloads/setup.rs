//! Gateways with stored catalogs, which are started again for each round, and the servers behind them.

use anyhow::{Context, Result};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use toolgate_bench::gateway::{Gateway, Launch};

use crate::{Plan, sibling};

/// A server process. It ends with this value.
pub struct Upstream {
    pub process: u32,
    pub url: String,
    _child: Child,
}

impl Upstream {
    /// Starts a server on our own processor, or under a wrapper on another one.
    pub async fn start(tools: usize, era: &str, wrapper: &[String]) -> Result<Self> {
        let program = sibling("bench-upstream")?;
        let mut command = match wrapper.split_first() {
            Some((first, others)) => {
                let mut command = Command::new(first);
                command.args(others).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(["--era", era, "--tools", &tools.to_string()]);
        let mut child = command.stdout(std::process::Stdio::piped()).kill_on_drop(true).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("stdout is piped")?).lines();
        let url = lines.next_line().await?.context("a server without a URL")?;
        Ok(Self { process: child.id().context("the server has ended")?, url, _child: child })
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches("/mcp")
    }
}

/// A gateway that is not running.
pub struct Stored {
    launch: Launch,
    /// Of a client; empty in development mode.
    pub token: String,
}

impl Stored {
    pub async fn start(&self) -> Result<Gateway> {
        let gateway = Gateway::resume(self.launch.clone()).await?;
        gateway.settle().await?;
        Ok(gateway)
    }

    /// The same, but does not wait until the gateway has connected its servers.
    pub async fn start_at_once(&self) -> Result<Gateway> {
        Gateway::resume(self.launch.clone()).await
    }
}

/// A new gateway that is running and has no servers.
pub struct Draft {
    pub gateway: Gateway,
    launch: Launch,
    token: String,
}

impl Draft {
    pub async fn new(plan: &Plan, mode: &'static str) -> Result<Self> {
        let launch = Launch::new(&plan.toolgate, mode)?.under(plan.pinned());
        Ok(Self { gateway: Gateway::start(launch.clone()).await?, launch, token: String::new() })
    }

    /// Registers servers with the same URL and numbered names.
    pub async fn servers(self, count: usize, url: &str) -> Result<Self> {
        for number in 0..count {
            self.gateway.register(&format!("up{number}"), url).await?;
        }
        Ok(self)
    }

    pub async fn stdio_server(self, tools: usize) -> Result<Self> {
        let (program, tools) = (sibling("bench-upstream")?, tools.to_string());
        let arguments = ["--stdio", "1", "--tools", &tools];
        let server = json!({"name": "pipe", "transport": "stdio", "command": program, "args": arguments});
        self.gateway.ask("POST", "/api/v0/servers", &server).await?;
        Ok(self)
    }

    /// Creates groups with one tool.
    pub async fn groups(self, count: usize) -> Result<Self> {
        for number in 0..count {
            let group = json!({"name": format!("g{number}"), "included_tools": ["up0__echo"]});
            self.gateway.ask("POST", "/api/v0/tool-groups", &group).await?;
        }
        Ok(self)
    }

    /// Creates clients that may use the first server; the token is that of the last one.
    pub async fn clients(mut self, count: usize) -> Result<Self> {
        for number in 0..count {
            self.token = self.gateway.create_client(&format!("c{number}"), &["up0".into()]).await?;
        }
        Ok(self)
    }

    pub async fn store(self) -> Result<Stored> {
        self.gateway.settle().await?;
        self.gateway.stop().await?;
        Ok(Stored { launch: self.launch, token: self.token })
    }
}
