//! Memory of idle sessions: many are opened, and nothing happens in them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use toolgate_bench::Wire;
use toolgate_bench::system::memory;
use toolgate_bench::target::Target;

const SESSIONS: usize = 1000;
/// After this time a connection is idle.
const RESTING: Duration = Duration::from_secs(3);

/// What a session holds besides its connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    Nothing,
    /// The GET stream, on the same connection.
    Stream,
}

/// KiB of memory (PSS) of a process for each session with an open connection.
pub async fn measure(target: &Target, process: u32, holding: Holding) -> Result<f64> {
    // One session first, since the first one may need what is then kept.
    let mut open = vec![hold(target, holding).await?];
    tokio::time::sleep(RESTING).await;
    let before = memory(process)?.1;
    for _ in 0..SESSIONS {
        open.push(hold(target, holding).await?);
    }
    tokio::time::sleep(RESTING).await;
    Ok((memory(process)?.1 - before) * 1024.0 / SESSIONS as f64)
}

async fn hold(target: &Target, holding: Holding) -> Result<Wire> {
    let mut wire = Wire::connect(&target.address).await?;
    let headers = target.open_session(&mut wire).await?;
    if holding == Holding::Stream {
        wire.send(&target.request("GET", &headers, "")).await?;
        let head = wire.receive_head().await?.context("the connection was closed")?;
        ensure!(head.starts_with("HTTP/1.1 200"), "no stream: {head}");
    }
    Ok(wire)
}
