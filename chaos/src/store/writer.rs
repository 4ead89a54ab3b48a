//! A writer: changes the things that it owns, one request after the other, and records what was confirmed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::faults::Fault;
use super::thing::{Kind, Thing};
use crate::http::Response;
use crate::random::Random;
use crate::report::Report;
use crate::server::Server;

/// Longer than any change takes: while the lock is held, each of the writers may wait for the busy timeout in turn.
const LIMIT: Duration = Duration::from_secs(120);

/// State shared by all tasks of an episode.
pub struct Stage {
    pub address: String,
    /// The token of the admin, in enterprise mode.
    pub admin: Option<String>,
    pub server: Arc<Server>,
    /// The faults of the episode in order, whether or not one is on at the moment.
    pub faults: Vec<Fault>,
    /// Whether the gateway ends with the episode. Only then may writers disconnect without waiting for the response: the
    /// outcome of such a change is known only after a restart.
    pub ends: bool,
    /// Tells writers and readers to end.
    pub stop: AtomicBool,
    /// Set before the gateway is killed or stopped: from then on requests may fail.
    pub is_ending: AtomicBool,
    /// Whether the fault was on at any time.
    pub was_faulty: AtomicBool,
    /// Changes that were refused.
    pub refused: AtomicU64,
}

impl Stage {
    /// Whether a refused change may exist after a restart. When a sync fails, the change is already in the log and
    /// has to be overwritten; if the disk refuses that too, the response must say so.
    fn leaves_doubt(&self, refusal: &Response) -> bool {
        self.ends && refusal.text().contains("may be stored if the gateway is restarted")
    }

    /// The names of the faults.
    pub fn names(&self) -> String {
        let names: Vec<_> = self.faults.iter().map(|fault| fault.name()).collect();
        names.join(", then ")
    }
}

pub struct Writer {
    pub things: Vec<Thing>,
    pub random: Random,
    pub report: Report,
}

impl Writer {
    pub fn new(index: usize, kinds: &[Kind], random: Random) -> Self {
        let thing = |(number, kind): (usize, &Kind)| {
            let letter = match kind {
                Kind::Server => 's',
                Kind::Group => 'g',
                Kind::Client => 'c',
                Kind::User => 'u',
            };
            Thing::new(*kind, format!("w{index}{letter}{number}"))
        };
        let things = kinds.iter().chain(kinds).enumerate().map(thing).collect();
        Self { things, random, report: Report::default() }
    }

    /// Makes random changes until the stage stops or the gateway has ended.
    pub async fn run(mut self, stage: Arc<Stage>) -> Self {
        loop {
            if stage.stop.load(Ordering::SeqCst) || !self.step(&stage).await {
                return self;
            }
        }
    }

    /// Makes one change; returns false when the gateway has ended.
    pub async fn step(&mut self, stage: &Stage) -> bool {
        let mut certain: Vec<_> = self.things.iter_mut().filter(|thing| thing.doubt.is_none()).collect();
        let index = usize::try_from(self.random.below(certain.len() as u64)).unwrap_or(0);
        let Some(thing) = certain.get_mut(index) else { return false };
        let change = thing.change(&mut self.random, &stage.server);
        let vanishes = stage.ends && self.random.chance(2);
        let limit = if vanishes { Duration::from_millis(self.random.below(15)) } else { LIMIT };
        let mut request = change.request.limit(limit);
        if let Some(admin) = &stage.admin {
            request = request.token(admin);
        }
        let sent = request.send(&stage.address).await;
        let what = change.what;
        match sent {
            Ok(response) if response.is_success() => {
                self.report.operation(&format!("{what}: done"));
                thing.settle(change.after);
                true
            }
            Ok(response) => {
                self.report.operation(&format!("{what}: refused"));
                if stage.leaves_doubt(&response) {
                    thing.doubt = Some(change.after);
                } else {
                    thing.refuse(&change.after);
                }
                stage.refused.fetch_add(1, Ordering::SeqCst);
                if let Some(reason) = unjustified(stage, &response) {
                    let (status, said) = (response.status, response.text());
                    let name = &thing.name;
                    self.report.violation(format!("{what} {name}: {status} {said}, {reason}"));
                }
                true
            }
            Err(error) => {
                self.report.operation(&format!("{what}: no response"));
                if !vanishes && !stage.is_ending.load(Ordering::SeqCst) {
                    self.report.violation(format!("{what} {}: {error:#}", thing.name));
                }
                thing.doubt = Some(change.after);
                vanishes
            }
        }
    }
}

/// The reason why a change should not have been refused.
fn unjustified(stage: &Stage, response: &Response) -> Option<String> {
    if stage.is_ending.load(Ordering::SeqCst) && response.status >= 500 {
        None
    } else if response.status < 500 {
        Some("although it fits the earlier responses".to_owned())
    } else if !stage.was_faulty.load(Ordering::SeqCst) {
        Some("although the store has no fault".to_owned())
    } else if stage.faults.iter().all(|fault| fault.is_harmless()) {
        Some(format!("although there was only a fault that SQLite handles: {}", stage.names()))
    } else {
        None
    }
}
