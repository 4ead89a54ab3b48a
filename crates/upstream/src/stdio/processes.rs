//! Process trees: finds and ends all descendants of a process, even while they keep forking.
//! On systems other than Linux only the process group is known.

#![allow(unsafe_code)] // Signals and waiting for a process by its id have no safe interface in std.

use std::time::Duration;

pub type Pid = libc::pid_t;

/// The shortest and the longest pause between two attempts to end the same processes.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_secs(1)];

/// Sends a signal to a process, or with a negative id to a process group. Does nothing if it does not exist.
pub fn send(pid: Pid, signal: libc::c_int) {
    // SAFETY: a plain system call without memory.
    unsafe { libc::kill(pid, signal) };
}

/// The pause before the next attempt to end processes that have not ended for `elapsed`: short at first, when they may
/// just fork quickly, long later, when they probably cannot be killed (uninterruptible sleep, another user's).
pub fn pause_after(elapsed: Duration) -> Duration {
    (elapsed / 20).clamp(PAUSES[0], PAUSES[1])
}

#[cfg(target_os = "linux")]
pub use linux::{children_of, has_children, kill_all, kill_below, reap, session_of, signal_below};

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::{Pid, send};

    /// The limit for stopping a process tree before it is killed, in rounds of one millisecond: a process in
    /// uninterruptible sleep, such as the parent of an unfinished `vfork`, does not stop at all.
    const FREEZE_ROUNDS: usize = 50;

    /// The fields of `/proc/PID/stat` that are used here.
    struct Stat {
        state: char,
        parent: Pid,
        group: Pid,
        session: Pid,
    }

    /// Sends a signal to every process below `ancestor`.
    pub fn signal_below(ancestor: Pid, signal: libc::c_int) {
        for pid in visit(children_of(ancestor), |_| {}) {
            send(pid, signal);
        }
    }

    /// Kills every process below `ancestor`, which must lead its session. Callers repeat this until none is left.
    pub fn kill_below(ancestor: Pid) {
        kill_all(|| children_of(ancestor), ancestor);
    }

    /// Kills the processes that `roots` returns and all their descendants, except for the group `spared`.
    ///
    /// All of them are stopped first, since a stopped process neither forks nor notices that others die. A fork in
    /// progress can still add a process, so callers repeat this until none is left.
    pub fn kill_all(roots: impl Fn() -> Vec<Pid>, spared: Pid) {
        let found = freeze(&roots);
        // A signal to a group and a fork within the group cannot happen at the same time. Guards lead sessions, so a
        // group never contains processes of two servers.
        let groups: HashSet<_> = found.iter().filter_map(|pid| stat(*pid)).map(|stat| stat.group).collect();
        for group in groups.into_iter().filter(|group| *group > 1 && *group != spared) {
            send(-group, libc::SIGKILL);
        }
        for pid in found {
            send(pid, libc::SIGKILL);
        }
    }

    /// Stops the processes until a round finds no new one and no running one.
    fn freeze(roots: &impl Fn() -> Vec<Pid>) -> HashSet<Pid> {
        let mut known = HashSet::new();
        for _ in 0..FREEZE_ROUNDS {
            let found = visit(roots(), |pid| send(pid, libc::SIGSTOP));
            let is_stopped =
                |pid: &Pid| stat(*pid).is_none_or(|stat| matches!(stat.state, 'T' | 't' | 'Z' | 'X'));
            let are_stopped = found.iter().all(is_stopped);
            let is_complete = found.iter().all(|pid| known.contains(pid));
            known = found;
            if is_complete && are_stopped {
                break;
            }
            if !are_stopped {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        known
    }

    /// Calls `meet` for each process of a tree, always before its children are looked up.
    fn visit(roots: Vec<Pid>, meet: impl Fn(Pid)) -> HashSet<Pid> {
        let (mut found, mut next) = (HashSet::new(), roots);
        while let Some(pid) = next.pop() {
            if found.insert(pid) {
                meet(pid);
                next.extend(children_of(pid));
            }
        }
        found
    }

    /// The session of a process: the id of the session leader, which may be gone.
    pub fn session_of(pid: Pid) -> Option<Pid> {
        stat(pid).map(|stat| stat.session)
    }

    /// The children of a process, including zombies.
    pub fn children_of(parent: Pid) -> Vec<Pid> {
        let mut children = Vec::new();
        for task in std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten() {
            match std::fs::read_to_string(task.path().join("children")) {
                Ok(list) => {
                    children.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<Pid>().ok()))
                }
                // The thread has just ended, or the kernel was built without these lists.
                Err(_) => return search_children(parent),
            }
        }
        children
    }

    pub fn has_children(parent: Pid) -> bool {
        !children_of(parent).is_empty()
    }

    fn search_children(parent: Pid) -> Vec<Pid> {
        let names = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
        let pids = names.filter_map(|name| name.to_str().and_then(|name| name.parse().ok()));
        pids.filter(|pid| stat(*pid).is_some_and(|stat| stat.parent == parent)).collect()
    }

    /// Reaps a child that has ended; does nothing while it runs.
    pub fn reap(child: Pid) {
        // SAFETY: a plain system call; no status is asked for.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::WNOHANG) };
    }

    fn stat(pid: Pid) -> Option<Stat> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // `pid (name) state parent group session ...`; the name may contain anything, so start at its last bracket.
        let mut fields = stat.rsplit(')').next()?.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let mut number = || fields.next()?.parse().ok();
        Some(Stat { state, parent: number()?, group: number()?, session: number()? })
    }
}

/// Sends a signal to the group that `ancestor` leads.
#[cfg(not(target_os = "linux"))]
pub fn signal_below(ancestor: Pid, signal: libc::c_int) {
    send(-ancestor, signal);
}

/// Always false: children cannot be listed on this system.
#[cfg(not(target_os = "linux"))]
pub fn has_children(_: Pid) -> bool {
    false
}

/// Kills the group that `ancestor` leads, including `ancestor`.
#[cfg(not(target_os = "linux"))]
pub fn kill_below(ancestor: Pid) {
    send(-ancestor, libc::SIGKILL);
}
