//! Questions of servers during a call over REST: shown as events of the call, answered by requests of their own.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::client::Events;
use crate::support::{Behaviour, Fake, TestApp, bearer, client, eventually};

fn form(message: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"x": {"type": "string"}}});
    json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema, "z": 1.0}})
}

fn accept(x: &str) -> Value {
    json!({"action": "accept", "content": {"x": x}})
}

fn said(text: &str) -> Value {
    json!({"role": "assistant", "content": {"type": "text", "text": text}, "model": "human"})
}

async fn invoke(app: &TestApp, server: &str, rounds: Value) -> Events {
    app.post_for_events(
        "/api/v0/tools/invoke?input=true",
        json!({"name": format!("{server}__ask"), "rounds": rounds}),
    )
    .await
}

/// The next event: its name and its data.
async fn next(events: &mut Events) -> (String, Value) {
    let event = events.next().await.expect("the stream goes on");
    (event.name.unwrap(), serde_json::from_slice(&event.data).unwrap())
}

/// The next request for input; progress before it is skipped.
async fn asked(events: &mut Events) -> Value {
    loop {
        match next(events).await {
            (name, data) if name == "input" => return data,
            (name, data) => assert_eq!(name, "progress", "{data}"),
        }
    }
}

async fn told(events: &mut Events) -> Value {
    loop {
        match next(events).await {
            (name, data) if name == "result" => {
                return serde_json::from_str(data["content"][0]["text"].as_str().unwrap()).unwrap();
            }
            (name, data) => assert_eq!(name, "progress", "{data}"),
        }
    }
}

fn path(asked: &Value) -> String {
    format!("/api/v0/tools/invoke/{}/input", asked["call"].as_str().unwrap())
}

fn key(asked: &Value, kind: &str) -> String {
    let requests = asked["requests"].as_object().unwrap();
    requests.keys().find(|key| key.starts_with(kind)).unwrap_or_else(|| panic!("{asked}")).clone()
}

/// A server of each era.
async fn start() -> (TestApp, [Fake; 2]) {
    let app = TestApp::start().await;
    let fakes = [
        Fake::start(Behaviour::of(json!({"era": "legacy"}))).await,
        Fake::start(Behaviour::of(json!({"era": "modern"}))).await,
    ];
    app.register_http("legacy", &fakes[0]).await;
    app.register_http("modern", &fakes[1]).await;
    (app, fakes)
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_events_and_answers_are_requests() {
    let (app, _fakes) = start().await;
    app.register_stdio("stdio", &Behaviour::of(json!({"era": "legacy"}))).await;
    let sampling = json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}});
    let rounds = json!([[form("a"), sampling, {"method": "roots/list"}], [form("b")]]);
    for server in ["legacy", "modern", "stdio"] {
        let mut events = invoke(&app, server, rounds.clone()).await;
        let mut open = asked(&mut events).await;
        while open["requests"].as_object().unwrap().len() < 3 {
            let more = asked(&mut events).await;
            open["requests"].as_object_mut().unwrap().extend(more["requests"].as_object().unwrap().clone());
        }
        let (elicitation, sample, roots) =
            (key(&open, "elicitation"), key(&open, "sampling"), key(&open, "roots"));
        assert_eq!(open["requests"][&elicitation], form("a"), "{server}: as the server wrote it");
        let answers = json!({"responses": {&elicitation: accept("1"), &sample: said("hi")}});
        let left = app.post(&path(&open), answers).await.expect(200).json();
        assert_eq!(left, json!({"open": [&roots]}), "{server}");
        let answers = json!({"responses": {&roots: {"roots": []}}});
        assert_eq!(app.post(&path(&open), answers.clone()).await.expect(200).json(), json!({"open": []}));
        let second = asked(&mut events).await;
        // What was answered is no longer asked for.
        app.post(&path(&open), answers).await.expect(400);
        let answers = json!({"responses": {key(&second, "elicitation"): accept("2")}});
        app.post(&path(&second), answers.clone()).await.expect(200);
        assert_eq!(told(&mut events).await, json!([[accept("1"), said("hi"), {"roots": []}], [accept("2")]]));
        app.post(&path(&second), answers).await.expect(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_answers_are_refused_by_name_and_nothing_is_lost() {
    let (app, _fakes) = start().await;
    let mut events = invoke(&app, "legacy", json!([[form("a")]])).await;
    let open = asked(&mut events).await;
    let key = key(&open, "elicitation");
    for (body, named) in [
        (json!({}), "responses"),
        (json!({"responses": []}), "responses"),
        (json!({"responses": {"other": {}}}), "responses.other"),
        (json!({"responses": {&key: "yes"}}), "responses.elicitation-1"),
        (json!({"responses": {&key: {"content": {}}}}), "responses.elicitation-1"),
        (json!({"responses": {&key: {"action": "maybe"}}}), "responses.elicitation-1"),
        (json!({"responses": {&key: {"action": "accept", "content": [1]}}}), "responses.elicitation-1"),
        (json!({"responses": {&key: accept("1"), "other": {}}}), "responses.other"),
    ] {
        let error = app.post(&path(&open), body.clone()).await.expect(400).json();
        assert!(error["error"].as_str().unwrap().contains(named), "{body}: {error}");
    }
    app.post("/api/v0/tools/invoke/unknown/input", json!({"responses": {}})).await.expect(404);
    app.post(&path(&open), json!({"responses": {key: accept("1")}})).await.expect(200);
    assert_eq!(told(&mut events).await, json!([[accept("1")]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_may_refuse() {
    let (app, fakes) = start().await;
    let sampling = json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}});
    // A legacy server gets an error and decides itself.
    let mut events = invoke(&app, "legacy", json!([[sampling]])).await;
    let open = asked(&mut events).await;
    app.post(&path(&open), json!({"responses": {key(&open, "sampling"): null}})).await.expect(200);
    assert_eq!(told(&mut events).await[0][0]["code"], -1);
    // A modern one would ask again, so the call ends.
    let mut events = invoke(&app, "modern", json!([[sampling]])).await;
    let open = asked(&mut events).await;
    app.post(&path(&open), json!({"responses": {key(&open, "sampling"): null}})).await.expect(200);
    let (name, data) = next(&mut events).await;
    assert_eq!(name, "error", "{data}");
    assert!(data["error"].as_str().unwrap().contains("refused"), "{data}");
    assert_eq!(fakes[1].calls_of("ask"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_visited_before_the_call_is_made_again() {
    let (app, fakes) = start().await;
    let page = json!({"mode": "url", "message": "Log in", "url": "https://x/login", "elicitationId": "e"});
    let body = |mark: &str| json!({"name": "legacy__ask", "rounds": [], "pages": [page], "mark": mark});
    let mut events = app.post_for_events("/api/v0/tools/invoke", body("a")).await;
    let open = asked(&mut events).await;
    let key = key(&open, "elicitation");
    assert_eq!(open["requests"][&key]["params"], page);
    app.post(&path(&open), json!({"responses": {key: {"action": "accept"}}})).await.expect(200);
    assert_eq!(told(&mut events).await, json!([]));
    assert_eq!(fakes[0].calls_of("ask"), 2);
    let error = app.post("/api/v0/tools/invoke", body("b")).await.expect(500).json();
    assert!(error["error"].as_str().unwrap().contains("MCP client"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_stream_the_error_names_what_is_wanted() {
    let (app, _fakes) = start().await;
    for server in ["legacy", "modern"] {
        let body = json!({"name": format!("{server}__ask"), "rounds": [[form("Which colour?")]]});
        let error = app.post("/api/v0/tools/invoke", body.clone()).await.expect(500).json();
        let error = error["error"].as_str().unwrap();
        assert!(error.contains("elicitation (\"Which colour?\")") && error.contains("MCP client"), "{error}");
        let mut events = app.post_for_events("/api/v0/tools/invoke?input=false", body).await;
        let (name, data) = loop {
            match next(&mut events).await {
                (name, _) if name == "progress" => {}
                last => break last,
            }
        };
        assert_eq!(name, "error", "{data}");
        assert!(data["error"].as_str().unwrap().contains("Which colour?"), "{data}");
    }
    app.post("/api/v0/tools/invoke?input=odd", json!({"name": "legacy__echo"})).await.expect(200);
    let events = [("accept", "text/event-stream")];
    let body = json!({"name": "legacy__echo"}).to_string();
    let path = "/api/v0/tools/invoke?input=odd";
    client::request(&app.address, "POST", path, &events, body.into()).await.expect(400);
}

/// Some servers lose their session if a call is cancelled that they have just ended because of the refusal.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_cancelled_before_its_question_is_refused() {
    let (app, [legacy, _modern]) = start().await;
    let body = json!({"name": "legacy__ask", "rounds": [[form("Which colour?")]]});
    app.post("/api/v0/tools/invoke", body).await.expect(500);
    // The refusal is a response, which has no method.
    let order = || {
        let seen = legacy.seen();
        let methods = seen.iter().map(|seen| seen.method.clone());
        methods.filter(|method| method.is_empty() || method == "notifications/cancelled").collect::<Vec<_>>()
    };
    eventually("both have arrived", async || order().len() == 2).await;
    assert_eq!(order(), ["notifications/cancelled", ""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_the_stream_or_silence_ends_the_call() {
    let app = TestApp::start_with(|config| config.limits.answer_time = Duration::from_secs(1)).await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    let modern = Fake::start(Behaviour::of(json!({"era": "modern"}))).await;
    app.register_http("legacy", &fake).await;
    app.register_http("modern", &modern).await;
    let mut events = invoke(&app, "legacy", json!([[form("a")]])).await;
    let open = asked(&mut events).await;
    drop(events);
    eventually("the call is cancelled", async || fake.cancelled().len() == 1).await;
    let answer = json!({"responses": {key(&open, "elicitation"): accept("1")}});
    eventually("nobody waits", async || app.post(&path(&open), answer.clone()).await.status == 404).await;
    for server in ["legacy", "modern"] {
        let mut events = invoke(&app, server, json!([[form("a")]])).await;
        asked(&mut events).await;
        let (name, data) = next(&mut events).await;
        assert_eq!(name, "error", "{data}");
        assert!(data["error"].as_str().unwrap().contains("PARK_TIMEOUT_SEC"), "{data}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_caller_itself_can_answer() {
    let app = TestApp::start_enterprise().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("legacy", &fake).await;
    let tokens = [app.create_user("anna", "user").await, app.create_user("berta", "user").await];
    let authorization = bearer(&tokens[0]);
    let headers = [("accept", "text/event-stream"), ("authorization", authorization.as_str())];
    let body = json!({"name": "legacy__ask", "rounds": [[form("a")]]}).to_string();
    let response = client::open(&app.address, "POST", "/api/v0/tools/invoke", &headers, body.into()).await;
    let mut events = Events::new(response);
    let open = asked(&mut events).await;
    let answer = json!({"responses": {key(&open, "elicitation"): accept("1")}});
    app.post(&path(&open), answer.clone()).await.expect(404);
    app.send_as(&tokens[1], "POST", &path(&open), answer.clone()).await.expect(404);
    app.send_as(&tokens[0], "POST", &path(&open), answer).await.expect(200);
    assert_eq!(told(&mut events).await, json!([[accept("1")]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_is_started_for_a_capable_caller_only_if_it_says_so() {
    let app = TestApp::start().await;
    app.register_stdio("s", &Behaviour::of(json!({"era": "legacy"}))).await;
    let pid = async |query: &str| {
        let path = format!("/api/v0/tools/invoke{query}");
        let mut events = app.post_for_events(&path, json!({"name": "s__pid"})).await;
        next(&mut events).await.1["content"][0]["text"].as_str().unwrap().to_owned()
    };
    let plain = app.call("s__pid", json!({})).await;
    assert_eq!((pid("").await, pid("?input=false").await), (plain.clone(), plain.clone()));
    assert_ne!(pid("?input=true").await, plain);
    // A server that asks whoever calls can still be answered.
    let mut events =
        app.post_for_events("/api/v0/tools/invoke", json!({"name": "s__ask", "rounds": [[form("a")]]})).await;
    let open = asked(&mut events).await;
    app.post(&path(&open), json!({"responses": {key(&open, "elicitation"): accept("1")}})).await.expect(200);
    assert_eq!(told(&mut events).await, json!([[accept("1")]]));
}
