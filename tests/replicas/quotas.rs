//! Rate limits count over all gateways together.

use serde_json::json;

use super::support::fake::{Behaviour, Fake};
use super::support::{TestApp, bearer, eventually};

/// Calls through all gateways in turn until a limit of 30 would be exceeded twice. Returns how many were answered.
async fn answered(gateways: &[&TestApp], token: Option<&str>) -> usize {
    let mut count = 0;
    for number in 0..60 {
        let gateway = gateways[number % gateways.len()];
        let body = json!({ "name": "up__echo", "text": "hi" }).to_string();
        let headers = token.map(|token| ("authorization", bearer(token)));
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = gateway.send("POST", "/api/v0/tools/invoke", &headers, body).await;
        match answer.status {
            200 => count += 1,
            429 => assert!(answer.headers.contains_key("retry-after")),
            other => panic!("{other}: {answer:?}"),
        }
    }
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_holds_for_all_gateways_together() {
    let first = TestApp::start().await;
    let (second, third) = (TestApp::start_beside(&first).await, TestApp::start_beside(&first).await);
    let gateways = [&first, &second, &third];
    let fake = Fake::start(Behaviour::default()).await;
    // One call per minute comes back, which the test may last.
    let limit = json!({ "calls_per_minute": 1, "burst": 30 });
    first
        .register(
            json!({ "name": "up", "transport": "streamable_http", "url": fake.url(), "rate_limit": limit }),
        )
        .await;
    for gateway in gateways {
        eventually("the server is known", || async { gateway.get("/api/v0/servers/up").await.status == 200 })
            .await;
    }
    let count = answered(&gateways, None).await;
    assert!((27..=33).contains(&count), "{count} calls were answered");
    assert_eq!(fake.calls_of("echo"), count as u64, "refused calls do not reach the server");
    let input = json!({ "rate_limit": { "calls_per_minute": 1, "burst": 60 } });
    first.patch("/api/v0/servers/up", input).await.expect(200);
    eventually("the new limit is known", || async { third.server("up").await["rate_limit"]["burst"] == 60 })
        .await;
    let raised = answered(&[&third], None).await;
    assert!((27..=33).contains(&raised), "{raised} more calls were answered by one gateway");
}
