//! The dashboard's list of groups: its size, how long it takes, and how much it delays other calls.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use toolgate_bench::gateway::{Gateway, Launch};
use toolgate_bench::system::memory;

use crate::bystander::Bystander;
use crate::plan::Plan;
use crate::servers::{Servers, server_name};
use crate::table::{late, ms, spread};

const QUIET: Duration = Duration::from_secs(2);
const PATH: &str = "/api/dashboard/tool-groups";

pub async fn measure(plan: &Plan) -> Result<()> {
    let servers = Servers::start(plan.servers, plan.tools)?;
    let gateway = Gateway::start(Launch::new(&plan.gateway, "development")?).await?;
    servers.register_at(&gateway).await?;
    let all: Vec<_> = (0..plan.servers).map(server_name).collect();
    for number in 0..plan.groups {
        let group = json!({"name": format!("g{number}"), "included_servers": all});
        gateway.ask("POST", "/api/v0/tool-groups", &group).await?;
    }
    let bystander = Bystander::start(&gateway.address, "", "s0__tool_0");
    let begun = Instant::now();
    tokio::time::sleep(QUIET).await;
    let quiet = bystander.latencies(begun, Instant::now(), plan.limit).await?;
    let (before, _) = memory(gateway.process()?)?;
    println!(
        "\n| list of {} groups with {} tools each | bytes | ms |",
        plan.groups,
        plan.servers * plan.tools
    );
    println!("|---|---|---|");
    let mut busy = Vec::new();
    for number in 1..=3 {
        let begun = Instant::now();
        let answer = gateway.fetch("GET", PATH, &Value::Null).await?;
        println!("| time {number} | {} | {} |", answer.body.len(), ms(begun.elapsed()));
        busy.extend(bystander.latencies(begun, Instant::now(), plan.limit).await?);
    }
    busy.sort_unstable();
    let (after, _) = memory(gateway.process()?)?;
    println!("\n| bystander's call, ms | p50 | p99 | max | over 5 ms |\n|---|---|---|---|---|");
    println!("| quiet | {} | {} |", spread(&quiet), late(&quiet));
    println!("| while groups are listed | {} | {} |", spread(&busy), late(&busy));
    println!("\nResident memory before and after: {before:.0} and {after:.0} MiB.");
    Ok(())
}
