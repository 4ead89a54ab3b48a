//! Support for the tests: a gateway for each test (`app`; `process` as a program) with its database (`database`), or several of them behind a `balancer`, its command line (`cli`; `bridge` for
//! `toolgate stdio`; `terminal` on a pseudo-terminal; `script` is a gateway that plays a script for it) and the snapshots of its output (`snapshot`), a raw HTTP client (`client`), MCP clients (`mcp` with JSON values, `agent` with
//! bytes, `modern` for the revision without a handshake, `doors` for one of each), and a fake upstream (`fake`), one of
//! each kind (`kinds`, `wires`), with an OAuth provider for it (`provider`); a person at a browser and the software of an agent (`person`), an `identity_provider`, keys for JWTs (`keys`), `documents` that software publishes, grants of users (`grants`); a strict reader of metrics (`exposition`) and a `collector` of traces.

// Each test file uses only a part of this.
#![allow(dead_code, unused_imports)]

pub mod agent;
pub mod app;
pub mod balancer;
pub mod bridge;
pub mod cli;
pub mod client;
pub mod collector;
pub mod database;
pub mod documents;
pub mod doors;
pub mod exposition;
pub mod fake;
pub mod grants;
pub mod identity_provider;
pub mod keys;
pub mod kinds;
pub mod mcp;
pub mod modern;
pub mod person;
pub mod process;
pub mod provider;
pub mod script;
pub mod snapshot;
pub mod tally;
pub mod terminal;
pub mod wires;

use std::time::{Duration, Instant};

pub use app::{TestApp, bearer};
pub use client::{Answer, request};
pub use collector::{Collector, SentSpan};
pub use documents::DocumentServer;
pub use doors::{Callers, Door, Said};
pub use fake::{Behaviour, Fake, stdio_command};
pub use identity_provider::FakeProvider;
pub use kinds::Kinds;
pub use mcp::{Agent, SseAgent};
pub use modern::ModernAgent;
pub use process::Process;
pub use provider::{Provider, Rules};
pub use tally::Tally;
pub use wires::{Server, Wire};

/// Waits for a condition, checks it often, and fails with `what` if it does not hold in time.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition().await {
        assert!(Instant::now() < deadline, "did not come true in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// How often the gateway refused something because of this bound. It must run with telemetry.
pub async fn refusals(app: &TestApp, bound: &str) -> u64 {
    let metrics = app.get("/metrics").await.expect(200).text();
    let series = format!("toolgate_refusals_total{{bound={bound:?}}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
    line.unwrap_or_else(|| panic!("no series {series}")).parse().unwrap()
}

/// Long URIs, each of which is a part of the one before it.
pub fn nested_uris() -> Vec<String> {
    (0..40).map(|depth| format!("fake://item/{}{}", "x".repeat(8000), "/y".repeat(depth))).collect()
}
