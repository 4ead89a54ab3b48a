//! Invalid responses of upstreams, over every wire: the call gets an error at every door, and no other call is affected.
//! Further invalid responses over HTTP are in `upstream_answers`.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{Callers, Door, Said, Server, SseAgent, Tally, TestApp, Wire};

const WHOLE: &str = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"hi"}]}}"#;

/// Invalid responses with the id of their call; U+F8FF is sent as a byte that is not UTF-8.
fn broken() -> Vec<String> {
    let result = r#""result":{"content":[]}"#;
    vec![
        WHOLE[..60].to_owned(),
        format!("{WHOLE}x"),
        format!("{WHOLE}{WHOLE}"),
        format!("{WHOLE}\0"),
        WHOLE.replace("hi", "\u{f8ff}"),
        WHOLE.replace("hi", "\0"),
        format!(r#"{{"jsonrpc":"2.0","id":$ID,{result},"error":{{"code":1,"message":"no"}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":$ID,{result},"id":"another"}}"#),
        r#"{"jsonrpc":"2.0","id":$ID,"result":"text"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":$ID,"result":[]}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":$ID,"result":null}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":$ID,"error":"no"}"#.to_owned(),
    ]
}

/// Responses without the id of their call.
fn stray() -> Vec<String> {
    vec![
        WHOLE.replace("$ID", "\"another\""),
        WHOLE.replace("$ID", "999999"),
        WHOLE.replace("$ID", "null"),
        "this is not JSON".to_owned(),
        String::new(),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_no_whole_message_is_an_error_at_every_door() {
    let app = Arc::new(TestApp::start_with(|config| config.telemetry = true).await);
    let callers = Callers::of(&app).await;
    let mut tests = JoinSet::new();
    for wire in Wire::ALL {
        let (app, callers) = (app.clone(), callers.clone());
        tests.spawn(async move {
            let limit = json!({"timeout_ms": 20_000});
            let server = Server::register(&app, wire, &format!("{wire:?}"), limit).await;
            for answer in broken() {
                for door in Door::ALL {
                    let arguments = json!({"answer": answer});
                    let said = callers.call(door, &server.tool("verbatim"), arguments).await;
                    assert!(is_about(&said, &server), "{wire:?} {door:?} {answer:?}: {said:?}");
                }
            }
            // Some servers send every id as a string.
            for (answer, door) in Door::ALL.into_iter().flat_map(|door| {
                [WHOLE.to_owned(), WHOLE.replace("$ID", "\"$ID\"")].map(|answer| (answer, door))
            }) {
                let said = callers.text(door, &server.tool("verbatim"), json!({"answer": answer})).await;
                assert_eq!(said, "hi", "{wire:?} {door:?} {answer}");
            }
        });
    }
    tests.join_all().await;
    let (each, pairs) = (u64::try_from(broken().len()).unwrap(), 25);
    let outcomes = Tally::of(&app).await;
    assert_eq!(outcomes.by_outcome(), [("upstream_error", each * pairs), ("ok", 2 * pairs)].into());
}

/// Whether the error says that this server failed, and contains nothing that the server sent.
fn is_about(said: &Said, server: &Server) -> bool {
    match said {
        Said::Error(sentence) => {
            let is_rest = sentence.starts_with(&format!("{} failed: ", server.tool("verbatim")));
            let is_mcp = sentence.starts_with(&format!("server {:?} failed: ", server.name));
            (is_rest || is_mcp) && !sentence.contains("jsonrpc")
        }
        Said::Text(_) | Said::ToolError(_) => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_with_another_id_reaches_no_caller() {
    let app = Arc::new(TestApp::start_with(|config| config.telemetry = true).await);
    let callers = Callers::of(&app).await;
    let mut calls = JoinSet::new();
    for wire in Wire::ALL {
        // On a stream shared by all calls, such a response cannot be assigned to a call: the call ends with its timeout.
        let limit = if wire.is_streamable() { json!({}) } else { json!({"timeout_ms": 1000}) };
        let server = Arc::new(Server::register(&app, wire, &format!("{wire:?}"), limit).await);
        for (answer, door) in
            stray().into_iter().flat_map(|answer| Door::ALL.map(|door| (answer.clone(), door)))
        {
            let (callers, server) = (callers.clone(), server.clone());
            calls.spawn(async move {
                let said = callers.call(door, &server.tool("verbatim"), json!({"answer": answer})).await;
                assert!(is_about(&said, &server), "{wire:?} {door:?} {answer:?}: {said:?}");
                let is_late = said.error().contains("no answer within 1 s");
                assert_ne!(is_late, wire.is_streamable(), "{wire:?} {door:?} {answer:?}: {said:?}");
                wire.is_streamable()
            });
        }
    }
    let (failed, late): (Vec<bool>, Vec<bool>) =
        calls.join_all().await.into_iter().partition(|failed| *failed);
    let outcomes = Tally::of(&app).await;
    let expected = [("upstream_error", failed.len()), ("timed_out", late.len())];
    assert_eq!(
        outcomes.by_outcome(),
        expected.map(|(outcome, count)| (outcome, u64::try_from(count).unwrap())).into()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_answer_leaves_a_shared_stream_whole() {
    let app = TestApp::start().await;
    for wire in Wire::ALL {
        let server = Server::register(&app, wire, &format!("{wire:?}"), json!({})).await;
        let mut agent = SseAgent::connect(&app, "/sse", json!({})).await;
        // All are in flight at once, so that valid responses come between the broken ones.
        let answers: Vec<_> = broken().into_iter().flat_map(|answer| [answer, WHOLE.to_owned()]).collect();
        for (id, answer) in answers.iter().enumerate() {
            let params = json!({"name": server.tool("verbatim"), "arguments": {"answer": answer}});
            agent.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})).await;
        }
        let mut heard: Vec<Option<Value>> = vec![None; answers.len()];
        for _ in 0..answers.len() {
            let message = agent.next().await.expect("the stream goes on");
            let id = message["id"].as_u64().unwrap_or_else(|| panic!("{wire:?}: no answer: {message}"));
            let id = usize::try_from(id).unwrap();
            assert!(heard[id].replace(message).is_none(), "{wire:?}: one answer for each call");
        }
        for (answer, heard) in answers.iter().zip(heard) {
            let heard = heard.unwrap();
            assert_eq!(heard.get("result").is_some(), answer == WHOLE, "{wire:?} {answer:?}: {heard}");
        }
    }
}
