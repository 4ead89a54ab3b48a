//! The parameters of a run, from the command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

#[derive(Clone, Debug)]
pub struct Plan {
    pub gateway: PathBuf,
    pub streams: usize,
    pub servers: usize,
    /// Tools of each server.
    pub tools: usize,
    pub allow_lists: usize,
    /// Servers in each allow list.
    pub allowed: usize,
    /// Changes of each kind.
    pub changes: usize,
    /// Percentage of streams over HTTP+SSE, and of streams of clients without a session.
    pub sse: usize,
    pub listen: usize,
    /// Groups on the dashboard, each with all tools.
    pub groups: usize,
    /// Timeout for the notifications of a change and for a call.
    pub limit: Duration,
}

impl Plan {
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut plan = Self {
            gateway: "target/release/toolgate".into(),
            streams: 5000,
            servers: 50,
            tools: 100,
            allow_lists: 200,
            allowed: 10,
            changes: 10,
            sse: 10,
            listen: 10,
            groups: 500,
            limit: Duration::from_secs(20),
        };
        while let Some(flag) = words.next() {
            let value = words.next().with_context(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--gateway" => plan.gateway = value.into(),
                "--streams" => plan.streams = value.parse()?,
                "--servers" => plan.servers = value.parse()?,
                "--tools" => plan.tools = value.parse()?,
                "--allow-lists" => plan.allow_lists = value.parse()?,
                "--allowed" => plan.allowed = value.parse()?,
                "--changes" => plan.changes = value.parse()?,
                "--sse" => plan.sse = value.parse()?,
                "--listen" => plan.listen = value.parse()?,
                "--groups" => plan.groups = value.parse()?,
                "--limit" => plan.limit = Duration::from_secs(value.parse()?),
                _ => bail!("unknown flag {flag}"),
            }
        }
        ensure!(plan.sse + plan.listen <= 100, "--sse and --listen are parts of a hundred");
        ensure!(
            plan.tools > 0 && plan.allowed >= 2,
            "there must be tools, and two servers in each allow list"
        );
        ensure!(plan.servers > plan.allowed + 1, "there must be more servers than one client is allowed");
        ensure!(plan.streams >= plan.allow_lists, "each allow list needs a stream");
        Ok(plan)
    }
}
