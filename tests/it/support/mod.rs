//! What the tests stand on: a gateway of their own (`app`), an HTTP client without opinions (`client`), and a real
//! fake upstream (`fake`).

// Each file of tests uses its own part of this.
#![allow(dead_code)]

pub mod app;
pub mod client;
pub mod fake;

use std::time::{Duration, Instant};

pub use app::TestApp;
pub use client::Answer;
pub use fake::{Behaviour, Fake};

/// Waits for a condition, looking often, and fails with `what` when it does not come true in time.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition().await {
        assert!(Instant::now() < deadline, "did not come true in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
