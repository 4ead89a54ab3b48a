//! Limits of connections and of bytes in transit: what is beyond them is refused with a clear answer, and everything
//! works again when there is room.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::app::stdio_input;
use crate::support::{Behaviour, Fake, TestApp, client, eventually, refusals};

const REQUEST: &[u8] = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
const LAST_REQUEST: &[u8] = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// The beginning of a request whose body stops half-way.
fn half_body(length: usize) -> Vec<u8> {
    let head = format!("POST /init HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    [head.into_bytes(), vec![b' '; length - 1]].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_resting_connection_closes_for_a_new_one() {
    let app = TestApp::start_with(|config| config.limits.connections = 3).await;
    let mut resting = Vec::new();
    for _ in 0..3 {
        let mut stream = client::raw(&app.address, REQUEST).await;
        assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
        resting.push(stream);
    }
    let said = client::rest(client::raw(&app.address, LAST_REQUEST).await).await;
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    let mut served = 0;
    for mut stream in resting {
        // Writing to the closed one may fail at once.
        let _ = stream.write_all(LAST_REQUEST).await;
        served += usize::from(client::rest(stream).await.starts_with("HTTP/1.1 200"));
    }
    assert_eq!(served, 2);
}

/// Those of earlier requests may be closed a moment later.
async fn no_connection_is_open(app: &TestApp) {
    let is_closed = async || app.gateway().budgets().connections.used() == 0;
    eventually("the connections of earlier requests are closed", is_closed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_refused_while_all_are_in_use() {
    let app = TestApp::start_with(|config| {
        config.limits.connections = 2;
        config.telemetry = true;
    })
    .await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    no_connection_is_open(&app).await;
    let slow = json!({ "name": "s__slow", "ms": 60_000 });
    let held = [app.invoke_and_hold(&slow).await, app.invoke_and_hold(&slow).await];
    eventually("both calls are in flight", async || fake.calls_of("slow") == 2).await;
    let said = client::rest(client::raw(&app.address, LAST_REQUEST).await).await;
    assert!(said.starts_with("HTTP/1.1 503 "), "{said}");
    assert!(said.contains("nosniff") && said.contains("no-store"), "{said}");
    assert!(said.contains("retry-after: 1") && said.contains("MAX_CONNECTIONS"), "{said}");
    drop(held);
    assert!(refusals(&app, "connections").await >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_refused_connections_each_is_told() {
    let app = TestApp::start_with(|config| config.limits.connections = 1).await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    no_connection_is_open(&app).await;
    let _held = app.invoke_and_hold(&json!({ "name": "s__slow", "ms": 60_000 })).await;
    eventually("the calls are in flight", async || fake.calls_of("slow") >= 1).await;
    let mut refused = Vec::new();
    for _ in 0..60 {
        refused.push(client::raw(&app.address, b"").await);
    }
    for stream in &mut refused {
        let mut said = vec![0; 1024];
        let length = stream.read(&mut said).await.unwrap();
        assert!(said[..length].starts_with(b"HTTP/1.1 503 "), "{length}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_beyond_the_budget_are_refused_and_the_rest_of_them_is_dropped() {
    let app = TestApp::start_with(|config| {
        config.limits.buffered_bytes = 1024 * 1024;
        config.telemetry = true;
    })
    .await;
    let held = client::raw(&app.address, &half_body(600_000)).await;
    // Refused once the first one has arrived.
    let whole = [half_body(600_000), b" ".to_vec()].concat();
    let too_much = loop {
        let mut stream = client::raw(&app.address, &whole).await;
        let mut said = vec![0; 1024];
        let length = stream.read(&mut said).await.unwrap();
        if said.starts_with(b"HTTP/1.1 503") {
            break String::from_utf8_lossy(&said[..length]).into_owned();
        }
    };
    assert!(too_much.contains("MAX_BUFFERED_MB"), "{too_much}");
    assert!(refusals(&app, "buffered_bytes").await >= 1);
    drop(held);
    while app.post("/init", json!({ "mode": " ".repeat(600_000) })).await.status == 503 {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_nobody_needs_is_not_kept() {
    let app = TestApp::start_with(|config| config.limits.buffered_bytes = 256 * 1024).await;
    for path in ["/health", "/nothing/here"] {
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 3000000\r\n\r\n"
        );
        let said = client::rest(
            client::raw(&app.address, &[head.into_bytes(), vec![b'x'; 3_000_000]].concat()).await,
        )
        .await;
        assert!(!said.starts_with("HTTP/1.1 503"), "{path}: {said}");
        assert!(said.starts_with("HTTP/1.1 200") || said.starts_with("HTTP/1.1 404"), "{path}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_beyond_the_budget_is_refused_at_each_door() {
    let app = TestApp::start_with(|config| config.limits.buffered_bytes = 1024 * 1024).await;
    let fakes = [
        Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await,
        Fake::start(Behaviour::default()).await,
    ];
    app.register_http("legacy", &fakes[0]).await;
    app.register_http("modern", &fakes[1]).await;
    app.post("/api/v0/servers", stdio_input("process", &Behaviour::default())).await.expect(201);
    for name in ["legacy", "modern", "process"] {
        let tool = format!("{name}__huge");
        let refused = app.invoke(&tool, json!({ "bytes": 3 * 1024 * 1024 })).await.expect(503);
        assert_eq!(refused.headers["retry-after"], "1");
        assert!(refused.error().contains("MAX_BUFFERED_MB"), "{}", refused.text());
        let params = json!({ "name": tool, "arguments": { "bytes": 3 * 1024 * 1024 } });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let answer = app.post("/mcp", message).await.expect(200).json();
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        let said = answer["error"]["message"].as_str().unwrap();
        assert!(
            said.contains("MAX_BUFFERED_MB") && !said.contains("failed"),
            "the server has not failed: {said}"
        );
        app.invoke(&tool, json!({ "bytes": 100 })).await.expect(200);
    }
    let limited = async || {
        let calls = app.get("/api/v0/calls?outcome=limited").await.expect(200).json();
        calls["calls"].as_array().unwrap().len() == 6
    };
    eventually("the calls are recorded as limited", limited).await;
}
