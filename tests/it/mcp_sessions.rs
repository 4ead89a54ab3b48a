//! Handshakes and sessions of legacy clients over streamable HTTP.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::{self, Events};
use crate::support::mcp::{BOTH, initialize};
use crate::support::{Agent, Answer, Behaviour, Fake, TestApp, eventually};

fn request(method: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}})
}

async fn post(app: &TestApp, path: &str, session: &str, body: &Value) -> Answer {
    app.send("POST", path, &[BOTH, ("mcp-session-id", session)], body.to_string()).await
}

async fn group(app: &TestApp, name: &str, servers: &[&str]) {
    app.post("/api/v0/tool-groups", json!({"name": name, "included_servers": servers})).await.expect(201);
}

#[tokio::test]
async fn a_handshake_agrees_on_the_asked_version_or_the_latest_legacy_one() {
    let app = TestApp::start().await;
    for (asked, agreed) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        ("", "2025-11-25"),
    ] {
        let answer = initialize(&app.address, "/mcp", asked, json!({})).await.expect(200);
        assert_eq!(answer.headers["content-type"], "application/json");
        assert!(answer.headers["mcp-session-id"].len() <= 1024);
        let message = answer.json();
        assert_eq!(message["id"], "hello");
        assert_eq!(message["result"]["protocolVersion"], agreed, "{asked}");
        assert_eq!(message["result"]["serverInfo"]["name"], "toolgate");
    }
    let broken = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}});
    let answer = app.post("/mcp", broken).await.expect(200);
    assert_eq!(answer.json()["error"]["code"], -32602);
    assert!(answer.headers.get("mcp-session-id").is_none());
}

#[tokio::test]
async fn session_ids_stay_short_however_long_the_names_are() {
    let app = TestApp::start().await;
    let name = "g".repeat(64);
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    group(&app, &name, &["s"]).await;
    let long = "\u{10348}".repeat(2000);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"roots": {}, "sampling": {}},
        "clientInfo": {"name": long, "version": long}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let path = format!("/v0/groups/{name}/mcp");
    let answer = app.post(&path, body).await.expect(200);
    let session = answer.headers["mcp-session-id"].to_str().unwrap();
    assert!(session.len() <= 1024 && session.bytes().all(|byte| byte.is_ascii_graphic()), "{session}");
    post(&app, &path, session, &request("tools/list")).await.expect(200);
}

#[tokio::test]
async fn a_restarted_gateway_still_serves_its_sessions() {
    let app = TestApp::start().await;
    let agent = Agent::connect(&app, "/mcp").await;
    let app = app.restart().await;
    assert_eq!(
        post(&app, "/mcp", &agent.session, &request("ping")).await.expect(200).json()["result"],
        json!({})
    );
}

#[tokio::test]
async fn a_session_is_unknown_elsewhere_and_after_its_end() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    group(&app, "g", &["s"]).await;
    group(&app, "h", &["s"]).await;
    let paths = ["/mcp", "/v0/groups/g/mcp", "/v0/groups/h/mcp", "/v0/servers/s/mcp"];
    for own in paths {
        let agent = Agent::connect(&app, own).await;
        for path in paths.iter().filter(|path| **path != own) {
            post(&app, path, &agent.session, &request("tools/list")).await.expect(404).error();
            let headers = [("mcp-session-id", agent.session.as_str())];
            app.send("GET", path, &headers, "").await.expect(404).error();
            app.send("DELETE", path, &headers, "").await.expect(404).error();
        }
        agent.post(&request("tools/list")).await.expect(200);
        let ended = agent.end().await.expect(204);
        assert!(ended.body.is_empty());
        agent.post(&request("tools/list")).await.expect(404).error();
        agent.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await.expect(404);
        agent.end().await.expect(404).error();
    }
    for garbage in ["", "x", "AAAA", &"A".repeat(200), "not base64!"] {
        post(&app, "/mcp", garbage, &request("ping")).await.expect(404).error();
    }
    let other = TestApp::start().await;
    let foreign = Agent::connect(&other, "/mcp").await;
    post(&app, "/mcp", &foreign.session, &request("ping")).await.expect(404).error();
}

#[tokio::test]
async fn what_needs_no_session_is_served_without_one() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    for (method, params) in [
        ("ping", json!({})),
        ("tools/list", json!({})),
        ("prompts/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("tools/call", json!({"name": "s__echo", "arguments": {"text": "x"}})),
        ("prompts/get", json!({"name": "s__plain"})),
        ("resources/read", json!({"uri": "fake://text"})),
    ] {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let answer = app.post("/mcp", body).await.expect(200).json();
        assert!(answer.get("result").is_some(), "{method}: {answer}");
    }
    for method in ["logging/setLevel", "resources/subscribe", "resources/unsubscribe"] {
        let params = json!({"uri": "fake://text", "level": "info"});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        assert!(app.post("/mcp", body).await.expect(400).error().contains("session"), "{method}");
    }
    app.delete("/mcp").await.expect(400).error();
}

#[tokio::test]
async fn the_stream_of_a_session_is_refused_in_order() {
    let app = TestApp::start().await;
    let agent = Agent::connect(&app, "/mcp").await;
    app.get("/mcp").await.expect(400).error();
    app.send("GET", "/mcp", &[("mcp-session-id", "x")], "").await.expect(404).error();
    let session = ("mcp-session-id", agent.session.as_str());
    app.send("GET", "/mcp", &[session, ("accept", "application/json")], "").await.expect(406).error();
    for accept in ["text/event-stream", "*/*", "application/json, text/event-stream;q=0.5"] {
        let headers = [session, ("accept", accept)];
        let (response, _connection) = client::open(&app.address, "GET", "/mcp", &headers, Vec::new()).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
    }
    let wrong = app.send("PUT", "/mcp", &[], "").await.expect(405);
    assert!(wrong.headers["allow"].to_str().unwrap().contains("POST"));
    wrong.error();
}

#[tokio::test]
async fn a_second_stream_replaces_the_first() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let agent = Agent::connect(&app, "/mcp").await;
    let mut first = agent.listen().await;
    let mut second = agent.listen().await;
    assert!(first.next().await.is_none());
    app.register_http("s", &fake).await;
    second.expect("notifications/tools/list_changed").await;
    drop(second);
    let mut third = agent.listen().await;
    app.post("/api/v0/tools/disable", json!({"entity": "s__echo"})).await.expect(200);
    third.expect("notifications/tools/list_changed").await;
    agent.end().await.expect(204);
    assert!(third.next().await.is_none());
}

#[tokio::test]
async fn streams_end_at_once_when_the_gateway_stops() {
    let mut app = TestApp::start().await;
    let agent = Agent::connect(&app, "/mcp").await;
    let mut stream = agent.listen().await;
    let headers = [("accept", "text/event-stream")];
    let mut sse = Events::new(client::open(&app.address, "GET", "/sse", &headers, Vec::new()).await);
    sse.next().await.unwrap();
    tokio::time::timeout(Duration::from_secs(3), app.stop()).await.expect("nothing is waited for");
    assert!(stream.next().await.is_none());
    assert!(sse.next().await.is_none());
}

#[tokio::test]
async fn an_idle_session_that_holds_nothing_does_not_expire_but_one_with_a_subscription_does() {
    let app =
        TestApp::start_with(|config| config.session_idle_timeout = Some(Duration::from_millis(300))).await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    let (plain, holder) = (Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await);
    let listener = Agent::connect(&app, "/mcp").await;
    holder.request("resources/subscribe", json!({"uri": "fake://blob"})).await;
    listener.request("resources/subscribe", json!({"uri": "fake://text"})).await;
    let _stream = listener.listen().await;
    // This session opens a stream and closes it again; afterwards it holds nothing.
    drop(plain.listen().await);
    let given_up = || -> Vec<_> {
        let seen = fake.seen_of("resources/unsubscribe");
        seen.into_iter().map(|seen| seen.params["uri"].clone()).collect()
    };
    eventually("the idle session gives up what it held", async || given_up() == ["fake://blob"]).await;
    holder.post(&request("ping")).await.expect(404).error();
    plain.post(&request("ping")).await.expect(200);
    listener.post(&request("ping")).await.expect(200);
    listener.end().await.expect(204);
    eventually("nobody wants it any more", async || given_up() == ["fake://blob", "fake://text"]).await;
}
