//! Many clients at once: how long an operation takes, and what it costs the process that serves it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::{JoinSet, LocalSet};

use crate::client::{Client, Script};
use crate::system::cpu_time;

/// Part of the time in which the clients work before the measurement begins.
const WARM_UP: f64 = 0.2;

#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub operations: usize,
    pub p50_us: f64,
    pub p99_us: f64,
    /// CPU time of the watched process for each operation.
    pub cpu_us: f64,
}

/// Lets clients repeat an operation, and watches a process meanwhile.
pub async fn measure(script: &Script, clients: usize, time: Duration, process: u32) -> Result<Figures> {
    LocalSet::new().run_until(run(script, clients, time, process)).await
}

async fn run(script: &Script, clients: usize, time: Duration, process: u32) -> Result<Figures> {
    let mut ready = Vec::new();
    for number in 0..clients {
        ready.push(Client::connect(script, number).await?);
    }
    let (ready, _) = repeat(ready, time.mul_f64(WARM_UP)).await?;
    let before = cpu_time(process)?;
    let (_, mut times) = repeat(ready, time).await?;
    let cpu = cpu_time(process)?.saturating_sub(before);
    ensure!(!times.is_empty(), "nothing was answered");
    times.sort_unstable();
    let at = |part: f64| times[((times.len() as f64 * part) as usize).min(times.len() - 1)].as_nanos() as f64;
    Ok(Figures {
        operations: times.len(),
        p50_us: at(0.5) / 1000.0,
        p99_us: at(0.99) / 1000.0,
        cpu_us: cpu.as_secs_f64() * 1e6 / times.len() as f64,
    })
}

/// Returns the clients and all latencies.
async fn repeat(clients: Vec<Client>, time: Duration) -> Result<(Vec<Client>, Vec<Duration>)> {
    let end = Instant::now() + time;
    let mut running = JoinSet::new();
    for mut client in clients {
        running.spawn_local(async move {
            let mut latencies = Vec::new();
            let mut now = Instant::now();
            while now < end {
                let begun = now;
                client.operate().await?;
                now = Instant::now();
                latencies.push(now - begun);
            }
            anyhow::Ok((client, latencies))
        });
    }
    let (mut clients, mut all) = (Vec::new(), Vec::new());
    while let Some(ended) = running.join_next().await {
        let (client, latencies) = ended??;
        clients.push(client);
        all.extend(latencies);
    }
    Ok((clients, all))
}
