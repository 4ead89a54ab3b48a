//! Gateways on one database write one audit, without gaps, however many change something at the same time.

use std::sync::Arc;

use serde_json::Value;
use tokio::task::JoinSet;

use super::support::TestApp;

#[tokio::test(flavor = "multi_thread")]
async fn changes_at_two_gateways_at_once_are_one_chain() {
    let one = Arc::new(TestApp::start_enterprise().await);
    let two = Arc::new(TestApp::start_beside(&one).await);
    let before = verified(&one).await["entries"].as_u64().unwrap();
    let mut work = JoinSet::new();
    for number in 0..20 {
        for (gateway, name) in [(one.clone(), "one"), (two.clone(), "two")] {
            work.spawn(async move {
                gateway.create_client(&format!("{name}-{number}"), &[]).await;
                // Entries are read and checked while others are written.
                gateway.get("/api/v0/audit?q=client").await.expect(200);
                verified(&gateway).await;
            });
        }
    }
    work.join_all().await;
    let report = verified(&one).await;
    assert_eq!(report["entries"], before + 40, "{report}");
    assert_eq!(verified(&two).await, report);
    let entries = two.get("/api/v0/audit?limit=1000").await.expect(200).json()["entries"].clone();
    let ids: Vec<u64> = entries
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["id"].as_str().unwrap().parse().unwrap())
        .collect();
    let expected: Vec<u64> = (1..=before + 40).rev().collect();
    assert_eq!(ids, expected);
}

async fn verified(app: &TestApp) -> Value {
    let report = app.get("/api/v0/audit/verify").await.expect(200).json();
    assert_eq!(report["ok"], true, "{report}");
    report
}
