//! Several gateways on one Postgres database, which `TOOLGATE_TEST_POSTGRES` names. `cargo xtask postgres` starts a server
//! and runs them.

// The support of the other integration tests has more than these use.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types, dead_code)]

mod audit;
mod catalog;
mod cut_off;
mod drain;
mod gateways;
mod grants;
mod homes;
mod leases;
mod load;
mod logs;
mod losses;
mod model;
mod placement;
#[path = "../../xtask/src/postgres_server.rs"]
mod postgres_server;
mod processes;
mod quotas;
mod records;
mod relay;
mod rights;
mod rotation;
mod sessions;
mod starting;
#[path = "../it/support/mod.rs"]
mod support;
mod traces;
mod transfer;
mod writes;

use support::TestApp;

/// Two gateways on a new database.
async fn pair() -> (TestApp, TestApp) {
    let first = TestApp::start().await;
    let second = TestApp::start_beside(&first).await;
    (first, second)
}

/// Three gateways, and a balancer in front of them.
async fn cluster() -> (TestApp, Vec<TestApp>) {
    TestApp::start_behind_balancer(TestApp::start().await, 3).await
}

/// The same as `pair` in enterprise mode.
async fn enterprise_pair() -> (TestApp, TestApp) {
    let first = TestApp::start_with_sign_in().await;
    let second = TestApp::start_beside(&first).await;
    (first, second)
}

/// The epoch that a response names.
fn epoch(answer: &support::Answer) -> String {
    answer.headers["x-toolgate-epoch"].to_str().unwrap().to_owned()
}

/// Reads something that must include all changes up to an epoch.
async fn get_since(app: &TestApp, epoch: &str, path: &str) -> support::Answer {
    app.send("GET", path, &[("x-toolgate-min-epoch", epoch)], "").await
}
