//! Lists of servers: read to the last page, read again when they change, and kept if reading fails.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::app::stdio_input;
use crate::support::{Behaviour, Fake, TestApp, eventually};

fn numbered(kind: &str, key: &str, count: usize) -> Vec<Value> {
    (0..count).map(|n| json!({ key: format!("{kind}:{n:02}"), "name": format!("{kind}{n:02}") })).collect()
}

/// Many of everything, in small pages.
fn paginated(era: &str) -> Behaviour {
    Behaviour::of(json!({
        "era": era, "page_size": 4, "tools": [], "tool_count": 41,
        "prompts": numbered("p", "title", 9),
        "resources": numbered("r", "uri", 10),
        "templates": numbered("t", "uriTemplate", 11),
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn all_four_lists_are_read_to_the_last_page_on_every_transport() {
    let app = TestApp::start().await;
    let legacy = Fake::start(paginated("legacy")).await;
    let modern = Fake::start(paginated("modern")).await;
    app.register_http("http", &legacy).await;
    app.register_sse("sse", &legacy).await;
    app.register_http("modern", &modern).await;
    app.register_stdio("stdio", &paginated("legacy")).await;
    for server in ["http", "sse", "modern", "stdio"] {
        let record = app.server(server).await;
        assert_eq!(record["tool_count"], 41, "{record}");
        assert_eq!(record["prompt_count"], 9, "{record}");
        assert_eq!(record["resource_count"], 10, "{record}");
        assert_eq!(record["status"], "connected", "{record}");
    }
    assert_eq!(modern.seen_of("tools/list").len(), 11);
    assert_eq!(modern.seen_of("resources/templates/list").len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_with_circular_pages_is_refused_by_name() {
    let app = TestApp::start().await;
    let lists = [
        ("tools", "tools/list"),
        ("prompts", "prompts/list"),
        ("resources", "resources/list"),
        ("resourceTemplates", "resources/templates/list"),
    ];
    for (member, method) in lists {
        let fake = Fake::start(Behaviour::of(json!({ "circular": member, "page_size": 2 }))).await;
        let input = json!({ "name": "s", "transport": "streamable_http", "url": fake.url() });
        let error = app.post("/api/v0/servers", input).await.expect(500).error();
        assert!(error.contains(method) && error.contains(&fake.url()), "{error}");
        assert!(fake.seen_of(method).len() < 5);
    }
    assert!(app.tools("").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_fails_stores_nothing_and_gives_the_reason() {
    let app = TestApp::start().await;
    for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        let failure = json!({ "code": -32050, "message": "the shelf is empty" });
        let behaviour = Behaviour::of(json!({ "era": "legacy", "fail": { method: failure } }));
        let fake = Fake::start(behaviour.clone()).await;
        let over_http = json!({ "name": "s", "transport": "streamable_http", "url": fake.url() });
        for input in [over_http, stdio_input("s", &behaviour)] {
            let error = app.post("/api/v0/servers", input).await.expect(500).error();
            assert!(error.contains(method) && error.contains("the shelf is empty"), "{error}");
            app.get("/api/v0/servers/s").await.expect(404);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declared_list_whose_method_is_unknown_is_an_empty_list() {
    let app = TestApp::start().await;
    let unknown = json!({ "code": -32601, "message": "Method not found" });
    let behaviour = json!({ "era": "legacy", "fail": { "resources/templates/list": unknown } });
    let fake = Fake::start(Behaviour::of(behaviour)).await;
    assert_eq!(app.register_http("s", &fake).await["resource_count"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_changes_are_taken_over_from_every_kind_of_stream() {
    let app = TestApp::start().await;
    let legacy = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    let modern = Fake::start(Behaviour::of(json!({ "era": "modern" }))).await;
    app.register_http("get", &legacy).await;
    app.register_sse("sse", &legacy).await;
    app.register_http("listen", &modern).await;
    eventually("they listen", async || legacy.open_streams() == 2 && modern.open_streams() == 1).await;
    legacy.set_tools(&["echo", "fresh"]);
    modern.set_tools(&["echo", "fresh"]);
    app.register_stdio("stdio", &Behaviour::of(json!({ "era": "legacy" }))).await;
    app.call("stdio__set_tools", json!({ "names": ["echo", "fresh"] })).await;
    app.register_stdio("modern-stdio", &Behaviour::of(json!({ "era": "modern" }))).await;
    app.call("modern-stdio__set_tools", json!({ "names": ["echo", "fresh"] })).await;
    let quiet = Fake::start(Behaviour::of(json!({ "era": "legacy", "get_stream": false }))).await;
    app.register_http("post", &quiet).await;
    app.call("post__set_tools", json!({ "names": ["echo", "fresh"], "own_stream": true })).await;
    for server in ["get", "sse", "listen", "stdio", "modern-stdio", "post"] {
        let expected = [format!("{server}__echo"), format!("{server}__fresh")];
        let query = format!("?server={server}");
        eventually(server, async || app.tools(&query).await == expected).await;
        assert_eq!(app.call(&expected[1], json!({ "text": "new" })).await, "new");
        let tool = app.get(&format!("/api/v0/tool?name={server}__fresh")).await.expect(200).json();
        assert_eq!(tool["enabled"], true);
        assert_eq!(app.server(server).await["tool_count"], 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_prompts_and_resources_are_taken_over_too() {
    let app = TestApp::start().await;
    for era in ["legacy", "modern"] {
        let fake = Fake::start(Behaviour::of(json!({ "era": era }))).await;
        app.register_http(era, &fake).await;
        eventually("it listens", async || fake.open_streams() == 1).await;
        let (prompts, resources) = (numbered("p", "title", 7), numbered("r", "uri", 8));
        let merge = |key: &str, list: &[Value]| {
            fake.update(|behaviour| behaviour.merge(&json!({ key: list }).to_string()).unwrap());
        };
        merge("prompts", &prompts);
        fake.notify_prompts_changed();
        eventually("prompts", async || app.server(era).await["prompt_count"] == 7).await;
        merge("resources", &resources);
        fake.notify_resources_changed();
        eventually("resources", async || app.server(era).await["resource_count"] == 8).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_reads_what_nobody_announced() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    fake.update(|behaviour| behaviour.show_tools(&["unannounced".to_owned()]));
    let answer = app.post("/api/v0/servers/s/refresh", json!({})).await.expect(200).json();
    assert_eq!(answer["server"]["tool_count"], 1);
    assert_eq!(app.tools("").await, ["s__unannounced"]);
    app.post("/api/v0/servers/none/refresh", json!({})).await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_that_fails_keeps_the_catalog_and_shows_degraded() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("s", &fake).await;
    let before = app.tools("").await;
    let failure = json!({ "code": -32050, "message": "the shelf is empty" });
    fake.update(|behaviour| _ = behaviour.fail.insert("prompts/list".into(), failure));
    let error = app.post("/api/v0/servers/s/refresh", json!({})).await.expect(500).error();
    assert!(error.contains("the shelf is empty"), "{error}");
    let record = app.server("s").await;
    assert_eq!(record["status"], "degraded", "{record}");
    assert!(record["status_reason"].as_str().unwrap().contains("the shelf is empty"), "{record}");
    assert_eq!(app.tools("").await, before);
    assert_eq!(app.call("s__echo", json!({ "text": "still" })).await, "still");
    fake.update(|behaviour| behaviour.fail.clear());
    app.post("/api/v0/servers/s/refresh", json!({})).await.expect(200);
    assert_eq!(app.server("s").await["status"], "connected");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_flag_of_a_tool_survives_its_absence() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("s", &fake).await;
    eventually("it listens", async || fake.open_streams() == 1).await;
    app.post("/api/v0/tools/disable?entity=s__echo", json!({})).await.expect(200);
    fake.set_tools(&["add"]);
    eventually("it is gone", async || app.tools("").await == ["s__add"]).await;
    app.get("/api/v0/tool?name=s__echo").await.expect(404);
    let app = app.restart().await;
    eventually("it listens", async || fake.open_streams() == 1).await;
    fake.set_tools(&["add", "echo"]);
    eventually("it is back", async || app.tools("").await.len() == 2).await;
    let tool = app.get("/api/v0/tool?name=s__echo").await.expect(200).json();
    assert_eq!(tool["enabled"], false);
    let tool = app.get("/api/v0/tool?name=s__add").await.expect(200).json();
    assert_eq!(tool["enabled"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_floods_announcements_is_read_rarely_and_removed_at_once() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("s", &fake).await;
    eventually("it listens", async || fake.open_streams() == 1).await;
    fake.forget_seen();
    let announced = 1000;
    for _ in 0..announced {
        fake.notify_tools_changed();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let readings = fake.seen_of("tools/list").len();
    assert!((1..=20).contains(&readings), "{readings} readings for {announced} announcements");
    // Neither a refresh nor a removal waits for the next scheduled read, which is up to 5 s away.
    let begun = Instant::now();
    fake.update(|behaviour| behaviour.show_tools(&["one".to_owned()]));
    app.post("/api/v0/servers/s/refresh", json!({})).await.expect(200);
    assert_eq!(app.tools("").await, ["s__one"]);
    fake.notify_tools_changed();
    app.delete("/api/v0/servers/s").await.expect(204);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_without_a_name_or_given_twice_degrade_the_server_and_hide_nothing_else() {
    let app = TestApp::start().await;
    let schema = json!({ "type": "object" });
    let tools = json!([
        { "name": "good", "inputSchema": schema }, { "inputSchema": schema }, { "name": "good" }, 7,
    ]);
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy", "tools": tools }))).await;
    let record = app.register_http("s", &fake).await;
    assert_eq!(record["status"], "degraded", "{record}");
    assert!(record["status_reason"].as_str().unwrap().contains("twice"), "{record}");
    assert_eq!(app.tools("").await, ["s__good"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_some_clients_refuse_are_only_mentioned() {
    let app = TestApp::start().await;
    let long = "x".repeat(70);
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    fake.update(|behaviour| behaviour.show_tools(&["odd name/é.x".to_owned(), "fine".to_owned()]));
    let record = app.register_http("s", &fake).await;
    assert_eq!(record["status"], "connected");
    assert!(record["status_reason"].as_str().unwrap().contains("s__odd name/é.x"), "{record}");
    assert_eq!(app.call("s__odd name/é.x", json!({ "text": "works" })).await, "works");
    fake.set_tools(&["fine", &long]);
    eventually("the long one is mentioned", async || {
        app.server("s").await["status_reason"].as_str().unwrap().contains(&long)
    })
    .await;
    fake.set_tools(&["fine"]);
    eventually("nothing to mention", async || app.server("s").await["status_reason"] == "").await;
}
