//! Servers that are kept although they cannot be connected: `keep_failed`.

use serde_json::{Value, json};

use crate::support::cli::Cli;
use crate::support::{Behaviour, Fake, TestApp, eventually};

const NOWHERE: &str = "http://127.0.0.1:1/mcp";

fn input(url: &str, extra: Value) -> Value {
    let mut input = json!({ "name": "web", "transport": "streamable_http", "url": url });
    input.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    input
}

fn kept(url: &str) -> Value {
    input(url, json!({ "keep_failed": true }))
}

async fn becomes(app: &TestApp, status: &str) {
    eventually(status, async || app.server("web").await["status"] == status).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_come_up_is_stored_as_failed_with_the_reason() {
    let app = TestApp::start().await;
    app.post("/api/v0/servers", input(NOWHERE, json!({}))).await.expect(500);
    app.post("/api/v0/servers", input(NOWHERE, json!({ "keep_failed": false }))).await.expect(500);
    assert_eq!(app.get("/api/v0/servers").await.json(), json!([]), "it was not asked to keep it");
    let record = app.post("/api/v0/servers", kept(NOWHERE)).await.expect(201).json();
    assert_eq!((&record["status"], &record["server"]["status"]), (&json!("failed"), &json!("failed")));
    assert!(record["status_reason"].as_str().unwrap().contains("127.0.0.1:1"), "{record}");
    assert_eq!(app.get("/api/v0/server_configs").await.json()[0].get("keep_failed"), None);
    let again =
        json!({ "name": "gone", "transport": "stdio", "command": "/no/such/program", "keep_failed": true });
    assert_eq!(app.register(again).await["status"], "failed");
    let app = app.restart().await;
    becomes(&app, "failed").await;
    assert!(app.server("web").await["status_reason"].as_str().unwrap().contains("127.0.0.1:1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_input_is_refused_all_the_same() {
    let app = TestApp::start().await;
    for (wrong, field) in [
        (json!({ "name": "a__b" }), "name"),
        (json!({ "url": "nowhere" }), "url"),
        (json!({ "keep_failed": "yes" }), "keep_failed"),
        (json!({ "keep_failde": true }), "keep_failde"),
    ] {
        let mut input = kept(NOWHERE);
        input.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        let error = app.post("/api/v0/servers", input).await.expect(400).error();
        assert!(error.contains(field), "{error}");
    }
    app.post("/api/v0/servers", kept(NOWHERE)).await.expect(201);
    app.post("/api/v0/servers", kept(NOWHERE)).await.expect(409);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_server_is_tried_again_until_it_answers() {
    let app = TestApp::start().await;
    let mut fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    let url = fake.url();
    fake.stop().await;
    app.post("/api/v0/servers", kept(&url)).await.expect(201);
    app.post("/api/v0/servers/web/refresh", json!({})).await.expect(500);
    fake.restart().await;
    becomes(&app, "connected").await;
    eventually("its tools are listed", async || app.server("web").await["tool_count"] != 0).await;
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_server_can_be_changed_and_a_change_can_be_kept() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.post("/api/v0/servers", kept(NOWHERE)).await.expect(201);
    let described =
        app.patch("/api/v0/servers/web", json!({ "description": "new" })).await.expect(200).json();
    assert_eq!(described["server"]["status"], "failed", "words about a server need no link");
    app.patch("/api/v0/servers/web", json!({ "url": "http://127.0.0.1:2/mcp" })).await.expect(500);
    assert_eq!(app.server("web").await["url"], NOWHERE, "a change must work, unless it is kept");
    app.patch("/api/v0/servers/web", json!({ "url": fake.url() })).await.expect(200);
    assert_eq!(app.server("web").await["status"], "connected");
    let change = json!({ "url": NOWHERE, "keep_failed": true });
    let changed = app.patch("/api/v0/servers/web", change).await.expect(200).json();
    assert_eq!(
        (&changed["server"]["status"], &changed["server"]["url"]),
        (&json!("failed"), &json!(NOWHERE))
    );
    assert!(changed["server"]["tool_count"].as_u64().unwrap() > 0, "what was known stays listed");
    app.invoke("web__echo", json!({})).await.expect(500);
    assert_eq!(app.server("web").await["description"], "new");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_replacement_is_kept_only_if_asked_for() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("web", &fake).await;
    app.post("/api/v0/servers?force=true", input(NOWHERE, json!({}))).await.expect(500);
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    app.post("/api/v0/servers?force=true", kept(NOWHERE)).await.expect(201);
    assert_eq!(app.server("web").await["status"], "failed");
    assert_eq!(fake.sessions().len(), 0, "the old link was closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_keeps_with_a_flag_and_imports_keep_new_servers() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    let cli = Cli::new(&app.address);
    let register = ["register", "--name", "web", "--url", NOWHERE];
    cli.fails(&register).await;
    let ended = cli.run(&[&register[..], &["--keep"]].concat()).await;
    assert!(ended.code == Some(0) && ended.stderr.contains("cannot be connected now"), "{ended:?}");
    cli.fails(&["update", "server", "web", "--url", "http://127.0.0.1:2/mcp"]).await;
    cli.ok(&["update", "server", "web", "--url", "http://127.0.0.1:2/mcp", "--keep"]).await;
    assert_eq!(app.server("web").await["url"], "http://127.0.0.1:2/mcp");
    cli.ok(&["update", "server", "web", "--url", &fake.url()]).await;

    let file = json!({ "mcpServers": { "web": { "url": NOWHERE }, "new": { "url": NOWHERE } } });
    cli.write("mcp.json", &file.to_string());
    let done = cli.run(&["import", "mcp.json", "--yes", "--output", "json"]).await;
    let items: Value = serde_json::from_str(&done.stdout).unwrap();
    let kept: Vec<&Value> = items.as_array().unwrap().iter().map(|item| &item["kept"]).collect();
    assert_eq!((done.code, kept), (Some(1), vec![&json!(true), &json!(false)]), "{items}");
    assert_eq!(app.server("web").await["status"], "connected", "a server that works is not replaced");
    assert_eq!(app.server("new").await["status"], "failed");
    cli.ok(&["import", "mcp.json", "--dry-run"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pasted_configuration_keeps_new_servers_that_fail() {
    let app = TestApp::start().await;
    let text = json!({ "mcpServers": { "web": { "url": NOWHERE } } }).to_string();
    let body = json!({ "text": text, "names": ["web"] });
    let applied = app.post("/api/dashboard/import", body).await.expect(200).json();
    assert_eq!(applied["outcomes"][0]["outcome"], "failed");
    assert!(applied["outcomes"][0]["reason"].as_str().unwrap().contains("it is stored"), "{applied}");
    assert_eq!(app.server("web").await["status"], "failed");
}
