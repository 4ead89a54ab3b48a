//! The store part: several writers make changes of every kind, in both modes, while the disk fails, is full or locked,
//! and the gateway is killed and restarted. Confirmed changes must be kept, refused changes must not appear, and reads
//! and calls must continue.

mod check;
mod faults;
mod reader;
mod thing;
mod world;
mod writer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::gateway::Settings;
use crate::plan::Plan;
use crate::report::Report;
use crate::server::Server;
use world::World;

pub async fn run(plan: &Plan) -> Result<Report> {
    let server = Arc::new(Server::start(thing::TOOLS, 100).await?);
    let until = Instant::now() + plan.duration;
    let development = one_mode(plan, &server, until, "development");
    let enterprise = one_mode(plan, &server, until, "enterprise");
    let (development, enterprise) = tokio::try_join!(development, enterprise)?;
    let mut report = Report::new("store");
    report.merge(development);
    report.merge(enterprise);
    start_before_1970(plan, &mut report).await?;
    Ok(report)
}

/// Starts the gateway with a clock before 1970, as on a machine without a clock battery. HTTP has no dates before 1970,
/// so the gateway must report the problem instead of starting and then failing each request.
async fn start_before_1970(plan: &Plan, report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    let faults = faults::Faults::new(folder.path())?;
    let settings = Settings::new(&plan.program, folder.path()).variable("HOST", "127.0.0.1");
    report.fault("clock before 1970");
    match faults.before_1970(settings).start().await {
        Err(error) if format!("{error:#}").contains("before 1970") => {}
        Err(error) => report.violation(format!("with a clock before 1970: {error:#}")),
        Ok(gateway) => match gateway.get("/health").await {
            Ok(response) if response.status == 200 => {}
            Ok(response) => report.violation(format!("with a clock before 1970: status {}", response.status)),
            Err(error) => report.violation(format!("with a clock before 1970: {error:#}")),
        },
    }
    Ok(())
}

async fn one_mode(plan: &Plan, server: &Arc<Server>, until: Instant, mode: &str) -> Result<Report> {
    let mut report = Report::new("store");
    let (mut injected, mut slowest_read) = (0, Duration::ZERO);
    for attempt in 1.. {
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let random = plan.random(&format!("{mode} {attempt}"));
        let mut world = World::start(&plan.program, random, server.clone(), folder.path(), mode).await?;
        while Instant::now() < until {
            // The longest fault would take all the time of a short run.
            let has_time = until.saturating_duration_since(Instant::now()) > Duration::from_secs(20);
            if let Err(error) = world.episode(has_time).await {
                report.violation(format!("{mode}: the episode was aborted: {error:#}"));
                break;
            }
        }
        injected += world.injected();
        slowest_read = slowest_read.max(world.slowest_read);
        report.merge(world.finish().await?);
        if Instant::now() >= until {
            break;
        }
    }
    if injected == 0 {
        report.violation(format!("{mode}: the fault layer did nothing; is the program linked statically?"));
    }
    report.figure(&format!("calls failed or delayed ({mode})"), injected);
    report.figure(&format!("slowest read ({mode})"), format!("{} ms", slowest_read.as_millis()));
    Ok(report)
}
