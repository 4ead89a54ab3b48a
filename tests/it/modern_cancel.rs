//! A modern client cancels by closing the response, before the first byte or in the middle of a stream. The server that
//! runs the call gets the cancellation of its own era and transport.

use serde_json::{Value, json};

use crate::support::{Behaviour, Fake, Kinds, ModernAgent, TestApp, eventually};

async fn start(era: &str) -> (TestApp, Fake) {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": era}))).await;
    app.register_http("s", &fake).await;
    (app, fake)
}

/// A call that would take minutes; with a token it sends progress all the time.
fn endless(agent: &ModernAgent, tool: &str, token: Option<Value>) -> Value {
    let mut params = json!({"name": tool, "arguments": {"steps": 100_000, "ms": 10}});
    if let Some(token) = token {
        params["_meta"] = json!({"progressToken": token});
    }
    agent.message(json!(1), "tools/call", params)
}

#[tokio::test]
async fn closing_before_the_answer_cancels_the_call() {
    for era in ["legacy", "modern"] {
        let (app, fake) = start(era).await;
        let agent = ModernAgent::at(&app, "/mcp");
        for (method, params) in [
            ("tools/call", json!({"name": "s__slow", "arguments": {"ms": 600_000}})),
            ("prompts/get", json!({"name": "s__plain"})),
            ("resources/read", json!({"uri": "fake://text"})),
        ] {
            fake.update(|behaviour| behaviour.stall = vec!["prompts/get".into(), "resources/read".into()]);
            let before = fake.cancelled().len();
            let held = agent.hold(&agent.message(json!(1), method, params)).await;
            eventually("it runs", async || fake.seen_of(method).len() == 1).await;
            drop(held);
            eventually("it is cancelled", async || fake.cancelled().len() == before + 1).await;
            let sent = fake.seen_of(method).pop().unwrap();
            assert_eq!(fake.cancelled().last(), Some(&sent.id), "{era} {method}: under the server's own id");
            let told = fake.seen_of("notifications/cancelled");
            match era {
                "legacy" => assert_eq!(told.last().unwrap().params["requestId"], sent.id, "{method}"),
                // There, closing the request is the cancellation.
                _ => assert!(told.is_empty(), "{method}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_in_the_middle_of_a_stream_cancels_the_call_over_every_kind_of_link() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    for server in &kinds.servers {
        let agent = ModernAgent::at(&app, "/mcp");
        let mut talk = agent.begin(&endless(&agent, &format!("{server}__progress"), Some(json!("t")))).await;
        talk.expect("notifications/progress").await;
        drop(talk);
        eventually(&format!("{server}: it is cancelled"), async || {
            agent.call_text(&format!("{server}__cancelled"), json!({})).await != "[]"
        })
        .await;
        let seen = agent.call_text(&format!("{server}__seen"), json!({})).await;
        assert_eq!(seen.contains("notifications/cancelled"), server != "http-modern", "{server}: {seen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_before_anything_came_cancels_the_call_over_every_kind_of_link() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    for server in &kinds.servers {
        let agent = ModernAgent::at(&app, "/mcp");
        let held = agent.hold(&endless(&agent, &format!("{server}__progress"), None)).await;
        eventually(&format!("{server}: it runs"), async || {
            let seen = agent.call_text(&format!("{server}__seen"), json!({})).await;
            // The call itself, and each question.
            seen.matches("tools/call").count() >= 2
        })
        .await;
        drop(held);
        eventually(&format!("{server}: it is cancelled"), async || {
            agent.call_text(&format!("{server}__cancelled"), json!({})).await != "[]"
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_read_is_closed_and_its_call_cancelled() {
    for era in ["legacy", "modern"] {
        let (app, fake) = start(era).await;
        let agent = ModernAgent::at(&app, "/mcp");
        let params = json!({"name": "s__progress", "_meta": {"progressToken": 1},
            "arguments": {"steps": 100_000, "ms": 5, "padding": 300_000}});
        let _unread = agent.hold(&agent.message(json!(1), "tools/call", params)).await;
        eventually("it is cancelled", async || fake.cancelled().len() == 1).await;
        assert_eq!(agent.call_text("s__echo", json!({"text": "others"})).await, "others", "{era}");
    }
}

#[tokio::test]
async fn a_cancelled_call_leaves_the_others_alone() {
    for era in ["legacy", "modern"] {
        let (app, fake) = start(era).await;
        let agent = ModernAgent::at(&app, "/mcp");
        let mut leaving = agent.begin(&endless(&agent, "s__progress", Some(json!("t")))).await;
        let params = json!({"name": "s__progress", "arguments": {"steps": 60, "ms": 10},
            "_meta": {"progressToken": "t"}});
        let mut staying = agent.begin(&agent.message(json!(1), "tools/call", params)).await;
        leaving.expect("notifications/progress").await;
        staying.expect("notifications/progress").await;
        drop(leaving);
        assert_eq!(staying.answer().await["result"]["content"][0]["text"], "60 steps", "{era}");
        eventually("one is cancelled", async || fake.cancelled().len() == 1).await;
        // A cancel notification with an id has no effect here.
        let notice = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        let mut third = agent.begin(&endless(&agent, "s__progress", Some(json!("t")))).await;
        third.expect("notifications/progress").await;
        let post = crate::support::modern::Post::bare(notice)
            .adding("mcp-protocol-version", "2026-07-28")
            .adding("mcp-method", "notifications/cancelled");
        agent.send(&post).await.expect(202);
        for _ in 0..10 {
            third.expect("notifications/progress").await;
        }
        assert_eq!(fake.cancelled().len(), 1, "{era}");
    }
}
