//! What the tests stand on: a gateway of their own (`app`, as a program `process`), its command line (`cli`) and what
//! that prints (`snapshot`), an HTTP client without opinions (`client`), MCP clients on it (`mcp` for conversations,
//! `agent` for bytes, `modern` for the revision without a handshake, `doors` for one of each), and a real fake upstream
//! (`fake`), one of each kind (`kinds`, `wires`), with an OAuth provider for it (`provider`).

// Each file of tests uses its own part of this.
#![allow(dead_code, unused_imports)]

pub mod agent;
pub mod app;
pub mod cli;
pub mod client;
pub mod doors;
pub mod fake;
pub mod kinds;
pub mod mcp;
pub mod modern;
pub mod process;
pub mod provider;
pub mod snapshot;
pub mod tally;
pub mod wires;

use std::time::{Duration, Instant};

pub use app::{TestApp, bearer};
pub use client::{Answer, request};
pub use doors::{Callers, Door, Said};
pub use fake::{Behaviour, Fake, stdio_command};
pub use kinds::Kinds;
pub use mcp::{Agent, SseAgent};
pub use modern::ModernAgent;
pub use process::Process;
pub use provider::{Provider, Rules};
pub use tally::Tally;
pub use wires::{Server, Wire};

/// Waits for a condition, looking often, and fails with `what` when it does not come true in time.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition().await {
        assert!(Instant::now() < deadline, "did not come true in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
