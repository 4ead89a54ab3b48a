//! Changes of a registered server: replace, update, enable, disable, refresh, remove.

use serde_json::{Value, json};

use crate::support::app::stdio_input;
use crate::support::{Behaviour, Fake, TestApp, eventually};

async fn fake_with(behaviour: Value) -> Fake {
    Fake::start(Behaviour::of(behaviour)).await
}

fn input(fake: &Fake, extra: Value) -> Value {
    let mut input = json!({ "name": "web", "transport": "streamable_http", "url": fake.url() });
    input.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    input
}

async fn is_tool_enabled(app: &TestApp, tool: &str) -> bool {
    app.get(&format!("/api/v0/tool?name={tool}")).await.expect(200).json()["enabled"] == true
}

#[tokio::test(flavor = "multi_thread")]
async fn force_on_a_free_name_is_a_plain_registration() {
    let app = TestApp::start().await;
    let fake = fake_with(json!({})).await;
    app.post("/api/v0/servers?force=true", input(&fake, json!({}))).await.expect(201);
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
}

#[tokio::test(flavor = "multi_thread")]
async fn force_connects_the_new_server_then_ends_the_old_one_and_keeps_tool_flags() {
    let app = TestApp::start().await;
    let (old, new) =
        (fake_with(json!({ "era": "legacy" })).await, fake_with(json!({ "era": "modern" })).await);
    app.register(input(&old, json!({ "description": "old", "bearer_token": "abcd" }))).await;
    app.send("POST", "/api/v0/tools/disable?entity=web__echo", &[], "").await.expect(200);
    let record = app.post("/api/v0/servers?force=true", input(&new, json!({}))).await.expect(201).json();
    assert_eq!(record["description"], "", "a replacement takes nothing else over");
    assert!(!is_tool_enabled(&app, "web__echo").await);
    assert!(is_tool_enabled(&app, "web__add").await);
    assert!(!new.seen_of("tools/list")[0].headers.contains_key("authorization"));
    assert_eq!(old.sessions().len(), 0, "the old session was ended");
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    assert_eq!((old.calls_of("echo"), new.calls_of("echo")), (0, 1));
    let app = app.restart().await;
    assert!(!is_tool_enabled(&app, "web__echo").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_that_a_replacement_names_are_not_kept() {
    let app = TestApp::start().await;
    let fake = fake_with(json!({})).await;
    app.register(input(&fake, json!({ "disabled_tools": ["echo"], "disabled_prompts": ["plain"] }))).await;
    let replacement = input(&fake, json!({ "disabled_tools": ["add"] }));
    app.post("/api/v0/servers?force=true", replacement).await.expect(201);
    let configs = app.get("/api/v0/server_configs").await.json();
    assert_eq!(configs[0]["disabled_tools"], json!(["add"]));
    assert_eq!(configs[0]["disabled_prompts"], json!(["plain"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_replacement_leaves_the_old_server_serving() {
    let app = TestApp::start().await;
    let fake = fake_with(json!({ "era": "legacy" })).await;
    app.register(input(&fake, json!({ "description": "old" }))).await;
    let before = (app.server("web").await, app.get("/api/v0/server_configs").await.json());
    let broken = fake_with(json!({ "fail": { "tools/list": 500 } })).await;
    let pid = app.call("web__pid", json!({})).await;
    for bad in [
        input(&broken, json!({})),
        json!({ "name": "web", "transport": "sse", "url": "http://127.0.0.1:1/" }),
        json!({ "name": "web", "transport": "stdio", "command": "/no/such/program" }),
    ] {
        app.post("/api/v0/servers?force=true", bad.clone()).await.expect(500);
        let mut amendment = bad.clone();
        amendment.as_object_mut().unwrap().remove("name");
        app.patch("/api/v0/servers/web", amendment).await.expect(500);
        let after = (app.server("web").await, app.get("/api/v0/server_configs").await.json());
        assert_eq!(after, before, "{bad}");
        assert_eq!(app.call("web__pid", json!({})).await, pid);
    }
    assert_eq!(fake.seen_of("initialize").len(), 1, "the old link was never touched");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_amendment_changes_what_it_names_and_keeps_the_rest_secrets_included() {
    let app = TestApp::start().await;
    let fake = fake_with(json!({ "bearer": "tok-1234" })).await;
    app.register(input(&fake, json!({ "bearer_token": "tok-1234", "headers": { "X-A": "aaaa" } }))).await;
    let answer = app.patch("/api/v0/servers/web", json!({ "description": "new" })).await.expect(200).json();
    assert_eq!(answer.as_object().unwrap().len(), 1);
    assert_eq!(answer["server"]["description"], "new");
    assert_eq!(fake.seen_of("tools/list").len(), 1, "words about a server need no new link");
    app.patch("/api/v0/servers/web", json!({ "headers": { "X-B": "bbbb" } })).await.expect(200);
    let seen = fake.seen_of("tools/list").pop().unwrap();
    assert_eq!(seen.headers["authorization"], "Bearer tok-1234");
    assert_eq!((&seen.headers["x-a"], &seen.headers["x-b"]), (&"aaaa".into(), &"bbbb".into()));
    app.patch("/api/v0/servers/web", json!({ "timeout_ms": 200 })).await.expect(200);
    app.invoke("web__slow", json!({ "ms": 60_000 })).await.expect(500);
    let app = app.restart().await;
    let config = app.get("/api/v0/server_configs").await.json()[0].take();
    assert_eq!((&config["description"], &config["timeout_ms"]), (&json!("new"), &json!(200)));
    assert_eq!(
        (&config["bearer_token"], &config["headers"]),
        (&json!("tok-1234"), &json!({ "X-A": "aaaa", "X-B": "bbbb" }))
    );
}

async fn config(app: &TestApp) -> Value {
    app.get("/api/v0/server_configs").await.expect(200).json()[0].take()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_amendment_merges_variables_by_name() {
    let app = TestApp::start().await;
    let mut input = stdio_input("web", &Behaviour::default());
    let given = json!({ "REGION": "eu", "API_KEY": "abcd", "region": "small", "EMPTY": "" });
    input.as_object_mut().unwrap().insert("env".into(), given);
    app.register(input.clone()).await;
    let variable = async |name: &str| {
        // The other route cannot be used, because there `name` is the name of the tool.
        let call = app.post("/api/dashboard/tools/web__env/invoke", json!({ "name": name }));
        call.await.expect(200).json()["content"][0]["text"].as_str().unwrap().to_owned()
    };
    let patch = async |env: Value| app.patch("/api/v0/servers/web", json!({ "env": env })).await;
    patch(json!({ "REGION": "us" })).await.expect(200);
    assert_eq!((variable("REGION").await, variable("API_KEY").await), ("us".into(), "abcd".into()));
    assert_eq!(variable("region").await, "small", "names of variables are case-sensitive");
    patch(json!({ "API_KEY": null, "NOT_THERE": null, "NEW": "1" })).await.expect(200);
    let merged = json!({ "REGION": "us", "region": "small", "EMPTY": "", "NEW": "1" });
    assert_eq!(config(&app).await["env"], merged);
    patch(json!({})).await.expect(200);
    for wrong in [json!(1), json!(true), json!(["a"]), json!({ "a": null })] {
        let error = patch(json!({ "REGION": wrong, "NEW": null })).await.expect(400).error();
        assert!(error.contains("\"env.REGION\""), "{error}");
    }
    let error = patch(json!("REGION=us")).await.expect(400).error();
    assert!(error.contains("\"env\""), "{error}");
    let app = app.restart().await;
    assert_eq!(config(&app).await["env"], merged);
    app.patch("/api/v0/servers/web", json!({ "env": null })).await.expect(200);
    assert_eq!(config(&app).await["env"], json!({}), "null for all of them goes back to the default");

    app.post("/api/v0/servers?force=true", input.clone()).await.expect(201);
    input["env"] = json!({ "ONLY": "1" });
    app.post("/api/v0/servers?force=true", input.clone()).await.expect(201);
    assert_eq!(config(&app).await["env"], json!({ "ONLY": "1" }), "a registration replaces them all");
    input["env"] = json!({ "ONLY": null });
    let error = app.post("/api/v0/servers?force=true", input).await.expect(400).error();
    assert!(error.contains("\"env.ONLY\""), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_amendment_merges_headers_whatever_their_case() {
    let app = TestApp::start().await;
    let fake = fake_with(json!({})).await;
    let given = json!({ "X-Key": "aaaa", "X-Team": "blue", "Authorization": "Basic eHk6eg==" });
    app.register(input(&fake, json!({ "headers": given, "bearer_token": "tok-1234" }))).await;
    let patch = async |headers: Value| app.patch("/api/v0/servers/web", json!({ "headers": headers })).await;
    let seen = || fake.seen_of("tools/list").pop().unwrap().headers;
    patch(json!({ "x-key": "bbbb" })).await.expect(200);
    assert_eq!((&seen()["x-key"], &seen()["x-team"]), (&"bbbb".into(), &"blue".into()));
    assert_eq!(seen()["authorization"], "Basic eHk6eg==", "a header wins over the bearer token");
    patch(json!({ "authorization": null, "X-TEAM": null, "x-not-there": null })).await.expect(200);
    assert_eq!(seen()["authorization"], "Bearer tok-1234");
    assert_eq!(config(&app).await["headers"], json!({ "x-key": "bbbb" }));
    patch(json!({ "X-Key": "cccc", "x-key": null })).await.expect(200);
    assert_eq!(config(&app).await["headers"], json!({ "X-Key": "cccc" }), "a header was respelled");
    for (field, wrong) in [
        ("headers.X-Key", json!({ "X-Key": 1 })),
        ("headers.a b", json!({ "a b": "1" })),
        ("headers.accept", json!({ "accept": "1" })),
        ("headers", json!(["X-Key"])),
    ] {
        let error = patch(wrong).await.expect(400).error();
        assert!(error.contains(&format!("{field:?}")), "{error}");
    }
    let moved =
        json!({ "transport": "sse", "url": fake.sse_url(), "headers": { "X-New": "1", "X-Key": null } });
    app.patch("/api/v0/servers/web", moved).await.expect(200);
    assert_eq!(config(&app).await["headers"], json!({ "X-New": "1" }), "a new transport starts afresh");
    app.patch("/api/v0/servers/web", json!({ "env": { "A": null } })).await.expect(200);
    app.patch("/api/v0/servers/web", json!({ "env": { "A": "1" } })).await.expect(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_amendment_with_a_mistake_is_400_and_changes_nothing() {
    let app = TestApp::start().await;
    let fake = fake_with(json!({})).await;
    app.register(input(&fake, json!({}))).await;
    let before = app.get("/api/v0/server_configs").await.json();
    for (field, changes) in [
        ("name", json!({ "name": "other" })),
        ("colour", json!({ "colour": "red" })),
        ("url", json!({ "url": "nowhere" })),
        ("url", json!({ "url": null })),
        ("command", json!({ "command": "npx" })),
        ("command", json!({ "transport": "stdio" })),
        ("timeout_ms", json!({ "timeout_ms": "1" })),
        ("transport", json!({ "transport": "smoke" })),
    ] {
        let error = app.patch("/api/v0/servers/web", changes).await.expect(400).error();
        assert!(error.contains(&format!("\"{field}\"")), "{error}");
    }
    assert_eq!(app.get("/api/v0/server_configs").await.json(), before);
    app.patch("/api/v0/servers/web", json!({})).await.expect(200);
    assert_eq!(app.get("/api/v0/server_configs").await.json(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_amendment_moves_a_server_to_another_transport_and_switches_it() {
    let app = TestApp::start().await;
    let fake = fake_with(json!({ "era": "legacy" })).await;
    app.register(input(&fake, json!({ "disabled_tools": ["echo"], "bearer_token": "tok-1234" }))).await;
    let mut moved = stdio_input("web", &Behaviour::default());
    moved.as_object_mut().unwrap().remove("name");
    let record = app.patch("/api/v0/servers/web", moved).await.expect(200).json()["server"].take();
    assert_eq!((&record["transport"], &record["url"]), (&json!("stdio"), &json!("")));
    assert!(!is_tool_enabled(&app, "web__echo").await);
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    assert_eq!(fake.calls_of("echo"), 0);
    let off = app.patch("/api/v0/servers/web", json!({ "enabled": false })).await.expect(200).json();
    assert_eq!(off["server"]["status"], "disabled");
    assert!(app.tools("").await.is_empty());
    app.patch("/api/v0/servers/web", json!({ "description": "off" })).await.expect(200);
    let on = app.patch("/api/v0/servers/web", json!({ "enabled": true })).await.expect(200).json();
    assert_eq!(on["server"]["status"], "connected");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_disabled_while_a_server_is_being_amended_stays_disabled() {
    let app = TestApp::start().await;
    let fake = fake_with(json!({ "era": "legacy" })).await;
    app.register(input(&fake, json!({}))).await;
    fake.forget_seen();
    fake.update(|behaviour| behaviour.delay_ms = [("prompts/list".into(), 500)].into());
    let amend = app.patch("/api/v0/servers/web", json!({ "session_mode": "stateful" }));
    let disable = async {
        eventually("the new link is being made", async || !fake.seen_of("prompts/list").is_empty()).await;
        app.send("POST", "/api/v0/tools/disable?entity=web__echo", &[], "").await.expect(200);
    };
    let (amended, ()) = tokio::join!(amend, disable);
    amended.expect(200);
    assert!(!is_tool_enabled(&app, "web__echo").await);
    let app = app.restart().await;
    assert!(!is_tool_enabled(&app, "web__echo").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn disabling_a_server_hides_all_it_offers_and_forgets_no_single_flag() {
    let app = TestApp::start().await;
    let behaviour = Behaviour::of(json!({ "era": "legacy" }));
    let fake = Fake::start(behaviour.clone()).await;
    app.register(input(&fake, json!({ "disabled_prompts": ["plain"] }))).await;
    app.send("POST", "/api/v0/tools/disable?entity=web__echo", &[], "").await.expect(200);
    let mut shown: Vec<_> = behaviour.tool_names().iter().map(|tool| format!("web__{tool}")).collect();
    shown.retain(|tool| tool != "web__echo");
    shown.sort();
    let switched =
        json!({ "name": "web", "tools_affected": shown, "prompts_affected": ["web__greet", "web__picture"] });
    let nothing = json!({ "name": "web", "tools_affected": [], "prompts_affected": [] });

    let disable = || app.send("POST", "/api/v0/servers/web/disable", &[], "");
    assert_eq!(disable().await.expect(200).json(), switched);
    assert_eq!(disable().await.expect(200).json(), nothing);
    assert_eq!(fake.sessions().len(), 0, "its links are closed");
    let record = app.server("web").await;
    assert_eq!((&record["enabled"], &record["status"]), (&json!(false), &json!("disabled")));
    assert_eq!(app.get("/api/v0/tools?server=web").await.expect(200).json(), json!([]));
    assert!(!is_tool_enabled(&app, "web__add").await);
    let error = app.send("POST", "/api/v0/servers/web/refresh", &[], "").await.expect(400).error();
    assert!(error.contains("disabled"), "{error}");

    let enable = || app.send("POST", "/api/v0/servers/web/enable", &[], "");
    assert_eq!(enable().await.expect(200).json(), switched);
    assert_eq!(enable().await.expect(200).json(), nothing);
    assert!(!is_tool_enabled(&app, "web__echo").await);
    assert!(is_tool_enabled(&app, "web__add").await);
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi", "a call waits for the link");
}

#[tokio::test(flavor = "multi_thread")]
async fn refresh_reads_the_lists_now() {
    let app = TestApp::start().await;
    let fake = fake_with(json!({ "tools": [] })).await;
    app.register_http("web", &fake).await;
    fake.update(|behaviour| behaviour.show_tools(&["late".into()]));
    let answer = app.send("POST", "/api/v0/servers/web/refresh", &[], "").await.expect(200).json();
    assert_eq!(answer.as_object().unwrap().len(), 1);
    assert_eq!(answer["server"]["tool_count"], 1);
    assert_eq!(app.tools("").await, ["web__late"]);
    fake.update(|behaviour| {
        behaviour.fail.insert("tools/list".into(), json!({ "code": -32000, "message": "not today" }));
    });
    let error = app.send("POST", "/api/v0/servers/web/refresh", &[], "").await.expect(500).error();
    assert!(error.contains("not today"), "{error}");
    assert_eq!(app.tools("").await, ["web__late"], "what was known stays");
    eventually("it is degraded", async || app.server("web").await["status"] == "degraded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_server_is_gone_with_its_tools_and_its_name_is_free() {
    let app = TestApp::start().await;
    let fake = fake_with(json!({ "era": "legacy" })).await;
    app.register(input(&fake, json!({ "disabled_tools": ["echo"] }))).await;
    let answer = app.delete("/api/v0/servers/web").await.expect(204);
    assert!(answer.body.is_empty());
    app.delete("/api/v0/servers/web").await.expect(404);
    assert!(app.tools("?all=true").await.is_empty());
    app.invoke("web__echo", json!({})).await.expect(404);
    assert_eq!(fake.sessions().len(), 0, "its session was ended");
    app.register_http("web", &fake).await;
    assert!(is_tool_enabled(&app, "web__echo").await, "flags went with the server");
    let app = app.restart().await;
    assert_eq!(app.get("/api/v0/servers").await.json().as_array().unwrap().len(), 1);
}
