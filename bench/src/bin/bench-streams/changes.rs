//! Changes under many streams: made one after the other, each while a bystander makes calls.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use toolgate_bench::gateway::{Gateway, Launch};
use toolgate_bench::system::memory;
use toolgate_bench::target::Target;

use crate::bystander::Bystander;
use crate::plan::Plan;
use crate::servers::{Servers, server_name};
use crate::streams::{Kind, Streams, Wanted};
use crate::table::{late, ms, spread};

const QUIET: Duration = Duration::from_secs(10);
/// After all affected streams were notified: how long to wait for notifications that should not come.
const SETTLING: Duration = Duration::from_millis(300);
/// The server that every client may use, and the one that only the bystander may use.
const SHARED: usize = 0;
const BYSTANDERS: usize = 1;

/// A kind of change.
#[derive(Clone, Copy)]
enum Change {
    /// Enables or disables a tool of a server that some clients may use.
    Tool,
    /// Enables or disables a tool of the server that all clients may use.
    SharedTool,
    /// A server announces a changed list.
    List,
    /// Removes a server from an allow list, or adds it again.
    AllowList,
}

struct Bench<'a> {
    plan: &'a Plan,
    bystander: Bystander,
    gateway: Gateway,
    servers: Servers,
    streams: Streams,
    /// For each client, its token and the servers that it may use.
    clients: Vec<(String, Vec<usize>)>,
}

pub async fn measure(plan: &Plan) -> Result<()> {
    let servers = Servers::start(plan.servers, plan.tools)?;
    let gateway = Gateway::start(Launch::new(&plan.gateway, "enterprise")?).await?;
    servers.register_at(&gateway).await?;
    let mut clients = Vec::new();
    for (number, allowed) in allow_lists(plan)?.into_iter().enumerate() {
        let names: Vec<_> = allowed.iter().copied().map(server_name).collect();
        clients.push((gateway.create_client(&format!("c{number}"), &names).await?, allowed));
    }
    let token = gateway.create_client("bystander", &[server_name(BYSTANDERS)]).await?;
    let bystander = Bystander::start(&gateway.address, &token, "s1__tool_0");
    let quiet = rest(plan, &bystander).await?;
    let process = gateway.process()?;
    let before = memory(process)?;
    let streams = Streams::open(&gateway.address, wanted(plan, &clients)).await?;
    let quiet_with_streams = rest(plan, &bystander).await?;
    let with_streams = memory(process)?;
    println!(
        "{} streams ({} % HTTP+SSE, {} % subscriptions/listen), {} allow lists of {} servers, {} servers of {} tools",
        plan.streams, plan.sse, plan.listen, plan.allow_lists, plan.allowed, plan.servers, plan.tools
    );
    println!(
        "\n| change | times | affected | response ms, max | last notified ms, p50 | max | missed | superfluous | call ms, p50 | p99 | max | over 5 ms |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    println!("| none, no streams | | | | | | | | {} | {} |", spread(&quiet), late(&quiet));
    println!("| none | | | | | | | | {} | {} |", spread(&quiet_with_streams), late(&quiet_with_streams));
    let mut bench = Bench { plan, gateway, servers, streams, bystander, clients };
    for (title, change) in [
        ("tool of one server", Change::Tool),
        ("tool of a server that all see", Change::SharedTool),
        ("list of one server", Change::List),
        ("one allow list", Change::AllowList),
    ] {
        bench.make_changes(title, change).await?;
    }
    bench.read_lists().await?;
    let after = memory(process)?;
    println!("\n| memory, MiB | resident | proportional |\n|---|---|---|");
    for (title, (resident, proportional)) in
        [("no streams", before), ("all streams open", with_streams), ("after the changes", after)]
    {
        println!("| {title} | {resident:.0} | {proportional:.0} |");
    }
    let each = (with_streams.0 - before.0) * 1024.0 / plan.streams as f64;
    println!("\nA stream costs {each:.1} KiB, what was kept for {} allow lists included.", plan.allow_lists);
    Ok(())
}

/// The durations of calls while nothing changes.
async fn rest(plan: &Plan, bystander: &Bystander) -> Result<Vec<Duration>> {
    let begun = Instant::now();
    tokio::time::sleep(QUIET).await;
    bystander.latencies(begun, Instant::now(), plan.limit).await
}

/// Allow lists: all different, the same in every run, each with the shared server and without the bystander's.
fn allow_lists(plan: &Plan) -> Result<Vec<Vec<usize>>> {
    let mut random = 1_u64;
    let mut list = || {
        let mut others: Vec<_> = (BYSTANDERS + 1..plan.servers).collect();
        let mut list = vec![SHARED];
        while list.len() < plan.allowed {
            // A linear congruential generator; its upper bits are random enough.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            list.push(others.swap_remove((random >> 33) as usize % others.len()));
        }
        list.sort_unstable();
        list
    };
    let lists: Vec<_> = (0..plan.allow_lists).map(|_| list()).collect();
    let distinct: HashSet<_> = lists.iter().collect();
    ensure!(distinct.len() == lists.len(), "so many allow lists need more servers");
    Ok(lists)
}

/// Streams of all kinds, spread over the clients.
fn wanted(plan: &Plan, clients: &[(String, Vec<usize>)]) -> Vec<Wanted> {
    let kind = |number: usize| match number / clients.len() * 100 / plan.streams.div_ceil(clients.len()) {
        part if part < plan.sse => Kind::Sse,
        part if part < plan.sse + plan.listen => Kind::Listen,
        _ => Kind::Legacy,
    };
    let stream = |number: usize| {
        let client = number % clients.len();
        Wanted { kind: kind(number), client, token: clients[client].0.clone() }
    };
    (0..plan.streams).map(stream).collect()
}

impl Bench<'_> {
    async fn make_changes(&mut self, title: &str, change: Change) -> Result<()> {
        let (mut answers, mut hearings, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        let (mut missed, mut needless, mut concerned) = (0, 0, 0);
        for round in 0..self.plan.changes {
            // A disabled tool is enabled again in the next round.
            let target = 2 + round / 2 % (self.plan.servers - 2);
            let client = round / 2 % self.clients.len();
            let before = self.streams.counts();
            let begun = Instant::now();
            self.make(change, target, client, round % 2 == 0).await?;
            answers.push(begun.elapsed());
            let must_hear = |number: usize| match change {
                Change::Tool | Change::List => self.clients[number].1.contains(&target),
                Change::SharedTool => true,
                Change::AllowList => number == client,
            };
            concerned = self.streams.clients.iter().filter(|&&client| must_hear(client)).count();
            let heard = self.streams.reception(&before, must_hear, self.plan.limit, SETTLING).await;
            hearings.push(heard.last.saturating_duration_since(begun));
            missed += heard.missed;
            needless += heard.needless;
            calls.extend(self.bystander.latencies(begun, Instant::now(), self.plan.limit).await?);
        }
        for times in [&mut answers, &mut hearings, &mut calls] {
            times.sort_unstable();
        }
        let largest = |times: &[Duration]| times.last().map_or("-".into(), |time| ms(*time));
        println!(
            "| {title} | {} | {concerned} | {} | {} | {} | {missed} | {needless} | {} | {} |",
            hearings.len(),
            largest(&answers),
            hearings.get(hearings.len() / 2).map_or("-".into(), |time| ms(*time)),
            largest(&hearings),
            spread(&calls),
            late(&calls),
        );
        Ok(())
    }

    async fn make(&self, change: Change, server: usize, client: usize, is_off: bool) -> Result<()> {
        let name = |server: usize| format!("{}__tool_0", server_name(server));
        let entity = match change {
            Change::Tool => name(server),
            Change::SharedTool => name(SHARED),
            Change::List => {
                self.servers.change(server);
                return Ok(());
            }
            Change::AllowList => {
                let allowed = &self.clients[client].1;
                let names: Vec<_> =
                    allowed.iter().skip(usize::from(is_off)).copied().map(server_name).collect();
                let input = json!({"allow_list": names, "access_token": self.clients[client].0});
                return self
                    .gateway
                    .ask("PUT", &format!("/api/v0/clients/c{client}"), &input)
                    .await
                    .map(drop);
            }
        };
        let path = if is_off { "/api/v0/tools/disable" } else { "/api/v0/tools/enable" };
        self.gateway.ask("POST", path, &json!({"entity": entity})).await.map(drop)
    }

    /// Reads the tools of every client after each change.
    async fn read_lists(&self) -> Result<()> {
        let (mut times, mut calls) = (Vec::new(), Vec::new());
        let (address, mut wire) = (&self.gateway.address, self.gateway.connect().await?);
        for round in 0..self.plan.changes {
            let begun = Instant::now();
            self.make(Change::SharedTool, SHARED, 0, round % 2 == 0).await?;
            for (token, _) in &self.clients {
                let asked = Instant::now();
                wire.send(&Target::new(address, token).modern("tools/list", json!({}))).await?;
                let answer = wire.receive().await?.context("the gateway closed the connection")?;
                times.push(asked.elapsed());
                ensure!(answer.head.starts_with("HTTP/1.1 200"), "tools/list: {}", answer.head);
            }
            calls.extend(self.bystander.latencies(begun, Instant::now(), self.plan.limit).await?);
        }
        times.sort_unstable();
        calls.sort_unstable();
        println!(
            "\n| lists of all clients right after a change, ms | p50 | p99 | max | over 5 ms |\n|---|---|---|---|---|"
        );
        println!("| tools/list | {} | {} |", spread(&times), late(&times));
        println!("| bystander's call | {} | {} |", spread(&calls), late(&calls));
        Ok(())
    }
}
