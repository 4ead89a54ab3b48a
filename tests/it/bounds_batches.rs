//! The bounds of batches: the number of messages, and the size of the answer.

use serde_json::{Value, json};

use crate::support::mcp::BOTH;
use crate::support::{Behaviour, Fake, TestApp, refusals};

async fn start() -> (TestApp, Fake) {
    let app = TestApp::start_with(|config| config.telemetry = true).await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    (app, fake)
}

fn call(id: Value, tool: &str, arguments: Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

#[tokio::test]
async fn a_batch_of_too_many_messages_is_refused_before_any_is_handled() {
    let (app, fake) = start().await;
    for many in [101, 100_000] {
        let batch = vec![call(json!(1), "s__echo", json!({})); many.min(101)];
        let mut batch = serde_json::to_string(&batch).unwrap();
        if many > 101 {
            batch = format!("[{}7]", "7,".repeat(many));
        }
        let answer = app.send("POST", "/mcp", &[BOTH], batch).await.expect(400).json();
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("100"), "{answer}");
    }
    assert!(fake.seen_of("tools/call").is_empty());
    assert_eq!(refusals(&app, "batch_messages").await, 2);
    let batch = json!(vec![json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}); 100]);
    let answers = app.send("POST", "/mcp", &[BOTH], batch.to_string()).await.expect(200).json();
    assert_eq!(answers.as_array().unwrap().len(), 100);
}

#[tokio::test]
async fn answers_that_no_longer_fit_into_a_batch_are_errors() {
    let (app, _fake) = start().await;
    let huge = |id: &str| call(json!(id), "s__huge", json!({"bytes": 7 << 20}));
    let batch = json!([huge("a"), huge("b"), huge("c"), call(json!("d"), "s__echo", json!({"text": "hi"}))]);
    let answer = app.send("POST", "/mcp", &[BOTH], batch.to_string()).await.expect(200);
    assert!(answer.body.len() <= 16 << 20, "{}", answer.body.len());
    let answers = answer.json();
    for (number, id) in ["a", "b", "c", "d"].into_iter().enumerate() {
        assert_eq!(answers[number]["id"], id);
        assert_eq!(answers[number].get("error").is_some(), id == "c", "{id}");
    }
    assert_eq!(answers[2]["error"]["code"], -32603);
    assert_eq!(answers[3]["result"]["content"][0]["text"], "hi");
    assert_eq!(refusals(&app, "batch_answer").await, 1);
}
