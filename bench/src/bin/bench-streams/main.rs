//! Measures the cost of a catalog change under many open streams: how fast the affected streams are notified, whether
//! others are notified too, how long the calls of a bystander take meanwhile, and the memory used. Then it measures the
//! dashboard's list of groups. It starts a gateway in enterprise mode, and one in development mode for the dashboard,
//! each in a temporary folder with its own servers on loopback, and prints a table.
//!
//! bench-streams [--gateway target/release/toolgate] [--streams 5000] [--servers 50] [--tools 100] [--allow-lists 200]
//!     [--allowed 10] [--changes 10] [--sse 10] [--listen 10] [--groups 500] [--limit 20]

mod bystander;
mod changes;
mod groups;
mod plan;
mod servers;
mod streams;
mod table;

use anyhow::Result;
use toolgate_bench::system;

use plan::Plan;

/// Number of descriptors in addition to those of the streams.
const OTHERS: usize = 1000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let plan = Plan::parse(std::env::args().skip(1))?;
    system::raise_descriptor_limit(plan.streams + OTHERS)?;
    changes::measure(&plan).await?;
    if plan.groups > 0 {
        groups::measure(&plan).await?;
    }
    Ok(())
}
