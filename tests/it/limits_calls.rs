//! Limits of calls: those in flight of a principal, and those that wait for a server.

use serde_json::{Value, json};

use crate::support::{Behaviour, Fake, TestApp, eventually};

fn call(tool: &str, arguments: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": tool, "arguments": arguments } })
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_in_flight_are_limited_on_every_door() {
    let app = TestApp::start_with(|config| config.limits.calls = 2).await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    let slow = json!({ "name": "s__slow", "ms": 60_000 });
    let held = [app.invoke_and_hold(&slow).await, app.invoke_and_hold(&slow).await];
    eventually("both calls are in flight", async || fake.calls_of("slow") == 2).await;
    let refused = app.invoke("s__echo", json!({ "text": "hi" })).await.expect(429);
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(refused.json()["error"].as_str().unwrap().contains("MAX_CALLS"));
    let answer = app.post("/mcp", call("s__echo", json!({ "text": "hi" }))).await.expect(200).json();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(429)), "{answer}");
    assert!(answer["error"]["data"]["retryAfterMs"].as_u64().unwrap() > 0, "{answer}");
    // Lists are no calls.
    app.post("/mcp", json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" })).await.expect(200);
    drop(held);
    let echo = async || app.invoke("s__echo", json!({ "text": "hi" })).await.status;
    eventually("there is room again", async || echo().await == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_one_client_do_not_limit_another() {
    let app = TestApp::start_enterprise_with(|config| config.limits.calls = 1).await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    let (first, second) =
        (app.create_client("first", &["s"]).await, app.create_client("second", &["s"]).await);
    let echo = || call("s__echo", json!({ "text": "hi" }));
    let slow = app.send_as(&first, "POST", "/mcp", call("s__slow", json!({ "ms": 60_000 })));
    let probe = async {
        eventually("the call is in flight", async || fake.calls_of("slow") == 1).await;
        let answer = app.send_as(&first, "POST", "/mcp", echo()).await.expect(200).json();
        assert_eq!(answer["error"]["code"], 429, "{answer}");
        app.send_as(&second, "POST", "/mcp", echo()).await.expect(200).json()
    };
    let other = tokio::select! {
        answer = slow => panic!("{answer:?}"),
        other = probe => other,
    };
    assert!(other["result"]["content"].is_array(), "{other}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_for_a_server_are_limited() {
    const WAITING: usize = budget::WAITING_CALLS as usize;
    let app = TestApp::start_with(|config| config.limits.calls = 10_000).await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register(
        json!({ "name": "s", "transport": "streamable_http", "url": fake.url(), "max_concurrency": 1 }),
    )
    .await;
    let slow = call("s__slow", json!({ "ms": 60_000 }));
    // Messages of a batch run one after the other, so each waiting call has a connection of its own.
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..=WAITING {
        let (address, slow) = (app.address.clone(), slow.to_string());
        let head =
            format!("POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{slow}", slow.len());
        waiting.spawn(async move { crate::support::client::raw(&address, head.as_bytes()).await });
    }
    let held = waiting.join_all().await;
    // Waits itself if not all of them have arrived yet, and is refused in any case.
    let refused = app.invoke("s__echo", json!({ "text": "hi" })).await.expect(429);
    assert!(refused.json()["error"].as_str().unwrap().contains("max_concurrency"));
    drop(held);
}
