//! The network part: faulty servers behind the gateway and badly behaved clients in front of it, while well-behaved
//! callers use every entry point (door). Each call must get its own response or one correct error in time, a bystander
//! must not be slowed down, and everything must recover.

mod bystander;
mod caller;
mod event;
mod fault;
mod healing;
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

use crate::gateway::{Gateway, Settings};
use crate::plan::Plan;
use crate::random::Random;
use crate::report::Report;
use bystander::Phase;
use caller::{Call, Caller, DOORS, Door, TIMEOUT, Verdict};
use fault::Faults;
use healing::Held;
use server::{Dialect, Server};
use wire::Listening;

const CALLERS: u64 = 10;
const RUDE_CLIENTS: u64 = 3;
const ROUNDS: u32 = 4;
/// State shared by all tasks of a run.
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
    let faults = Arc::new(Faults::new(Random::new(random.draw())));
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

/// Runs the bystander alone, then rounds with callers only and rounds with callers and faults in turn, so that a busy
/// machine affects both in the same way; and finally the checks after the faults.
async fn observe(scene: &Arc<Scene>, gateway: &Gateway, plan: &Plan, random: &mut Random) -> Result<()> {
    let [mut idle, mut quiet, mut troubled] = [const { Phase::new() }; 3];
    bystander::watch(scene, plan.duration / 10, &mut idle).await;
    let mut tasks = JoinSet::new();
    for number in 0..CALLERS {
        tasks.spawn(call_on(scene.clone(), number, Random::new(random.draw())));
    }
    for _ in 0..RUDE_CLIENTS {
        tasks.spawn(misbehave(scene.clone(), Random::new(random.draw())));
    }
    let mut held = None;
    for _ in 0..ROUNDS {
        bystander::watch(scene, plan.duration / 5 / ROUNDS, &mut quiet).await;
        held.get_or_insert_with(|| Held::by(gateway));
        scene.faults.switch(true);
        bystander::watch(scene, plan.duration * 7 / 10 / ROUNDS, &mut troubled).await;
        scene.faults.switch(false);
    }
    let healing = Instant::now();
    scene.is_over.store(true, Ordering::Release);
    while tasks.join_next().await.is_some() {}
    healing::wait(scene, gateway, healing).await;
    bystander::judge(scene, plan.duration, &idle, &quiet, &troubled);
    healing::judge_growth(scene, gateway, held.context("there is a round")?).await;
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
        // Immediate errors must not make this a busy loop.
        tokio::time::sleep(Duration::from_millis(5 + random.below(30))).await;
    }
}

async fn misbehave(scene: Arc<Scene>, mut random: Random) {
    while !scene.is_over.load(Ordering::Acquire) {
        if !scene.faults.is_on() {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        }
        let server = usize::try_from(random.below(scene.servers.len() as u64)).unwrap_or_default();
        let number = scene.last_call.fetch_add(1, Ordering::Relaxed);
        let name = &scene.servers[server].server.name;
        // The gateway may refuse or reset invalid requests.
        let _ = rude::misbehave(&scene.address, name, number, &mut random, &scene.faults).await;
        tokio::time::sleep(Duration::from_millis(random.below(200))).await;
    }
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
