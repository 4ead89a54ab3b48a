//! Invalid registrations: each mistake is answered with 400 and an error that names the field.

use serde_json::{Map, Value, json};

use crate::support::{Behaviour, Fake, TestApp, eventually};

fn http(extra: Value) -> Value {
    with(json!({ "name": "web", "transport": "streamable_http", "url": "http://127.0.0.1:1/mcp" }), extra)
}

fn stdio(extra: Value) -> Value {
    with(json!({ "name": "local", "transport": "stdio", "command": "/nowhere" }), extra)
}

fn with(mut input: Value, extra: Value) -> Value {
    input.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    input
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mistake_is_400_and_names_its_field() {
    let app = TestApp::start().await;
    let mut cases: Vec<(&str, Value)> = vec![
        ("name", json!({})),
        ("name", json!({ "transport": "stdio", "command": "x" })),
        ("transport", json!({ "name": "a" })),
        ("transport", json!({ "name": "a", "transport": "STDIO", "command": "x" })),
        ("transport", json!({ "name": "a", "transport": "http", "url": "http://h/" })),
        ("transport", json!({ "name": "a", "transport": ["stdio"] })),
        ("url", json!({ "name": "a", "transport": "sse" })),
        ("command", json!({ "name": "a", "transport": "stdio" })),
        ("command", stdio(json!({ "command": "" }))),
        ("command", stdio(json!({ "command": 7 }))),
        ("command", http(json!({ "command": "npx" }))),
        ("args", http(json!({ "args": ["x"] }))),
        ("env", http(json!({ "env": { "A": "b" } }))),
        ("cwd", http(json!({ "cwd": "/" }))),
        ("url", stdio(json!({ "url": "http://h/" }))),
        ("bearer_token", stdio(json!({ "bearer_token": "t" }))),
        ("headers", stdio(json!({ "headers": { "A": "b" } }))),
        ("oauth_redirect_uri", stdio(json!({ "oauth_redirect_uri": "http://h/" }))),
        ("oauth_client_id", stdio(json!({ "oauth_client_id": "t" }))),
        ("oauth_client_secret", stdio(json!({ "oauth_client_secret": "t" }))),
        ("oauth_scopes", stdio(json!({ "oauth_scopes": ["t"] }))),
        ("args", stdio(json!({ "args": "-y" }))),
        ("args[1]", stdio(json!({ "args": ["-y", 1] }))),
        ("env", stdio(json!({ "env": ["A=b"] }))),
        ("env.A", stdio(json!({ "env": { "A": 1 } }))),
        ("env.A=B", stdio(json!({ "env": { "A=B": "1" } }))),
        ("cwd", stdio(json!({ "cwd": 1 }))),
        ("headers", http(json!({ "headers": "A: b" }))),
        ("headers.A", http(json!({ "headers": { "A": null } }))),
        ("headers.A", http(json!({ "headers": { "A": "x\r\ny: z" } }))),
        ("headers.A B", http(json!({ "headers": { "A B": "x" } }))),
        ("bearer_token", http(json!({ "bearer_token": 1 }))),
        ("bearer_token", http(json!({ "bearer_token": "a\nb" }))),
        ("description", http(json!({ "description": {} }))),
        ("session_mode", http(json!({ "session_mode": "Stateful" }))),
        ("session_mode", http(json!({ "session_mode": true }))),
        ("placement", http(json!({ "placement": "one" }))),
        ("placement", stdio(json!({ "placement": "two" }))),
        ("placement", stdio(json!({ "placement": 1 }))),
        ("oauth_scopes", http(json!({ "oauth_scopes": "a b" }))),
        ("oauth_redirect_uri", http(json!({ "oauth_redirect_uri": "nowhere" }))),
        ("timeout_ms", http(json!({ "timeout_ms": -1 }))),
        ("timeout_ms", http(json!({ "timeout_ms": 1.5 }))),
        ("timeout_ms", http(json!({ "timeout_ms": "1000" }))),
        ("max_concurrency", http(json!({ "max_concurrency": -3 }))),
        ("enabled", http(json!({ "enabled": "true" }))),
        ("enabled", http(json!({ "enabled": 1 }))),
        ("disabled_tools", http(json!({ "disabled_tools": "echo" }))),
        ("disabled_tools[0]", http(json!({ "disabled_tools": [1] }))),
        ("disabled_prompts[0]", http(json!({ "disabled_prompts": [null] }))),
        ("Name", http(json!({ "Name": "web" }))),
        ("tools", http(json!({ "tools": null }))),
    ];
    let long = "x".repeat(65);
    for name in ["", "a__b", "a_", "a b", "a/b", "a.b", "ä", "a\n", &long] {
        cases.push(("name", http(json!({ "name": name }))));
    }
    for name in [json!(1), json!(null), json!(["a"]), json!({})] {
        cases.push(("name", http(json!({ "name": name }))));
    }
    for url in ["", "h/mcp", "//h/mcp", "ftp://h/", "file:///etc/passwd", "http://", "http:///x", "http:h"] {
        cases.push(("url", http(json!({ "url": url }))));
    }
    for url in ["http://:80/", "https://?q", "http://h:99999/", "http://[::1/", "javascript:alert(1)", " "] {
        cases.push(("url", http(json!({ "url": url }))));
    }
    cases.push(("url", http(json!({ "url": 1 }))));
    for (field, input) in cases {
        let error = app.post("/api/v0/servers", input.clone()).await.expect(400).error();
        assert!(error.contains(&format!("\"{field}\"")), "{input}: {error}");
    }
    assert_eq!(app.get("/api/v0/servers").await.json(), json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_no_json_object_is_400() {
    let app = TestApp::start().await;
    let deep = "[".repeat(100_000);
    let bodies: [&[u8]; 10] = [
        b"",
        b" \n",
        b"[]",
        b"null",
        b"\"web\"",
        b"{",
        b"{\"name\":\"a\",}",
        b"\xff\xfe",
        b"{\"name\":\"\\ud800\"}",
        deep.as_bytes(),
    ];
    for body in bodies {
        app.send("POST", "/api/v0/servers", &[], body).await.expect(400).error();
    }
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("web", &fake).await;
    for body in bodies {
        app.send("PATCH", "/api/v0/servers/web", &[], body).await.expect(400).error();
    }
    let error = app.post("/api/v0/servers?force=maybe", http(json!({}))).await.expect(400).error();
    assert!(error.contains("\"force\""), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_read_as_json_whatever_its_content_type() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let types = ["text/plain", "application/x-www-form-urlencoded", "", "application/json; charset=latin1"];
    for (number, kind) in types.iter().enumerate() {
        let input =
            json!({ "name": format!("s{number}"), "transport": "streamable_http", "url": fake.url() });
        let headers = [("content-type", *kind)];
        app.send("POST", "/api/v0/servers", &headers, input.to_string()).await.expect(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_keys_of_another_transport_and_nulls_say_nothing() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let input = json!({
        "name": "web", "transport": "streamable_http", "url": fake.url(), "command": "", "args": [], "env": {},
        "cwd": null, "bearer_token": "", "headers": {}, "description": null, "session_mode": "",
        "timeout_ms": null, "max_concurrency": 0, "oauth_scopes": [], "oauth_client_id": "", "enabled": null,
    });
    let record = app.register(input).await["server"].take();
    assert_eq!(record["description"], "");
    assert_eq!(record["session_mode"], "stateless");
    assert_eq!(record["enabled"], true);
    assert!(!fake.seen_of("tools/list")[0].headers.contains_key("authorization"));
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_as_large_as_numbers_go_survive_a_restart() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register(json!({
        "name": "web", "transport": "streamable_http", "url": fake.url(),
        "timeout_ms": u64::MAX, "max_concurrency": u64::MAX,
    }))
    .await;
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    let app = app.restart().await;
    let configs = app.get("/api/v0/server_configs").await.expect(200).json();
    assert_eq!(configs[0]["timeout_ms"], json!(u64::MAX));
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_good_name_works() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let long = "n".repeat(64);
    for name in ["a", "0", "-", "_a", "a_b", "A-1", &long] {
        app.register_http(name, &fake).await;
        assert_eq!(app.call(&format!("{name}__echo"), json!({ "text": name })).await, name);
        app.delete(&format!("/api/v0/servers/{name}")).await.expect(204);
    }
    eventually("all links are closed", async || fake.open_streams() == 0).await;
}

/// An item of the export without the keys that have their default.
fn exported(app_configs: &Value, name: &str) -> Map<String, Value> {
    let items = app_configs.as_array().unwrap();
    items.iter().find(|item| item["name"] == name).unwrap().as_object().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_has_every_key_and_gives_the_same_servers_again() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "bearer": "tok-1234" }))).await;
    let url = format!("{}?key=v%20w", fake.url().replace("http://", "http://ann:secret@"));
    let web = json!({
        "name": "web", "transport": "streamable_http", "url": url, "description": "d\u{1F600}",
        "bearer_token": "tok-1234", "headers": { "X-Key": "k-é" }, "session_mode": "stateful",
        "timeout_ms": 0, "max_concurrency": 3, "enabled": true, "disabled_tools": ["echo", "not-there"],
        "disabled_prompts": ["plain"], "oauth_redirect_uri": "http://localhost:1/cb",
        "oauth_client_id": "id", "oauth_client_secret": "os", "oauth_scopes": ["b", "a"],
    });
    let mut local = crate::support::app::stdio_input("local", &Behaviour::default());
    local = with(local, json!({ "env": { "K": "v1234" }, "cwd": "/", "enabled": false, "placement": "one" }));
    app.register(web.clone()).await;
    app.register(local.clone()).await;
    let configs = app.get("/api/v0/server_configs").await.expect(200).json();
    assert_eq!(Value::from(exported(&configs, "web")), web);
    for (key, value) in local.as_object().unwrap() {
        assert_eq!(&exported(&configs, "local")[key], value, "{key}");
    }

    let other = TestApp::start().await;
    for item in configs.as_array().unwrap() {
        other.register(item.clone()).await;
    }
    assert_eq!(other.get("/api/v0/server_configs").await.json(), configs);
    for app in [&app, &other] {
        let tools = app.get("/api/v0/tools?server=web").await.json();
        let echo = tools.as_array().unwrap().iter().find(|tool| tool["name"] == "web__echo").unwrap();
        assert_eq!(echo["enabled"], false);
        assert_eq!(app.server("local").await["status"], "disabled");
    }
    let app = app.restart().await;
    assert_eq!(app.get("/api/v0/server_configs").await.json(), configs);
}
