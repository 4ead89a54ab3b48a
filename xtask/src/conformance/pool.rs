//! Runs cases, several at once. A case mostly waits: for time that a scenario gives a server, and for its own programs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};

use super::report::Report;
use super::{Case, Conformance};

const AT_ONCE: usize = 4;

impl Conformance {
    /// The reports of all cases, in their order. Prints each result as soon as it is known.
    pub fn measure_all(&self, cases: &[Case]) -> Result<Vec<Report>> {
        run(cases, |case| {
            let started = Instant::now();
            let report = self.measure(case).with_context(|| format!("case {}", case.name))?;
            let seconds = started.elapsed().as_secs_f64();
            println!("  {}, set {}: {} ({seconds:.1} s)", case.name, case.set.revision, report.summary());
            Ok(report)
        })
    }
}

/// The results of all jobs, in their order, or the first error. After an error no further job is started.
fn run<Job: Sync, Outcome: Send>(
    jobs: &[Job],
    work: impl Fn(&Job) -> Result<Outcome> + Sync,
) -> Result<Vec<Outcome>> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = || -> Result<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else { return Ok(()) };
            let outcome = work(job).inspect_err(|_| next.store(jobs.len(), Ordering::Relaxed))?;
            done.lock().expect("no worker panics with the results").push((index, outcome));
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    let mut done = done.into_inner().expect("no worker panics with the results");
    done.sort_by_key(|(index, _)| *index);
    Ok(done.into_iter().map(|(_, outcome)| outcome).collect())
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn results_have_the_order_of_the_jobs() {
        let jobs: Vec<usize> = (0..50).collect();
        assert_eq!(run(&jobs, |job| Ok(job * 2)).unwrap(), (0..50).map(|job| job * 2).collect::<Vec<_>>());
    }

    #[test]
    fn an_error_ends_the_run() {
        let begun = AtomicUsize::new(0);
        let failed = run(&[(); 1000], |()| {
            begun.fetch_add(1, Ordering::Relaxed);
            bail!("no") as Result<()>
        });
        assert_eq!(failed.unwrap_err().to_string(), "no");
        assert!(begun.into_inner() <= AT_ONCE);
    }
}
