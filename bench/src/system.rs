//! Functions of the operating system: the limit of descriptors, thread priorities, and the memory, CPU time and children of
//! a process.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Raises the limit of open descriptors, which the gateway inherits, and checks that it suffices.
pub fn raise_descriptor_limit(needed: usize) -> Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls read or write the one structure that they are given, which outlives them.
    #[allow(unsafe_code)]
    let is_raised = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0
        }
    };
    ensure!(is_raised, "cannot raise the limit of open descriptors");
    let allowed = usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX);
    ensure!(allowed >= needed, "{needed} descriptors are needed, and the hard limit is {allowed}");
    Ok(())
}

/// Gives the calling thread a lower priority than the gateway, so that it does not disturb the measurement.
pub fn step_back() {
    // SAFETY: plain system calls without memory; 0 stands for the calling thread.
    #[allow(unsafe_code)]
    let is_ordinary = unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, 19);
        libc::sched_getscheduler(0) == libc::SCHED_OTHER
    };
    if !is_ordinary {
        schedule(libc::SCHED_FIFO, 1);
    }
}

/// Gives the calling thread the highest priority, if permitted, so that its waiting times are those of the gateway.
pub fn step_forward() {
    schedule(libc::SCHED_FIFO, 20);
}

fn schedule(policy: libc::c_int, priority: libc::c_int) {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the call reads the one structure that it is given; 0 stands for the calling thread.
    #[allow(unsafe_code)]
    unsafe {
        libc::sched_setscheduler(0, policy, &parameters);
    }
}

/// The memory of a process in MiB: resident set size (RSS) and proportional set size (PSS).
pub fn memory(process: u32) -> Result<(f64, f64)> {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
    let field = |name: &str| {
        let line =
            text.lines().find_map(|line| line.strip_prefix(name)).context("unexpected smaps_rollup")?;
        let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
        anyhow::Ok(kilobytes / 1024.0)
    };
    Ok((field("Rss:")?, field("Pss:")?))
}

/// User and system time of all threads of a process so far.
pub fn cpu_time(process: u32) -> Result<Duration> {
    Ok(schedule_times(process)?.0)
}

/// The same, and the time in which a thread had to wait for a processor.
pub fn busy_time(process: u32) -> Result<Duration> {
    let (running, waiting) = schedule_times(process)?;
    Ok(running + waiting)
}

/// More precise than `stat`, which counts hundredths of a second.
fn schedule_times(process: u32) -> Result<(Duration, Duration)> {
    let (mut running, mut waiting) = (0, 0);
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may end meanwhile.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        let mut fields = text.split_whitespace().map(|field| field.parse().unwrap_or(0));
        running += fields.next().unwrap_or(0);
        waiting += fields.next().unwrap_or(0);
    }
    Ok((Duration::from_nanos(running), Duration::from_nanos(waiting)))
}

/// The first child of a process, if it has one.
pub fn child_of(process: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Asks a process to end.
pub fn terminate(process: u32) -> Result<()> {
    let status = Command::new("sh").args(["-c", "kill -TERM \"$0\""]).arg(process.to_string()).status()?;
    ensure!(status.success(), "the process {process} cannot be ended");
    Ok(())
}

/// Restricts a process, and what it starts from then on, to one processor.
pub fn pin(process: u32, processor: usize) -> Result<()> {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", "--pid", &processor.to_string(), &process.to_string()]).stdout(Stdio::null());
    ensure!(command.status().context("cannot start taskset")?.success(), "the process cannot be pinned");
    Ok(())
}

/// The numbers of the processors that this program may use.
pub fn processors() -> Result<Vec<usize>> {
    let text = fs::read_to_string("/proc/self/status")?;
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    parse_processors(list.context("unexpected /proc/self/status")?.trim())
}

fn parse_processors(list: &str) -> Result<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse()?..=last.parse::<usize>()?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_have_ranges() {
        assert_eq!(parse_processors("0").unwrap(), [0]);
        assert_eq!(parse_processors("1,4-6").unwrap(), [1, 4, 5, 6]);
    }
}
