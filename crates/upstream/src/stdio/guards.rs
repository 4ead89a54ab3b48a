//! The running guards of a gateway, and the cleanup of processes that a killed guard leaves behind.
//! Where the gateway is a child subreaper, such orphans become its own children: any child that is not a guard is one.

#![allow(unsafe_code)] // Being a child subreaper has no safe interface in std.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::process::{Child, Command};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::processes::{self, Pid};

/// Shared by all links of a gateway.
#[derive(Clone)]
pub struct Guards {
    running: Arc<Mutex<HashSet<Pid>>>,
    ends: TaskTracker,
    /// Whether unrelated processes may be our children too.
    has_strangers: bool,
}

impl Default for Guards {
    fn default() -> Self {
        Self { running: Arc::default(), ends: TaskTracker::new(), has_strangers: has_strangers() }
    }
}

/// Whether this process has children that no guard started: as the first process of a container it adopts all orphans,
/// and a script may have started processes before it became the gateway with `exec`.
#[cfg(target_os = "linux")]
fn has_strangers() -> bool {
    let us = std::process::id();
    us == 1 || Pid::try_from(us).is_ok_and(processes::has_children)
}

#[cfg(not(target_os = "linux"))]
fn has_strangers() -> bool {
    true
}

/// A guard that was started. Once it is dropped, [`Guards::wait`] no longer waits for its end.
pub struct Started {
    pub pid: Pid,
    _end: TaskTrackerToken,
}

/// Makes this process adopt processes that lose their guard. Only for a process that starts no other children.
pub fn adopt_orphans() {
    // SAFETY: a plain system call without memory.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    };
}

impl Guards {
    /// Starts a guard. The lock is held meanwhile: a child that is not registered yet would be taken for an orphan.
    pub fn start(&self, command: &mut Command) -> std::io::Result<(Child, Started)> {
        let mut running = self.lock();
        let child = command.spawn()?;
        let pid = child.id().and_then(|pid| Pid::try_from(pid).ok()).expect("a new child has an id");
        running.insert(pid);
        Ok((child, Started { pid, _end: self.ends.token() }))
    }

    /// Ends the processes that a guard left behind, after it ended and was waited for. Returns when none is left.
    pub async fn clean_up_after(&self, guard: &Started) {
        self.lock().remove(&guard.pid);
        #[cfg(not(target_os = "linux"))]
        processes::kill_below(guard.pid);
        let begun = Instant::now();
        loop {
            let (guards, guard) = (self.clone(), guard.pid);
            let sweep = tokio::task::spawn_blocking(move || guards.end_orphans(guard));
            if sweep.await.is_ok_and(|left| left == 0) {
                return;
            }
            tokio::time::sleep(processes::pause_after(begun.elapsed())).await;
        }
    }

    /// Waits until all guards and all processes that they guarded are gone, for at most `limit`.
    pub async fn wait(&self, limit: Duration) {
        self.ends.close();
        if tokio::time::timeout(limit, self.ends.wait()).await.is_err() {
            tracing::warn!("some server processes have not ended yet; their guards keep trying to end them");
        }
    }

    /// Kills and reaps the orphans that this process has adopted; returns how many are left. If unrelated processes may
    /// be among its children, only those still in the guard's session count as orphans. The lock is held meanwhile, so
    /// that no process id can be reused by a new guard.
    #[cfg(target_os = "linux")]
    fn end_orphans(&self, guard: Pid) -> usize {
        let running = self.lock();
        let us = std::process::id() as Pid;
        if !adopts_orphans() {
            return 0;
        }
        let orphans = || -> Vec<Pid> {
            let is_ours = |child: &Pid| !self.has_strangers || processes::session_of(*child) == Some(guard);
            let children = processes::children_of(us).into_iter();
            children.filter(|child| !running.contains(child) && is_ours(child)).collect()
        };
        if orphans().is_empty() {
            return 0;
        }
        // SAFETY: a plain system call without memory.
        let our_group = unsafe { libc::getpgrp() };
        processes::kill_all(orphans, our_group);
        orphans().into_iter().for_each(processes::reap);
        orphans().len()
    }

    #[cfg(not(target_os = "linux"))]
    fn end_orphans(&self, _: Pid) -> usize {
        0
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Pid>> {
        self.running.lock().expect("no code panics while it holds the guards")
    }
}

/// Whether [`adopt_orphans`] was called. In another program, such as a test, children may be unrelated processes.
#[cfg(target_os = "linux")]
fn adopts_orphans() -> bool {
    let mut adopts: libc::c_int = 0;
    // SAFETY: the kernel writes one integer, which outlives the call.
    unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut adopts, 0, 0, 0) };
    adopts != 0
}
