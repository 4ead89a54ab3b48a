//! Runs each target in its own process, some of them concurrently, and sums up the findings. A process that is ended by
//! a signal (stack overflow, out of memory) or hangs is a finding too: its last input is made again.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use anyhow::{Context, Result};

use crate::{Target, corpus, mutation};

/// Extra time for a process, after which its input counts as endless.
const GRACE: Duration = Duration::from_secs(30);
/// Limit of the address space of a process in KiB; an input that needs more memory is a finding.
const MEMORY_KIB: &str = "4194304";
const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub struct Plan {
    pub targets: Vec<&'static Target>,
    /// The time for each target.
    pub duration: Duration,
    pub seed: u64,
    pub jobs: usize,
}

/// Runs the plan, prints one line for each target, and returns the number of findings.
pub fn run(plan: &Plan) -> Result<usize> {
    println!("seed {}, {} s for each target", plan.seed, plan.duration.as_secs_f64());
    println!(
        "{:<10} {:>12} {:>14} {:>7} {:>9}",
        "target", "executions", "executions/s", "corpus", "findings"
    );
    let mut waiting = plan.targets.iter();
    let (mut running, mut found) = (Vec::new(), 0);
    loop {
        while running.len() < plan.jobs
            && let Some(target) = waiting.next()
        {
            running.push(Job::start(target, plan)?);
        }
        if running.is_empty() {
            return Ok(found);
        }
        thread::sleep(LOOK_AGAIN);
        let mut going_on = Vec::new();
        for mut job in running {
            match job.is_over(plan)? {
                true => found += job.report(plan)?,
                false => going_on.push(job),
            }
        }
        running = going_on;
    }
}

struct Job {
    target: &'static Target,
    child: Child,
    begun: Instant,
    /// The file to which the process writes the index of its input.
    progress: PathBuf,
}

impl Job {
    fn start(target: &'static Target, plan: &Plan) -> Result<Self> {
        let progress = env::temp_dir().join(format!("toolgate-fuzz-{}-{}", process::id(), target.name));
        let child = Command::new("sh")
            .args(["-c", "ulimit -v \"$1\"; shift; exec \"$@\"", "sh", MEMORY_KIB])
            .arg(env::current_exe()?)
            .args(["--process", target.name])
            .args(["--seed", &plan.seed.to_string(), "--seconds", &plan.duration.as_secs_f64().to_string()])
            .arg("--progress")
            .arg(&progress)
            .stdout(Stdio::piped())
            .spawn()
            .context("a process for the target does not start")?;
        Ok(Self { target, child, begun: Instant::now(), progress })
    }

    fn is_over(&mut self, plan: &Plan) -> Result<bool> {
        if self.child.try_wait()?.is_some() {
            return Ok(true);
        }
        let is_endless = self.begun.elapsed() > plan.duration + GRACE;
        if is_endless {
            self.child.kill()?;
        }
        Ok(is_endless)
    }

    /// Prints the line of the target and its findings; returns the number of findings.
    fn report(self, plan: &Plan) -> Result<usize> {
        let (target, seconds) = (self.target, self.begun.elapsed().as_secs_f64());
        let output = self.child.wait_with_output()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let index = fs::read(&self.progress).ok().and_then(|bytes| bytes.try_into().ok());
        let index = index.map_or(0, u64::from_le_bytes);
        let _ = fs::remove_file(&self.progress);
        let corpus = corpus::read(target.name)?;
        let mut findings: Vec<&str> = printed.split("finding: ").skip(1).collect();
        let last;
        if !output.status.success() {
            let path = corpus::keep(target.name, &mutation::input(target, &corpus, plan.seed, index))?;
            last = format!("{}\nits process ended with {}\n", path.display(), output.status);
            findings.push(&last);
        }
        println!(
            "{:<10} {:>12} {:>14.0} {:>7} {:>9}",
            target.name,
            index + 1,
            (index + 1) as f64 / seconds,
            corpus.len(),
            findings.len()
        );
        for finding in &findings {
            println!("  {}", finding.trim_end().replace('\n', "\n    "));
        }
        Ok(findings.len())
    }
}
