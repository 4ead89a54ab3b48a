//! Reads the processes of a run from `/proc`: which exist, their parents and their states.

use std::fs;

/// A living process whose command line contains the mark that was searched for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub pid: u32,
    pub parent: u32,
    state: char,
    /// In clock ticks since boot; distinguishes two processes with the same id.
    started: u64,
    command: String,
}

impl Found {
    /// Whether it is the process that the gateway put between itself and the server.
    pub fn is_guard(&self) -> bool {
        self.command.contains(" __guard ")
    }

    /// Whether this process, and not another one with its id, still runs.
    pub fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|now| now.started == self.started && !now.has_ended())
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.is_guard() { "guard" } else { "process" };
        write!(f, "{kind} {} (state {}, parent {})", self.pid, self.state, self.parent)
    }
}

struct Stat {
    state: char,
    parent: u32,
    started: u64,
}

impl Stat {
    fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// The living processes with `mark` in their command line.
pub fn marked(mark: &str) -> Vec<Found> {
    let find = |pid: u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let Stat { state, parent, started } =
            stat(pid).filter(|stat| command.contains(mark) && !stat.has_ended())?;
        Some(Found { pid, parent, state, started, command })
    };
    pids().filter_map(find).collect()
}

/// The children of a process: living ones and zombies.
pub fn children(parent: u32) -> (usize, usize) {
    let children: Vec<_> = pids().filter_map(stat).filter(|stat| stat.parent == parent).collect();
    let zombies = children.iter().filter(|stat| stat.has_ended()).count();
    (children.len() - zombies, zombies)
}

/// How many descriptors a process has open.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn stat(pid: u32) -> Option<Stat> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may contain anything, so the fields are counted from its end.
    let fields: Vec<_> = stat.rsplit(')').next()?.split_ascii_whitespace().collect();
    let state = fields.first()?.chars().next()?;
    Some(Stat { state, parent: fields.get(1)?.parse().ok()?, started: fields.get(19)?.parse().ok()? })
}
