//! The ways of a call through the gateway, compared with the plain one.

use anyhow::Result;
use toolgate_bench::client::{Script, Work};
use toolgate_bench::load;
use toolgate_bench::target::Target;

use crate::Plan;
use crate::best::Bests;
use crate::setup::{Draft, Upstream};
use crate::table::{Table, figure, ratio};

const CLIENTS: usize = 32;
const PLAIN: &str = "legacy client, legacy server";
const CROSSING: &str = "modern client, legacy server";
const MODERN: &str = "modern client, modern server";
const GROUP: &str = "endpoint of a group";
const EVENTS: &str = "answer as an event stream";
const TOKEN: &str = "token of a client";
const WAYS: &[&str] = &[PLAIN, CROSSING, MODERN, GROUP, EVENTS, TOKEN];

pub async fn measure(plan: &Plan) -> Result<Table> {
    let legacy = Upstream::start(50, "legacy", &[]).await?;
    let modern = Upstream::start(50, "modern", &[]).await?;
    let open = Draft::new(plan, "development").await?.servers(1, &legacy.url).await?.groups(1).await?;
    open.gateway.register("modern", &modern.url).await?;
    let open = open.store().await?;
    let closed = Draft::new(plan, "enterprise").await?.servers(1, &legacy.url).await?.clients(1).await?;
    let closed = closed.store().await?;
    let mut bests = Bests::default();
    for round in 1..=plan.rounds {
        println!("ways, round {round}");
        let gateway = open.start().await?;
        let at = Target::new(&gateway.address, "");
        for (way, script) in [
            (PLAIN, echo(at.clone(), "up0__echo")),
            (CROSSING, Script { is_modern: true, ..echo(at.clone(), "up0__echo") }),
            (MODERN, Script { is_modern: true, ..echo(at.clone(), "modern__echo") }),
            (GROUP, echo(at.clone().at("/v0/groups/g0/mcp"), "up0__echo")),
            (EVENTS, echo(at.clone(), "up0__events")),
        ] {
            let figures = load::measure(&script, CLIENTS, plan.time, gateway.process()?).await?;
            bests.add("call", way, figures);
        }
        gateway.stop().await?;
        let gateway = closed.start().await?;
        let script = echo(Target::new(&gateway.address, &closed.token), "up0__echo");
        bests.add("call", TOKEN, load::measure(&script, CLIENTS, plan.time, gateway.process()?).await?);
        gateway.stop().await?;
    }
    let mut table = Table::new("Ways of a call, 32 clients", &["way", "CPU µs", "of the first", "p50 µs"]);
    let plain = bests.get("call", PLAIN).map(|best| best.cpu_us);
    for way in WAYS {
        let (cpu, p50) =
            (bests.get("call", way).map(|it| it.cpu_us), bests.get("call", way).map(|it| it.p50_us));
        table.row([(*way).to_owned(), figure(cpu), ratio(cpu, plain), figure(p50)]);
    }
    Ok(table)
}

fn echo(target: Target, tool: &str) -> Script {
    Script { target, is_modern: false, work: Work::Echo { tool: tool.into() } }
}
