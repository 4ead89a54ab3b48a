//! A bystander: makes plain calls at a steady rate on connections of its own while the gateway is attacked.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use toolgate_chaos::http::Request;
use toolgate_chaos::tls::NO_SESSION;

use crate::aside::Aside;

/// Pause between two calls.
const PACE: Duration = Duration::from_millis(20);
/// A call that takes longer counts as hanging. On two cores with four times more work than they can do, the slowest calls
/// to a debug build take three seconds, while it handles responses of 8 MiB.
const LIMIT: Duration = Duration::from_secs(10);

/// What a bystander has measured since the last look.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub p99: Duration,
    pub slowest: Duration,
    pub answered: usize,
    /// Calls that were refused because of a bound: with 429 or 503, or without a TLS session.
    pub refused: usize,
    /// What went wrong otherwise.
    pub failures: Vec<String>,
}

#[derive(Debug, Default)]
struct Notes {
    took: Vec<Duration>,
    refused: usize,
    failures: Vec<String>,
}

pub struct Bystander {
    notes: Arc<Mutex<Notes>>,
    _work: Aside,
}

impl Bystander {
    pub fn start(address: String, call: Request) -> Result<Self> {
        let notes = Arc::new(Mutex::new(Notes::default()));
        let kept = notes.clone();
        let call = call.limit(LIMIT);
        let work = Aside::run(async move {
            loop {
                let begun = Instant::now();
                let outcome = call.send(&address).await;
                let took = begun.elapsed();
                {
                    let mut notes = kept.lock().expect("no code panics while it holds the notes");
                    match outcome {
                        Ok(response) if response.status == 200 => notes.took.push(took),
                        Ok(response) if matches!(response.status, 429 | 503) => notes.refused += 1,
                        Ok(response) => {
                            notes.failures.push(format!("{} {}", response.status, response.text()));
                        }
                        // A connection that is refused before its TLS session cannot be told why.
                        Err(error) if format!("{error:#}").contains(NO_SESSION) => notes.refused += 1,
                        Err(error) => notes.failures.push(format!("{error:#}")),
                    }
                }
                tokio::time::sleep(PACE).await;
            }
        })?;
        Ok(Self { notes, _work: work })
    }

    /// What it has measured since the last call of this function.
    pub fn look(&self) -> Seen {
        let mut notes =
            std::mem::take(&mut *self.notes.lock().expect("no code panics while it holds the notes"));
        notes.took.sort();
        let index = notes.took.len().saturating_sub(1) * 99 / 100;
        Seen {
            p99: notes.took.get(index).copied().unwrap_or_default(),
            slowest: notes.took.last().copied().unwrap_or_default(),
            answered: notes.took.len(),
            refused: notes.refused,
            failures: notes.failures,
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p99, slowest] = [self.p99, self.slowest].map(|took| took.as_secs_f64() * 1000.0);
        write!(f, "p99 {p99:.1} ms, slowest {slowest:.1} ms of {} calls", self.answered)?;
        if self.refused > 0 {
            write!(f, " ({} refused)", self.refused)?;
        }
        Ok(())
    }
}
