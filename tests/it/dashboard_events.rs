//! The dashboard's event stream: changes and server states as they happen.

use serde_json::{Value, json};

use crate::support::app::stdio_input;
use crate::support::client::{self, Events};
use crate::support::mcp::initialize;
use crate::support::{Behaviour, Fake, ModernAgent, TestApp};

async fn listen(app: &TestApp) -> Events {
    Events::new(client::open(&app.address, "GET", "/api/dashboard/events", &[], vec![]).await)
}

/// Reads events until one matches.
async fn until(events: &mut Events, wanted: impl Fn(&str, &Value) -> bool) -> Value {
    loop {
        let event = events.next().await.expect("the stream goes on");
        let data: Value = serde_json::from_slice(&event.data).expect("an event carries JSON");
        if wanted(event.name.as_deref().unwrap_or_default(), &data) {
            return data;
        }
    }
}

fn changes(nouns: &'static [&'static str]) -> impl Fn(&str, &Value) -> bool {
    move |event, data| event == "changed" && data["changed"] == json!(nouns)
}

fn status(name: &'static str, status: &'static str) -> impl Fn(&str, &Value) -> bool {
    move |event, data| event == "status" && data["name"] == name && data["status"] == status
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_announced_with_its_lists() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let mut events = listen(&app).await;
    app.register_http("s", &fake).await;
    until(&mut events, changes(&["servers", "tools", "prompts", "resources"])).await;
    app.post("/api/v0/tools/disable?entity=s__echo", json!({})).await.expect(200);
    until(&mut events, changes(&["servers", "tools"])).await;
    app.post("/api/v0/prompts/disable?entity=s__greet", json!({})).await.expect(200);
    until(&mut events, changes(&["servers", "prompts"])).await;
    app.post("/api/v0/tool-groups", json!({ "name": "g", "included_servers": ["s"] })).await.expect(201);
    until(&mut events, changes(&["tool_groups"])).await;
    fake.set_tools(&["echo"]);
    until(&mut events, changes(&["servers", "tools", "tool_groups"])).await;
    app.delete("/api/v0/tool-groups/g").await.expect(204);
    until(&mut events, changes(&["tool_groups"])).await;
    app.post("/api/v0/servers/s/disable", json!({})).await.expect(200);
    until(&mut events, status("s", "disabled")).await;
    app.delete("/api/v0/servers/s").await.expect(204);
    until(&mut events, changes(&["servers", "tools", "prompts", "resources"])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_of_connecting_and_the_end_of_a_server_are_announced() {
    let app = TestApp::start().await;
    let mut events = listen(&app).await;
    app.register(stdio_input("s", &Behaviour::of(json!({ "era": "legacy" })))).await;
    let step = until(&mut events, status("s", "connecting")).await;
    assert!(!step["status_reason"].as_str().unwrap().is_empty(), "{step}");
    until(&mut events, |event, data| {
        status("s", "connecting")(event, data) && data["status_reason"] == "reading tools/list, page 1"
    })
    .await;
    until(&mut events, status("s", "connected")).await;
    app.invoke("s__die", json!({ "code": 3 })).await;
    let lost = until(&mut events, status("s", "connecting")).await;
    assert!(!lost["status_reason"].as_str().unwrap().is_empty(), "{lost}");
    until(&mut events, status("s", "connected")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_call_is_announced() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    let mut events = listen(&app).await;
    app.invoke("s__fail", json!({})).await.expect(200);
    until(&mut events, changes(&["failures"])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_connects_is_announced_and_shown_with_its_endpoint() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    app.post("/api/v0/tool-groups", json!({ "name": "few", "included_servers": ["s"] })).await.expect(201);
    let shown =
        async || app.get("/api/dashboard/overview").await.expect(200).json()["recent_clients"].clone();
    assert_eq!(shown().await, json!([]));
    let mut events = listen(&app).await;
    initialize(&app.address, "/v0/groups/few/mcp", "2025-11-25", json!({})).await.expect(200);
    until(&mut events, changes(&["recent_clients"])).await;
    let legacy = shown().await[0].clone();
    assert_eq!(
        (&legacy["name"], &legacy["version"], &legacy["group"]),
        (&json!("agent"), &json!("7.0"), &json!("few")),
    );
    assert!(legacy["at"].as_str().unwrap().ends_with('Z'), "{legacy}");
    let modern = ModernAgent::at(&app, "/mcp");
    modern.result("server/discover", json!({})).await;
    until(&mut events, changes(&["recent_clients"])).await;
    let clients = shown().await;
    assert_eq!(clients.as_array().unwrap().len(), 2, "{clients}");
    assert_eq!((&clients[0]["name"], &clients[0]["group"]), (&json!("modern agent"), &Value::Null));
    assert_eq!(clients[1], legacy);
    let other = ModernAgent::at(&app, "/v0/groups/few/mcp");
    other.result("tools/list", json!({})).await;
    until(&mut events, changes(&["recent_clients"])).await;
    let clients = shown().await;
    assert_eq!(
        (&clients[0]["name"], &clients[0]["group"]),
        (&json!("modern agent"), &json!("few")),
        "{clients}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_says_about_itself_is_kept_within_bounds() {
    let app = TestApp::start().await;
    for number in 0..30 {
        let name = format!("{number}\u{7}{}", "x".repeat(5000));
        let info = json!({ "name": name, "version": "1".repeat(5000) });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
        let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let accept = [("accept", "application/json, text/event-stream")];
        app.send("POST", "/mcp", &accept, hello.to_string()).await.expect(200);
    }
    let overview = app.get("/api/dashboard/overview").await.expect(200).json();
    let clients = overview["recent_clients"].as_array().unwrap();
    assert_eq!(clients.len(), 10);
    assert!(clients[0]["name"].as_str().unwrap().starts_with("29xxx"), "{overview}");
    let sizes = clients.iter().flat_map(|one| [&one["name"], &one["version"]]);
    assert!(sizes.map(|text| text.as_str().unwrap().len()).all(|size| size <= 80), "{overview}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_stream_does_not_delay_the_stop() {
    let mut app = TestApp::start().await;
    let mut events = listen(&app).await;
    let begun = std::time::Instant::now();
    app.stop().await;
    assert!(begun.elapsed() < std::time::Duration::from_secs(8), "{:?}", begun.elapsed());
    assert!(events.next().await.is_none());
}
