//! Runs one target in this process until its time is over. It writes the index of the current input to a file: if an
//! input ends the process or never finishes, the supervisor can make it again.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::{Target, corpus, mutation};

/// Maximum time for one input. If the work is linear, the longest inputs take a tenth of it even in a debug build.
const SLOW: Duration = Duration::from_millis(500);
/// Number of tries: an input counts as slow only if it is slow every time, since other programs use the machine too.
const ATTEMPTS: usize = 5;
/// Pause before the next try, in which a machine that stalled recovers.
const PAUSE: Duration = Duration::from_secs(2);
/// Maximum number of different findings; more would mostly be repetitions.
const MOST_FINDINGS: usize = 10;

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

pub struct Finding {
    pub problem: String,
    pub input: Vec<u8>,
}

/// The result of one target.
pub struct Outcome {
    pub executions: u64,
    pub findings: Vec<Finding>,
}

/// Runs inputs, starting with the first, for `duration` or until there are too many findings.
pub fn run(target: &Target, seed: u64, duration: Duration, progress: &Path) -> Result<Outcome> {
    let corpus = corpus::read(target.name)?;
    let progress = File::create(progress)?;
    let begun = Instant::now();
    let mut outcome = Outcome { executions: 0, findings: Vec::new() };
    // A problem is identified by its location: many inputs cause the same panic.
    let mut places: Vec<String> = Vec::new();
    // The whole corpus is run, however long that takes.
    while outcome.executions < corpus.len() as u64 || begun.elapsed() < duration {
        progress.write_all_at(&outcome.executions.to_le_bytes(), 0)?;
        let input = mutation::input(target, &corpus, seed, outcome.executions);
        outcome.executions += 1;
        let Some(problem) = problem_of(target, &input) else { continue };
        let place = problem.split('\n').next().unwrap_or_default().to_owned();
        if !places.contains(&place) {
            places.push(place);
            outcome.findings.push(Finding { problem, input });
        }
        if places.len() >= MOST_FINDINGS {
            break;
        }
    }
    Ok(outcome)
}

/// Runs one input and returns the problem, if there is one.
pub fn problem_of(target: &Target, input: &[u8]) -> Option<String> {
    let mut shortest = Duration::MAX;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(PAUSE);
        }
        let begun = Instant::now();
        if panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err() {
            return Some(PANIC.take());
        }
        shortest = shortest.min(begun.elapsed());
        if shortest < SLOW {
            return None;
        }
    }
    Some(format!("slow\n{} bytes take {} ms", input.len(), shortest.as_millis()))
}

/// Stores the text of panics for the report instead of printing it.
pub fn catch_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let text = info.payload_as_str().unwrap_or("a panic without a text");
        PANIC.set(format!("panic at {place}\n{text}"));
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_and_a_slow_input_are_problems() {
        fn run(input: &[u8]) {
            let begun = Instant::now();
            match input {
                b"panic" => panic!("broken"),
                b"slow" => while begun.elapsed() <= SLOW {},
                _ => {}
            }
        }
        let target = Target { name: "test", run, dictionary: &[] };
        let hook = panic::take_hook();
        catch_panics();
        let problems = [&b"panic"[..], b"slow", b"fine"].map(|input| problem_of(&target, input));
        panic::set_hook(hook);
        let [panicked, slow, fine] = problems.map(Option::unwrap_or_default);
        assert!(panicked.starts_with("panic at ") && panicked.ends_with("\nbroken"), "{panicked}");
        assert!(slow.starts_with("slow\n4 bytes take"), "{slow}");
        assert_eq!(fine, "");
    }
}
