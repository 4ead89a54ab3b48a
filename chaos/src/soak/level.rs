//! The resources of a gateway: memory, descriptors, threads, tasks.

use anyhow::{Context, Result, ensure};

use crate::gateway::Gateway;

/// The line of the gauge of live tasks in `/metrics`, up to its value.
const TASKS: &str = "toolgate_runtime_tasks ";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// The process's own memory in KiB, without the pages of the program file.
    pub memory: u64,
    pub descriptors: u64,
    pub threads: u64,
    /// Live tasks, including that of the connection which reads this number.
    pub tasks: u64,
}

impl Level {
    /// Reads the level of a running gateway.
    pub async fn of(gateway: &Gateway) -> Result<Self> {
        let metrics = gateway.get("/metrics").await?;
        ensure!(metrics.status == 200, "GET /metrics: {} {}", metrics.status, metrics.text());
        Self::of_process(gateway.id(), number(&metrics.text(), TASKS)?)
    }

    fn of_process(process: u32, tasks: u64) -> Result<Self> {
        let folder = format!("/proc/{process}");
        let read = |name| {
            let path = format!("{folder}/{name}");
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        let memory = number(&read("smaps_rollup")?, "Pss_Anon:")?;
        let threads = number(&read("status")?, "Threads:")?;
        let descriptors = std::fs::read_dir(format!("{folder}/fd"))?.count() as u64;
        Ok(Self { memory, descriptors, threads, tasks })
    }

    /// Takes the lower of both values for each resource; returns whether any value became lower.
    pub fn lower_to(&mut self, other: &Self) -> bool {
        let before = *self;
        self.memory = self.memory.min(other.memory);
        self.descriptors = self.descriptors.min(other.descriptors);
        self.threads = self.threads.min(other.threads);
        self.tasks = self.tasks.min(other.tasks);
        *self != before
    }

    /// Lists the resources that grew by more than 10% plus what an allocator or a pool may keep. For tasks nothing is
    /// added: tasks of removed servers, ended sessions and closed connections must end.
    pub fn excess(&self, before: &Self) -> Vec<String> {
        let memory = self.memory_excess(before);
        let descriptors = excess("descriptors", self.descriptors, before.descriptors, 4);
        let threads = excess("threads", self.threads, before.threads, 2);
        let tasks = excess("tasks", self.tasks, before.tasks, 0);
        [memory, descriptors, threads, tasks].into_iter().flatten().collect()
    }

    pub fn memory_excess(&self, before: &Self) -> Option<String> {
        excess("memory in KiB", self.memory, before.memory, 4096)
    }
}

fn excess(name: &str, now: u64, before: u64, slack: u64) -> Option<String> {
    (now > before + before / 10 + slack).then(|| format!("{name}: {before} → {now}"))
}

/// The number that follows a word at the beginning of a line.
fn number(text: &str, word: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(word));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("no number after {word:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_within_a_tenth_and_the_slack_is_no_excess() {
        let before = Level { memory: 40_000, descriptors: 20, threads: 10, tasks: 19 };
        let within = Level { memory: 48_096, descriptors: 26, threads: 13, tasks: 20 };
        assert!(within.excess(&before).is_empty());
        assert_eq!(
            Level { memory: 48_097, descriptors: 27, threads: 14, tasks: 21 }.excess(&before),
            ["memory in KiB: 40000 → 48097", "descriptors: 20 → 27", "threads: 10 → 14", "tasks: 19 → 21"]
        );
    }

    #[test]
    fn the_lowest_of_two_levels_is_the_lowest_of_each_value() {
        let first = Level { memory: 1, descriptors: 20, threads: 3, tasks: 40 };
        let mut lowest = first;
        assert!(lowest.lower_to(&Level { memory: 10, descriptors: 2, threads: 30, tasks: 4 }));
        assert_eq!(lowest, Level { memory: 1, descriptors: 2, threads: 3, tasks: 4 });
        assert!(!lowest.lower_to(&first));
    }

    #[test]
    fn a_gauge_is_found_among_metrics() {
        let text = "# HELP toolgate_runtime_tasks Tasks.\n# TYPE toolgate_runtime_tasks gauge\n\
            toolgate_runtime_tasks 12\n# EOF\n";
        assert_eq!(number(text, TASKS).unwrap(), 12);
        assert!(number("# EOF\n", TASKS).is_err());
    }

    #[test]
    fn this_process_has_a_level() {
        let level = Level::of_process(std::process::id(), 1).unwrap();
        assert!(level.memory > 0 && level.descriptors > 0 && level.threads > 0, "{level:?}");
    }
}
