//! The workloads: what agents do, beside a server without a gateway and beside nginx.

use anyhow::Result;
use toolgate_bench::client::{Script, Work};
use toolgate_bench::load;
use toolgate_bench::server::LARGE;
use toolgate_bench::target::Target;

use crate::Plan;
use crate::best::{Best, Bests};
use crate::hold::{self, Holding};
use crate::peers::{ALL_TOOLS, DIRECT, GATEWAY, NGINX, Peer, Stage};
use crate::setup::Draft;
use crate::table::{Table, figure, ratio};

const W1: &str = "W1 echo, 1 client";
const W2: &str = "W2 echo, 32 clients";
const W3: &str = "W3 64 KiB, 16 clients";
const W4: &str = "W4 list, 8 clients";
const W5_ONE: &str = "W5 stdio, 1 client";
const W5: &str = "W5 stdio, 8 clients";
const W6: &str = "W6 session, 8 clients";
const W7: &str = "W7 idle sessions";

#[derive(Default)]
struct Seen {
    bests: Bests,
    /// KiB of an idle session, by peer.
    sessions: Vec<(&'static str, f64)>,
}

pub async fn measure(plan: &Plan) -> Result<Table> {
    let stage = Stage::prepare(plan).await?;
    let stdio = Draft::new(plan, "development").await?.stdio_server(3).await?.store().await?;
    let mut seen = Seen::default();
    for round in 1..=plan.rounds {
        println!("workloads, round {round}");
        seen.measure_peer(plan, stage.direct(plan).await?).await?;
        match stage.nginx(plan).await? {
            Some(nginx) => seen.measure_peer(plan, nginx).await?,
            None => println!("  without nginx, which is not installed (Debian: nginx-light)"),
        }
        seen.measure_peer(plan, stage.gateway().await?).await?;
        let gateway = stdio.start().await?;
        let script = script(Target::new(&gateway.address, ""), Work::Echo { tool: "pipe__echo".into() });
        for (work, clients) in [(W5_ONE, 1), (W5, 8)] {
            let figures = load::measure(&script, clients, plan.time, gateway.process()?).await?;
            seen.bests.add(work, GATEWAY, figures);
        }
        gateway.stop().await?;
    }
    Ok(seen.table())
}

fn script(target: Target, work: Work) -> Script {
    Script { target, is_modern: false, work }
}

impl Seen {
    async fn measure_peer(&mut self, plan: &Plan, peer: Peer) -> Result<()> {
        let tool = |name: &str| format!("{}{name}", peer.prefix);
        let payload = Work::Payload { tool: tool("payload"), bytes: LARGE };
        let list = (&peer.list_target, peer.list_process);
        let usual = (&peer.target, peer.process);
        for (work, clients, what, (target, process)) in [
            (W1, 1, Work::Echo { tool: tool("echo") }, usual),
            (W2, 32, Work::Echo { tool: tool("echo") }, usual),
            (W3, 16, payload, usual),
            (W4, 8, Work::List { tools: ALL_TOOLS }, list),
            (W6, 8, Work::Session, usual),
        ] {
            let figures = load::measure(&script(target.clone(), what), clients, plan.time, process).await?;
            self.bests.add(work, peer.name, figures);
        }
        let each = hold::measure(&peer.target, peer.process, Holding::Nothing).await?;
        println!("  {W7:24} {:24} {each:8.2} KiB", peer.name);
        self.sessions.push((peer.name, each));
        peer.stop().await
    }

    fn table(&self) -> Table {
        let mut table =
            Table::new("Workloads", &["workload", "direct", "nginx", "gateway", "relation", "goal"]);
        let mut row = |name: &str, values: [Option<f64>; 3], relation: String, goal: &str| {
            let [direct, nginx, gateway] = values.map(figure);
            table.row([name.to_owned(), direct, nginx, gateway, relation, goal.to_owned()]);
        };
        let of_nginx = |[_, nginx, gateway]: [Option<f64>; 3]| ratio(gateway, nginx) + " nginx";
        let w1 = self.values(W1, |best| best.p50_us);
        let added = w1.map(|value| value.zip(w1[0]).map(|(value, direct)| value - direct));
        row("W1 echo, 1 client: p50 µs", w1, String::new(), "");
        row("– p50 added to direct, µs", added, of_nginx(added), "≤ 1.1 × nginx");
        let w2 = self.values(W2, |best| best.cpu_us);
        row("W2 echo, 32 clients: CPU µs", w2, of_nginx(w2), "≤ 1.0 × nginx");
        let w3 = self.values(W3, |best| best.cpu_us);
        row("W3 results of 64 KiB, 16 clients: CPU µs", w3, of_nginx(w3), "≤ 0.85 × nginx");
        let w4 = self.values(W4, |best| best.cpu_us);
        let name = "W4 list of 500 tools of 10 servers (of one, if not the gateway), 8 clients: CPU µs";
        row(name, w4, ratio(w4[2], w4[0]) + " direct", "≤ 0.6 × direct");
        let w5 = self.values(W5_ONE, |best| best.p50_us);
        row("W5 stdio echo, 1 client: p50 µs", w5, String::new(), "≤ 45");
        row("W5 stdio echo, 8 clients: CPU µs", self.values(W5, |best| best.cpu_us), String::new(), "≤ 14");
        let w6 = self.values(W6, |best| best.cpu_us);
        row("W6 session opened and closed, 8 clients: CPU µs", w6, of_nginx(w6), "≤ 0.7 × nginx");
        let least = |peer: &str| {
            let all = self.sessions.iter().filter(|(name, _)| *name == peer).map(|(_, each)| *each);
            all.min_by(f64::total_cmp)
        };
        let w7 = [DIRECT, NGINX, GATEWAY].map(least);
        row("W7 idle session with a connection, of 1,000: KiB (PSS)", w7, String::new(), "≤ 2");
        table
    }

    fn values(&self, work: &'static str, figure: fn(Best) -> f64) -> [Option<f64>; 3] {
        [DIRECT, NGINX, GATEWAY].map(|peer| self.bests.get(work, peer).map(figure))
    }
}
