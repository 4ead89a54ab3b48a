//! The limits on the dashboard's system page: what is used of them, and how often they refused something.

use serde_json::{Value, json};

use crate::support::{Behaviour, Fake, TestApp, eventually};

async fn limit(app: &TestApp, bound: &str) -> Value {
    let page = app.get("/api/dashboard/diagnostics").await.expect(200).json();
    let limits = page["limits"].as_array().unwrap();
    limits.iter().find(|limit| limit["bound"] == bound).unwrap_or_else(|| panic!("no {bound}")).clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_shows_what_is_used_and_what_was_refused() {
    let app = TestApp::start_with(|config| config.limits.calls = 1).await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    let calls = |used: u64, refusals: u64| {
        json!({
            "bound": "calls", "label": "Calls in flight", "setting": "MAX_CALLS", "owner": "everybody",
            "used": used, "limit": 1, "unit": null, "refusals": refusals,
        })
    };
    assert_eq!(limit(&app, "calls").await, calls(0, 0));
    let held = app.invoke_and_hold(&json!({ "name": "s__slow", "ms": 60_000 })).await;
    eventually("the call counts", async || limit(&app, "calls").await == calls(1, 0)).await;
    app.invoke("s__echo", json!({ "text": "hi" })).await.expect(429);
    assert_eq!(limit(&app, "calls").await, calls(1, 1));
    drop(held);
    eventually("it is given back", async || limit(&app, "calls").await == calls(0, 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bound_of_the_metrics_is_on_the_page() {
    let app = TestApp::start_with(|config| config.limits.message_bytes = 3 * 1024 * 1024).await;
    let page = app.get("/api/dashboard/diagnostics").await.expect(200).json();
    let bounds: Vec<_> = page["limits"].as_array().unwrap().iter().map(|limit| &limit["bound"]).collect();
    assert_eq!(json!(bounds), json!(budget::Bound::ALL.map(|bound| bound.as_str())));
    // The connection of this request.
    let connections = limit(&app, "connections").await;
    assert!(connections["used"].as_u64().unwrap() >= 1, "{connections}");
    assert_eq!(
        (&connections["owner"], &connections["setting"]),
        (&json!("process"), &json!("MAX_CONNECTIONS"))
    );
    assert_eq!(limit(&app, "buffered_bytes").await["unit"], "bytes");
    let message = limit(&app, "message_size").await;
    assert_eq!((&message["used"], &message["limit"]), (&json!(null), &json!(3 * 1024 * 1024)));
    let head = limit(&app, "head_time").await;
    assert_eq!(
        (&head["limit"], &head["setting"], &head["refusals"]),
        (&json!(null), &json!(null), &json!(0))
    );
}
