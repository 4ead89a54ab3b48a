//! Every call ends in exactly one outcome, and the reason of a failure is recorded once, at every door and over every
//! wire.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::modern::{LEVEL_KEY, Post};
use crate::support::{
    Agent, Behaviour, Callers, Door, Fake, ModernAgent, Said, Server, SseAgent, Tally, TestApp, Wire, bearer,
    eventually,
};

/// A response of the tool `verbatim`.
fn verbatim(answer: &str) -> Value {
    json!({ "answer": answer })
}

/// A tool with its arguments, the outcome under which a call is counted, and a word of the caller's response.
fn answered_cases() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    let misleading =
        r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32000,"message":"no","data":{"result":{}}}}"#;
    let marked =
        r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32000,"message":"no","data":{"isError":true}}}"#;
    let quoted =
        r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"\"isError\":true"}]}}"#;
    let reversed =
        r#"{"result":{"isError":true,"content":[{"type":"text","text":"odd"}]},"id":$ID,"jsonrpc":"2.0"}"#;
    vec![
        ("echo", json!({"text": "hi"}), "ok", "hi"),
        ("verbatim", verbatim(quoted), "ok", "isError"),
        ("fail", json!({}), "tool_error", "it went wrong"),
        ("verbatim", verbatim(reversed), "tool_error", "odd"),
        ("rpc_error", json!({}), "upstream_error", "the tool refused"),
        ("verbatim", verbatim(misleading), "upstream_error", "no"),
        ("verbatim", verbatim(marked), "upstream_error", "no"),
        (
            "verbatim",
            verbatim(r#"{"jsonrpc":"2.0","id":$ID,"result":{}"#),
            "upstream_error",
            "cannot be parsed",
        ),
    ]
}

/// Progress of a call; it turns the response to an agent's call into an event stream.
const STEP: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$TOKEN,"progress":1}}"#;

/// Runs a test once for each wire, all at the same time, each with its own gateway.
async fn over_every_wire<F: Future<Output = ()> + Send + 'static>(test: impl Fn(Arc<TestApp>, Wire) -> F) {
    let mut tests = JoinSet::new();
    for wire in Wire::ALL {
        let app = Arc::new(TestApp::start_with(|config| config.telemetry = true).await);
        tests.spawn(test(app, wire));
    }
    tests.join_all().await;
}

/// The single call that was counted since then: server, tool and outcome.
async fn counted(app: &TestApp, before: &Tally) -> (String, String, String) {
    let after = Tally::reaches(app, before.sum() + 1).await;
    match after.since(before).as_slice() {
        [(server, tool, outcome, 1)] => ((*server).into(), (*tool).into(), (*outcome).into()),
        other => panic!("one call was made, counted were {other:?}"),
    }
}

fn labels(server: &str, tool: &str, outcome: &str) -> (String, String, String) {
    (server.into(), tool.into(), outcome.into())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_counted_as_what_it_is() {
    over_every_wire(async |app, wire| {
        let server = Server::register(&app, wire, "s", json!({})).await;
        let mut callers = Callers::of(&app).await;
        for (door, step) in Door::ALL.into_iter().flat_map(|door| [(door, None), (door, Some(STEP))]) {
            callers.want_progress = step.is_some();
            for (tool, mut arguments, outcome, word) in answered_cases() {
                // Only the tool `verbatim` sends anything before its response.
                arguments["before"] = step.into_iter().collect();
                let before = Tally::of(&app).await;
                let said = callers.call(door, &server.tool(tool), arguments.clone()).await;
                let context = format!("{wire:?} {door:?} {tool} {arguments}: {said:?}");
                match (&said, outcome) {
                    (Said::Text(text), "ok")
                    | (Said::ToolError(text), "tool_error")
                    | (Said::Error(text), "upstream_error") => {
                        assert!(text.contains(word), "{context}");
                    }
                    _ => panic!("{context}"),
                }
                assert_eq!(counted(&app, &before).await, labels("s", tool, outcome), "{context}");
            }
        }
        // From here on the server refuses every call; over HTTP by the status.
        let failure = json!({"fail": {"tools/call": 500}});
        match &server.fake {
            Some(fake) => fake.update(|behaviour| behaviour.merge(&failure.to_string()).unwrap()),
            None => drop(callers.text(Door::Rest, "s__set_behaviour", failure).await),
        }
        for door in Door::ALL {
            let before = Tally::of(&app).await;
            let said = callers.call(door, "s__echo", json!({})).await;
            assert!(said.error().contains("500"), "{wire:?} {door:?}: {said:?}");
            assert_eq!(
                counted(&app, &before).await,
                labels("s", "echo", "upstream_error"),
                "{wire:?} {door:?}"
            );
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_answer_is_counted_as_timed_out_and_its_call_cancelled() {
    over_every_wire(async |app, wire| {
        let server = Server::register(&app, wire, "s", json!({"timeout_ms": 250})).await;
        let callers = Callers::of(&app).await;
        let before = Tally::of(&app).await;
        let mut calls = JoinSet::new();
        for (door, tool) in Door::ALL.into_iter().flat_map(|door| [(door, "slow"), (door, "progress")]) {
            let mut callers = callers.clone();
            callers.want_progress = tool == "progress";
            let (mark, tool) = (format!("{door:?}-{tool}"), server.tool(tool));
            let (steps, ms) = if callers.want_progress { (100_000, 20) } else { (1, 60_000) };
            let arguments = json!({"ms": ms, "steps": steps, "mark": mark});
            calls.spawn(async move { (mark, callers.call(door, &tool, arguments).await) });
        }
        for (mark, said) in calls.join_all().await {
            assert!(said.error().contains("no answer within 0.25 s"), "{wire:?} {mark}: {said:?}");
            eventually(&format!("{wire:?} {mark}: the server hears of it"), async || {
                server.cancelled(&mark) == server.ran(&mark)
            })
            .await;
        }
        let after = Tally::reaches(&app, before.sum() + 10).await;
        let late = [("s", "progress", "timed_out", 5), ("s", "slow", "timed_out", 5)];
        assert_eq!(after.since(&before), late, "{wire:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_disconnects_is_counted_as_cancelled_and_the_server_is_told() {
    over_every_wire(async |app, wire| {
        let server = Server::register(&app, wire, "s", json!({})).await;
        let callers = Callers::of(&app).await;
        for (door, tool) in Door::ALL.into_iter().flat_map(|door| [(door, "slow"), (door, "progress")]) {
            let (before, mark) = (Tally::of(&app).await, format!("{door:?}-{tool}"));
            let full = server.tool(tool);
            let begun = match tool {
                "slow" => callers.begin(door, &full, json!({"ms": 60_000, "mark": mark})).await,
                _ => {
                    let arguments = json!({"ms": 10, "steps": 100_000, "mark": mark});
                    callers.begin_with_progress(door, &full, arguments).await
                }
            };
            let said = format!("{wire:?} {mark}");
            eventually(&format!("{said} runs"), async || server.ran(&mark) == 1).await;
            begun.give_up().await;
            eventually(&format!("{said} is cancelled"), async || server.cancelled(&mark) == 1).await;
            assert_eq!(counted(&app, &before).await, labels("s", tool, "cancelled"), "{said}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_called_is_counted_as_denied_without_a_name() {
    let app = Arc::new(TestApp::start_with(|config| config.telemetry = true).await);
    Server::register(&app, Wire::HttpJson, "s", json!({})).await;
    let live = Server::register(&app, Wire::HttpJson, "live", json!({})).await;
    app.post("/api/v0/servers/s/disable", json!({})).await.expect(200);
    app.post("/api/v0/tools/disable?entity=live__image", json!({})).await.expect(200);
    let callers = Callers::of(&app).await;
    for door in Door::ALL {
        for tool in ["live__nothing", "nobody__echo", "echo", "", "s__echo", "live__image"] {
            // Users may still call a tool that agents do not see.
            if tool == "live__image" && !door.is_mcp() {
                continue;
            }
            let before = Tally::of(&app).await;
            let said = callers.call(door, tool, json!({"mark": "denied"})).await;
            assert!(matches!(said, Said::Error(_)), "{door:?} {tool}: {said:?}");
            assert_eq!(counted(&app, &before).await, labels("", "", "denied"), "{door:?} {tool}");
        }
    }
    let modern = ModernAgent::at(&app, "/mcp");
    for (key, value) in [("requestState", json!("foreign")), ("_meta", json!({LEVEL_KEY: "loud"}))] {
        let before = Tally::of(&app).await;
        let mut params = json!({"name": "live__echo", "arguments": {"mark": "denied"}});
        params[key] = value;
        assert_eq!(modern.error("tools/call", params).await.1["code"], -32602);
        assert_eq!(counted(&app, &before).await, labels("", "", "denied"), "{key}");
    }
    let dashboard = app.post("/api/dashboard/tools/live__nothing/invoke", json!({}));
    let before = Tally::of(&app).await;
    dashboard.await.expect(404);
    assert_eq!(counted(&app, &before).await, labels("", "", "denied"), "the dashboard");
    assert_eq!(live.ran("denied"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_is_not_allowed_is_counted_as_denied_without_a_name() {
    let app = TestApp::start_enterprise_with(|config| config.telemetry = true).await;
    let server = Server::register(&app, Wire::HttpJson, "s", json!({})).await;
    Server::register(&app, Wire::HttpJson, "other", json!({})).await;
    let token = app.create_client("agent", &["other"]).await;
    let params = json!({"name": "s__echo", "arguments": {"mark": "denied"}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let modern = ModernAgent::at(&app, "/mcp");
    let message = modern.message(json!(1), "tools/call", params.clone());
    let post = Post::of(message.to_string()).adding("authorization", &bearer(&token));
    let legacy = Agent::connect_as(&app, "/mcp", &token).await;
    let mut old = SseAgent::connect_as(&app, "/sse", &token).await;
    // Users have no allow list, so there is no such call over REST.
    for door in [Door::Legacy, Door::Sse, Door::Modern] {
        let before = Tally::of(&app).await;
        let answer = match door {
            Door::Legacy => legacy.post(&call).await.json(),
            Door::Sse => {
                old.send(&call).await;
                old.answer(json!(1)).await
            }
            _ => modern.send(&post).await.json(),
        };
        assert_eq!(answer["error"]["message"], "unknown tool: s__echo", "{door:?}: {answer}");
        assert_eq!(counted(&app, &before).await, labels("", "", "denied"), "{door:?}");
    }
    assert_eq!(server.ran("denied"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_its_server_does_not_list_is_counted_without_its_name() {
    let app = TestApp::start_with(|config| config.telemetry = true).await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy", "tools": []}))).await;
    app.register_http("s", &fake).await;
    for path in ["/mcp", "/v0/servers/s/mcp"] {
        let agent = Agent::connect(&app, path).await;
        let before = Tally::of(&app).await;
        let tool = if path == "/mcp" { "s__invented" } else { "invented" };
        assert!(
            agent.call(tool, json!({})).await["error"]["message"].as_str().unwrap().contains("Unknown tool")
        );
        assert_eq!(counted(&app, &before).await, labels("s", "", "upstream_error"), "{path}");
    }
    let overview = app.get("/api/dashboard/overview").await.expect(200).json();
    assert_eq!(overview["recent_failures"].as_array().unwrap().len(), 2, "{overview}");
    assert_eq!(overview["recent_failures"][0]["tool"], "s__invented");
    app.delete("/api/v0/servers/s").await.expect(204);
    assert_eq!(Tally::of(&app).await, Tally::default(), "its series go with it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_noted_once_with_the_same_reason_and_without_secrets() {
    over_every_wire(async |app, wire| {
        let secret = "tok-12345678";
        let (behaviour, settings) = match wire {
            Wire::Stdio => (json!({}), json!({"env": {"KEY": secret}})),
            _ => (json!({"bearer": secret}), json!({"bearer_token": secret})),
        };
        let server = Server::register_with(&app, wire, "s", behaviour.clone(), settings.clone()).await;
        let _odd = Server::register_with(&app, wire, "odd", behaviour.clone(), settings.clone()).await;
        let mut impatient = settings;
        impatient["timeout_ms"] = json!(200);
        let _late = Server::register_with(&app, wire, "late", behaviour, impatient).await;
        let callers = Callers::of(&app).await;
        let refused =
            r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32000,"message":"bad token tok-12345678 given"}}"#;
        for (tool, arguments, reason) in [
            ("s__fail", json!({}), "it went wrong"),
            ("s__rpc_error", json!({}), "the tool refused (code -32050)"),
            ("s__verbatim", verbatim(refused), "bad token *** given (code -32000)"),
            ("late__slow", json!({"ms": 60_000}), "no answer within 0.2 s"),
            (
                "odd__verbatim",
                verbatim(r#"{"jsonrpc":"2.0","id":$ID,"result":7}"#),
                "result must be an object",
            ),
        ] {
            for door in Door::ALL {
                callers.call(door, tool, arguments.clone()).await;
            }
            let overview = app.get("/api/dashboard/overview").await.expect(200).json();
            let notes: Vec<_> = overview["recent_failures"].as_array().unwrap().iter().collect();
            let about = notes.iter().filter(|note| note["tool"] == tool);
            let reasons: Vec<_> = about.map(|note| note["reason"].as_str().unwrap()).collect();
            assert_eq!(reasons.len(), Door::ALL.len(), "{wire:?} {tool}: {notes:?}");
            for told in &reasons {
                assert!(told.contains(reason), "{wire:?} {tool}: {told}");
                assert_eq!(told, &reasons[0], "{wire:?} {tool}");
            }
        }
        // Neither a success nor a caller that disconnects is a failure.
        let notes = async || app.get("/api/dashboard/overview").await.json()["recent_failures"].clone();
        let before = notes().await;
        for door in Door::ALL {
            let mark = format!("{door:?}");
            callers.text(door, "s__echo", json!({"text": "hi"})).await;
            let begun = callers.begin(door, "s__slow", json!({"ms": 60_000, "mark": mark})).await;
            eventually("it runs", async || server.ran(&mark) == 1).await;
            begun.give_up().await;
            eventually("it is cancelled", async || server.cancelled(&mark) == 1).await;
        }
        assert_eq!(notes().await, before, "{wire:?}");
    })
    .await;
}
