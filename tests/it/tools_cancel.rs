//! Callers that disconnect, and servers with a maximum of concurrent calls.

use serde_json::{Value, json};

use crate::support::{Behaviour, Fake, Kinds, TestApp, eventually};

/// How many calls the server has received, without this one; works over every transport.
async fn calls_seen(app: &TestApp, server: &str, asked: &mut usize) -> usize {
    *asked += 1;
    let seen = app.call(&format!("{server}__seen"), json!({})).await;
    let seen: Vec<String> = serde_json::from_str(&seen).unwrap();
    seen.iter().filter(|method| *method == "tools/call").count() - *asked
}

async fn cancelled(app: &TestApp, server: &str) -> usize {
    let ids = app.call(&format!("{server}__cancelled"), json!({})).await;
    serde_json::from_str::<Vec<Value>>(&ids).unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_the_request_cancels_the_call_over_every_kind_of_link() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    for server in &kinds.servers {
        let body = json!({ "name": format!("{server}__slow"), "ms": 60_000 });
        let held = app.invoke_and_hold(&body).await;
        let mut asked = 0;
        while calls_seen(&app, server, &mut asked).await == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(cancelled(&app, server).await, 0, "{server}");
        drop(held);
        eventually("the plain call is cancelled", async || cancelled(&app, server).await == 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_a_stream_cancels_the_call_over_every_kind_of_link() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    for server in &kinds.servers {
        let body = json!({ "name": format!("{server}__progress"), "steps": 100_000, "ms": 20 });
        let mut events = app.post_for_events("/api/v0/tools/invoke", body).await;
        events.next().await.expect("a first step");
        drop(events);
        eventually("the streamed call is cancelled", async || cancelled(&app, server).await == 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_callers_leaving_does_not_disturb_another() {
    let app = TestApp::start().await;
    app.register_stdio("s", &Behaviour::default()).await;
    let held = app.invoke_and_hold(&json!({ "name": "s__slow", "ms": 60_000 })).await;
    let other = app.call("s__slow", json!({ "ms": 300 }));
    let leave = async {
        eventually("both run", async || {
            app.call("s__seen", json!({})).await.matches("tools/call").count() > 2
        })
        .await;
        drop(held);
    };
    let (said, ()) = tokio::join!(other, leave);
    assert_eq!(said, "done");
    eventually("only one is cancelled", async || cancelled(&app, "s").await == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_calls_run_at_once_than_the_server_takes() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let mut input =
        json!({ "name": "two", "transport": "streamable_http", "url": fake.url(), "max_concurrency": 2 });
    app.register(input.clone()).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(app.invoke_and_hold(&json!({ "name": "two__slow", "ms": 60_000 })).await);
    }
    eventually("two run", async || fake.calls_of("slow") == 2).await;
    // Cancelling a waiting call frees no slot and runs nothing; cancelling a running call frees its slot.
    held.push(app.invoke_and_hold(&json!({ "name": "two__slow", "ms": 60_000 })).await);
    let echo = app.call("two__echo", json!({ "text": "in turn" }));
    tokio::pin!(echo);
    let early = tokio::time::timeout(std::time::Duration::from_millis(200), &mut echo).await;
    assert!(early.is_err(), "the fifth call waits");
    assert_eq!(fake.calls_of("slow"), 2);
    held.clear();
    assert_eq!(echo.await, "in turn");
    input["name"] = json!("any");
    input["max_concurrency"] = json!(0);
    app.register(input).await;
    let free: Vec<_> = (0..8).map(|_| json!({ "name": "any__slow", "ms": 60_000 })).collect();
    let before = fake.calls_of("slow");
    let mut running = Vec::new();
    for body in &free {
        running.push(app.invoke_and_hold(body).await);
    }
    eventually("all run", async || fake.calls_of("slow") == before + 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_a_place_counts_towards_the_time_limit() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let url = fake.url();
    app.register(json!({ "name": "s", "transport": "streamable_http", "url": url, "max_concurrency": 1, "timeout_ms": 400 })).await;
    let _held = app.invoke_and_hold(&json!({ "name": "s__slow", "ms": 60_000 })).await;
    eventually("one runs", async || fake.calls_of("slow") == 1).await;
    let second = app.invoke("s__slow", json!({ "ms": 350 })).await;
    assert!(second.expect(500).error().contains("0.4 s"));
}
