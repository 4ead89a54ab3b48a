//! What a process holds: memory, descriptors, threads.

use anyhow::{Context, Result};

#[derive(Clone, Copy, Debug)]
pub struct Level {
    /// The process's own memory in KiB, without the pages of the program file.
    pub memory: u64,
    pub descriptors: u64,
    pub threads: u64,
}

impl Level {
    pub fn of(process: u32) -> Result<Self> {
        let folder = format!("/proc/{process}");
        let memory = number(&format!("{folder}/smaps_rollup"), "Pss_Anon:")?;
        let threads = number(&format!("{folder}/status"), "Threads:")?;
        let descriptors = std::fs::read_dir(format!("{folder}/fd"))?.count() as u64;
        Ok(Self { memory, descriptors, threads })
    }

    /// What of this level is above an earlier one by more than 10 % and what an allocator or a pool may keep.
    pub fn excess(&self, before: &Self) -> Vec<String> {
        let memory = self.memory_excess(before);
        let descriptors = excess("descriptors", self.descriptors, before.descriptors, 4);
        let threads = excess("threads", self.threads, before.threads, 2);
        [memory, descriptors, threads].into_iter().flatten().collect()
    }

    pub fn memory_excess(&self, before: &Self) -> Option<String> {
        excess("memory in KiB", self.memory, before.memory, 4096)
    }
}

fn excess(name: &str, now: u64, before: u64, slack: u64) -> Option<String> {
    (now > before + before / 10 + slack).then(|| format!("{name}: {before} → {now}"))
}

/// The number after a word at the beginning of a line.
fn number(path: &str, word: &str) -> Result<u64> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(word));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("no {word} in {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_within_a_tenth_and_the_slack_is_no_excess() {
        let before = Level { memory: 40_000, descriptors: 20, threads: 10 };
        assert!(Level { memory: 48_000, descriptors: 26, threads: 13 }.excess(&before).is_empty());
        assert_eq!(
            Level { memory: 48_097, descriptors: 27, threads: 14 }.excess(&before),
            ["memory in KiB: 40000 → 48097", "descriptors: 20 → 27", "threads: 10 → 14"]
        );
    }

    #[test]
    fn this_process_has_a_level() {
        let level = Level::of(std::process::id()).unwrap();
        assert!(level.memory > 0 && level.descriptors > 0 && level.threads > 0, "{level:?}");
    }
}
