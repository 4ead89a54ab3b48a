//! The gateway at rest and at its start, with a stored catalog of 500 tools.

use std::time::{Duration, Instant};

use anyhow::Result;
use toolgate_bench::client::{Client, Script, Work};
use toolgate_bench::system::memory;
use toolgate_bench::target::Target;

use crate::Plan;
use crate::hold::{self, Holding};
use crate::peers::{ALL_TOOLS, Stage};
use crate::table::{Table, figure};

/// After this time the gateway has let go of what only starting needs.
const STARTED: Duration = Duration::from_secs(2);

pub async fn measure(plan: &Plan) -> Result<Table> {
    let stage = Stage::prepare(plan).await?;
    let (mut start, mut at_rest, mut stream) = (f64::MAX, f64::MAX, f64::MAX);
    for round in 1..=plan.rounds {
        println!("rest, round {round}");
        let begun = Instant::now();
        let gateway = stage.stored.start_at_once().await?;
        let target = Target::new(&gateway.address, "");
        // A client without a session needs one request for a list.
        let script =
            Script { target: target.clone(), is_modern: true, work: Work::List { tools: ALL_TOOLS } };
        Client::connect(&script, 0).await?.operate().await?;
        start = start.min(begun.elapsed().as_secs_f64() * 1000.0);
        tokio::time::sleep(STARTED).await;
        gateway.settle().await?;
        at_rest = at_rest.min(memory(gateway.process()?)?.1);
        stream = stream.min(hold::measure(&target, gateway.process()?, Holding::Stream).await?);
        println!(
            "  {start:.1} ms to the first list, {at_rest:.1} MiB at rest, {stream:.2} KiB for each stream"
        );
        gateway.stop().await?;
    }
    let mut table = Table::new("At rest", &["what", "gateway", "goal"]);
    let list = "start of the process to the first list of 500 tools, stored catalog: ms";
    table.row([list.to_owned(), figure(Some(start)), "≤ 12".into()]);
    table.row(["memory with 500 tools: MiB (PSS)".to_owned(), figure(Some(at_rest)), "≤ 12".into()]);
    table.row(["open GET stream, of 1,000: KiB (PSS)".to_owned(), figure(Some(stream)), "–".into()]);
    Ok(table)
}
