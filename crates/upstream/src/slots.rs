//! Slots for the processes of stdio servers: a bounded number for each server, and for all together. When all are taken,
//! the process of a further link that is idle is ended to make room.

use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::branch::{Branch, Settling};
use super::error::CallError;
use super::link::Link;
use super::pool::LinkPool;
use super::stdio::{ProcessCount, ProcessSlot};
use super::step::Step;
use budget::{Bound, Budgets, SERVER_PROCESSES};

/// The slots of a gateway. Clones share them.
#[derive(Clone)]
pub struct ProcessSlots(Arc<AllSlots>);

struct AllSlots {
    budgets: Budgets,
    count: ProcessCount,
    servers: Mutex<Vec<Weak<ServerSlots>>>,
    /// Notified when a process is gone, or idle for the first time.
    freed: Arc<Notify>,
}

/// The slots of one server, and its further links.
pub struct ServerSlots {
    all: ProcessSlots,
    count: ProcessCount,
    pub pool: LinkPool,
}

/// The bound that leaves no slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Full {
    Server,
    All,
}

impl ProcessSlots {
    pub fn new(budgets: &Budgets) -> Self {
        Self(Arc::new(AllSlots {
            count: ProcessCount::new(budgets.processes.clone(), &budgets.refusals),
            budgets: budgets.clone(),
            servers: Mutex::default(),
            freed: Arc::default(),
        }))
    }

    /// The slots of a server that is about to be connected.
    pub fn of_server(&self) -> Arc<ServerSlots> {
        let count = ProcessCount::of_server(SERVER_PROCESSES, &self.0.budgets.refusals);
        let slots = Arc::new(ServerSlots { all: self.clone(), count, pool: LinkPool::default() });
        let mut servers = self.0.servers.lock().expect("no code panics while it holds the servers");
        servers.retain(|server| server.strong_count() > 0);
        servers.push(Arc::downgrade(&slots));
        slots
    }

    /// Takes the link that has been idle longest out of its pool, of whatever server.
    fn take_idle(&self) -> Option<Arc<Link>> {
        let servers = self.servers().into_iter();
        let mut idle: Vec<_> =
            servers.filter_map(|server| Some((server.pool.idle_since()?, server))).collect();
        idle.sort_by_key(|(since, _)| *since);
        idle.iter().find_map(|(_, server)| server.pool.take_idle())
    }

    fn servers(&self) -> Vec<Arc<ServerSlots>> {
        let servers = self.0.servers.lock().expect("no code panics while it holds the servers");
        servers.iter().filter_map(Weak::upgrade).collect()
    }
}

impl ServerSlots {
    /// Keeps a link that was just opened from being idle until its lists are read.
    pub fn settle(&self, branch: &Arc<Branch>, link: &Arc<Link>) -> Settling {
        branch.settle(link.clone(), self.all.0.freed.clone())
    }

    /// Takes a slot for a process. Ends an idle process if there is none, and waits while one is ending or will soon be
    /// idle.
    pub async fn take(&self, tasks: &TaskTracker, step: &Step) -> Result<ProcessSlot, CallError> {
        loop {
            let mut freed = pin!(self.all.0.freed.notified());
            freed.as_mut().enable();
            let full = match self.try_take() {
                Ok(slot) => return Ok(slot),
                Err(full) => full,
            };
            let idle = match full {
                Full::Server => self.pool.take_idle(),
                Full::All => self.pool.take_idle().or_else(|| self.all.take_idle()),
            };
            if let Some(link) = idle {
                // In a task of its own: the process must end even if the caller gives up.
                let _ = tasks.spawn(async move { link.close().await }).await;
                continue;
            }
            if !self.will_have_room(full) {
                // The last one may have ended, or become idle, just now.
                match self.try_take() {
                    Ok(slot) => return Ok(slot),
                    Err(full) if !self.has_idle(full) => return Err(self.refusal(full)),
                    Err(_) => continue,
                }
            }
            step.set(format!("waiting for one of its {} processes to end", self.limit(full)));
            freed.await;
        }
    }

    fn try_take(&self) -> Result<ProcessSlot, Full> {
        let of_server = self.count.add().ok_or(Full::Server)?;
        let of_all = self.all.0.count.add().ok_or(Full::All)?;
        let counts = [self.count.clone(), self.all.0.count.clone()];
        Ok(ProcessSlot::new(counts, [of_server, of_all], self.all.0.freed.clone()))
    }

    /// Whether a process is ending, or will be idle soon.
    fn will_have_room(&self, full: Full) -> bool {
        match full {
            Full::Server => self.count.has_ending() || self.pool.is_settling(),
            Full::All => {
                self.all.0.count.has_ending() || self.all.servers().iter().any(|of| of.pool.is_settling())
            }
        }
    }

    fn has_idle(&self, full: Full) -> bool {
        match full {
            Full::Server => self.pool.idle_since().is_some(),
            Full::All => self.all.servers().iter().any(|of| of.pool.idle_since().is_some()),
        }
    }

    fn limit(&self, full: Full) -> u64 {
        match full {
            Full::Server => self.count.limit(),
            Full::All => self.all.0.count.limit(),
        }
    }

    fn refusal(&self, full: Full) -> CallError {
        let limit = self.limit(full);
        let exceeded = self.all.0.budgets.exceeded(Bound::Processes, limit);
        CallError::Exceeded(match full {
            Full::Server => {
                format!("all {limit} processes of this server are in use; try again later")
            }
            Full::All => exceeded.to_string(),
        })
    }
}
