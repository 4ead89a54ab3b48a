//! Calls on a shared link: each caller gets its own response of any size, and no header of the caller leaks.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Behaviour, Fake, TestApp, eventually};

/// A gateway with the same server over each transport.
async fn everywhere(behaviour: Value) -> (TestApp, Fake, Vec<&'static str>) {
    let app = TestApp::start().await;
    let mut legacy = behaviour.clone();
    legacy["era"] = json!("legacy");
    let fake = Fake::start(Behaviour::of(legacy.clone())).await;
    app.register_http("http", &fake).await;
    app.register_sse("sse", &fake).await;
    app.register_stdio("stdio", &Behaviour::of(legacy)).await;
    (app, fake, vec!["http", "sse", "stdio"])
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_calls_at_once_each_get_their_own_answer() {
    let (app, fake, servers) = everywhere(json!({})).await;
    let modern = Fake::start(Behaviour::of(json!({ "era": "modern" }))).await;
    app.register_http("modern", &modern).await;
    let app = std::sync::Arc::new(app);
    for server in servers.into_iter().chain(["modern"]) {
        let begun = Instant::now();
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..200 {
            let app = app.clone();
            calls.spawn(async move {
                if number % 4 == 0 {
                    let slow = app.call(&format!("{server}__slow"), json!({ "ms": 1500 })).await;
                    assert_eq!(slow, "done");
                } else {
                    let text = format!("call {number}");
                    assert_eq!(app.call(&format!("{server}__echo"), json!({ "text": text })).await, text);
                }
            });
        }
        calls.join_all().await;
        // One after the other, the slow ones alone would take 75 seconds.
        assert!(begun.elapsed() < Duration::from_secs(50), "{server}: {:?}", begun.elapsed());
    }
    assert_eq!(fake.seen_of("initialize").len(), 2, "one handshake a server, never one a call");
}

#[tokio::test(flavor = "multi_thread")]
async fn huge_results_arrive_whole_on_every_transport() {
    let (app, fake, servers) = everywhere(json!({})).await;
    let size = 20 << 20;
    let app = std::sync::Arc::new(app);
    let mut calls = tokio::task::JoinSet::new();
    for server in servers {
        let app = app.clone();
        calls.spawn(async move {
            let answer = app.invoke(&format!("{server}__huge"), json!({ "bytes": size })).await.expect(200);
            let text = &answer.body[answer.body.windows(2).position(|two| two == b"xx").unwrap()..];
            assert!(text.len() > size && text[..size].iter().all(|&byte| byte == b'x'), "{server}");
        });
    }
    calls.join_all().await;
    fake.update(|behaviour| _ = behaviour.merge(r#"{"answer":"sse"}"#));
    let text = app.call("http__huge", json!({ "bytes": 2 << 20 })).await;
    assert_eq!(text.len(), 2 << 20, "in an event");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_not_lost_when_notices_come_on_another_stream_meanwhile() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("s", &fake).await;
    eventually("it listens", async || fake.open_streams() == 1).await;
    let body = json!({ "name": "s__huge", "bytes": 6 << 20, "notices": 300 });
    let mut events = app.post_for_events("/api/v0/tools/invoke", body).await;
    let mut names = Vec::new();
    while let Some(event) = events.next().await {
        names.push(event.name.as_deref().unwrap_or_default().to_owned());
    }
    assert!(names.iter().any(|name| name == "progress"), "{names:?}");
    assert_eq!(names.last().map(String::as_str), Some("result"), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_between_messages_is_ignored() {
    let (app, fake, servers) = everywhere(json!({})).await;
    for server in &servers {
        let text = app.call(&format!("{server}__garbage"), json!({})).await;
        assert_eq!(text, "after the garbage", "{server}");
        assert_eq!(app.server(server).await["status"], "connected");
    }
    fake.update(|behaviour| _ = behaviour.merge(r#"{"answer":"sse"}"#));
    assert_eq!(app.call("http__garbage", json!({})).await, "after the garbage");
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_that_the_gateway_can_answer_do_not_reach_the_caller() {
    let (app, fake, servers) = everywhere(json!({})).await;
    fake.update(|behaviour| _ = behaviour.merge(r#"{"answer":"sse"}"#));
    for server in servers {
        let tool = format!("{server}__ask");
        assert_eq!(app.call(&tool, json!({ "method": "ping" })).await, "{}", "{server}");
        assert_eq!(app.call(&tool, json!({ "method": "roots/list" })).await, r#"{"roots":[]}"#, "{server}");
        let error = app.invoke(&tool, json!({})).await.expect(500).error();
        assert!(error.contains("MCP client"), "{server}: {error}");
        assert_eq!(app.call(&format!("{server}__echo"), json!({ "text": "on" })).await, "on");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_stream_that_breaks_off_is_resumed_after_its_last_event() {
    let app = TestApp::start().await;
    let behaviour = json!({ "era": "legacy", "answer": "sse", "resume": true, "get_stream": false });
    let fake = Fake::start(Behaviour::of(behaviour)).await;
    app.register_http("s", &fake).await;
    assert_eq!(app.call("s__cut", json!({ "ms": 100 })).await, "resumed");
    assert_eq!(fake.calls_of("cut"), 1);
    let resumed = fake.seen_of("GET").into_iter().filter(|seen| seen.headers.contains_key("last-event-id"));
    assert_eq!(resumed.count(), 1);
    // Without event ids there is nothing to resume, and the tool may have run.
    fake.update(|behaviour| behaviour.resume = false);
    app.invoke("s__cut", json!({})).await.expect(500);
    assert_eq!(fake.calls_of("cut"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_header_of_a_caller_reaches_the_server() {
    let (app, fake, _) = everywhere(json!({})).await;
    let modern = Fake::start(Behaviour::of(json!({ "era": "modern" }))).await;
    app.register_http("modern", &modern).await;
    let origin = format!("http://{}", app.address);
    let headers = [
        ("authorization", "Bearer of-the-caller"),
        ("cookie", "of=the-caller"),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-custom", "of-the-caller"),
        ("mcp-session-id", "of-the-caller"),
        ("mcp-protocol-version", "2024-11-05"),
        ("mcp-name", "of-the-caller"),
        ("mcp-param-region", "of-the-caller"),
        ("last-event-id", "of-the-caller"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("user-agent", "of-the-caller"),
        ("accept-language", "xx"),
        ("origin", origin.as_str()),
    ];
    for server in ["http", "sse", "modern"] {
        let body = json!({ "name": format!("{server}__echo"), "text": "hi" }).to_string();
        app.send("POST", "/api/v0/tools/invoke", &headers, body).await.expect(200);
    }
    for seen in fake.seen().into_iter().chain(modern.seen()) {
        let text = format!("{:?}", seen.headers);
        for absent in ["of-the-caller", "192.0.2.1", "traceparent", "accept-language", "origin", "cookie"] {
            assert!(!text.contains(absent), "{} carries {absent}: {text}", seen.method);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn modern_requests_repeat_their_routing_in_headers() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "modern" }))).await;
    app.register_http("s", &fake).await;
    // The fake refuses a call whose headers do not match its body.
    app.call("s__region", json!({ "region": "eu-1", "limit": 10 })).await;
    let seen = fake.seen_of("tools/call").pop().unwrap();
    assert_eq!(seen.headers["mcp-method"], "tools/call");
    assert_eq!(seen.headers["mcp-name"], "region");
    assert_eq!(seen.headers["mcp-param-region"], "eu-1");
    assert_eq!(seen.headers["mcp-param-limit"], "10");
    assert!(!seen.headers.contains_key("mcp-session-id"));
    app.call("s__region", json!({ "region": "zürich\n" })).await;
    let seen = fake.seen_of("tools/call").pop().unwrap();
    assert_eq!(seen.headers["mcp-param-region"], "=?base64?esO8cmljaAo=?=");
    assert!(!seen.headers.contains_key("mcp-param-limit"));
    app.call("s__region", json!({ "region": null })).await;
    fake.set_tools(&["größe", "region"]);
    eventually("the new name is known", async || app.tools("").await.len() == 2).await;
    app.call("s__größe", json!({})).await;
    let listed = fake.seen_of("tools/list").pop().unwrap();
    assert_eq!(listed.headers["mcp-method"], "tools/list");
    assert!(!listed.headers.contains_key("mcp-name"));
    // The lists were read again in between; header parameters are still known.
    app.call("s__region", json!({ "region": "eu-2" })).await;
    let app = app.restart().await;
    app.call("s__region", json!({ "region": "eu-3" })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_whose_header_annotation_is_invalid_is_hidden_and_the_others_stay() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "modern" }))).await;
    let record = app.register_http("s", &fake).await;
    assert_eq!(record["status"], "degraded", "{record}");
    assert!(record["status_reason"].as_str().unwrap().contains("bad_header"), "{record}");
    let tools = app.tools("").await;
    assert!(!tools.contains(&"s__bad_header".to_owned()) && tools.contains(&"s__region".to_owned()));
    app.invoke("s__bad_header", json!({})).await.expect(404);
    // This applies only to HTTP in the modern era.
    let legacy = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    assert_eq!(app.register_http("old", &legacy).await["status"], "connected");
    let child = app.register_stdio("child", &Behaviour::of(json!({ "era": "modern" }))).await;
    assert_eq!(child["status"], "connected");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_is_cancelled_at_the_server() {
    let app = TestApp::start().await;
    for era in ["legacy", "modern"] {
        let fake = Fake::start(Behaviour::of(json!({ "era": era }))).await;
        let input = json!({
            "name": era, "transport": "streamable_http", "url": fake.url(), "timeout_ms": 200,
        });
        app.register(input).await;
        let error = app.invoke(&format!("{era}__slow"), json!({ "ms": 60000 })).await.expect(500).error();
        assert!(error.contains("0.2 s"), "{error}");
        eventually("it was told", async || fake.cancelled().len() == 1).await;
        app.patch(&format!("/api/v0/servers/{era}"), json!({ "timeout_ms": null })).await.expect(200);
        assert_eq!(app.call(&format!("{era}__echo"), json!({ "text": "on" })).await, "on");
    }
}
