//! The log of a server on several gateways: each has its own lines, and a change on one is noted on all.

use serde_json::json;

use crate::pair;
use crate::support::client::{self, Events};
use crate::support::{Behaviour, Fake, TestApp, eventually};

async fn texts(app: &TestApp) -> Vec<String> {
    let page = app.get("/api/v0/servers/s/logs").await.expect(200).json();
    page["lines"].as_array().unwrap().iter().map(|line| line["text"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_gateway_has_its_own_lines_and_all_note_a_change() {
    let (first, second) = pair().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    first.register_http("s", &fake).await;
    eventually("the other one knows the server", async || {
        second.get("/api/v0/servers/s").await.status == 200
    })
    .await;
    first.invoke("s__fail", json!({})).await.expect(200);
    assert!(texts(&first).await.iter().any(|text| text.starts_with("a call of fail failed")));
    assert!(!texts(&second).await.iter().any(|text| text.starts_with("a call of fail failed")));
    let path = "/api/v0/servers/s/logs?follow=true";
    let mut events = Events::new(client::open(&second.address, "GET", path, &[], Vec::new()).await);
    first.post("/api/v0/servers/s/disable", json!({})).await.expect(200);
    eventually("it is noted", async || texts(&second).await.contains(&"disabled".to_owned())).await;
    assert!(texts(&first).await.contains(&"disabled".to_owned()));
    first.post("/api/v0/servers/s/enable", json!({})).await.expect(200);
    eventually("it is noted", async || texts(&second).await.contains(&"enabled".to_owned())).await;
    first.delete("/api/v0/servers/s").await.expect(204);
    // Removed through one gateway, the server ends the streams of the other one too.
    while events.next().await.is_some() {}
}
