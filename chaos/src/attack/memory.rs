//! The memory of a process, read often enough to notice a peak. Limits that the kernel enforces are no ceiling here:
//! they count the address space that an allocator reserves, not what it uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::JoinHandle;

const PACE: Duration = Duration::from_millis(20);

pub struct Memory {
    process: u32,
    peak: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Memory {
    pub fn watch(process: u32) -> Self {
        let peak = Arc::new(AtomicU64::default());
        let kept = peak.clone();
        let task = tokio::spawn(async move {
            while let Ok(now) = used(process) {
                kept.fetch_max(now, Ordering::Relaxed);
                tokio::time::sleep(PACE).await;
            }
        });
        Self { process, peak, task }
    }

    /// The memory in use now, in KiB.
    pub fn now(&self) -> Result<u64> {
        used(self.process)
    }

    /// The most memory in use since the last call of this function, in KiB.
    pub fn take_peak(&self) -> u64 {
        self.peak.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The anonymous memory of a process in KiB. This file can be read even if the process is not dumpable.
fn used(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).context("no RssAnon")
}
