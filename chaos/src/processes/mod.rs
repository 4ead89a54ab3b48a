//! The processes part: servers whose child processes fork, hide, stop, flood pipes and kill their guard, while the
//! servers are registered, called, replaced and removed, and the gateway itself is stopped and killed. No process may be
//! left afterwards.

mod census;
mod offspring;
mod server;
mod slot;

use std::time::{Duration, Instant};

use anyhow::Result;
use tempfile::TempDir;
use tokio::task::LocalSet;

use crate::gateway::{Gateway, Settings, eventually};
use crate::plan::Plan;
use crate::report::Report;

use slot::{GONE, Round, Slot};

pub use server::serve;

/// The argument that runs this program as a server.
pub const SERVER: &str = "__server";

/// Number of concurrent servers. Each has at most a dozen processes.
const SLOTS: usize = 4;
/// Number of steps of each server between two faults of the gateway.
const STEPS: usize = 4;

pub async fn run(plan: &Plan) -> Result<Report> {
    let begun = Instant::now();
    let mut run = Run::start(plan).await?;
    // The first round is a warm-up: the gateway's idle level is known only after everything was used once.
    run.work().await?;
    run.remove_all().await?;
    let mut random = plan.random("processes");
    while begun.elapsed() < plan.duration {
        run.work().await?;
        match random.below(10) {
            0..4 => run.remove_all().await?,
            4..6 => run.terminate_gateway().await?,
            6..9 => run.kill_gateway().await?,
            _ => {}
        }
    }
    run.remove_all().await?;
    run.finish().await
}

struct Run<'a> {
    plan: &'a Plan,
    settings: Settings,
    gateway: Option<Gateway>,
    slots: Vec<Slot>,
    round: usize,
    /// Number of descriptors that the gateway has open without servers.
    at_rest: Option<usize>,
    report: Report,
    /// The longest time that processes took to end after their gateway.
    slowest: Duration,
    /// One file for each registration; its path is in the command line of every process of the server.
    marks: TempDir,
    _folder: TempDir,
}

impl<'a> Run<'a> {
    async fn start(plan: &'a Plan) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let settings =
            Settings::new(&plan.program, folder.path()).variable("MCP_SERVER_INIT_REQ_TIMEOUT_SEC", "15");
        let marks = tempfile::tempdir()?;
        Ok(Self {
            plan,
            gateway: Some(settings.start().await?),
            settings,
            slots: (0..SLOTS).map(|number| Slot::new(marks.path(), number)).collect(),
            round: 0,
            at_rest: None,
            marks,
            report: Report::new("processes"),
            slowest: Duration::ZERO,
            _folder: folder,
        })
    }

    /// Runs one round: all servers take their steps at the same time.
    async fn work(&mut self) -> Result<()> {
        self.round += 1;
        let (local, mut turns) = (LocalSet::new(), Vec::new());
        for (number, mut slot) in std::mem::take(&mut self.slots).into_iter().enumerate() {
            let mut round = self.round_of(&format!("server {number}"));
            turns.push(local.spawn_local(async move {
                for _ in 0..STEPS {
                    if let Err(error) = slot.step(&mut round).await {
                        round.violate(format!("the gateway did not answer: {error:#}"));
                    }
                }
                (slot, round.report)
            }));
        }
        for turn in turns {
            let (slot, report) = local.run_until(turn).await?;
            self.slots.push(slot);
            self.report.merge(report);
        }
        Ok(())
    }

    /// Removes every server; the gateway must then have no more descriptors open than at the beginning.
    async fn remove_all(&mut self) -> Result<()> {
        self.remove(|_| true).await?;
        let id = self.gateway_id();
        if !eventually(GONE, async || census::children(id) == (0, 0)).await {
            let (living, zombies) = census::children(id);
            self.violate(format!("without servers the gateway has {living} children and {zombies} zombies"));
        }
        let Some(at_rest) = self.at_rest else {
            self.at_rest = Some(settled_descriptors(id).await);
            return Ok(());
        };
        if !eventually(GONE, async || census::descriptors(id) <= at_rest).await {
            let now = census::descriptors(id);
            self.violate(format!("without servers the gateway has {now} descriptors, at first {at_rest}"));
        }
        self.report.operation("check of descriptors and children");
        Ok(())
    }

    async fn terminate_gateway(&mut self) -> Result<()> {
        self.report.fault("SIGTERM of the gateway");
        if let Some(gateway) = self.gateway.take() {
            let ended = gateway.terminate().await?;
            if !ended.success() {
                self.violate(format!("after SIGTERM the gateway ended with {ended}"));
            }
        }
        self.expect_all_gone("SIGTERM of the gateway").await;
        self.gateway = Some(self.settings.start().await?);
        Ok(())
    }

    async fn kill_gateway(&mut self) -> Result<()> {
        // When guard and gateway are killed at the same moment, no process is left that could clean up.
        self.remove(Slot::kills_guards).await?;
        self.report.fault("kill -9 of the gateway");
        if let Some(gateway) = self.gateway.take() {
            gateway.kill().await?;
        }
        self.expect_all_gone("kill -9 of the gateway").await;
        self.gateway = Some(self.settings.start().await?);
        Ok(())
    }

    async fn finish(mut self) -> Result<Report> {
        if let Some(gateway) = self.gateway.take() {
            gateway.terminate().await?;
        }
        self.expect_all_gone("the end").await;
        let slowest = self.slots.iter().map(|slot| slot.slowest).fold(self.slowest, Duration::max);
        self.report.figure("rounds", self.round);
        self.report.figure("slowest end of processes", format!("{:.1} s", slowest.as_secs_f64()));
        Ok(self.report)
    }

    /// Removes some of the servers.
    async fn remove(&mut self, is_meant: impl Fn(&Slot) -> bool) -> Result<()> {
        let mut round = self.round_of("removal");
        for slot in self.slots.iter_mut().filter(|slot| is_meant(slot)) {
            slot.remove(&mut round).await?;
        }
        self.report.merge(round.report);
        Ok(())
    }

    /// Checks that after the end of the gateway no process of any server is left.
    async fn expect_all_gone(&mut self, after: &str) {
        let begun = Instant::now();
        let entries = std::fs::read_dir(self.marks.path()).into_iter().flatten().flatten();
        for mark in entries.map(|entry| entry.path().display().to_string()) {
            let limit = GONE.saturating_sub(begun.elapsed());
            if !eventually(limit, async || slot::is_gone(&mark)).await {
                let left = slot::clear(&mark);
                self.violate(format!("{after} left {left}"));
            }
        }
        self.slowest = self.slowest.max(begun.elapsed());
    }

    fn round_of(&self, who: &str) -> Round {
        Round {
            address: self.gateway.as_ref().map(|gateway| gateway.address.clone()).unwrap_or_default(),
            random: self.plan.random(&format!("processes {} {who}", self.round)),
            report: Report::default(),
            label: format!("round {}, {who}", self.round),
        }
    }

    fn gateway_id(&self) -> u32 {
        self.gateway.as_ref().map_or(0, Gateway::id)
    }

    fn violate(&mut self, what: String) {
        self.report.violation(format!("round {}: {what}", self.round));
    }
}

/// How many descriptors a process has open once the number no longer changes.
async fn settled_descriptors(id: u32) -> usize {
    let (mut last, mut same) = (0, 0);
    eventually(GONE, async || {
        let now = census::descriptors(id);
        same = if now == last { same + 1 } else { 0 };
        last = now;
        same > 25
    })
    .await;
    last
}
