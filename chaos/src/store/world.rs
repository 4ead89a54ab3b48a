//! One gateway on one database with its writers and readers, and its episodes: some changes, a fault during them, and
//! then a rest, a power cut or a restart.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;

use super::check::{Shown, check, kinds};
use super::faults::{Fault, Faults, WriteLock};
use super::reader::Reader;
use super::thing::ANCHOR;
use super::writer::{Stage, Writer};
use crate::gateway::{Gateway, Settings, eventually};
use crate::http::Request;
use crate::random::Random;
use crate::report::Report;
use crate::server::Server;

const WRITERS: usize = 4;
/// Time limit for a gateway that cannot write to report it.
const CONFESSION: Duration = Duration::from_secs(3);
/// Time limit for it to detect by itself that it can write again.
const HEALING: Duration = Duration::from_secs(20);

pub struct World {
    mode: String,
    settings: Settings,
    faults: Faults,
    gateway: Option<Gateway>,
    admin: Option<String>,
    server: Arc<Server>,
    writers: Vec<Writer>,
    random: Random,
    bag: Vec<Fault>,
    pub slowest_read: Duration,
    report: Report,
}

/// How an episode ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The fault ends and the gateway keeps running.
    Rest,
    /// SIGKILL during changes.
    PowerCut,
    /// SIGTERM during changes.
    Restart,
}

impl World {
    /// Starts a gateway on an empty database, with one server for the whole run.
    pub async fn start(
        program: &Path,
        mut random: Random,
        server: Arc<Server>,
        folder: &Path,
        mode: &str,
    ) -> Result<Self> {
        let faults = Faults::new(folder)?;
        let settings = Settings::new(program, folder);
        let settings = faults.under(settings).variable("SERVER_MODE", mode).variable("HOST", "127.0.0.1");
        let gateway = settings.start().await?;
        let is_enterprise = mode == "enterprise";
        let admin = if is_enterprise {
            let made = gateway.post("/init", &json!({})).await?;
            let token = made.json()?["admin_access_token"].as_str().map(str::to_owned);
            Some(token.with_context(|| format!("no admin: {}", made.text()))?)
        } else {
            None
        };
        let writer = |index: usize| Writer::new(index, kinds(is_enterprise), Random::new(random.draw()));
        let writers = (0..WRITERS).map(writer).collect();
        let world = Self {
            mode: mode.to_owned(),
            settings,
            faults,
            gateway: Some(gateway),
            admin,
            server,
            writers,
            random,
            bag: Vec::new(),
            slowest_read: Duration::ZERO,
            report: Report::new("store"),
        };
        let anchor = json!({"name": ANCHOR, "transport": "streamable_http", "url": world.server.url(ANCHOR)});
        let stage = world.stage(Vec::new(), false)?;
        let mut request = Request::new("POST", "/api/v0/servers").json(&anchor);
        if let Some(admin) = &stage.admin {
            request = request.token(admin);
        }
        let made = request.send(&stage.address).await?;
        ensure!(made.status == 201, "the first server is refused: {}", made.text());
        Ok(world)
    }

    /// Runs the writers during one fault and checks the result.
    pub async fn episode(&mut self, has_time: bool) -> Result<()> {
        let mut faults = vec![self.next_fault(has_time)];
        if self.random.chance(30) {
            faults.push(self.next_fault(has_time));
        }
        let fault = *faults.last().context("an episode has a fault")?;
        let ending = *self.random.pick(&[Ending::Rest, Ending::PowerCut, Ending::PowerCut, Ending::Restart]);
        // A disk stays full during the next start, which must work.
        let stays_on = self.random.chance(50) || fault == Fault::FullDisk;
        let stage = Arc::new(self.stage(faults, ending != Ending::Rest)?);
        let mut writers = JoinSet::new();
        for writer in self.writers.drain(..) {
            writers.spawn(writer.run(stage.clone()));
        }
        let mut reader = JoinSet::new();
        reader.spawn(Reader::default().run(stage.clone()));

        self.pause(30, 300).await;
        let mut held = None;
        for fault in &stage.faults {
            drop(held.take());
            held = self.switch_on(&stage, *fault).await;
            self.pause_for(*fault).await;
            self.expect_confession(&stage, *fault).await;
        }
        if ending == Ending::Rest || !stays_on {
            self.faults.set(Fault::None);
        }
        // The lock is released before a graceful stop, which would only wait for it.
        let held = held.filter(|_| ending == Ending::PowerCut && stays_on);
        self.pause(0, 200).await;
        match ending {
            Ending::Rest => {}
            Ending::PowerCut => {
                self.report.fault(if stays_on { "power cut in a fault" } else { "power cut" });
                stage.is_ending.store(true, Ordering::SeqCst);
                self.stop()?.kill().await?;
            }
            Ending::Restart => {
                self.report.fault(if stays_on { "restart in a fault" } else { "restart" });
                stage.is_ending.store(true, Ordering::SeqCst);
                let status = self.stop()?.terminate().await?;
                if !status.success() {
                    self.report.violation(format!("{}: SIGTERM ended it with {status}", self.when(&stage)));
                }
            }
        }
        drop(held);
        stage.stop.store(true, Ordering::SeqCst);
        self.writers = writers.join_all().await;
        self.writers.sort_by(|a, b| a.things[0].name.cmp(&b.things[0].name));
        for reader in reader.join_all().await {
            self.slowest_read = self.slowest_read.max(reader.slowest);
            self.report.merge(reader.report);
        }
        let when = format!("{}, {ending:?}", self.when(&stage));
        if ending != Ending::Rest {
            self.start_again(fault, stays_on, &when).await?;
        }
        self.faults.set(Fault::None);
        let stage = self.stage(Vec::new(), false)?;
        self.expect_healing(&stage, &when).await;
        let shown = check(&stage, &mut self.writers, &mut self.report, &when).await?;
        if ending == Ending::Rest && self.random.chance(50) {
            self.compare_with_disk(&shown, &when).await?;
        }
        self.expect_writes().await
    }

    /// The next fault from a shuffled list, which is refilled when empty.
    fn next_fault(&mut self, has_time: bool) -> Fault {
        if self.bag.is_empty() {
            self.bag = Fault::bag(&mut self.random, has_time);
        }
        self.bag.pop().unwrap_or(Fault::None)
    }

    /// Switches a fault of the episode on.
    async fn switch_on(&mut self, stage: &Stage, fault: Fault) -> Option<WriteLock> {
        if fault != Fault::None {
            self.report.fault(fault.name());
            stage.was_faulty.store(true, Ordering::SeqCst);
        }
        self.faults.set(fault);
        if !matches!(fault, Fault::Locked { .. }) {
            return None;
        }
        match self.faults.lock().await {
            Ok(lock) => lock,
            Err(error) => {
                self.report.violation(format!("{}: {error:#}", self.when(stage)));
                None
            }
        }
    }

    /// Checks that the gateway reports `degraded` while nothing can be written and a change was refused.
    async fn expect_confession(&mut self, stage: &Stage, fault: Fault) {
        if !fault.stops_all_writes() || stage.refused.load(Ordering::SeqCst) == 0 {
            return;
        }
        self.report.operation("check of /ready in a fault");
        let mut last = String::new();
        let is_said = eventually(CONFESSION, async || {
            last = readiness(stage).await;
            last == "200 degraded"
        });
        if !is_said.await {
            self.report.violation(format!("{}: /ready says {last}", self.when(stage)));
        }
    }

    /// Checks that the gateway detects, without a write, that it can write again.
    async fn expect_healing(&mut self, stage: &Stage, when: &str) {
        self.report.operation("check of /ready after a fault");
        let mut last = String::new();
        let is_healed = eventually(HEALING, async || {
            last = readiness(stage).await;
            last == "200 ok" || last.starts_with("404")
        });
        if !is_healed.await || last != "200 ok" {
            self.report.violation(format!("{when}: /ready says {last} at rest"));
        }
    }

    /// Starts the gateway after it ended, if possible with the fault still on.
    async fn start_again(&mut self, fault: Fault, stays_on: bool, when: &str) -> Result<()> {
        if !stays_on {
            self.faults.set(Fault::None);
        }
        let must_start = !stays_on || fault == Fault::FullDisk || fault.is_harmless();
        match self.settings.start().await {
            Ok(gateway) => self.gateway = Some(gateway),
            Err(error) => {
                self.report.operation("start: refused");
                if must_start {
                    self.report.violation(format!("{when}: it does not start again: {error:#}"));
                }
                self.faults.set(Fault::None);
                self.gateway = Some(self.settings.start().await?);
                return Ok(());
            }
        }
        self.report.operation("start: done");
        if stays_on {
            let stage = self.stage(vec![fault], false)?;
            let mut reader = Reader::default();
            reader.pass(&stage).await;
            self.report.merge(reader.report);
            check(&stage, &mut self.writers, &mut self.report, &format!("{when}, fault still on")).await?;
        }
        Ok(())
    }

    /// Restarts a healthy, idle gateway: it must show the same lists again.
    async fn compare_with_disk(&mut self, before: &Shown, when: &str) -> Result<()> {
        self.report.fault("power cut at rest");
        self.stop()?.kill().await?;
        self.gateway = Some(self.settings.start().await?);
        let when = format!("{when}, after a power cut at rest");
        let stage = self.stage(Vec::new(), false)?;
        let after = check(&stage, &mut self.writers, &mut self.report, &when).await?;
        for path in before.difference(&after) {
            self.report.violation(format!("{when}: {path} differs from what was shown before"));
        }
        Ok(())
    }

    /// Checks that without faults each writer can make a change.
    async fn expect_writes(&mut self) -> Result<()> {
        let stage = self.stage(Vec::new(), false)?;
        for writer in &mut self.writers {
            writer.step(&stage).await;
        }
        Ok(())
    }

    /// Number of file operations of the program that failed or were delayed.
    pub fn injected(&self) -> u64 {
        self.faults.injected()
    }

    pub async fn finish(mut self) -> Result<Report> {
        if self.gateway.is_some() {
            self.stop()?.kill().await?;
        }
        for writer in self.writers.drain(..) {
            self.report.merge(writer.report);
        }
        Ok(self.report)
    }

    /// Takes the gateway, so that it can be ended.
    fn stop(&mut self) -> Result<Gateway> {
        let gateway = self.gateway.take().context("a gateway runs")?;
        if let Some(panic) = gateway.panic() {
            self.report.violation(format!("{}: {panic}", self.mode));
        }
        Ok(gateway)
    }

    fn stage(&self, faults: Vec<Fault>, ends: bool) -> Result<Stage> {
        Ok(Stage {
            address: self.gateway.as_ref().context("a gateway runs")?.address.clone(),
            admin: self.admin.clone(),
            server: self.server.clone(),
            faults,
            ends,
            stop: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            was_faulty: AtomicBool::new(false),
            refused: AtomicU64::new(0),
        })
    }

    fn when(&self, stage: &Stage) -> String {
        format!("{}, {}", self.mode, stage.names())
    }

    async fn pause(&mut self, least: u64, more: u64) {
        let milliseconds = least + self.random.below(more);
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }

    async fn pause_for(&mut self, fault: Fault) {
        match fault {
            Fault::Locked { milliseconds } => tokio::time::sleep(Duration::from_millis(milliseconds)).await,
            _ => self.pause(200, 1200).await,
        }
    }
}

/// The response of `/ready`: the HTTP status and the field `status`.
async fn readiness(stage: &Stage) -> String {
    match Request::new("GET", "/ready").send(&stage.address).await {
        Ok(response) => {
            let said = response.json().unwrap_or_default();
            format!("{} {}", response.status, said["status"].as_str().unwrap_or("without a status"))
        }
        Err(error) => format!("{error:#}"),
    }
}
