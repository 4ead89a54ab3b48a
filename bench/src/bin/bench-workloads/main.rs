//! Measures what the gateway costs: the workloads beside a server without a gateway and beside nginx, which understands
//! nothing of MCP; each way of a call; and whether a call gets more expensive when more is registered. The gateway has a
//! processor of its own; everything else uses another one. Peers take turns in every round, and the best of each counts.
//!
//! bench-workloads [--rounds 3] [--seconds 3] [--toolgate FILE] [--out bench/results.md] [workloads|rest|ways|growth...]

mod best;
mod growth;
mod hold;
mod nginx;
mod peers;
mod rest;
mod setup;
mod table;
mod ways;
mod workloads;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use toolgate_bench::system;

use table::Table;

const TOPICS: &[&str] = &["workloads", "rest", "ways", "growth"];
/// Descriptors for a thousand connections, and some more.
const DESCRIPTORS: usize = 4000;

const INTRODUCTION: &str = "\
# What the gateway costs

Written by `cargo xtask bench`; measured with 2 cores and Linux. The gateway, or what stands in its place, runs alone on one
core; servers and clients share the other one. Clients keep their connections, send the next request when the last one is
answered, and check every response. CPU is user and system time of the gateway's process. All peers take turns, and the best
of several rounds counts. Times differ between machines: compare only figures of one run.
";

pub struct Plan {
    rounds: usize,
    time: Duration,
    toolgate: PathBuf,
    out: PathBuf,
    topics: Vec<String>,
    /// The processor of the gateway.
    processor: String,
}

impl Plan {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let processors = system::processors()?;
        let [first, .., last] = processors.as_slice() else { bail!("two processors are needed") };
        system::pin(std::process::id(), *last)?;
        let mut plan = Self {
            rounds: 3,
            time: Duration::from_secs(3),
            toolgate: sibling("toolgate")?,
            out: "bench/results.md".into(),
            topics: Vec::new(),
            processor: first.to_string(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--rounds" => plan.rounds = value()?.parse()?,
                "--seconds" => plan.time = Duration::from_secs_f64(value()?.parse()?),
                "--toolgate" => plan.toolgate = value()?.into(),
                "--out" => plan.out = value()?.into(),
                topic if TOPICS.contains(&topic) => plan.topics.push(topic.to_owned()),
                other => bail!("unknown: {other}"),
            }
        }
        Ok(plan)
    }

    fn wants(&self, topic: &str) -> bool {
        self.topics.is_empty() || self.topics.iter().any(|wanted| wanted == topic)
    }

    /// The command line in front of a program that gets the gateway's processor.
    fn pinned(&self) -> [String; 3] {
        ["taskset".into(), "-c".into(), self.processor.clone()]
    }
}

/// A program that was built together with this one.
fn sibling(name: &str) -> Result<PathBuf> {
    Ok(std::env::current_exe().context("the path of this program is unknown")?.with_file_name(name))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let plan = Plan::parse(std::env::args().skip(1))?;
    system::raise_descriptor_limit(DESCRIPTORS)?;
    let mut tables: Vec<Table> = Vec::new();
    if plan.wants("workloads") {
        tables.push(workloads::measure(&plan).await?);
    }
    if plan.wants("rest") {
        tables.push(rest::measure(&plan).await?);
    }
    if plan.wants("ways") {
        tables.push(ways::measure(&plan).await?);
    }
    if plan.wants("growth") {
        tables.extend(growth::measure(&plan).await?);
    }
    let tables: Vec<_> = tables.iter().map(Table::to_string).collect();
    let text = format!("{INTRODUCTION}\n{}", tables.join("\n"));
    println!("\n{text}");
    // A file with some of the tables would not be that of one run.
    if plan.topics.is_empty() {
        fs::write(&plan.out, text).with_context(|| format!("{} cannot be written", plan.out.display()))?;
        println!("written to {}", plan.out.display());
    }
    Ok(())
}
