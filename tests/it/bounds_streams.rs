//! The bound of open event streams: of each principal, and of everybody in development mode. The answer of a call does
//! not count.

use hyper::Response;
use hyper::body::Incoming;
use serde_json::json;

use crate::support::client::{self, Connection};
use crate::support::mcp::BOTH;
use crate::support::modern::VERSION;
use crate::support::{Agent, Behaviour, Fake, ModernAgent, TestApp, bearer, eventually, refusals};

const EVENTS: (&str, &str) = ("accept", "text/event-stream");
const KINDS: [&str; 5] = ["session", "sse", "listen", "dashboard", "log"];

/// Opens a stream of one kind.
async fn open(app: &TestApp, kind: &str) -> (Response<Incoming>, Connection) {
    let agent = Agent::connect(app, "/mcp").await;
    let modern = ModernAgent::at(app, "/mcp");
    let listen = modern.message(json!(2), "subscriptions/listen", json!({"notifications": {}})).to_string();
    let modern_headers =
        vec![BOTH, ("mcp-protocol-version", VERSION), ("mcp-method", "subscriptions/listen")];
    let (method, path, headers, body) = match kind {
        "session" => ("GET", "/mcp", vec![EVENTS, ("mcp-session-id", agent.session.as_str())], String::new()),
        "sse" => ("GET", "/sse", vec![EVENTS], String::new()),
        "dashboard" => ("GET", "/api/dashboard/events", vec![EVENTS], String::new()),
        "log" => ("GET", "/api/v0/servers/s/logs?follow=true", vec![EVENTS], String::new()),
        _ => ("POST", "/mcp", modern_headers, listen),
    };
    client::open(&app.address, method, path, &headers, body.into()).await
}

#[tokio::test]
async fn everybody_together_has_a_bounded_number_of_streams_in_development_mode() {
    let app = TestApp::start_with(|config| {
        config.telemetry = true;
        config.limits.streams = 1;
    })
    .await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy", "answer": "sse"}))).await;
    app.register_http("s", &fake).await;
    for first in KINDS {
        let held = std::cell::RefCell::new(None);
        eventually("the stream before is gone", async || {
            let opened = open(&app, first).await;
            let is_open = opened.0.status() == 200;
            *held.borrow_mut() = is_open.then_some(opened);
            is_open
        })
        .await;
        for second in KINDS {
            let (response, _connection) = open(&app, second).await;
            assert_eq!(response.status(), 429, "{second} beside {first}");
            assert_eq!(response.headers()["retry-after"], "1");
        }
        // Calls go on, also those whose answer is a stream.
        let params = json!({"name": "s__progress", "arguments": {"steps": 2}, "_meta": {"progressToken": 1}});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let answer = app.send("POST", "/mcp", &[BOTH], call.to_string()).await.expect(200);
        assert_eq!(answer.headers["content-type"], "text/event-stream");
    }
    assert!(refusals(&app, "streams").await >= 16);
    let answer = async || app.send("GET", "/sse", &[EVENTS, ("connection", "close")], "").await;
    let held = std::cell::RefCell::new(None);
    eventually("the last place is taken", async || {
        let opened = open(&app, "sse").await;
        let is_open = opened.0.status() == 200;
        *held.borrow_mut() = is_open.then_some(opened);
        is_open
    })
    .await;
    assert!(answer().await.expect(429).error().contains("MAX_STREAMS"));
}

#[tokio::test]
async fn each_client_has_its_own_streams_whatever_its_token_is() {
    let app = TestApp::start_enterprise_with(|config| config.limits.streams = 2).await;
    let (one, two) = (app.create_client("one", &["*"]).await, app.create_client("two", &["*"]).await);
    let open = async |token: &str| {
        let headers = [EVENTS, ("authorization", &bearer(token))];
        client::open(&app.address, "GET", "/sse", &headers, Vec::new()).await
    };
    let held = [open(&one).await, open(&one).await];
    assert_eq!(held.each_ref().map(|(response, _)| response.status().as_u16()), [200, 200]);
    assert_eq!(open(&one).await.0.status(), 429);
    assert_eq!(open(&two).await.0.status(), 200);
    // A change of the client is no new budget.
    app.put("/api/v0/clients/one", json!({"description": "changed", "allow_list": null})).await.expect(200);
    assert_eq!(open(&one).await.0.status(), 429);
    drop(held);
    eventually("the places are free", async || open(&one).await.0.status() == 200).await;
    // Under a new token the streams of the old one end, and the places are free again.
    let held = std::cell::RefCell::new(Vec::new());
    eventually("both are taken", async || {
        let opened = open(&one).await;
        if opened.0.status() == 200 {
            held.borrow_mut().push(opened);
        }
        held.borrow().len() == 2
    })
    .await;
    let token = "a-token-that-is-long-enough-0123456789";
    let renewed = json!({"access_token": token, "allow_list": null});
    app.put("/api/v0/clients/one", renewed).await.expect(200);
    eventually("the streams of the old token are gone", async || open(token).await.0.status() == 200).await;
}
