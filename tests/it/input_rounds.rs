//! A legacy client at a modern server that asks for input: the client gets ordinary requests on the stream of its call,
//! and the gateway sends the call again with the answers.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::mcp::BOTH;
use crate::support::{Agent, Behaviour, Fake, SseAgent, TestApp, client, eventually};

fn all() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}})
}

fn form(message: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"x": {"type": "string"}}});
    json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema, "z": 1.0}})
}

fn accept(x: &str) -> Value {
    json!({"action": "accept", "content": {"x": x}})
}

fn told(answer: &Value) -> Value {
    let text = answer["result"]["content"][0]["text"].as_str();
    serde_json::from_str(text.unwrap_or_else(|| panic!("no text: {answer}"))).unwrap()
}

async fn one() -> (TestApp, Fake) {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "modern"}))).await;
    app.register_http("s", &fake).await;
    (app, fake)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_question_makes_a_round_trip_over_each_transport() {
    let (app, fake) = one().await;
    app.register_stdio("stdio", &Behaviour::of(json!({"era": "modern"}))).await;
    let sampling = json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}});
    let said =
        json!({"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m", "n": 1.0});
    let cases = [
        (form("Who?"), accept("me")),
        (form("Who?"), json!({"action": "decline"})),
        (sampling, said),
        (json!({"method": "roots/list"}), json!({"roots": [{"uri": "file:///a"}]})),
    ];
    let agent = Agent::connect_with(&app, "/mcp", all()).await;
    let mut sse = SseAgent::connect(&app, "/sse", all()).await;
    for server in ["s", "stdio"] {
        for (question, answer) in &cases {
            let arguments = json!({"rounds": [[question]]});
            let mut talk = agent.begin_call(json!("a"), &format!("{server}__ask"), arguments.clone()).await;
            let asked = talk.expect(question["method"].as_str().unwrap()).await;
            assert_eq!(asked.get("params"), question.get("params"), "{server}: as the server wrote it");
            agent.reply(&asked, answer.clone()).await;
            let done = talk.answer().await;
            assert_eq!((told(&done), &done["id"]), (json!([[answer]]), &json!("a")), "{server}");
            assert!(done["result"].get("resultType").is_none(), "{done}");

            let params = json!({"name": format!("{server}__ask"), "arguments": arguments});
            sse.send(&json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params})).await;
            let asked = sse.next().await.unwrap();
            assert_eq!(asked["method"], question["method"], "{asked}");
            sse.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": answer})).await;
            assert_eq!(told(&sse.answer(json!(9)).await), json!([[answer]]), "{server} over SSE");
        }
    }
    let seen = fake.seen_of("tools/call").pop().unwrap();
    assert_eq!(
        (&seen.params["requestState"], seen.params["inputResponses"].is_object()),
        (&json!("[]"), true)
    );
    assert_eq!(seen.headers["mcp-name"], "ask");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_questions_and_ten_rounds_with_progress_between_them() {
    let (app, fake) = one().await;
    let agent = Agent::connect_with(&app, "/mcp", all()).await;
    let mut rounds = vec![json!([form("a"), form("b"), {"method": "roots/list"}])];
    rounds.extend((0..9).map(|_| json!([form("more")])));
    let call = |rounds: &[Value]| {
        let params =
            json!({"name": "s__ask", "arguments": {"rounds": rounds}, "_meta": {"progressToken": "p"}});
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    };
    let mut talk = agent.begin(&call(&rounds)).await;
    let (mut questions, mut progress) = (0, Vec::new());
    let answer = loop {
        let message = talk.next().await.unwrap();
        match message["method"].as_str() {
            Some("notifications/progress") => {
                assert_eq!(message["params"]["progressToken"], "p");
                progress.push(message["params"]["progress"].as_u64().unwrap());
            }
            Some("roots/list") => agent.reply(&message, json!({"roots": []})).await,
            Some(_) => {
                questions += 1;
                agent.reply(&message, accept(&questions.to_string())).await;
            }
            None => break message,
        }
    };
    let answers = told(&answer);
    assert_eq!(answers[0], json!([accept("1"), accept("2"), {"roots": []}]));
    assert_eq!((answers.as_array().unwrap().len(), questions, progress), (10, 11, (0..=10).collect()));
    assert_eq!(fake.calls_of("ask"), 11);
    // An eleventh request for input is one too many.
    rounds.push(json!([form("one too many")]));
    let mut talk = agent.begin(&call(&rounds)).await;
    let answer = loop {
        let message = talk.next().await.unwrap();
        match message["method"].as_str() {
            Some("notifications/progress") => {}
            Some("roots/list") => agent.reply(&message, json!({"roots": []})).await,
            Some(_) => agent.reply(&message, accept("x")).await,
            None => break message,
        }
    };
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("more than 10 times"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_the_capability_gets_an_error_that_names_it() {
    let (app, _fake) = one().await;
    let url = json!({"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": "https://x"}});
    let sampling = json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}});
    for (declared, question, named) in [
        (json!({}), form("a"), "\"elicitation\""),
        (json!({"elicitation": {}}), url, "\"elicitation.url\""),
        (json!({"elicitation": {}}), sampling, "\"sampling\""),
        (json!({"elicitation": {}}), json!({"method": "vendor/ask"}), "vendor/ask"),
    ] {
        let agent = Agent::connect_with(&app, "/mcp", declared).await;
        let error =
            agent.error("tools/call", json!({"name": "s__ask", "arguments": {"rounds": [[question]]}})).await;
        assert_eq!(error["code"], -32603, "{error}");
        assert!(error["message"].as_str().unwrap().contains(named), "{error}");
    }
    let agent = Agent::connect(&app, "/mcp").await;
    let answer = agent.call("s__ask", json!({"rounds": [[{"method": "roots/list"}]]})).await;
    assert_eq!(told(&answer), json!([[{"roots": []}]]));
    // A client that accepts no event stream cannot be asked.
    let agent = Agent::connect_with(&app, "/mcp", all()).await;
    let params = json!({"name": "s__ask", "arguments": {"rounds": [[form("a")]]}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let headers = [
        ("accept", "application/json"),
        ("content-type", "application/json"),
        ("mcp-session-id", &agent.session),
    ];
    let answer =
        client::request(&app.address, "POST", "/mcp", &headers, body.into()).await.expect(200).json();
    assert!(answer["error"]["message"].as_str().unwrap().contains("event stream"), "{answer}");
    // Without a session there is nobody to ask.
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let headers = [BOTH, ("content-type", "application/json")];
    let answer =
        client::request(&app.address, "POST", "/mcp", &headers, body.into()).await.expect(200).json();
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_to_visit_gets_an_id() {
    let (app, _fake) = one().await;
    let agent = Agent::connect_with(&app, "/mcp", all()).await;
    let params = json!({"mode": "url", "message": "m", "url": "https://x"});
    let question = json!({"method": "elicitation/create", "params": params});
    let mut talk = agent.begin_call(json!(1), "s__ask", json!({"rounds": [[question]]})).await;
    let asked = talk.expect("elicitation/create").await;
    assert_eq!(asked["params"]["url"], "https://x");
    assert!(asked["params"]["elicitationId"].as_str().is_some_and(|id| id.len() >= 16), "{asked}");
    agent.reply(&asked, json!({"action": "accept"})).await;
    assert_eq!(told(&talk.answer().await), json!([[{"action": "accept"}]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_error_a_cancel_or_a_closed_stream_nothing_more_goes_to_the_server() {
    let (app, fake) = one().await;
    let agent = Agent::connect_with(&app, "/mcp", all()).await;
    let begin = async || agent.begin_call(json!(1), "s__ask", json!({"rounds": [[form("a")]]})).await;
    let mut talk = begin().await;
    let asked = talk.expect("elicitation/create").await;
    let error = json!({"code": -1, "message": "not now"});
    agent.post(&json!({"jsonrpc": "2.0", "id": asked["id"], "error": error})).await.expect(202);
    let answer = talk.answer().await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("not now"), "{answer}");
    assert_eq!(fake.calls_of("ask"), 1);

    let mut talk = begin().await;
    let asked = talk.expect("elicitation/create").await;
    agent.tell("notifications/cancelled", json!({"requestId": 1})).await;
    assert!(talk.next().await.is_none(), "a cancelled call has no answer");
    agent.reply(&asked, accept("late")).await;

    let mut talk = begin().await;
    let asked = talk.expect("elicitation/create").await;
    drop(talk);
    // The gateway notices the closed stream by itself; until then the call counts as one in flight.
    eventually("the call has ended", async || {
        let limits = app.get("/api/dashboard/diagnostics").await.expect(200).json()["limits"].clone();
        let calls = limits.as_array().unwrap().iter().find(|limit| limit["bound"] == "calls").cloned();
        calls.unwrap()["used"] == 0
    })
    .await;
    agent.reply(&asked, accept("late")).await;
    assert_eq!(agent.call_text("s__echo", json!({"text": "x"})).await, "x");
    assert_eq!(fake.calls_of("ask"), 3, "each was sent once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_is_not_answered_in_time_ends_the_call() {
    let app = TestApp::start_with(|config| config.limits.answer_time = Duration::from_millis(200)).await;
    let fake = Fake::start(Behaviour::of(json!({"era": "modern"}))).await;
    let legacy = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    app.register_http("legacy", &legacy).await;
    let agent = Agent::connect_with(&app, "/mcp", all()).await;
    for server in ["s", "legacy"] {
        let tool = format!("{server}__ask");
        let mut talk = agent.begin_call(json!(1), &tool, json!({"rounds": [[form("a")]]})).await;
        talk.expect("elicitation/create").await;
        let answer = talk.answer().await;
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("PARK_TIMEOUT_SEC"), "{answer}");
    }
    eventually("the legacy call is cancelled", async || legacy.cancelled().len() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn input_for_another_round_of_a_legacy_client_is_refused() {
    let (app, fake) = one().await;
    let agent = Agent::connect_with(&app, "/mcp", all()).await;
    for key in ["requestState", "inputResponses"] {
        let mut params = json!({"name": "s__ask", "arguments": {"rounds": []}});
        params[key] = json!({});
        assert_eq!(agent.error("tools/call", params).await["code"], -32602, "{key}");
    }
    assert_eq!(fake.calls_of("ask"), 0);
}
