//! Whether a call gets more expensive when more is registered, and a list when it is longer.

use anyhow::Result;
use toolgate_bench::client::{Script, Work};
use toolgate_bench::load;
use toolgate_bench::target::Target;

use crate::Plan;
use crate::best::Bests;
use crate::setup::{Draft, Stored, Upstream};
use crate::table::{Table, figure, ratio};

const CALLERS: usize = 32;
const READERS: usize = 8;

/// What grows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tools,
    Servers,
    Groups,
    Clients,
}

struct Size {
    name: &'static str,
    kind: Kind,
    count: usize,
}

const SIZES: &[Size] = &[
    Size { name: "10 tools", kind: Kind::Tools, count: 10 },
    Size { name: "1,000 tools", kind: Kind::Tools, count: 1000 },
    Size { name: "10,000 tools", kind: Kind::Tools, count: 10_000 },
    Size { name: "1 server", kind: Kind::Servers, count: 1 },
    Size { name: "100 servers", kind: Kind::Servers, count: 100 },
    Size { name: "1,000 servers", kind: Kind::Servers, count: 1000 },
    Size { name: "1 group", kind: Kind::Groups, count: 1 },
    Size { name: "1,000 groups", kind: Kind::Groups, count: 1000 },
    Size { name: "1 client", kind: Kind::Clients, count: 1 },
    Size { name: "10,000 clients", kind: Kind::Clients, count: 10_000 },
];

pub async fn measure(plan: &Plan) -> Result<Vec<Table>> {
    let few = Upstream::start(10, "legacy", &[]).await?;
    let mut stages = Vec::new();
    for size in SIZES {
        println!("growth: registering {}", size.name);
        let upstream = match size.kind {
            Kind::Tools => Some(Upstream::start(size.count, "legacy", &[]).await?),
            Kind::Servers | Kind::Groups | Kind::Clients => None,
        };
        let url = upstream.as_ref().map_or(&few.url, |upstream| &upstream.url);
        let stored = prepare(plan, size, url).await?;
        stages.push((size, stored, upstream));
    }
    let mut bests = Bests::default();
    for round in 1..=plan.rounds {
        println!("growth, round {round}");
        for (size, stored, _upstream) in &stages {
            measure_size(plan, size, stored, &mut bests).await?;
        }
    }
    Ok(vec![calls(&bests), lists(&bests)])
}

async fn prepare(plan: &Plan, size: &Size, url: &str) -> Result<Stored> {
    let mode = if size.kind == Kind::Clients { "enterprise" } else { "development" };
    let draft = Draft::new(plan, mode).await?;
    let draft = match size.kind {
        Kind::Tools => draft.servers(1, url).await?,
        Kind::Servers => draft.servers(size.count, url).await?,
        Kind::Groups => draft.servers(1, url).await?.groups(size.count).await?,
        Kind::Clients => draft.servers(1, url).await?.clients(size.count).await?,
    };
    draft.store().await
}

/// Each call uses the last of what grows, where there is a last one.
async fn measure_size(plan: &Plan, size: &Size, stored: &Stored, bests: &mut Bests) -> Result<()> {
    let gateway = stored.start().await?;
    let at = Target::new(&gateway.address, &stored.token);
    let last = size.count - 1;
    let (target, tool) = match size.kind {
        Kind::Tools => (at.clone(), format!("up0__tool_{last}")),
        Kind::Servers => (at.clone(), format!("up{last}__echo")),
        Kind::Groups => (at.clone().at(&format!("/v0/groups/g{last}/mcp")), "up0__echo".into()),
        Kind::Clients => (at.clone(), "up0__echo".into()),
    };
    let script = Script { target, is_modern: false, work: Work::Echo { tool } };
    bests.add("call", size.name, load::measure(&script, CALLERS, plan.time, gateway.process()?).await?);
    if size.kind == Kind::Tools {
        let script = Script { target: at, is_modern: false, work: Work::List { tools: size.count } };
        let figures = load::measure(&script, READERS, plan.time, gateway.process()?).await?;
        bests.add("list", size.name, figures);
    }
    gateway.stop().await?;
    Ok(())
}

fn calls(bests: &Bests) -> Table {
    let columns = &["registered", "CPU µs", "of the smallest", "p50 µs", "goal"];
    let mut table = Table::new("Growth: a call, 32 clients", columns);
    for size in SIZES {
        let Some(best) = bests.get("call", size.name) else { continue };
        let smallest = SIZES.iter().find(|other| other.kind == size.kind);
        let smallest = smallest.and_then(|size| bests.get("call", size.name)).map(|best| best.cpu_us);
        let relation = ratio(Some(best.cpu_us), smallest);
        let (cpu, p50) = (figure(Some(best.cpu_us)), figure(Some(best.p50_us)));
        table.row([size.name.to_owned(), cpu, relation, p50, "1 ×".into()]);
    }
    table
}

fn lists(bests: &Bests) -> Table {
    let columns = &["registered", "CPU µs", "for 1,000 tools", "p50 µs", "goal"];
    let mut table = Table::new("Growth: a list of all tools, 8 clients", columns);
    for size in SIZES {
        let Some(best) = bests.get("list", size.name) else { continue };
        let each = best.cpu_us * 1000.0 / size.count as f64;
        let [cpu, each, p50] = [best.cpu_us, each, best.p50_us].map(|value| figure(Some(value)));
        table.row([size.name.to_owned(), cpu, each, p50, "proportional to its bytes".into()]);
    }
    table
}
