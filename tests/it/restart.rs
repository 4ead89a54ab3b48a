//! Restarts of the gateway: everything is as before, whether or not the servers are reachable.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::app::stdio_input;
use crate::support::{Behaviour, Fake, TestApp, eventually};

async fn all_tools(app: &TestApp) -> String {
    app.get("/api/v0/tools?all=true").await.expect(200).text()
}

async fn is(app: &TestApp, server: &str, status: &str) -> bool {
    app.server(server).await["status"] == status
}

#[tokio::test(flavor = "multi_thread")]
async fn every_server_comes_back_with_its_flags() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    let modern = Fake::start(Behaviour::of(json!({ "era": "modern" }))).await;
    app.register_http("web", &fake).await;
    app.register_http("new", &modern).await;
    app.register_sse("events", &fake).await;
    app.register_stdio("local", &Behaviour::default()).await;
    app.register_http("off", &fake).await;
    for entity in ["web__echo", "local"] {
        app.send("POST", &format!("/api/v0/tools/disable?entity={entity}"), &[], "").await.expect(200);
    }
    app.send("POST", "/api/v0/servers/off/disable", &[], "").await.expect(200);
    app.patch("/api/v0/servers/off", json!({ "disabled_prompts": ["plain"] })).await.expect(200);
    let servers = app.get("/api/v0/servers").await.json();
    let (tools, configs) = (all_tools(&app).await, app.get("/api/v0/server_configs").await.text());

    let app = app.restart().await;
    assert_eq!(all_tools(&app).await, tools, "at once, from what is stored");
    assert_eq!(app.get("/api/v0/server_configs").await.text(), configs);
    for name in ["web", "new", "events", "local"] {
        assert!(!app.call(&format!("{name}__pid"), json!({})).await.is_empty(), "{name}");
    }
    assert_eq!(app.get("/api/v0/servers").await.json(), servers);
    assert_eq!(all_tools(&app).await, tools);
    assert!(is(&app, "off", "disabled").await);
}

const ODD: &str = concat!(
    r#"{"zz":[1.0,1e2],"name":"odd","inputSchema":{"type":"object","x-b":12345678901234567890,"x-a":-0.0,"#,
    r#""properties":{"z":{"const":100000000000000000000000},"a":{"enum":["\u00e9","é","\/"]}},"x-a":1}, "#,
    r#""annotations" : { "b" : 1.50 , "a" : null } ,"_meta":{"k":1E5},"title":"\u0041","#,
    r#""outputSchema":{"type":"object", "b":{},"a":{}},"icons":[{"theme":"dark","src":"data:,"}],"#,
    r#""execution":{"vendor":2.0},"description":"line\nend \ud83d\ude00"}"#,
);

#[tokio::test(flavor = "multi_thread")]
async fn tool_definitions_are_kept_to_the_byte() {
    let expected = concat!(
        r#"{"name":"SERVER__odd","enabled":true,"description":"line\nend \ud83d\ude00","#,
        r#""input_schema":{"type":"object","x-b":12345678901234567890,"x-a":-0.0,"#,
        r#""properties":{"z":{"const":100000000000000000000000},"a":{"enum":["\u00e9","é","\/"]}},"x-a":1},"#,
        r#""annotations":{ "b" : 1.50 , "a" : null },"title":"\u0041","#,
        r#""output_schema":{"type":"object", "b":{},"a":{}},"icons":[{"theme":"dark","src":"data:,"}],"#,
        r#""meta":{"k":1E5},"execution":{"vendor":2.0}}"#,
    );
    let mut app = TestApp::start().await;
    let mut fakes = Vec::new();
    for (number, era) in ["legacy", "modern"].into_iter().enumerate() {
        let mut behaviour = Behaviour::of(json!({ "era": era }));
        behaviour.merge(&format!(r#"{{"tools":[{ODD}]}}"#)).unwrap();
        let fake = Fake::start(behaviour.clone()).await;
        app.register_http(&format!("web{number}"), &fake).await;
        app.register_stdio(&format!("local{number}"), &behaviour).await;
        if era == "legacy" {
            app.register_sse("events", &fake).await;
        }
        fakes.push(fake);
    }
    for _ in 0..2 {
        for server in ["web0", "web1", "local0", "local1", "events"] {
            let expected = expected.replace("SERVER", server);
            let one = app.get(&format!("/api/v0/tool?name={server}__odd")).await.expect(200).text();
            assert_eq!(one, expected);
            let listed = app.get(&format!("/api/v0/tools?server={server}")).await.expect(200).text();
            assert_eq!(listed, format!("[{expected}]"));
        }
        app = app.restart().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_server_keeps_its_catalog_and_says_why_it_failed() {
    let app = TestApp::start_with(|config| config.init_timeout = Duration::from_secs(1)).await;
    let folder = tempfile::TempDir::new().unwrap();
    let program = folder.path().join("server");
    let input = stdio_input("local", &Behaviour::default());
    std::os::unix::fs::symlink(input["command"].as_str().unwrap(), &program).unwrap();
    let mut input: Value = input;
    input["command"] = json!(program);
    app.register(input).await;
    let mut gone = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    let silent = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    let alive = Fake::start(Behaviour::default()).await;
    app.register_http("gone", &gone).await;
    app.register_sse("silent", &silent).await;
    app.register_http("alive", &alive).await;
    let tools = all_tools(&app).await;
    let before = app.server("gone").await;

    gone.stop().await;
    silent.update(|behaviour| behaviour.stall = vec!["initialize".into()]);
    std::fs::remove_file(&program).unwrap();
    let begun = Instant::now();
    let app = app.restart().await;
    assert_eq!(all_tools(&app).await, tools);
    assert_eq!(app.call("alive__echo", json!({ "text": "hi" })).await, "hi");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    for (name, reason) in [("gone", "refused"), ("silent", "initialize"), ("local", "server")] {
        eventually(&format!("{name} failed"), async || is(&app, name, "failed").await).await;
        let record = app.server(name).await;
        let said = record["status_reason"].as_str().unwrap();
        assert!(said.contains(reason), "{name}: {said}");
        assert_eq!(record["enabled"], true);
        assert!(record["tool_count"].as_u64().unwrap() > 0);
        let error = app.invoke(&format!("{name}__echo"), json!({})).await.expect(500).error();
        assert!(error.contains(reason), "{name}: {error}");
    }
    let mut after = app.server("gone").await;
    for key in ["status", "status_reason"] {
        after[key] = before[key].clone();
    }
    assert_eq!(after, before);
    assert_eq!(all_tools(&app).await, tools);

    gone.restart().await;
    eventually("a call brings it back", async || app.invoke("gone__echo", json!({})).await.status == 200)
        .await;
    app.send("POST", "/api/v0/servers/local/refresh", &[], "").await.expect(500);
    app.patch("/api/v0/servers/local", json!({ "description": "dead" })).await.expect(200);
    app.delete("/api/v0/servers/local").await.expect(204);
}
