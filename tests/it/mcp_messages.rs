//! Valid and invalid messages, and their errors.

use serde_json::{Value, json};

use crate::support::mcp::{BOTH, initialize};
use crate::support::{Agent, Answer, Behaviour, Fake, TestApp};

async fn with_server(behaviour: Value) -> (TestApp, Fake) {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(behaviour)).await;
    app.register_http("s", &fake).await;
    (app, fake)
}

async fn raw(app: &TestApp, body: &str) -> Answer {
    app.send("POST", "/mcp", &[BOTH], body).await
}

#[tokio::test]
async fn what_is_no_message_is_refused_with_400() {
    let (app, fake) = with_server(json!({})).await;
    fake.forget_seen();
    for body in ["", "{", "nonsense", r#"{"jsonrpc":"2.0","id":1,"method":"ping"} x"#, "[{]"] {
        let answer = raw(&app, body).await.expect(400).json();
        assert_eq!(answer["error"]["code"], -32700, "{body}: {answer}");
        assert_eq!(answer["id"], Value::Null);
    }
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":"#;
    for body in [
        "1".to_owned(),
        "\"ping\"".to_owned(),
        "null".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        r#"{"id":1,"method":"ping"}"#.to_owned(),
        r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"method":7}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"Method":"tools/list","method":"ping"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"ping"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"ID":2,"method":"ping"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","Params":{"name":"s__echo"},"params":{"name":"s__add"}}"#.to_owned(),
        format!(r#"{call}{{"name":"s__echo","name":"s__add"}}}}"#),
        format!(r#"{call}{{"name":"s__echo","Name":"s__add"}}}}"#),
        format!(r#"{call}{{"name":"s__echo","n\u0061me":"s__add"}}}}"#),
        format!(r#"{call}{{"Name":"s__echo"}}}}"#),
    ] {
        let answer = raw(&app, &body).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
        assert_eq!(answer.json()["error"]["code"], -32600, "{body}: {}", answer.text());
    }
    assert!(fake.seen_of("tools/call").is_empty());
}

#[tokio::test]
async fn unknown_methods_and_names_have_their_codes() {
    let (app, fake) = with_server(json!({"era": "legacy"})).await;
    app.post("/api/v0/tools/disable", json!({"entity": "s__echo"})).await.expect(200);
    app.post("/api/v0/prompts/disable?entity=s__plain", json!({})).await.expect(200);
    let agent = Agent::connect(&app, "/mcp").await;
    fake.forget_seen();
    let code = async |method: &str, params: Value| agent.error(method, params).await["code"].clone();
    assert_eq!(code("no/such", json!({})).await, -32601);
    for name in ["s__nothing", "t__echo", "echo", "s__echo", "", "s__", "__echo"] {
        assert_eq!(code("tools/call", json!({"name": name})).await, -32602, "{name}");
    }
    for name in ["s__nothing", "plain", "s__plain"] {
        assert_eq!(code("prompts/get", json!({"name": name})).await, -32602, "{name}");
    }
    for params in [json!({}), json!({"name": 7}), json!({"name": null})] {
        assert_eq!(code("tools/call", params).await, -32602);
    }
    assert_eq!(code("resources/read", json!({})).await, -32602);
    for method in ["resources/read", "resources/subscribe"] {
        let error = agent.error(method, json!({"uri": "fake://nothing"})).await;
        assert_eq!(error["code"], -32002, "{method}: {error}");
    }
    assert_eq!(code("logging/setLevel", json!({"level": "loud"})).await, -32602);
    assert!(
        fake.seen().iter().all(|seen| seen.method.is_empty() || seen.method == "GET"),
        "{:?}",
        fake.seen()
    );
}

#[tokio::test]
async fn errors_of_servers_pass_unchanged() {
    for behaviour in
        [json!({"era": "legacy"}), json!({"era": "legacy", "answer": "sse"}), json!({"era": "modern"})]
    {
        let (app, fake) = with_server(behaviour).await;
        let agent = Agent::connect(&app, "/mcp").await;
        let error = agent.error("tools/call", json!({"name": "s__rpc_error"})).await;
        let expected = json!({"code": -32050, "message": "the tool refused",
            "data": {"hint": "ask again", "retry": false}});
        assert_eq!(error, expected);
        fake.update(|behaviour| {
            behaviour
                .fail
                .insert("prompts/get".into(), json!({"code": 7, "message": "no", "data": [1, "x"]}));
        });
        let error = agent.error("prompts/get", json!({"name": "s__plain"})).await;
        assert_eq!(error, json!({"code": 7, "message": "no", "data": [1, "x"]}));
        let result = agent.call("s__fail", json!({})).await;
        assert_eq!(result["result"]["isError"], true);
    }
}

#[tokio::test]
async fn failing_and_late_servers_are_internal_errors_with_the_reason() {
    let app = TestApp::start().await;
    let mut fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    let input = json!({"name": "s", "transport": "streamable_http", "url": fake.url(), "timeout_ms": 200});
    app.register(input).await;
    let agent = Agent::connect(&app, "/mcp").await;
    let late = agent.error("tools/call", json!({"name": "s__slow", "arguments": {"ms": 60_000}})).await;
    assert_eq!(late["code"], -32603);
    assert!(late["message"].as_str().unwrap().contains("0.2 s"), "{late}");
    let lost = agent.error("tools/call", json!({"name": "s__hang_up"})).await;
    assert_eq!(lost["code"], -32603, "{lost}");
    fake.stop().await;
    let gone = agent.error("tools/call", json!({"name": "s__echo"})).await;
    assert_eq!(gone["code"], -32603);
    assert!(gone["message"].as_str().unwrap().contains("\"s\""), "{gone}");
}

#[tokio::test]
async fn a_header_or_a_meta_key_makes_a_request_modern() {
    let app = TestApp::start().await;
    let agent = Agent::connect(&app, "/mcp").await;
    let meta = json!({"io.modelcontextprotocol/protocolVersion": 5});
    let body = json!({"jsonrpc": "2.0", "id": 4, "method": "tools/list", "params": {"_meta": meta}});
    let plain = json!({"jsonrpc": "2.0", "id": 4, "method": "tools/list"});
    let with_header = app.send("POST", "/mcp", &[("mcp-protocol-version", "2099-01-01")], plain.to_string());
    for answer in [app.post("/mcp", body.clone()).await, agent.post(&body).await, with_header.await] {
        let answer = answer.expect(400).json();
        assert_eq!(answer["id"], 4);
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    let legacy = app.send("POST", "/mcp", &[("mcp-protocol-version", "2025-06-18")], plain.to_string());
    legacy.await.expect(200);
}

#[tokio::test]
async fn batches_exist_only_in_revision_2025_03_26() {
    let (app, _fake) = with_server(json!({})).await;
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}},
        {"jsonrpc": "2.0", "id": "b", "method": "tools/call",
            "params": {"name": "s__echo", "arguments": {"text": "hi"}}},
        {"jsonrpc": "2.0", "id": 3, "method": "no/such"},
    ]);
    let notices = json!([{"jsonrpc": "2.0", "method": "notifications/initialized"}]);
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let opened = initialize(&app.address, "/mcp", version, json!({})).await.expect(200);
        let headers = [BOTH, ("mcp-session-id", opened.headers["mcp-session-id"].to_str().unwrap())];
        let answer = app.send("POST", "/mcp", &headers, batch.to_string()).await;
        if version != "2025-03-26" {
            assert_eq!(answer.expect(400).json()["error"]["code"], -32600, "{version}");
            continue;
        }
        let answers = answer.expect(200).json();
        let answers = answers.as_array().unwrap();
        assert_eq!(answers.len(), 3);
        assert_eq!(answers[0], json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
        assert_eq!(answers[1]["id"], "b");
        assert_eq!(answers[1]["result"]["content"][0]["text"], "hi");
        assert_eq!(answers[2]["error"]["code"], -32601);
        assert!(app.send("POST", "/mcp", &headers, notices.to_string()).await.expect(202).body.is_empty());
    }
    // Without a session it is the same revision.
    assert_eq!(raw(&app, &batch.to_string()).await.expect(200).json().as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn every_answer_in_a_batch_is_a_message() {
    let app = TestApp::start().await;
    let batch = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": "info"}},
        {"jsonrpc": "2.0", "id": 2, "method": "initialize",
            "params": {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}},
        {"jsonrpc": "2.0", "id": 3, "method": "ping", "Method": "ping"},
        7,
    ]);
    let answer = raw(&app, &batch.to_string()).await.expect(200);
    assert!(answer.headers.get("mcp-session-id").is_none());
    let answers = answer.json();
    assert_eq!(answers.as_array().unwrap().len(), 4, "{answers}");
    for (answer, id) in answers.as_array().unwrap().iter().zip([json!(1), json!(2), json!(3), Value::Null]) {
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
        assert_eq!(answer["jsonrpc"], "2.0", "{answer}");
        assert_eq!(answer["id"], id, "{answer}");
    }
}

#[tokio::test]
async fn without_event_streams_the_answer_is_json_and_notices_are_dropped() {
    let (app, _fake) = with_server(json!({"era": "legacy", "answer": "sse"})).await;
    let params = json!({"name": "s__progress", "arguments": {"steps": 3}, "_meta": {"progressToken": 1}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    for (accept, media) in [
        (None, "text/event-stream"),
        (Some("*/*"), "text/event-stream"),
        (Some("application/json, text/event-stream"), "text/event-stream"),
        (Some("application/json"), "application/json"),
        (Some("application/*"), "application/json"),
    ] {
        let headers: Vec<_> = accept.map(|accept| ("accept", accept)).into_iter().collect();
        let answer = app.send("POST", "/mcp", &headers, body.as_str()).await.expect(200);
        assert_eq!(answer.headers["content-type"], media, "{accept:?}");
        assert_eq!(
            answer.text().matches("notifications/progress").count(),
            if media == "application/json" { 0 } else { 3 }
        );
        assert!(answer.text().contains("3 steps"));
    }
    let plain = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "s__echo"}});
    let answer = app.send("POST", "/mcp", &[BOTH], plain.to_string()).await.expect(200);
    assert_eq!(answer.headers["content-type"], "application/json");
}

#[tokio::test]
async fn the_guard_protects_the_mcp_paths_too() {
    let app = TestApp::start_with(|config| {
        config.allowed_origins = vec!["https://good.example".into()];
    })
    .await;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    for path in ["/mcp", "/sse", "/message", "/v0/groups/g/mcp", "/v0/groups/g/sse", "/v0/servers/s/mcp"] {
        for header in [("origin", "https://evil.example"), ("origin", "null"), ("host", "evil.example")] {
            app.send("POST", path, &[header], body.as_str()).await.expect(403).error();
        }
        let preflight = [
            ("origin", "https://good.example"),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "mcp-session-id"),
        ];
        let answer = app.send("OPTIONS", path, &preflight, "").await.expect(204);
        assert_eq!(answer.headers["access-control-allow-origin"], "https://good.example");
        app.send("POST", path, &[], vec![b' '; (4 << 20) + 1]).await.expect(413).error();
    }
    let answer =
        app.send("POST", "/mcp", &[("origin", "https://good.example")], body.as_str()).await.expect(200);
    let exposed = answer.headers["access-control-expose-headers"].to_str().unwrap().to_ascii_lowercase();
    assert!(exposed.contains("mcp-session-id"), "{exposed}");
}

#[tokio::test]
async fn calls_that_share_an_id_are_cancelled_together_and_end_alone() {
    let (app, fake) = with_server(json!({"era": "legacy"})).await;
    let agent = Agent::connect(&app, "/mcp").await;
    let call = |steps: u64| {
        let params = json!({"name": "s__progress", "arguments": {"steps": steps, "ms": 5},
            "_meta": {"progressToken": 1}});
        json!({"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": params})
    };
    let (mut long, mut short) = (agent.begin(&call(100_000)).await, agent.begin(&call(3)).await);
    assert_eq!(short.answer().await["result"]["content"][0]["text"], "3 steps");
    long.expect("notifications/progress").await;
    // After one has ended, the other can still be cancelled.
    agent.tell("notifications/cancelled", json!({"requestId": "same"})).await;
    while long.next().await.is_some() {}
    crate::support::eventually("it is cancelled", async || fake.cancelled().len() == 1).await;
    // A cancelled id may be used again at once.
    assert_eq!(agent.begin(&call(3)).await.answer().await["result"]["content"][0]["text"], "3 steps");
}
