//! Clients that share one link to a server are isolated, although they use the same ids and progress tokens: each gets
//! only its own progress, logs, questions and responses, and cancels only its own calls.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::agent::{Agent, SseAgent, text_of};
use crate::support::client::Events;
use crate::support::{Behaviour, Fake, TestApp};

const SERVERS: [&str; 4] = ["stdio", "http-json", "http-sse", "sse"];

/// Servers of every transport; all clients with the same capabilities share one link to each.
async fn start() -> (TestApp, Vec<Fake>) {
    let app = TestApp::start().await;
    let mut fakes = Vec::new();
    for style in ["json", "sse"] {
        let behaviour = Behaviour::of(json!({"era": "legacy", "answer": style}));
        let fake = Fake::start(behaviour.clone()).await;
        app.register_http(&format!("http-{style}"), &fake).await;
        if style == "json" {
            app.register_sse("sse", &fake).await;
            app.register_stdio("stdio", &behaviour).await;
        }
        fakes.push(fake);
    }
    (app, fakes)
}

/// Every client's first call: all clients use the same id and the same token.
fn call(tool: &str, arguments: Value) -> String {
    let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": "t"}});
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string()
}

fn parse(message: &str) -> Value {
    serde_json::from_str(message).unwrap()
}

async fn next(events: &mut Events) -> Value {
    parse(std::str::from_utf8(&events.next().await.expect("the stream goes on").data).unwrap())
}

/// Checks that all steps come in order with the client's own token, and then the response.
fn assert_own_progress(said: &[String], steps: u64, server: &str) {
    let messages: Vec<_> = said.iter().map(|message| parse(message)).collect();
    let (answer, notices) = messages.split_last().unwrap();
    assert_eq!(answer["id"], 1, "{server}: {answer}");
    assert_eq!(answer["result"]["content"][0]["text"], format!("{steps} steps"), "{server}");
    for (index, notice) in notices.iter().enumerate() {
        assert_eq!(notice["method"], "notifications/progress", "{server}");
        let (params, step) = (&notice["params"], index as u64 + 1);
        assert_eq!((&params["progress"], &params["total"]), (&json!(step), &json!(steps)), "{server}");
        assert_eq!(params["progressToken"], "t", "{server}");
    }
    assert_eq!(notices.len() as u64, steps, "{server}");
}

#[tokio::test]
async fn progress_goes_to_the_client_that_asked_for_it() {
    let (app, _fakes) = start().await;
    for server in SERVERS {
        let tool = format!("{server}__progress");
        let (left, right) =
            (Agent::open(&app, "/mcp", json!({})).await, Agent::open(&app, "/mcp", json!({})).await);
        let mut old = SseAgent::open(&app, "/sse", json!({})).await;
        let asked = |steps: u64| call(&tool, json!({"steps": steps, "ms": 2}));
        let (few, more, many) = (asked(11), asked(17), asked(23));
        let (few, more, many) = tokio::join!(left.ask(&few), right.ask(&more), old.ask(&many));
        assert_own_progress(&few, 11, server);
        assert_own_progress(&more, 17, server);
        assert_own_progress(&many, 23, server);
    }
}

#[tokio::test]
async fn a_client_cancels_only_its_own_call() {
    let (app, _fakes) = start().await;
    for server in SERVERS {
        let agents = [
            Agent::open(&app, "/mcp", json!({})).await,
            Agent::open(&app, "/mcp", json!({})).await,
            Agent::open(&app, "/mcp", json!({})).await,
        ];
        let slow = call(&format!("{server}__progress"), json!({"steps": 30, "ms": 10}));
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        let (mut first, mut second) =
            (agents[0].post_for_events(&slow).await, agents[1].post_for_events(&slow).await);
        // First a client without a call, then one with a call.
        agents[2].post(cancel).await.expect(202);
        agents[0].post(cancel).await.expect(202);
        let mut ended = Value::Null;
        while let Some(event) = first.next().await {
            ended = parse(std::str::from_utf8(&event.data).unwrap());
        }
        assert_eq!(
            ended["method"], "notifications/progress",
            "{server}: no answer after cancelling: {ended}"
        );
        let answer = loop {
            let message = next(&mut second).await;
            if message.get("method").is_none() {
                break message;
            }
        };
        assert_eq!(answer["result"]["content"][0]["text"], "30 steps", "{server}");
        let cancelled = app.call(&format!("{server}__cancelled"), json!({})).await;
        // The same fake serves `sse` and `http-json`.
        let count = if server == "sse" { 2 } else { 1 };
        assert_eq!(parse(&cancelled).as_array().unwrap().len(), count, "{server}: {cancelled}");
    }
}

#[tokio::test]
async fn a_log_line_goes_to_the_client_of_its_call_or_to_nobody() {
    let (app, _fakes) = start().await;
    for server in SERVERS {
        let (busy, logging) =
            (Agent::open(&app, "/mcp", json!({})).await, Agent::open(&app, "/mcp", json!({})).await);
        let mut aside = busy.listen().await;
        let log = call(&format!("{server}__log"), json!({"data": "mine"}));
        let alone = logging.ask(&log).await;
        assert_eq!(alone.len(), 2, "{server}, the only call: {alone:?}");
        assert_eq!(parse(&alone[0])["params"]["data"], "mine");
        let slow = call(&format!("{server}__progress"), json!({"steps": 30, "ms": 10}));
        let mut stream = busy.post_for_events(&slow).await;
        next(&mut stream).await;
        let beside = logging.ask(&log).await;
        // Over streamable HTTP each call has its own stream; on other transports a log line cannot be assigned to a call.
        let expected = if server.starts_with("http") { 2 } else { 1 };
        assert_eq!(beside.len(), expected, "{server}, with another call: {beside:?}");
        loop {
            let message = next(&mut stream).await;
            assert_ne!(message["method"], "notifications/message", "{server}: a log of another client");
            if message.get("method").is_none() {
                break;
            }
        }
        let nothing = tokio::time::timeout(std::time::Duration::from_millis(20), aside.next()).await;
        assert!(nothing.is_err(), "{server}: {nothing:?}");
    }
}

/// Answers the question at the beginning of a stream and returns the text of the call's response.
async fn reply(agent: &Agent, stream: &mut Events, question: &Value, colour: &str) -> String {
    let result = json!({"action": "accept", "content": {"colour": colour}});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
    agent.post(&answer.to_string()).await.expect(202);
    let answer = next(stream).await;
    assert_eq!(answer["id"], 1);
    parse(&text_of(&answer.to_string()))["content"]["colour"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn questions_and_their_answers_stay_with_their_calls() {
    let (app, _fakes) = start().await;
    let capabilities = json!({"elicitation": {}});
    for server in ["http-json", "http-sse"] {
        let (left, right) = (
            Agent::open(&app, "/mcp", capabilities.clone()).await,
            Agent::open(&app, "/mcp", capabilities.clone()).await,
        );
        let ask = call(&format!("{server}__ask"), json!({}));
        let (mut of_left, mut of_right) =
            (left.post_for_events(&ask).await, right.post_for_events(&ask).await);
        let (for_left, for_right) = (next(&mut of_left).await, next(&mut of_right).await);
        assert_eq!(for_left["method"], "elicitation/create");
        assert_eq!(for_right["method"], "elicitation/create");
        // An answer from another client is ignored.
        let forged = json!({"jsonrpc": "2.0", "id": for_left["id"], "result": {"action": "decline"}});
        right.post(&forged.to_string()).await;
        assert_eq!(reply(&right, &mut of_right, &for_right, "blue").await, "blue", "{server}");
        assert_eq!(reply(&left, &mut of_left, &for_left, "red").await, "red", "{server}");
    }
}

#[tokio::test]
async fn a_question_that_fits_two_calls_is_refused_and_one_that_fits_one_is_asked() {
    let (app, _fakes) = start().await;
    let capabilities = json!({"elicitation": {}});
    for server in ["stdio", "sse"] {
        let (left, right) = (
            Agent::open(&app, "/mcp", capabilities.clone()).await,
            Agent::open(&app, "/mcp", capabilities.clone()).await,
        );
        let ask = call(&format!("{server}__ask"), json!({}));
        let mut alone = left.post_for_events(&ask).await;
        let question = next(&mut alone).await;
        assert_eq!(reply(&left, &mut alone, &question, "red").await, "red", "{server}");
        let slow = call(&format!("{server}__progress"), json!({"steps": 30, "ms": 10}));
        let mut busy = right.post_for_events(&slow).await;
        next(&mut busy).await;
        let refused = left.ask(&ask).await;
        assert_eq!(refused.len(), 1, "{server}: {refused:?}");
        assert!(text_of(&refused[0]).contains("-32601"), "{server}: {refused:?}");
        while let Some(event) = busy.next().await {
            assert!(!String::from_utf8_lossy(&event.data).contains("elicitation"), "{server}");
        }
    }
}

#[tokio::test]
async fn a_stateful_server_asks_each_client_on_its_own_process() {
    let app = TestApp::start().await;
    let mut input = crate::support::app::stdio_input("own", &Behaviour::of(json!({"era": "legacy"})));
    input["session_mode"] = json!("stateful");
    app.register(input).await;
    let capabilities = json!({"elicitation": {}});
    let (left, right) = (
        Agent::open(&app, "/mcp", capabilities.clone()).await,
        Agent::open(&app, "/mcp", capabilities).await,
    );
    let ask = call("own__ask", json!({}));
    let (mut of_left, mut of_right) = (left.post_for_events(&ask).await, right.post_for_events(&ask).await);
    let (for_left, for_right) = (next(&mut of_left).await, next(&mut of_right).await);
    assert_eq!(reply(&right, &mut of_right, &for_right, "blue").await, "blue");
    assert_eq!(reply(&left, &mut of_left, &for_left, "red").await, "red");
    let pid = call("own__pid", json!({}));
    let (first, second) = (left.ask(&pid).await, right.ask(&pid).await);
    assert_ne!(text_of(&first[0]), text_of(&second[0]));
}

#[tokio::test]
async fn two_hundred_calls_at_once_on_one_link_all_return_to_their_callers() {
    let (app, _fakes) = start().await;
    let mut agents = Vec::new();
    for _ in 0..20 {
        agents.push(Arc::new(Agent::open(&app, "/mcp", json!({})).await));
    }
    for server in SERVERS {
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..200 {
            let agent = agents[number % agents.len()].clone();
            calls.spawn(async move {
                // Ten ids, each used by every client.
                let (id, text) = (number / 20, format!("{server} says {number}"));
                let asked = call(&format!("{server}__echo"), json!({"text": text}));
                let said = agent.ask(&asked.replace(r#""id":1"#, &format!(r#""id":{id}"#))).await;
                assert_eq!(said.len(), 1, "{said:?}");
                assert_eq!((&parse(&said[0])["id"], text_of(&said[0])), (&json!(id), text));
            });
        }
        calls.join_all().await;
    }
    let pid = call("stdio__pid", json!({}));
    assert_eq!(
        text_of(&agents[0].ask(&pid).await[0]),
        text_of(&agents[1].ask(&pid).await[0]),
        "one process served all"
    );
}
