//! The network part: faulty servers behind the gateway and rude clients before it, while well-behaved callers use every
//! door. Each call gets its own answer or one honest error in time, a bystander notices nothing, and all of it heals.

mod caller;
mod fault;
mod measure;
mod reply;
mod rude;
mod server;
mod sse_client;
mod wire;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;
use tokio::task::JoinSet;

use crate::gateway::{Gateway, Settings, eventually};
use crate::plan::Plan;
use crate::random::Random;
use crate::report::Report;
use caller::{Call, Caller, DOORS, Door, TIMEOUT, Verdict};
use fault::Faults;
use measure::{Latencies, descriptors, memory, milliseconds};
use server::{Dialect, Server};
use wire::Listening;

const CALLERS: u64 = 10;
const RUDE_CLIENTS: u64 = 3;
const ROUNDS: u32 = 4;
/// Between two calls to the bystander.
const PACE: Duration = Duration::from_millis(15);
/// What the bystander's p99 may have beyond twice its quiet value.
const P99_SLACK: Duration = Duration::from_millis(50);
/// From the last fault until everything works again.
const HEALING: Duration = Duration::from_secs(60);
/// Idle upstream connections and such, which are kept for a while.
const DESCRIPTOR_SLACK: usize = 24;
/// Growth of resident memory, in MiB, that is no leak.
const MEMORY_SLACK: u64 = 96;

/// What everybody in a run shares.
struct Scene {
    address: String,
    servers: Vec<Listening>,
    faults: Arc<Faults>,
    report: Mutex<Report>,
    last_call: AtomicU64,
    is_over: AtomicBool,
}

pub async fn run(plan: &Plan) -> Result<Report> {
    let mut random = plan.random("network");
    let faults = Arc::new(Faults::new(Random::new(random.next())));
    let folder = tempfile::tempdir()?;
    let settings = Settings::new(&plan.program, folder.path())
        .variable("MCP_SERVER_INIT_REQ_TIMEOUT_SEC", "5")
        .variable("HOME", folder.path().to_string_lossy());
    let gateway = settings.start().await?;
    let faulty = [
        ("json", Dialect::Json),
        ("events", Dialect::Events),
        ("modern", Dialect::Modern),
        ("sse", Dialect::Sse),
    ];
    let mut servers = vec![Listening::start(Server::new("calm", Dialect::Json, None))?];
    for (name, dialect) in faulty {
        servers.push(Listening::start(Server::new(name, dialect, Some(faults.clone())))?);
    }
    for server in &servers {
        register(&gateway, server).await?;
    }
    let scene = Arc::new(Scene {
        address: gateway.address.clone(),
        servers,
        faults,
        report: Mutex::new(Report::new("network")),
        last_call: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    });
    observe(&scene, &gateway, plan, &mut random).await?;
    for (kind, count) in scene.faults.counts() {
        (0..count).for_each(|_| scene.report().fault(&kind));
    }
    let log = gateway.log.clone();
    gateway.terminate().await?;
    let log = log.lock().expect("no code panics while it holds the log");
    for line in log.lines().filter(|line| line.contains("panicked")) {
        scene.report().violation(format!("the gateway panicked: {line}"));
    }
    drop(log);
    let scene = Arc::into_inner(scene).context("every task has ended")?;
    Ok(scene.report.into_inner().expect("no code panics while it holds the report"))
}

/// The bystander alone, then rounds with callers only and with callers and faults in turn, so that a busy machine
/// disturbs both alike; and what is left afterwards.
async fn observe(scene: &Arc<Scene>, gateway: &Gateway, plan: &Plan, random: &mut Random) -> Result<()> {
    let [mut idle, mut quiet, mut troubled] = [const { Latencies::new() }; 3];
    bystander(scene, plan.duration / 10, &mut idle).await;
    let mut tasks = JoinSet::new();
    for number in 0..CALLERS {
        tasks.spawn(call_on(scene.clone(), number, Random::new(random.next())));
    }
    for _ in 0..RUDE_CLIENTS {
        tasks.spawn(misbehave(scene.clone(), Random::new(random.next())));
    }
    let mut held = None;
    for _ in 0..ROUNDS {
        bystander(scene, plan.duration / 5 / ROUNDS, &mut quiet).await;
        held.get_or_insert_with(|| (descriptors(gateway.id()), memory(gateway.id()).0));
        scene.faults.switch(true);
        bystander(scene, plan.duration * 7 / 10 / ROUNDS, &mut troubled).await;
        scene.faults.switch(false);
    }
    let healing = Instant::now();
    scene.is_over.store(true, Ordering::Release);
    while tasks.join_next().await.is_some() {}
    heal(scene, gateway, healing).await?;
    judge_bystander(scene, &idle, &quiet, &troubled);
    let (descriptors_before, memory_before) = held.context("there is a round")?;
    judge_growth(scene, gateway, descriptors_before, memory_before).await;
    Ok(())
}

async fn register(gateway: &Gateway, server: &Listening) -> Result<()> {
    let transport = if server.server.dialect == Dialect::Sse { "sse" } else { "streamable_http" };
    let limit = u64::try_from(TIMEOUT.as_millis())?;
    let body =
        json!({"name": server.server.name, "transport": transport, "url": server.url(), "timeout_ms": limit});
    let response = gateway.post("/api/v0/servers", &body).await?;
    if response.status != 201 {
        bail!("cannot register {}: {}", server.server.name, response.text());
    }
    Ok(())
}

/// Calls the server that has no faults at a steady pace.
async fn bystander(scene: &Arc<Scene>, time: Duration, latencies: &mut Latencies) {
    let mut callers = [Caller::new(&scene.address, Door::Rest), Caller::new(&scene.address, Door::Legacy)];
    let begun = Instant::now();
    for turn in 0.. {
        if begun.elapsed() > time {
            break;
        }
        let call = scene.new_call(0, "echo");
        match callers[turn % 2].call(&call).await {
            Ok((Verdict::Answered, took)) => latencies.add(took),
            Ok((Verdict::Refused(reason), _)) => {
                scene.violation(&call, Door::Rest, &format!("refused: {reason}"))
            }
            Err(error) => scene.violation(&call, Door::Rest, &format!("{error:#}")),
        }
        tokio::time::sleep(PACE).await;
    }
}

/// One caller: one call after the other through one door, to any faulty server.
async fn call_on(scene: Arc<Scene>, number: u64, mut random: Random) {
    let door = DOORS[usize::try_from(number).unwrap_or_default() % DOORS.len()];
    let mut caller = Caller::new(&scene.address, door);
    while !scene.is_over.load(Ordering::Acquire) {
        let server = 1 + usize::try_from(random.below(scene.servers.len() as u64 - 1)).unwrap_or_default();
        let tool = *random.pick(&["echo", "echo", "echo", "progress", "look", "slow"]);
        let call = scene.new_call(server, tool);
        let outcome = caller.call(&call).await;
        scene.judge(&call, door, outcome);
        let runs = scene.servers[server].server.runs_of(&call.text);
        if runs > 1 && tool != "look" {
            scene.violation(&call, door, &format!("the tool ran {runs} times"));
        }
        // A refusal that comes at once must not turn into a flood.
        tokio::time::sleep(Duration::from_millis(5 + random.below(30))).await;
    }
}

async fn misbehave(scene: Arc<Scene>, mut random: Random) {
    while !scene.is_over.load(Ordering::Acquire) {
        if !scene.faults.is_on() {
            tokio::time::sleep(PACE).await;
            continue;
        }
        let server = usize::try_from(random.below(scene.servers.len() as u64)).unwrap_or_default();
        let number = scene.last_call.fetch_add(1, Ordering::Relaxed);
        let name = &scene.servers[server].server.name;
        // The gateway may refuse or reset what makes no sense.
        let _ = rude::misbehave(&scene.address, name, number, &mut random, &scene.faults).await;
        tokio::time::sleep(Duration::from_millis(random.below(200))).await;
    }
}

/// Waits until every server is connected and answers through every door.
async fn heal(scene: &Arc<Scene>, gateway: &Gateway, since: Instant) -> Result<()> {
    for (index, server) in scene.servers.iter().enumerate() {
        let name = &server.server.name;
        for door in DOORS {
            let mut caller = Caller::new(&scene.address, *door);
            let mut last = String::new();
            let works = eventually(HEALING.saturating_sub(since.elapsed()), async || {
                let call = scene.new_call(index, "echo");
                match caller.call(&call).await {
                    Ok((Verdict::Answered, _)) => true,
                    Ok((Verdict::Refused(reason), _)) => {
                        last = reason;
                        false
                    }
                    Err(error) => {
                        scene.violation(&call, *door, &format!("{error:#}"));
                        false
                    }
                }
            });
            if !works.await {
                scene
                    .report()
                    .violation(format!("{name} did not heal at {door:?} within {HEALING:?}: {last}"));
            }
        }
    }
    let answering = since.elapsed();
    let mut state = String::new();
    for server in &scene.servers {
        let path = format!("/api/v0/servers/{}", server.server.name);
        let is_connected = eventually(HEALING.saturating_sub(since.elapsed()), async || {
            let Ok(response) = gateway.get(&path).await else { return false };
            state = response.text();
            response.json().is_ok_and(|record| record["status"] == "connected")
        });
        if !is_connected.await {
            scene.report().violation(format!("{path} is not connected after {HEALING:?}: {state}"));
        }
    }
    scene.report().figure("all doors answer after", milliseconds(answering));
    scene.report().figure("all connected after", milliseconds(since.elapsed()));
    Ok(())
}

fn judge_bystander(scene: &Arc<Scene>, idle: &Latencies, quiet: &Latencies, troubled: &Latencies) {
    let mut report = scene.report();
    let limit = quiet.p99().max(idle.p99()) * 2 + P99_SLACK;
    if troubled.p99() > limit {
        let (quiet, troubled) = (milliseconds(quiet.p99()), milliseconds(troubled.p99()));
        report.violation(format!("the bystander's p99 went from {quiet} to {troubled}"));
    }
    report.figure("bystander p99 alone", milliseconds(idle.p99()));
    report.figure("bystander p99 with callers", milliseconds(quiet.p99()));
    report.figure("bystander p99 during faults", milliseconds(troubled.p99()));
    report.figure("bystander calls", idle.count() + quiet.count() + troubled.count());
}

/// What the process holds after all of it, against what it held under the same load before the first fault.
async fn judge_growth(scene: &Arc<Scene>, gateway: &Gateway, before: usize, memory_before: u64) {
    let mut after = 0;
    let is_back = eventually(Duration::from_secs(20), async || {
        after = descriptors(gateway.id());
        after <= before + DESCRIPTOR_SLACK
    });
    let is_back = is_back.await;
    let (memory_after, memory_peak) = memory(gateway.id());
    let mut report = scene.report();
    if !is_back {
        report.violation(format!("descriptors grew from {before} to {after}"));
    }
    if memory_after > memory_before + MEMORY_SLACK {
        report.violation(format!("memory grew from {memory_before} to {memory_after} MiB"));
    }
    report.figure("descriptors before and after", format!("{before}, {after}"));
    report.figure("MiB before, at most, after", format!("{memory_before}, {memory_peak}, {memory_after}"));
}

impl Scene {
    fn new_call(&self, server: usize, tool: &'static str) -> Call {
        let number = self.last_call.fetch_add(1, Ordering::Relaxed);
        Call { server: self.servers[server].server.name.clone(), tool, text: format!("text~{number}") }
    }

    fn judge(&self, call: &Call, door: Door, outcome: Result<(Verdict, Duration)>) {
        let kind = match &outcome {
            Ok((Verdict::Answered, _)) => "answered",
            Ok((Verdict::Refused(_), _)) => "refused",
            Err(_) => "broken",
        };
        self.report().operation(&format!("{door:?} to {}: {kind}", call.server));
        match outcome {
            Ok((Verdict::Refused(reason), _)) if self.faults.counts().is_empty() => {
                self.violation(call, door, &format!("refused before the first fault: {reason}"));
            }
            Ok(_) => {}
            Err(error) => self.violation(call, door, &format!("{error:#}")),
        }
    }

    fn violation(&self, call: &Call, door: Door, what: &str) {
        self.report().violation(format!("{door:?} {} {}: {what}", call.name(), call.text));
    }

    fn report(&self) -> std::sync::MutexGuard<'_, Report> {
        self.report.lock().expect("no code panics while it holds the report")
    }
}
