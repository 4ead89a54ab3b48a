//! A bystander: a client in its own thread that calls a tool in a loop and is not affected by the changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use toolgate_bench::Wire;
use toolgate_bench::system::step_forward;
use toolgate_bench::target::Target;

/// Pause between the response to one call and the next call.
const PAUSE: Duration = Duration::from_micros(500);

pub struct Bystander {
    is_over: Arc<AtomicBool>,
    /// Start and duration of each call.
    calls: Arc<Mutex<Vec<(Instant, Duration)>>>,
}

impl Bystander {
    /// Starts the calls, which go on until the value is dropped.
    pub fn start(address: &str, token: &str, tool: &str) -> Self {
        let (calls, is_over) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicBool>::default());
        let ends = is_over.clone();
        let (address, token, tool, kept) =
            (address.to_owned(), token.to_owned(), tool.to_owned(), calls.clone());
        std::thread::spawn(move || {
            step_forward();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let ended = runtime
                .context("no runtime")
                .and_then(|runtime| runtime.block_on(call(&address, &token, &tool, &kept)));
            if let Err(error) = ended
                && !ends.load(Ordering::Relaxed)
            {
                eprintln!("the bystander: {error:#}");
            }
        });
        Self { is_over, calls }
    }

    /// The durations of the calls that were in flight during a past period, shortest first.
    pub async fn latencies(&self, from: Instant, to: Instant, limit: Duration) -> Result<Vec<Duration>> {
        let end = Instant::now() + limit;
        loop {
            if let Some(mut latencies) = self.known(from, to) {
                latencies.sort_unstable();
                return Ok(latencies);
            }
            ensure!(Instant::now() < end, "the bystander's call was not answered within {limit:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// `None` while a call of that period may still be in flight.
    fn known(&self, from: Instant, to: Instant) -> Option<Vec<Duration>> {
        let calls = self.calls.lock().expect("no code panics while it holds the calls");
        // Calls are made one after the other.
        calls.last().filter(|(begun, _)| *begun > to)?;
        let recent = calls.iter().rev().take_while(|(begun, took)| *begun + *took >= from);
        Some(recent.filter(|(begun, _)| *begun <= to).map(|(_, took)| *took).collect())
    }
}

impl Drop for Bystander {
    /// The gateway ends next, and with it the call in flight.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

async fn call(address: &str, token: &str, tool: &str, calls: &Mutex<Vec<(Instant, Duration)>>) -> Result<()> {
    let (mut wire, target) = (Wire::connect(address).await?, Target::new(address, token));
    let headers = target.open_session(&mut wire).await?;
    let params = json!({"name": tool, "arguments": {"text": "hello there"}});
    let request = target.legacy(&headers, "tools/call", &params);
    loop {
        let begun = Instant::now();
        wire.send(&request).await?;
        let answer = wire.receive().await?.context("the gateway closed the connection")?;
        let took = begun.elapsed();
        let expected = b"hello there";
        ensure!(
            answer.body.windows(expected.len()).any(|part| part == expected),
            "unexpected: {} {}",
            answer.head,
            String::from_utf8_lossy(&answer.body)
        );
        calls.lock().expect("no code panics while it holds the calls").push((begun, took));
        tokio::time::sleep(PAUSE).await;
    }
}
