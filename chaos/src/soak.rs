//! The soak part: servers, groups, clients, sessions and streams are created and removed under load, without faults.
//! Each time the load stops, the resources of the gateway must return to the level of the first stop.

mod agent;
mod level;
mod worker;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::gateway::{Gateway, Settings, eventually};
use crate::http::Request;
use crate::plan::Plan;
use crate::report::Report;
use crate::server::Server;
use level::Level;
use worker::{ANCHOR, Worker};

const WORKERS: usize = 4;
/// Lists of about 90 kB, so that a leaked one is noticed.
const TOOLS: usize = 200;
const TOOL_BYTES: usize = 300;
/// Rounds of each worker before the first measurement, and between two measurements.
const ROUNDS: u64 = 30;
/// How long the level may take to return without load. Idle threads end after 10 s.
const REST: Duration = Duration::from_secs(20);
/// The same between two periods of load, for memory only.
const SHORT_REST: Duration = Duration::from_secs(5);

pub async fn run(plan: &Plan) -> Result<Report> {
    let begun = Instant::now();
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    let settings = Settings::new(&plan.program, folder.path())
        .variable("SERVER_MODE", "enterprise")
        .variable("HOST", "127.0.0.1")
        // The number of tasks is read from the metrics.
        .variable("OTEL_ENABLED", "true");
    let gateway = settings.start().await?;
    let mut report = Report::new("soak");
    let mut workers = prepare(&gateway, plan).await?;

    workers = churn(workers, ROUNDS).await;
    let base = at_rest(&gateway, None, REST).await?;
    let (mut rests, mut is_above) = (Vec::new(), false);
    loop {
        workers = churn(workers, ROUNDS).await;
        // Once memory did not return to its level, there is no point in waiting for it again.
        let level =
            at_rest(&gateway, Some(&base), if is_above { Duration::ZERO } else { SHORT_REST }).await?;
        rests.push(level.memory);
        is_above |= level.memory_excess(&base).is_some();
        // Checked at the end, so that there is load after the first rest, however long that takes.
        if begun.elapsed() >= plan.duration {
            break;
        }
    }
    let last = at_rest(&gateway, Some(&base), REST).await?;
    rests.push(last.memory);
    // The lowest value, since an allocator keeps a varying part of the freed memory: the memory in use is never above
    // the lowest value, and a leak raises that value too.
    let floor = rests[rests.len() / 2..].iter().copied().min().unwrap_or(last.memory);
    let judged = Level { memory: floor, ..last };
    for excess in judged.excess(&base) {
        report.violation(format!("at rest it does not come back: {excess}"));
    }
    for worker in workers {
        report.merge(worker.report);
    }
    if let Some(panic) = gateway.panic() {
        report.violation(panic);
    }
    let mebibytes = |level: &Level| format!("{:.1} MiB", level.memory as f64 / 1024.0);
    report.figure("memory", format!("{} → {}", mebibytes(&base), mebibytes(&last)));
    report.figure("lowest of the second half", mebibytes(&judged));
    report.figure("descriptors", format!("{} → {}", base.descriptors, last.descriptors));
    report.figure("threads", format!("{} → {}", base.threads, last.threads));
    report.figure("tasks", format!("{} → {}", base.tasks, last.tasks));
    let status = gateway.terminate().await?;
    if !status.success() {
        report.violation(format!("after SIGTERM it ended with {status}"));
    }
    Ok(report)
}

/// Creates what exists during the whole run: the admin, a server with long lists, a client for each worker.
async fn prepare(gateway: &Gateway, plan: &Plan) -> Result<Vec<Worker>> {
    let server = Arc::new(Server::start(TOOLS, TOOL_BYTES).await?);
    let made = gateway.post("/init", &json!({})).await?.json()?;
    let admin = made["admin_access_token"].as_str().context("no admin")?.to_owned();
    let url = server.url(ANCHOR);
    let anchor = json!({"name": ANCHOR, "transport": "streamable_http", "url": url});
    create(gateway, &admin, "/api/v0/servers", &anchor).await?;
    let mut workers = Vec::new();
    for index in 0..WORKERS {
        let keeper = format!("keeper-{index}-{:016x}", plan.random("keeper").draw());
        let body = json!({"name": format!("keeper-{index}"), "access_token": keeper, "allow_list": ["*"]});
        create(gateway, &admin, "/api/v0/clients", &body).await?;
        workers.push(Worker {
            index,
            address: gateway.address.clone(),
            admin: admin.clone(),
            keeper,
            server: server.clone(),
            random: plan.random(&format!("worker {index}")),
            report: Report::default(),
            count: 0,
        });
    }
    Ok(workers)
}

async fn create(gateway: &Gateway, admin: &str, path: &str, body: &Value) -> Result<()> {
    let made = gateway.send(Request::new("POST", path).token(admin).json(body)).await?;
    ensure!(made.status == 201, "POST {path}: {} {}", made.status, made.text());
    Ok(())
}

async fn churn(workers: Vec<Worker>, rounds: u64) -> Vec<Worker> {
    let mut running = JoinSet::new();
    for worker in workers {
        running.spawn(worker.run(rounds));
    }
    running.join_all().await
}

/// Measures the level without load: as soon as it is back at the earlier one (with a limit below [`REST`], only its
/// memory counts), or when the time is over. Without an earlier level, when it has stopped falling.
async fn at_rest(gateway: &Gateway, base: Option<&Level>, limit: Duration) -> Result<Level> {
    let mut lowest = Level::of(gateway).await?;
    let mut since = Instant::now();
    eventually(limit, async || {
        // Reading it also uses the gateway, which makes the allocator return memory.
        let Ok(level) = Level::of(gateway).await else { return true };
        if lowest.lower_to(&level) {
            since = Instant::now();
        }
        match base {
            Some(base) if limit < REST => lowest.memory_excess(base).is_none(),
            Some(base) => lowest.excess(base).is_empty(),
            None => since.elapsed() > Duration::from_secs(2),
        }
    })
    .await;
    Ok(lowest)
}
