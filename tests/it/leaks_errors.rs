//! What callers learn of a failure. In enterprise mode clients and plain users learn its kind and an id; what the server
//! said, its address and its output are for admins. In development mode everybody sees all.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::modern::{ModernAgent, VERSION};
use crate::support::{Agent, Behaviour, Fake, TestApp, bearer, client, eventually};

/// Parts of the addresses, answers and outputs of the servers below.
const SECRETS: [&str; 5] = ["/mcp", "secret-path", "127.0.0.1", "fake_upstream", "api-key"];

async fn start() -> (TestApp, Fake) {
    let app = TestApp::start_enterprise().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    let url = format!("{}?secret-path=1", fake.url());
    app.register(json!({"name": "s", "transport": "streamable_http", "url": url})).await;
    (app, fake)
}

fn assert_kind_only(message: &str, kind: &str) {
    assert!(message.contains(kind), "{message}");
    for secret in SECRETS {
        assert!(!message.contains(secret), "{message} has {secret}");
    }
    let id = message.rsplit_once("(error id ").and_then(|(_, rest)| rest.strip_suffix(')'));
    let id = id.unwrap_or_else(|| panic!("no id: {message}"));
    assert!(id.len() == 8 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{message}");
}

/// What a client of each era and a plain user are told when they use this server.
async fn told(app: &TestApp, client: &str, user: &str, tool: &str, arguments: &Value) -> Vec<String> {
    let mut told = Vec::new();
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("no error: {value}")).to_owned();
    for (path, name) in [("/mcp", format!("s__{tool}")), ("/v0/servers/s/mcp", tool.to_owned())] {
        let agent = Agent::connect_as(app, path, client).await;
        let params = json!({"name": name, "arguments": arguments});
        told.push(text(&agent.error("tools/call", params.clone()).await["message"]));
        let body = ModernAgent::at(app, path).message(json!(1), "tools/call", params).to_string();
        let authorization = bearer(client);
        let headers = [
            ("authorization", authorization.as_str()),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", VERSION),
            ("mcp-method", "tools/call"),
            ("mcp-name", &name),
        ];
        let answer = client::request(&app.address, "POST", path, &headers, body.into()).await.json();
        told.push(text(&answer["error"]["message"]));
    }
    let mut call = arguments.clone();
    call["name"] = json!(format!("s__{tool}"));
    let answer = app.send_as(user, "POST", "/api/v0/tools/invoke", call.clone()).await.expect(500);
    told.push(answer.error());
    let authorization = bearer(user);
    let headers = [("authorization", authorization.as_str()), ("accept", "text/event-stream")];
    let streamed =
        app.send("POST", "/api/v0/tools/invoke", &headers, call.to_string()).await.expect(200).text();
    let data = streamed
        .lines()
        .find_map(|line| line.strip_prefix("data: {\"error\""))
        .unwrap_or_else(|| panic!("{streamed}"));
    let event: Value = serde_json::from_str(&format!("{{\"error\"{data}")).unwrap();
    told.push(text(&event["error"]));
    told
}

#[tokio::test]
async fn clients_and_users_learn_the_kind_of_a_failure_and_an_id() {
    let (app, mut fake) = start().await;
    let (client, user) = (app.create_client("c", &["*"]).await, app.create_user("u", "user").await);
    fake.update(|behaviour| drop(behaviour.fail.insert("tools/call".into(), json!(500))));
    for message in told(&app, &client, &user, "echo", &json!({})).await {
        assert_kind_only(&message, "answered HTTP 500");
    }
    let admins = app.invoke("s__echo", json!({})).await.expect(500).error();
    assert!(admins.contains("/mcp") && admins.contains("500") && !admins.contains("error id"), "{admins}");
    fake.update(|behaviour| {
        behaviour.fail.clear();
        behaviour.fail.insert("resources/read".into(), json!(500));
        behaviour.fail.insert("prompts/get".into(), json!(500));
        behaviour.fail.insert("completion/complete".into(), json!(500));
        behaviour.fail.insert("resources/subscribe".into(), json!(500));
    });
    let agent = Agent::connect_as(&app, "/mcp", &client).await;
    let completion =
        json!({"ref": {"type": "ref/prompt", "name": "s__greet"}, "argument": {"name": "who", "value": "a"}});
    for (method, params) in [
        ("resources/read", json!({"uri": "fake://text"})),
        ("resources/subscribe", json!({"uri": "fake://text"})),
        ("prompts/get", json!({"name": "s__plain"})),
        ("completion/complete", completion),
    ] {
        let error = agent.error(method, params).await;
        assert_kind_only(error["message"].as_str().unwrap(), "answered HTTP 500");
    }
    for (path, body) in [
        ("/api/v0/resources/read", json!({"uri": "fake://text"})),
        ("/api/v0/prompts/render", json!({"name": "s__plain"})),
    ] {
        assert_kind_only(
            &app.send_as(&user, "POST", path, body.clone()).await.expect(500).error(),
            "answered HTTP 500",
        );
        assert!(app.post(path, body).await.expect(500).error().contains("/mcp"));
    }
    app.patch("/api/v0/servers/s", json!({"timeout_ms": 400})).await.expect(200);
    for message in told(&app, &client, &user, "slow", &json!({"ms": 60_000})).await {
        assert_kind_only(&message, "timed out after 0.4 s");
    }
    app.patch("/api/v0/servers/s", json!({"timeout_ms": null})).await.expect(200);
    // What the server itself says passes unchanged.
    fake.update(|behaviour| behaviour.fail.clear());
    let own = agent.error("tools/call", json!({"name": "s__rpc_error"})).await;
    assert_eq!(own["message"], "the tool refused");
    let own = app.send_as(&user, "POST", "/api/v0/tools/invoke", json!({"name": "s__rpc_error"})).await;
    assert!(own.expect(500).error().contains("the tool refused"));
    assert_eq!(agent.call("s__fail", json!({})).await["result"]["isError"], true);
    fake.stop().await;
    for message in told(&app, &client, &user, "echo", &json!({})).await {
        assert_kind_only(&message, "cannot be reached");
    }
}

#[tokio::test]
async fn a_plain_user_sees_neither_the_path_of_a_server_nor_its_reasons() {
    let (app, mut fake) = start().await;
    let user = app.create_user("u", "user").await;
    fake.stop().await;
    app.invoke("s__echo", json!({})).await.expect(500);
    eventually("it has failed", async || app.server("s").await["status"] == "failed").await;
    let shown = app.send_as(&user, "GET", "/api/v0/servers/s", json!({})).await.expect(200).json();
    assert_eq!(shown["status_reason"], "cannot be reached", "{shown}");
    let url = shown["url"].as_str().unwrap();
    assert!(url.starts_with("http://127.0.0.1:") && url.matches('/').count() == 2, "{url}");
    let listed = app.send_as(&user, "GET", "/api/v0/servers", json!({})).await.expect(200).json();
    assert_eq!(listed[0], shown);
    let admins = app.server("s").await;
    assert!(admins["status_reason"].as_str().unwrap().contains("/mcp"), "{admins}");
    assert!(admins["url"].as_str().unwrap().contains("secret-path"), "{admins}");
}

/// A program that answers the handshake and dies with words in its output when a tool is called.
fn dying(folder: &std::path::Path) -> PathBuf {
    let script = folder.join("dying.sh");
    let text = r#"#!/bin/sh
while read -r line; do
  id=$(echo "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *server/discover*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no"}}' ;;
    *initialize\"*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}' ;;
    *tools/list*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"die","inputSchema":{"type":"object"}}]}}' ;;
    *tools/call*) echo "stack trace with --api-key=secret-path" >&2; exit 1 ;;
  esac
done
"#;
    std::fs::write(&script, text).unwrap();
    script
}

#[tokio::test]
async fn the_output_of_a_process_is_for_admins() {
    let app = TestApp::start_enterprise().await;
    let script = dying(app.folder.path());
    let input =
        json!({"name": "s", "transport": "stdio", "command": "sh", "args": [script.to_str().unwrap()]});
    app.register(input).await;
    let (client, user) = (app.create_client("c", &["*"]).await, app.create_user("u", "user").await);
    for message in told(&app, &client, &user, "die", &json!({})).await {
        assert_kind_only(&message, "the process ended with status 1");
    }
    let admins = app.invoke("s__die", json!({})).await.expect(500).error();
    assert!(admins.contains("stack trace"), "{admins}");
}

#[tokio::test]
async fn in_development_mode_everybody_learns_all() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy", "fail": {"tools/call": 500}}))).await;
    app.register_http("s", &fake).await;
    let agent = Agent::connect(&app, "/mcp").await;
    let error = agent.error("tools/call", json!({"name": "s__echo"})).await;
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(&fake.url()) && !message.contains("error id"), "{message}");
}
