//! Invalid responses of upstreams: cut off, followed by extra bytes, contradictory, or with a wrong id. Callers get an
//! error that says so, never the broken bytes and never the response of another caller.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Barrier, Notify, watch};

use crate::support::TestApp;
use crate::support::mcp::Agent;
use crate::support::modern::ModernAgent;

/// The response to a call; `ID` stands for the id of the request.
#[derive(Clone)]
struct Upstream {
    answer: Arc<Mutex<Vec<u8>>>,
    /// Calls wait here for each other; their responses are then sent with swapped ids.
    swap: Option<Arc<Swap>>,
    held: Arc<Held>,
    /// Has a listening stream, on which the response to the held call is sent.
    strays: bool,
}

/// A call with the text `held`, which is answered when it is released.
#[derive(Default)]
struct Held {
    id: watch::Sender<Option<u64>>,
    release: Notify,
    /// How often the listening stream was opened.
    listened: watch::Sender<usize>,
}

struct Swap {
    both: Barrier,
    ids: Mutex<Vec<u64>>,
}

impl Upstream {
    async fn start(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let router = Router::new().route("/mcp", post(take).get(listen).delete(|| async {})).with_state(self);
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    fn set(&self, answer: impl Into<Vec<u8>>) {
        *self.answer.lock().unwrap() = answer.into();
    }
}

async fn take(State(upstream): State<Upstream>, body: Bytes) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap();
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "broken", "version": "1"},
        }),
        "tools/list" => json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}),
        "tools/call" => return upstream.call(&message).await,
        _ if message.get("id").is_none() => return StatusCode::ACCEPTED.into_response(),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    reply(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string())
}

async fn listen(State(upstream): State<Upstream>) -> Response {
    if !upstream.strays {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    upstream.held.listened.send_modify(|count| *count += 1);
    if *upstream.held.listened.borrow() > 1 {
        return std::future::pending().await;
    }
    let mut ids = upstream.held.id.subscribe();
    let id = ids.wait_for(Option::is_some).await.unwrap().unwrap();
    events(&[text_result(id, &json!("said to everybody"))])
}

impl Upstream {
    async fn call(&self, message: &Value) -> Response {
        let id = message["id"].as_u64().unwrap();
        let text = &message["params"]["arguments"]["text"];
        if text == "held" {
            self.held.id.send_replace(Some(id));
            self.held.release.notified().await;
            return reply(text_result(id, text));
        }
        if text == "meddle" {
            let params =
                json!({"progressToken": *self.held.id.borrow(), "progress": 1, "message": "meddled"});
            let notice = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
            return events(&[notice.to_string(), text_result(id, text)]);
        }
        let Some(swap) = &self.swap else {
            let answer = self.answer.lock().unwrap().clone();
            return match answer.windows(2).position(|window| window == b"ID") {
                Some(at) => reply([&answer[..at], id.to_string().as_bytes(), &answer[at + 2..]].concat()),
                None => reply(answer),
            };
        };
        swap.ids.lock().unwrap().push(id);
        swap.both.wait().await;
        let other = *swap.ids.lock().unwrap().iter().find(|other| **other != id).unwrap();
        reply(text_result(other, text))
    }
}

fn text_result(id: u64, text: &Value) -> String {
    let result = json!({"content": [{"type": "text", "text": text}]});
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

fn events(messages: &[String]) -> Response {
    let body: String = messages.iter().map(|message| format!("data: {message}\n\n")).collect();
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

fn reply(body: impl Into<Vec<u8>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}

async fn start(swap: Option<Arc<Swap>>, strays: bool) -> (TestApp, Upstream) {
    let app = TestApp::start().await;
    let upstream = Upstream { answer: Arc::default(), swap, held: Arc::default(), strays };
    let url = upstream.clone().start().await;
    let input = json!({"name": "s", "transport": "streamable_http", "url": url, "timeout_ms": 60_000});
    app.post("/api/v0/servers", input).await.expect(201);
    (app, upstream)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_no_whole_message_is_an_error_at_every_door() {
    let (app, upstream) = start(None, false).await;
    let (legacy, modern) = (Agent::connect(&app, "/mcp").await, ModernAgent::at(&app, "/mcp"));
    let whole = r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"hi"}]}}"#;
    let result = r#""result":{"content":[]}"#;
    for broken in [
        whole.as_bytes()[..60].to_vec(),
        format!("{whole}x").into_bytes(),
        format!("{whole}{whole}").into_bytes(),
        format!("{whole}\0").into_bytes(),
        [
            br#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":""#.as_slice(),
            b"\xff\"}]}}",
        ]
        .concat(),
        format!(r#"{{"jsonrpc":"2.0","id":ID,{result},"error":{{"code":1,"message":"no"}}}}"#).into_bytes(),
        format!(r#"{{"jsonrpc":"2.0","id":ID,{result},"id":"another"}}"#).into_bytes(),
        br#"{"jsonrpc":"2.0","id":ID,"result":"text"}"#.to_vec(),
        br#"{"jsonrpc":"2.0","id":ID,"result":null}"#.to_vec(),
        br#"{"jsonrpc":"2.0","id":ID,"error":"no"}"#.to_vec(),
        format!(r#"{{"jsonrpc":"2.0","id":"another",{result}}}"#).into_bytes(),
        format!(r#"{{"jsonrpc":"2.0","id":999999,{result}}}"#).into_bytes(),
        Vec::new(),
    ] {
        let shown = String::from_utf8_lossy(&broken).into_owned();
        upstream.set(broken);
        let call = json!({"name": "s__t", "arguments": {}});
        let error = legacy.error("tools/call", call.clone()).await;
        assert_eq!(error["code"], -32603, "{shown}: {error}");
        assert!(error["message"].as_str().unwrap().starts_with("server \"s\" failed: "), "{shown}: {error}");
        let (_, error) = modern.error("tools/call", call).await;
        assert_eq!(error["code"], -32603, "{shown}: {error}");
        let error = app.invoke("s__t", json!({})).await.expect(500).error();
        assert!(error.starts_with("s__t failed: "), "{shown}: {error}");
    }
    upstream.set(whole);
    assert_eq!(legacy.call_text("s__t", json!({})).await, "hi");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_is_no_message_at_all_is_told_apart() {
    let (app, upstream) = start(None, false).await;
    for (answer, why) in [
        ("", "its response is empty"),
        (" \r\n", "its response is empty"),
        ("<html>busy</html>", "its response is not a JSON object"),
        ("true", "its response is not a JSON object"),
    ] {
        upstream.set(answer);
        let error = app.invoke("s__t", json!({})).await.expect(500).error();
        assert!(error.contains(why), "{answer:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_libraries_write_beside_an_answer_does_no_harm() {
    let (app, upstream) = start(None, false).await;
    let agent = Agent::connect(&app, "/mcp").await;
    let content = r#"{"content":[{"type":"text","text":"hi"}]}"#;
    for answer in [
        format!(" {{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{content}}}\r\n"),
        format!(r#"{{"result":{content},"error":null,"jsonrpc":"2.0","id":ID}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":"ID","result":{content}}}"#),
    ] {
        upstream.set(answer);
        assert_eq!(agent.call_text("s__t", json!({})).await, "hi");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_without_an_id_is_that_of_the_call_it_came_for() {
    let (app, upstream) = start(None, false).await;
    let (legacy, modern) = (Agent::connect(&app, "/mcp").await, ModernAgent::at(&app, "/mcp"));
    for id in [r#""id":null,"#, ""] {
        let error = r#"{"code":-32600,"message":"Invalid request","data":{"n":1.0}}"#;
        upstream.set(format!(r#"{{"jsonrpc":"2.0",{id}"error":{error}}}"#));
        let expected: Value = serde_json::from_str(error).unwrap();
        let answer = legacy.call("s__t", json!({})).await;
        assert!(answer["id"].is_u64() && answer["error"] == expected, "{answer}");
        assert_eq!(modern.error("tools/call", json!({"name": "s__t"})).await.1, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_under_another_callers_id_reaches_nobody() {
    let swap = Arc::new(Swap { both: Barrier::new(2), ids: Mutex::default() });
    let (app, _upstream) = start(Some(swap), false).await;
    let (one, two) = (Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await);
    let call = |text: &str| json!({"name": "s__t", "arguments": {"text": text}});
    let (first, second) =
        tokio::join!(one.request("tools/call", call("one")), two.request("tools/call", call("two")));
    for answer in [first, second] {
        let error = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("no error: {answer}"));
        assert!(error.contains("belongs to another request"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_progress_nor_answers_come_to_a_call_from_elsewhere() {
    let (app, upstream) = start(None, true).await;
    let (one, two) = (Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await);
    let params = json!({"name": "s__t", "arguments": {"text": "held"}, "_meta": {"progressToken": "p"}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let held = tokio::spawn(async move { one.post(&call).await.expect(200).text() });
    upstream.held.id.subscribe().wait_for(Option::is_some).await.unwrap();
    assert_eq!(two.call_text("s__t", json!({"text": "meddle"})).await, "meddle");
    // When the stream is opened again, the one with the response was read to its end.
    upstream.held.listened.subscribe().wait_for(|count| *count > 1).await.unwrap();
    upstream.held.release.notify_one();
    let said = held.await.unwrap();
    assert!(said.contains("held") && !said.contains("meddled") && !said.contains("everybody"), "{said}");
}
