//! Modern and legacy clients that share one link to a server are isolated, although they use the same ids and progress
//! tokens: each gets only its own progress, logs, questions and responses.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::mcp::Talk;
use crate::support::modern::LEVEL_KEY;
use crate::support::{Agent, Kinds, ModernAgent, TestApp};

/// Every client's call: all clients use the same id and the same token.
fn params(tool: &str, arguments: Value) -> Value {
    json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": "t"}})
}

/// Checks that all steps come in order with the client's own token, and then the response.
async fn assert_own_progress(mut talk: Talk, steps: u64, server: &str) {
    for step in 1..=steps {
        let notice = talk.expect("notifications/progress").await;
        let params = &notice["params"];
        assert_eq!((&params["progress"], &params["total"]), (&json!(step), &json!(steps)), "{server}");
        assert_eq!(params["progressToken"], "t", "{server}");
    }
    let answer = talk.next().await.unwrap();
    assert_eq!(answer["id"], 1, "{server}");
    assert_eq!(answer["result"]["content"][0]["text"], format!("{steps} steps"), "{server}");
    assert!(talk.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_goes_to_the_client_that_asked_for_it() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    for server in &kinds.servers {
        let tool = format!("{server}__progress");
        let (modern, legacy) = (ModernAgent::at(&app, "/mcp"), Agent::connect(&app, "/mcp").await);
        let native = ModernAgent::at(&app, &format!("/v0/servers/{server}/mcp"));
        let run = async |agent: &ModernAgent, tool: &str, steps: u64| {
            let params = params(tool, json!({"steps": steps, "ms": 3}));
            let talk = agent.begin(&agent.message(json!(1), "tools/call", params)).await;
            assert_own_progress(talk, steps, server).await;
        };
        let old = async {
            let params = params(&tool, json!({"steps": 17, "ms": 3}));
            let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            assert_own_progress(legacy.begin(&request).await, 17, server).await;
        };
        tokio::join!(run(&modern, &tool, 11), run(&modern, &tool, 13), run(&native, "progress", 23), old);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_line_goes_to_the_client_of_its_call_or_to_nobody() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    for server in &kinds.servers {
        let (modern, legacy) = (ModernAgent::at(&app, "/mcp"), Agent::connect(&app, "/mcp").await);
        let busy = {
            let params = params(&format!("{server}__progress"), json!({"steps": 100_000, "ms": 5}));
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        };
        let mut running = legacy.begin(&busy).await;
        running.expect("notifications/progress").await;
        let log = json!({"name": format!("{server}__log"), "arguments": {"data": "mine"},
            "_meta": {LEVEL_KEY: "debug"}});
        let mut talk = modern.begin(&modern.message(json!(1), "tools/call", log)).await;
        // Over streamable HTTP each call has its own stream; on other transports a log line cannot be assigned to a call.
        if server.starts_with("http") {
            assert_eq!(talk.expect("notifications/message").await["params"]["data"], "mine", "{server}");
        }
        assert_eq!(talk.next().await.unwrap()["result"]["content"][0]["text"], "logged", "{server}");
        for _ in 0..3 {
            running.expect("notifications/progress").await;
        }
        legacy.tell("notifications/cancelled", json!({"requestId": 1})).await;
        while let Some(message) = running.next().await {
            assert_eq!(message["method"], "notifications/progress", "{server}: {message}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_calls_at_once_all_return_to_their_callers() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    let modern = Arc::new(ModernAgent::at(&app, "/mcp"));
    let legacy = Arc::new(Agent::connect(&app, "/mcp").await);
    for server in &kinds.servers {
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..200 {
            let (modern, legacy) = (modern.clone(), legacy.clone());
            let (tool, text) = (format!("{server}__echo"), format!("{server} says {number}"));
            calls.spawn(async move {
                // Ten ids, each used by every client.
                let (id, arguments) = (json!(number % 10), json!({"text": text}));
                let mut talk = match number % 2 {
                    0 => {
                        let params = json!({"name": tool, "arguments": arguments});
                        modern.begin(&modern.message(id.clone(), "tools/call", params)).await
                    }
                    _ => legacy.begin_call(id.clone(), &tool, arguments).await,
                };
                let answer = talk.answer().await;
                assert_eq!(answer["id"], id);
                assert_eq!(answer["result"]["content"][0]["text"], text, "{answer}");
            });
        }
        calls.join_all().await;
    }
    let (one, two) = (
        modern.call_text("stdio-legacy__pid", json!({})).await,
        legacy.call_text("stdio-legacy__pid", json!({})).await,
    );
    assert_eq!(one, two, "one process served all");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_to_a_legacy_client_stays_with_it() {
    let app = TestApp::start().await;
    let _kinds = Kinds::register(&app).await;
    let legacy = Agent::connect_with(&app, "/mcp", json!({"elicitation": {}})).await;
    let modern = ModernAgent::at(&app, "/mcp").with(json!({"elicitation": {}}));
    let mut talk = legacy.begin_call(json!(1), "http-legacy__ask", json!({})).await;
    let question = talk.expect("elicitation/create").await;
    // A modern client cannot answer instead, whatever session it names.
    let forged = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}});
    let post = crate::support::modern::Post::bare(forged.to_string())
        .adding("mcp-protocol-version", "2026-07-28")
        .adding("mcp-session-id", &legacy.session);
    modern.send(&post).await.expect(400);
    // It gets a question of its own.
    let asked = modern.call("http-legacy__ask", json!({})).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    legacy.reply(&question, json!({"action": "accept", "content": {"colour": "red"}})).await;
    let answer = talk.answer().await;
    assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("red"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_with_the_same_id_get_only_their_own_notifications() {
    let app = TestApp::start().await;
    let _kinds = Kinds::register(&app).await;
    let agent = ModernAgent::at(&app, "/v0/servers/http-legacy/mcp");
    let to = |uri: &str| json!({"resourceSubscriptions": [uri]});
    let (mut text, _) = agent.listen(json!(1), to("fake://text")).await;
    let (mut blob, _) = agent.listen(json!(1), to("fake://blob")).await;
    let mut call = agent
        .begin(&agent.message(json!(1), "tools/call", params("progress", json!({"steps": 3, "ms": 5}))))
        .await;
    agent.call("touch", json!({"uri": "fake://blob"})).await;
    agent.call("touch", json!({"uri": "fake://text"})).await;
    for (talk, uri) in [(&mut text, "fake://text"), (&mut blob, "fake://blob")] {
        assert_eq!(talk.expect("notifications/resources/updated").await["params"]["uri"], uri);
    }
    call.expect("notifications/progress").await;
    assert_eq!(call.answer().await["id"], 1);
}
