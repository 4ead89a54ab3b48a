//! Bounds on what a server sends: the size of a message, the size of its lists, the length of what is quoted from it.

use std::sync::Arc;
use std::time::Duration;

use axum::routing::post;
use serde_json::{Value, json};

use crate::support::{Behaviour, Fake, TestApp};

/// A legacy server over HTTP whose page of `tools/list` after each cursor (`None` at first) is what `page` returns.
async fn listing(page: impl Fn(Option<&str>) -> String + Send + Sync + 'static) -> String {
    let page = Arc::new(page);
    let answer = move |body: String| {
        let page = page.clone();
        async move {
            let message: Value = serde_json::from_str(&body).unwrap();
            let result = match message["method"].as_str().unwrap() {
                "initialize" => json!({
                    "protocolVersion": "2025-06-18", "capabilities": { "tools": {} },
                    "serverInfo": { "name": "lists", "version": "1" },
                })
                .to_string(),
                "tools/list" => page(message["params"]["cursor"].as_str()),
                _ => "{}".to_owned(),
            };
            let text = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, message["id"]);
            ([("content-type", "application/json")], text)
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = axum::Router::new().route("/mcp", post(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/mcp")
}

/// A page with one tool, and another page after it.
fn endless(cursor: Option<&str>, description: &str) -> String {
    let number: u32 = cursor.map_or(0, |cursor| cursor.parse().unwrap());
    let tools = json!([{ "name": format!("t{number}"), "description": description }]);
    json!({ "tools": tools, "nextCursor": (number + 1).to_string() }).to_string()
}

async fn register(app: &TestApp, url: String) -> Value {
    app.register(json!({ "name": "s", "transport": "streamable_http", "url": url })).await
}

async fn patient() -> TestApp {
    TestApp::start_with(|config| config.init_timeout = Duration::from_secs(120)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_ends_after_a_thousand_pages() {
    let app = patient().await;
    let record = register(&app, listing(|cursor| endless(cursor, "")).await).await;
    assert_eq!((&record["status"], &record["tool_count"]), (&json!("connected"), &json!(1000)), "{record}");
    let reason = record["status_reason"].as_str().unwrap();
    assert!(reason.contains("more than 1000 pages") && reason.contains("left out"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_end_at_64_mib() {
    let app = patient().await;
    let description = "x".repeat(4 << 20);
    let record = register(&app, listing(move |cursor| endless(cursor, &description)).await).await;
    assert_eq!((&record["status"], &record["tool_count"]), (&json!("connected"), &json!(15)), "{record}");
    let reason = record["status_reason"].as_str().unwrap();
    assert!(reason.contains("larger than 64 MiB") && reason.contains("left out"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_ends_after_ten_thousand_items() {
    let app = patient().await;
    let tools: Vec<_> = (0..10_050).map(|number| json!({ "name": format!("t{number}") })).collect();
    let page = json!({ "tools": tools }).to_string();
    let record = register(&app, listing(move |_| page.clone()).await).await;
    assert_eq!((&record["status"], &record["tool_count"]), (&json!("connected"), &json!(10_000)));
    let reason = record["status_reason"].as_str().unwrap();
    assert!(
        reason.contains("tools/list has more than 10000 items") && reason.contains("left out"),
        "{reason}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_problems_are_one_short_sentence() {
    let app = patient().await;
    let same = format!("{{\"name\":{:?}}},", "n".repeat(100)).repeat(100_000);
    let page = format!("{{\"tools\":[{}]}}", same.trim_end_matches(','));
    let record = register(&app, listing(move |_| page.clone()).await).await;
    let reason = record["status_reason"].as_str().unwrap();
    assert_eq!((&record["status"], &record["tool_count"]), (&json!("degraded"), &json!(1)));
    assert!(reason.contains("twice") && reason.contains("99989 more"), "{reason}");
    assert!(reason.chars().count() <= 2000);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_quoted_from_a_server_is_cut() {
    let app = TestApp::start().await;
    let long = "ä".repeat(500_000);
    let failure = json!({ "code": -32050, "message": long });
    let behaviour = json!({ "era": "legacy", "fail": { "tools/list": failure, "prompts/get": failure } });
    let fake = Fake::start(Behaviour::of(behaviour)).await;
    let input = json!({ "name": "s", "transport": "streamable_http", "url": fake.url() });
    let error = app.post("/api/v0/servers", input).await.expect(500).error();
    assert!(error.contains("ää") && error.chars().count() <= 2000, "{}", error.len());
    fake.update(|behaviour| _ = behaviour.fail.remove("tools/list"));
    app.register_http("s", &fake).await;
    let error = app.invoke("s__rpc_error", json!({ "message": long })).await.expect(500).error();
    assert!(error.chars().count() <= 2000, "{}", error.len());
    fake.update(|behaviour| _ = behaviour.fail.insert("tools/list".into(), failure));
    app.post("/api/v0/servers/s/refresh", json!({})).await.expect(500);
    let record = app.server("s").await;
    let reason = record["status_reason"].as_str().unwrap();
    assert!(reason.contains("ää") && reason.chars().count() == 2000, "{}", reason.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_large_fails_its_call_and_no_other() {
    let app = TestApp::start_with(|config| config.limits.message_bytes = 1 << 20).await;
    let (servers, _fakes) = app.register_each_kind(&json!({})).await;
    for server in servers {
        let tool = |name: &str| format!("{server}__{name}");
        let status = app.server(&server).await["status"].clone();
        let pid = app.call(&tool("pid"), json!({})).await;
        let (slow, slow_tool, huge) = (json!({ "ms": 500 }), tool("slow"), tool("huge"));
        let (other, large) =
            tokio::join!(app.call(&slow_tool, slow), app.invoke(&huge, json!({ "bytes": 3 << 20 })));
        let error = large.expect(500).error();
        assert!(error.contains("larger than 1 MiB (MAX_MESSAGE_MB)"), "{server}: {error}");
        assert_eq!(other, "done", "{server}");
        assert_eq!(app.call(&tool("pid"), json!({})).await, pid, "{server}");
        assert_eq!(app.call(&huge, json!({ "bytes": 1 << 19 })).await.len(), 1 << 19, "{server}");
        assert_eq!(app.server(&server).await["status"], status);
    }
}
