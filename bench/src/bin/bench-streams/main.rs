//! What a change of the catalog costs under many open streams: how soon those who must hear of it do, whether anybody
//! else hears of it, how long the calls of a bystander take meanwhile, and the memory of it all. Also what the
//! dashboard's list of groups costs. Starts a gateway in enterprise mode, and one in development mode for the
//! dashboard, each in a temporary folder, with servers of its own on loopback; ends by itself and prints a table.
//!
//! bench-streams [--gateway target/release/toolgate] [--streams 5000] [--servers 50] [--tools 100] [--allow-lists 200]
//!     [--allowed 10] [--changes 10] [--sse 10] [--listen 10] [--groups 500] [--limit 20]

mod bystander;
mod changes;
mod gateway;
mod groups;
mod plan;
mod servers;
mod streams;
mod system;
mod table;

use anyhow::Result;

use plan::Plan;

/// Descriptors beside those of the streams.
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
