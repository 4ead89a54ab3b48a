//! Registering a server and reading its record, over every transport and in both eras.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::app::stdio_input;
use crate::support::{Behaviour, Fake, TestApp};

const RECORD_KEYS: [&str; 17] = [
    "name",
    "transport",
    "enabled",
    "description",
    "url",
    "command",
    "args",
    "env",
    "session_mode",
    "status",
    "status_reason",
    "protocol_version",
    "server_info",
    "instructions",
    "tool_count",
    "prompt_count",
    "resource_count",
];

fn keys(record: &Value) -> BTreeSet<&str> {
    record.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http_server_has_exactly_the_keys_of_a_record() {
    let app = TestApp::start().await;
    let behaviour = Behaviour::of(json!({ "era": "legacy" }));
    let fake = Fake::start(behaviour.clone()).await;
    let mut created = app
        .register(
            json!({ "name": "web", "transport": "streamable_http", "url": fake.url(), "description": "d" }),
        )
        .await;
    let record = created["server"].take();
    created.as_object_mut().unwrap().remove("server");
    assert_eq!(created, record, "the fields are also at the top level");
    assert_eq!(keys(&record), BTreeSet::from(RECORD_KEYS));
    let expected = json!({
        "name": "web", "transport": "streamable_http", "enabled": true, "description": "d", "url": fake.url(),
        "command": "", "args": [], "env": {}, "session_mode": "stateless",
        "status": "connected", "status_reason": "", "protocol_version": "2025-11-25",
        "server_info": behaviour.server_info, "instructions": "Fake instructions.",
        "tool_count": behaviour.tools().len(), "prompt_count": 3, "resource_count": 3,
    });
    assert_eq!(record, expected);
    assert_eq!(app.server("web").await, expected);
    assert_eq!(app.get("/api/v0/servers").await.expect(200).json(), json!([expected]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stdio_server_shows_its_command_and_masks_every_value_of_its_environment() {
    let app = TestApp::start().await;
    let mut input = stdio_input("local", &Behaviour::default());
    input["env"] = json!({ "TOKEN": "s3cret-value", "EMPTY": "" });
    input["session_mode"] = json!("stateful");
    let record = app.register(input.clone()).await["server"].take();
    assert_eq!(keys(&record), BTreeSet::from(RECORD_KEYS));
    assert_eq!(record["url"], "");
    assert_eq!((&record["command"], &record["args"]), (&input["command"], &input["args"]));
    assert_eq!(record["env"], json!({ "TOKEN": "***", "EMPTY": "***" }));
    assert_eq!(record["session_mode"], "stateful");
    assert_eq!(record["protocol_version"], "2026-07-28");
    let value = app.call("local__env", json!({ "arguments": { "name": "TOKEN" } })).await;
    assert_eq!(value, "s3cret-value", "the process has the real one");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_placement_of_a_process_is_shown_where_it_is_not_the_default() {
    let app = TestApp::start().await;
    let mut input = stdio_input("local", &Behaviour::default());
    input["placement"] = json!("one");
    let record = app.register(input.clone()).await["server"].take();
    assert_eq!(record["placement"], "one");
    let config = async || app.get("/api/v0/server_configs").await.expect(200).json()[0].clone();
    let details = async || app.get("/api/dashboard/servers/local").await.expect(200).json();
    let shown = async || {
        let list = app.get("/api/v0/servers").await.expect(200).json();
        [list[0].clone(), app.server("local").await, config().await, details().await]
    };
    assert!(shown().await.iter().all(|shown| shown["placement"] == "one"));
    assert_eq!(app.call("local__echo", json!({ "text": "hi" })).await, "hi", "there is one gateway");
    let app = app.restart().await;
    assert_eq!(app.server("local").await["placement"], "one", "it is stored");
    let patch = async |changes: Value| app.patch("/api/v0/servers/local", changes).await;
    let kept = patch(json!({ "description": "d" })).await.expect(200).json();
    assert_eq!(kept["server"]["placement"], "one", "what is left out stays");
    for default in [json!("each"), json!(null), json!("")] {
        patch(json!({ "placement": "one" })).await.expect(200);
        let changed = patch(json!({ "placement": default })).await.expect(200).json();
        assert_eq!(changed["server"].get("placement"), None);
    }
    patch(json!({ "placement": "one" })).await.expect(200);
    input.as_object_mut().unwrap().remove("placement");
    app.post("/api/v0/servers?force=true", input).await.expect(201);
    assert_eq!(app.server("local").await.get("placement"), None, "a registration replaces all settings");
    patch(json!({ "placement": "one" })).await.expect(200);
    let fake = Fake::start(Behaviour::default()).await;
    let url = json!({ "transport": "streamable_http", "url": fake.url() });
    let moved = patch(url).await.expect(200).json();
    assert_eq!(moved["server"].get("placement"), None, "the settings of the old transport are gone");
    assert_eq!(app.call("local__echo", json!({ "text": "hi" })).await, "hi");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_masks_user_info_and_query_values_but_the_server_gets_them() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let url = fake.url().replace("http://", "http://ann:pa%20ss@") + "?key=abcdef&flag&x=1";
    let record = app.register(json!({ "name": "web", "transport": "streamable_http", "url": url })).await;
    let shown = fake.url().replace("http://", "http://***@") + "?key=***&***&x=***";
    assert_eq!(record["server"]["url"], json!(shown));
    assert_eq!(app.server("web").await["url"], json!(shown));
    let seen = &fake.seen_of("tools/list")[0];
    assert_eq!(seen.headers["authorization"], "Basic YW5uOnBhIHNz", "ann:pa ss");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_info_and_instructions_has_empty_ones() {
    let app = TestApp::start().await;
    let behaviour = json!({ "era": "legacy", "server_info": null, "instructions": null, "tools": [],
        "prompts": [], "resources": [], "templates": [] });
    let fake = Fake::start(Behaviour::of(behaviour)).await;
    let record = app.register_http("web", &fake).await["server"].take();
    assert_eq!((&record["server_info"], &record["instructions"]), (&json!({}), &json!("")));
    assert_eq!(record["tool_count"], 0);
    assert_eq!(record["prompt_count"], 0);
    assert_eq!(record["resource_count"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_listed_by_name() {
    let app = TestApp::start().await;
    assert_eq!(app.get("/api/v0/servers").await.expect(200).json(), json!([]));
    assert_eq!(app.get("/api/v0/server_configs").await.expect(200).json(), json!([]));
    let fake = Fake::start(Behaviour::default()).await;
    for name in ["b", "a-b", "a", "_z", "B"] {
        app.register_http(name, &fake).await;
    }
    for route in ["/api/v0/servers", "/api/v0/server_configs"] {
        let listed = app.get(route).await.expect(200).json();
        let names: Vec<_> = listed.as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["B", "_z", "a", "a-b", "b"], "{route}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_not_registered_is_404_on_every_route() {
    let app = TestApp::start().await;
    for name in ["ghost", "a__b", "%20", "..%2Fx", "%C3%A4"] {
        let path = format!("/api/v0/servers/{name}");
        let answers = [
            app.get(&path).await,
            app.delete(&path).await,
            app.patch(&path, json!({})).await,
            app.post(&format!("{path}/enable"), json!({})).await,
            app.send("POST", &format!("{path}/disable"), &[], "").await,
            app.send("POST", &format!("{path}/refresh"), &[], "").await,
        ];
        for answer in answers {
            assert!(answer.expect(404).error().contains("does not exist"), "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_is_refused_before_anything_is_connected() {
    let app = TestApp::start().await;
    let (old, new) = (Fake::start(Behaviour::default()).await, Fake::start(Behaviour::default()).await);
    app.register_http("web", &old).await;
    let input = json!({ "name": "web", "transport": "streamable_http", "url": new.url() });
    for path in ["/api/v0/servers", "/api/v0/servers?force=false"] {
        let error = app.post(path, input.clone()).await.expect(409).error();
        assert!(error.contains("web") && error.contains("force=true"), "{error}");
    }
    assert!(new.seen().is_empty(), "{:?}", new.seen());
    assert_eq!(app.server("web").await["url"], json!(old.url()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_registered_as_disabled_is_tried_and_then_left_alone() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    let input = json!({ "name": "web", "transport": "streamable_http", "url": fake.url(), "enabled": false });
    let record = app.register(input).await["server"].take();
    assert_eq!((&record["enabled"], &record["status"]), (&json!(false), &json!("disabled")));
    assert!(record["tool_count"].as_u64().unwrap() > 0);
    assert_eq!(fake.sessions().len(), 0, "its session was ended");
    assert!(app.tools("").await.is_empty());
    assert!(app.tools("?all=true").await.contains(&"web__echo".to_owned()));
    let error = app.invoke("web__echo", json!({})).await.expect(400).error();
    assert!(error.contains("disabled"), "{error}");
    let unreachable =
        json!({ "name": "dead", "transport": "sse", "url": "http://127.0.0.1:1/", "enabled": false });
    app.post("/api/v0/servers", unreachable).await.expect(500);
    app.get("/api/v0/servers/dead").await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_may_be_downloading_gets_advice_when_it_is_too_slow() {
    let app = TestApp::start_with(|config| config.init_timeout = std::time::Duration::from_secs(1)).await;
    let folder = tempfile::TempDir::new().unwrap();
    for (name, has_advice) in [("npx", true), ("slow", false)] {
        let program = folder.path().join(name);
        std::fs::write(&program, "#!/bin/sh\nexec sleep 600\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let input =
            json!({ "name": "s", "transport": "stdio", "command": program, "args": ["-y", "server"] });
        let error = app.post("/api/v0/servers", input).await.expect(500).error();
        assert!(error.contains("did not finish the handshake"), "{error}");
        let advice = "run the command once in a terminal until it has started";
        assert_eq!(error.contains(advice), has_advice, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_that_fails_leaves_nothing_behind() {
    let app = TestApp::start_with(|config| config.init_timeout = std::time::Duration::from_secs(1)).await;
    let broken = [
        json!({ "fail": { "tools/list": { "code": -32000, "message": "no tools today" } } }),
        json!({ "fail": { "resources/templates/list": { "code": -32000, "message": "half way" } } }),
        json!({ "stall": ["prompts/list"] }),
        json!({ "stall": ["initialize", "server/discover"] }),
    ];
    for behaviour in broken {
        let fake = Fake::start(Behaviour::of(behaviour.clone())).await;
        let inputs = [
            json!({ "name": "bad", "transport": "streamable_http", "url": fake.url() }),
            json!({ "name": "bad", "transport": "sse", "url": fake.sse_url() }),
            stdio_input("bad", &Behaviour::of(behaviour.clone())),
        ];
        for input in inputs {
            let error = app.post("/api/v0/servers", input).await.expect(500).error();
            let target = format!("127.0.0.1:{}", fake.url().split(':').nth(2).unwrap());
            let target = target.split('/').next().unwrap();
            assert!(error.contains(target) || error.contains("fake_upstream"), "names its target: {error}");
            app.get("/api/v0/servers/bad").await.expect(404);
        }
        assert_eq!(app.get("/api/v0/servers").await.json(), json!([]), "{behaviour}");
        assert!(app.tools("?all=true").await.is_empty());
    }
    let app = app.restart().await;
    assert_eq!(app.get("/api/v0/servers").await.json(), json!([]));
}
