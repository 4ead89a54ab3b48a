//! A call that waits for input has one record, however many requests it takes, and whatever comes of it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Behaviour, Fake, ModernAgent, Tally, TestApp, eventually};

fn able() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}})
}

fn form(message: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"x": {"type": "string"}}});
    json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}})
}

/// The same request, with an answer to each question.
fn answering(call: &Value, asked: &Value, action: &str) -> Value {
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let mut call = call.clone();
    if let Some(state) = asked.get("requestState") {
        call["requestState"] = state.clone();
    }
    let keys = asked["inputRequests"].as_object().unwrap().keys();
    let answer = |key: &String| (key.clone(), json!({"action": action, "content": {"x": "1"}}));
    call["inputResponses"] = keys.map(answer).collect();
    call
}

async fn records(app: &TestApp) -> Vec<Value> {
    app.get("/api/v0/calls").await.expect(200).json()["calls"].as_array().unwrap().clone()
}

async fn start(era: &str) -> (TestApp, Fake, ModernAgent) {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": era }))).await;
    app.register_http("s", &fake).await;
    let agent = ModernAgent::at(&app, "/mcp").with(able());
    (app, fake, agent)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_with_two_rounds_of_input_has_one_record() {
    for (era, attempts) in [("modern", 3), ("legacy", 1)] {
        let (app, _fake, agent) = start(era).await;
        let call = json!({"name": "s__ask", "arguments": {"rounds": [[form("a")], [form("b")]]}});
        let first = agent.result("tools/call", call.clone()).await;
        // Another one like it, which is answered after it.
        let other = agent.result("tools/call", call.clone()).await;
        let second = agent.result("tools/call", answering(&call, &first, "accept")).await;
        let answered = Instant::now();
        // The person does something else meanwhile.
        agent.result("tools/list", json!({})).await;
        let waited = answered.elapsed().as_secs_f64() * 1000.0;
        agent.result("tools/call", answering(&call, &second, "accept")).await;
        eventually("it is recorded", async || !records(&app).await.is_empty()).await;
        let record = &records(&app).await[0];
        let told = (&record["outcome"], &record["rounds"], &record["attempts"]);
        assert_eq!(told, (&json!("ok"), &json!(2), &json!(attempts)), "{era}: {record}");
        let time = |key: &str| record[key].as_f64().unwrap();
        assert!(time("input_ms") >= waited && time("duration_ms") > time("input_ms"), "{era}: {record}");
        assert!(time("gateway_ms") < time("duration_ms") - waited, "{era}: {record}");
        let marks = record["marks"].as_array().unwrap();
        assert_eq!(marks.iter().filter(|mark| mark["kind"] == "input").count(), 2, "{era}: {record}");
        let other = agent.result("tools/call", answering(&call, &other, "accept")).await;
        agent.result("tools/call", answering(&call, &other, "accept")).await;
        eventually("both are recorded", async || records(&app).await.len() == 2).await;
        assert!(records(&app).await.iter().all(|record| record["rounds"] == 2), "{era}");
        let stats = app.get("/api/v0/stats?by=tool").await.expect(200).json();
        assert_eq!(stats["rows"][0]["calls"], 2, "{era}: {stats}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_never_answered_is_recorded_as_timed_out() {
    for era in ["modern", "legacy"] {
        let limit = Duration::from_millis(300);
        let app = TestApp::start_with(|config| config.limits.answer_time = limit).await;
        let fake = Fake::start(Behaviour::of(json!({ "era": era }))).await;
        app.register_http("s", &fake).await;
        let agent = ModernAgent::at(&app, "/mcp").with(able());
        let call = json!({"name": "s__ask", "arguments": {"rounds": [[form("a")]]}});
        agent.result("tools/call", call).await;
        eventually("it is recorded", async || !records(&app).await.is_empty()).await;
        let all = records(&app).await;
        assert_eq!((all.len(), &all[0]["outcome"], &all[0]["rounds"]), (1, &json!("timed_out"), &json!(1)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_calls_are_recorded_when_the_gateway_stops() {
    let mut app = TestApp::start_on_file().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "modern"}))).await;
    app.register_http("s", &fake).await;
    let agent = ModernAgent::at(&app, "/mcp").with(able());
    let call = json!({"name": "s__ask", "arguments": {"rounds": [[form("a")]]}});
    agent.result("tools/call", call).await;
    app = app.restart().await;
    let all = records(&app).await;
    assert_eq!((all.len(), &all[0]["outcome"]), (1, &json!("cancelled")), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_are_visited_first_belong_to_the_call_and_a_used_state_does_not() {
    let (app, _fake, agent) = start("legacy").await;
    let page = json!({"mode": "url", "message": "Log in", "url": "https://x/login", "elicitationId": "e"});
    let call = json!({"name": "s__ask", "arguments": {"rounds": [], "pages": [page], "mark": "a"}});
    let asked = agent.result("tools/call", call.clone()).await;
    agent.result("tools/call", answering(&call, &asked, "accept")).await;
    eventually("it is recorded", async || !records(&app).await.is_empty()).await;
    let all = records(&app).await;
    assert_eq!((all.len(), &all[0]["outcome"], &all[0]["attempts"]), (1, &json!("ok"), &json!(2)), "{all:?}");
    agent.error("tools/call", answering(&call, &asked, "accept")).await;
    eventually("the refusal is recorded", async || records(&app).await.len() == 2).await;
    let record = &records(&app).await[0];
    assert_eq!((&record["outcome"], &record["name"]), (&json!("denied"), &json!("ask")), "{record}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_may_no_longer_go_on_is_denied_once() {
    let app = TestApp::start_with(|config| config.telemetry = true).await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    let agent = ModernAgent::at(&app, "/mcp").with(able());
    let call = json!({"name": "s__ask", "arguments": {"rounds": [[form("a")]]}});
    let asked = agent.result("tools/call", call.clone()).await;
    app.post("/api/v0/tools/disable?entity=s__ask", json!({})).await.expect(200);
    let before = Tally::of(&app).await;
    agent.error("tools/call", answering(&call, &asked, "accept")).await;
    let after = Tally::of(&app).await;
    let denied: Vec<_> =
        after.since(&before).into_iter().filter(|(.., outcome, _)| *outcome == "denied").collect();
    assert_eq!(denied, [("", "", "denied", 1)]);
}
