//! A modern client at a legacy server that asks during a call: the call is parked, the client gets `input_required` and
//! comes back with the answers.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::modern::Post;
use crate::support::{Behaviour, Fake, ModernAgent, TestApp, bearer, eventually, refusals};

const SERVERS: [&str; 3] = ["http", "sse", "stdio"];

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

fn ask(server: &str, rounds: Value) -> Value {
    json!({"name": format!("{server}__ask"), "arguments": {"rounds": rounds}})
}

fn answering(mut params: Value, asked: &Value, answers: Value) -> Value {
    params["requestState"] = asked["requestState"].clone();
    params["inputResponses"] = answers;
    params
}

/// The keys of the open questions, in order.
fn keys(asked: &Value) -> Vec<String> {
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    asked["inputRequests"].as_object().unwrap().keys().cloned().collect()
}

fn told(result: &Value) -> Value {
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"));
    serde_json::from_str(text).unwrap()
}

async fn one() -> (TestApp, Fake, ModernAgent) {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("http", &fake).await;
    let agent = ModernAgent::at(&app, "/mcp").with(all());
    (app, fake, agent)
}

async fn parked(app: &TestApp) -> u64 {
    let limits = app.get("/api/dashboard/diagnostics").await.expect(200).json()["limits"].clone();
    let limit = limits.as_array().unwrap().iter().find(|limit| limit["bound"] == "parked_calls").cloned();
    limit.unwrap()["used"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_question_makes_a_round_trip_over_each_transport() {
    let app = TestApp::start().await;
    let behaviour = Behaviour::of(json!({"era": "legacy"}));
    let fake = Fake::start(behaviour.clone()).await;
    app.register_http("http", &fake).await;
    app.register_sse("sse", &fake).await;
    app.register_stdio("stdio", &behaviour).await;
    let agent = ModernAgent::at(&app, "/mcp").with(all());
    let url = json!({"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": "https://x", "elicitationId": "e"}});
    let sampling = json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}});
    let said =
        json!({"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m", "n": 1.0});
    let roots = json!({"roots": [{"uri": "file:///a"}]});
    for server in SERVERS {
        for (question, answer) in [
            (form("Who?"), accept("me")),
            (form("Who?"), json!({"action": "decline"})),
            (url.clone(), json!({"action": "accept"})),
            (sampling.clone(), said.clone()),
            (json!({"method": "roots/list"}), roots.clone()),
        ] {
            let call = ask(server, json!([[question]]));
            let asked = agent.result("tools/call", call.clone()).await;
            let key = keys(&asked).remove(0);
            let request = &asked["inputRequests"][&key];
            assert_eq!(request["method"], question["method"], "{server}");
            let params = question.get("params").cloned().unwrap_or_else(|| json!({}));
            assert_eq!(request["params"], params, "{server}: as the server wrote it");
            assert!(asked.get("ttlMs").is_none() && asked.get("cacheScope").is_none());
            let result = agent.result("tools/call", answering(call, &asked, json!({key: answer}))).await;
            assert_eq!((told(&result), &result["resultType"]), (json!([[answer]]), &json!("complete")));
        }
    }
    assert_eq!(parked(&app).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_questions_come_in_one_answer_and_rounds_follow_each_other() {
    let (app, fake, agent) = one().await;
    let sampling = json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}});
    let rounds = json!([[form("a"), sampling, {"method": "roots/list"}], [form("b")]]);
    let call = ask("http", rounds);
    let asked = agent.result("tools/call", call.clone()).await;
    let first = keys(&asked);
    assert_eq!(first.len(), 3, "{asked}");
    let by = |kind: &str| first.iter().find(|key| key.starts_with(kind)).unwrap().clone();
    let said = json!({"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"});
    // One answer is missing: it is asked for again, and what was answered is not.
    let some = json!({by("elicitation"): accept("1"), by("sampling"): said, "unknown": 5});
    let again = agent.result("tools/call", answering(call.clone(), &asked, some)).await;
    assert_eq!(keys(&again), [by("roots")]);
    assert_ne!(again["requestState"], asked["requestState"]);
    // No answer at all: asked for again, too.
    let again = agent.result("tools/call", answering(call.clone(), &again, json!({}))).await;
    assert_eq!(keys(&again), [by("roots")]);
    let roots = json!({by("roots"): {"roots": []}});
    let second = agent.result("tools/call", answering(call.clone(), &again, roots)).await;
    let key = keys(&second).remove(0);
    assert!(!first.contains(&key), "a key is used once in a call: {key}");
    let result = agent.result("tools/call", answering(call, &second, json!({key: accept("2")}))).await;
    assert_eq!(told(&result), json!([[accept("1"), said, {"roots": []}], [accept("2")]]));
    assert_eq!((fake.calls_of("ask"), fake.cancelled().len(), parked(&app).await), (1, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_goes_to_the_request_that_is_open_with_its_own_token() {
    let (_app, _fake, agent) = one().await;
    let mut call = ask("http", json!([[form("a")], [form("b")]]));
    call["_meta"] = json!({"progressToken": "first"});
    let mut talk = agent.begin(&agent.message(json!("one"), "tools/call", call.clone())).await;
    let notice = talk.expect("notifications/progress").await;
    assert_eq!(
        (&notice["params"]["progressToken"], &notice["params"]["progress"]),
        (&json!("first"), &json!(0))
    );
    let asked = talk.answer().await;
    assert_eq!(asked["id"], "one");
    let asked = &asked["result"];
    let mut retry = answering(call.clone(), asked, json!({keys(asked).remove(0): accept("1")}));
    retry["_meta"] = json!({"progressToken": 7});
    let mut talk = agent.begin(&agent.message(json!(2), "tools/call", retry)).await;
    let notice = talk.expect("notifications/progress").await;
    assert_eq!((&notice["params"]["progressToken"], &notice["params"]["progress"]), (&json!(7), &json!(1)));
    let asked = talk.answer().await;
    assert_eq!(asked["id"], 2);
    // A request without a token gets no progress.
    call.as_object_mut().unwrap().remove("_meta");
    let asked = &asked["result"];
    let retry = answering(call, asked, json!({keys(asked).remove(0): accept("2")}));
    let answer = agent.post(&agent.message(json!(3), "tools/call", retry)).await.expect(200).json();
    assert_eq!((told(&answer["result"]), &answer["id"]), (json!([[accept("1")], [accept("2")]]), &json!(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_state_is_refused_and_does_not_use_it_up() {
    let (app, fake, agent) = one().await;
    app.post("/api/v0/tool-groups", json!({"name": "g", "included_tools": ["http__echo"]})).await.expect(201);
    let call = ask("http", json!([[form("a")]]));
    let asked = agent.result("tools/call", call.clone()).await;
    let key = keys(&asked).remove(0);
    let good = answering(call.clone(), &asked, json!({&key: accept("1")}));
    let state = asked["requestState"].as_str().unwrap();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut params = good.clone();
        change(&mut params);
        params
    };
    fake.forget_seen();
    let wrong = [
        with(&|params| params["requestState"] = json!(format!("{state}A"))),
        with(&|params| params["requestState"] = json!(&state[..state.len() - 2])),
        with(&|params| params["requestState"] = json!(5)),
        with(&|params| params["arguments"]["rounds"] = json!([])),
        with(&|params| params["name"] = json!("http__echo")),
        with(&|params| params["inputResponses"] = json!([])),
        with(&|params| params["inputResponses"][&key] = json!("yes")),
        with(&|params| params["inputResponses"][&key] = json!({"content": {}})),
    ];
    for params in wrong {
        let (status, error) = agent.error("tools/call", params.clone()).await;
        assert_eq!((status, &error["code"]), (200, &json!(-32602)), "{params}: {error}");
    }
    // Where its tool does not exist, the call does not go on either.
    let group = ModernAgent::at(&app, "/v0/groups/g/mcp").with(all());
    assert_eq!(group.error("tools/call", good.clone()).await.1["code"], -32602);
    assert!(fake.seen().is_empty(), "{:?}", fake.seen());
    let result = agent.result("tools/call", good.clone()).await;
    assert_eq!(told(&result), json!([[accept("1")]]));
    let (status, error) = agent.error("tools/call", good).await;
    assert_eq!((status, &error["code"]), (200, &json!(-32602)), "used already: {error}");
    assert_eq!(fake.calls_of("ask"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_did_not_declare_ends_the_call_at_the_server() {
    let (app, fake, _) = one().await;
    let url = json!({"method": "elicitation/create", "params": {"mode": "url", "message": "m", "url": "https://x"}});
    let sampling = json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}});
    for (number, (declared, question, required)) in [
        (json!({}), form("a"), json!({"elicitation": {}})),
        (json!({"roots": {}}), sampling, json!({"sampling": {}})),
        (json!({"elicitation": {}}), url, json!({"elicitation": {"url": {}}})),
        (json!({"elicitation": {"url": {}}}), form("a"), json!({"elicitation": {"form": {}}})),
    ]
    .into_iter()
    .enumerate()
    {
        let agent = ModernAgent::at(&app, "/mcp").with(declared);
        let (status, error) = agent.error("tools/call", ask("http", json!([[question]]))).await;
        assert_eq!((status, &error["code"]), (400, &json!(-32021)), "{error}");
        assert_eq!(error["data"], json!({"requiredCapabilities": required}));
        eventually("the call is cancelled", async || fake.cancelled().len() == number + 1).await;
    }
    let agent = ModernAgent::at(&app, "/mcp");
    let result = agent.result("tools/call", ask("http", json!([[{"method": "roots/list"}]]))).await;
    assert_eq!(told(&result), json!([[{"roots": []}]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_not_answered_in_time_ends_at_the_server() {
    let app = TestApp::start_with(|config| config.limits.answer_time = Duration::from_millis(300)).await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register(
        json!({"name": "http", "transport": "streamable_http", "url": fake.url(), "max_concurrency": 1}),
    )
    .await;
    let agent = ModernAgent::at(&app, "/mcp").with(all());
    let call = ask("http", json!([[form("a")]]));
    let asked = agent.result("tools/call", call.clone()).await;
    eventually("the call is cancelled", async || fake.cancelled().len() == 1).await;
    eventually("nothing is parked", async || parked(&app).await == 0).await;
    let retry = answering(call, &asked, json!({keys(&asked).remove(0): accept("1")}));
    let (status, error) = agent.error("tools/call", retry).await;
    assert_eq!((status, &error["code"]), (200, &json!(-32602)), "{error}");
    // Its place is free again.
    assert_eq!(agent.call_text("http__echo", json!({"text": "x"})).await, "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_call_keeps_its_place_and_its_time_stands_still() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    let other = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("other", &other).await;
    app.register(json!({
        "name": "http", "transport": "streamable_http", "url": fake.url(), "max_concurrency": 1, "timeout_ms": 3000,
    }))
    .await;
    let agent = ModernAgent::at(&app, "/mcp").with(all());
    let call = ask("http", json!([[form("a")], [form("b")]]));
    let asked = agent.result("tools/call", call.clone()).await;
    // Another call waits for the place until its own time is over.
    let (_, error) = agent.error("tools/call", json!({"name": "http__echo", "arguments": {}})).await;
    assert_eq!(error["code"], -32603, "{error}");
    assert_eq!(fake.calls_of("echo"), 0);
    // Longer than a call may take.
    agent.call("other__slow", json!({"ms": 3500})).await;
    let second = agent
        .result("tools/call", answering(call.clone(), &asked, json!({keys(&asked).remove(0): accept("1")})))
        .await;
    let result = agent
        .result("tools/call", answering(call, &second, json!({keys(&second).remove(0): accept("2")})))
        .await;
    assert_eq!(told(&result), json!([[accept("1")], [accept("2")]]));
    assert_eq!(agent.call_text("http__echo", json!({"text": "x"})).await, "x");
    // The place was given back once: two calls still do not run at the same time.
    let again = agent.result("tools/call", ask("http", json!([[form("a")]]))).await;
    assert_eq!(
        agent.error("tools/call", json!({"name": "http__echo", "arguments": {}})).await.1["code"],
        -32603
    );
    drop(again);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_must_be_visited_first_are_asked_for() {
    let (app, fake, agent) = one().await;
    let page = json!({"mode": "url", "message": "Log in", "url": "https://x/login", "elicitationId": "e"});
    let call = |mark: &str| {
        let arguments = json!({"rounds": [], "pages": [page], "mark": mark});
        json!({"name": "http__ask", "arguments": arguments})
    };
    let asked = agent.result("tools/call", call("a")).await;
    let key = keys(&asked).remove(0);
    assert_eq!(asked["inputRequests"][&key], json!({"method": "elicitation/create", "params": page}));
    let accepted = json!({key: {"action": "accept"}});
    let result = agent.result("tools/call", answering(call("a"), &asked, accepted.clone())).await;
    assert_eq!((told(&result), fake.calls_of("ask")), (json!([]), 2));
    let seen = fake.seen_of("tools/call").pop().unwrap();
    assert!(seen.params.get("requestState").is_none() && seen.params.get("inputResponses").is_none());
    assert_eq!(agent.error("tools/call", answering(call("a"), &asked, accepted)).await.1["code"], -32602);
    // If the person declines, the client gets the server's error.
    let asked = agent.result("tools/call", call("b")).await;
    let declined = answering(call("b"), &asked, json!({keys(&asked).remove(0): {"action": "decline"}}));
    let (status, error) = agent.error("tools/call", declined).await;
    assert_eq!((status, &error["code"], &error["data"]["elicitations"][0]), (200, &json!(-32042), &page));
    let unable = ModernAgent::at(&app, "/mcp").with(json!({"elicitation": {}}));
    let (status, error) = unable.error("tools/call", call("c")).await;
    assert_eq!((status, &error["code"]), (400, &json!(-32021)));
    assert_eq!(error["data"]["requiredCapabilities"], json!({"elicitation": {"url": {}}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_parked_call_ends_for_a_new_one() {
    let app = TestApp::start_with(|config| config.telemetry = true).await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("http", &fake).await;
    let agent = ModernAgent::at(&app, "/mcp").with(all());
    let call = ask("http", json!([[form("a")]]));
    let first = agent.result("tools/call", call.clone()).await;
    for _ in 0..100 {
        keys(&agent.result("tools/call", call.clone()).await);
    }
    eventually("the first one is cancelled", async || fake.cancelled().len() == 1).await;
    assert_eq!((parked(&app).await, refusals(&app, "parked_calls").await), (100, 1));
    let metrics = app.get("/metrics").await.expect(200).text();
    assert!(metrics.contains("toolgate_calls_parked 100\n"), "{metrics}");
    let retry = answering(call, &first, json!({keys(&first).remove(0): accept("1")}));
    assert_eq!(agent.error("tools/call", retry).await.1["code"], -32602);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_call_ends_with_its_server_and_with_the_gateway() {
    let (mut app, fake, agent) = one().await;
    keys(&agent.result("tools/call", ask("http", json!([[form("a")]]))).await);
    app.delete("/api/v0/servers/http").await.expect(204);
    eventually("it is cancelled with the server", async || fake.cancelled().len() == 1).await;
    app.register_http("http", &fake).await;
    keys(&agent.result("tools/call", ask("http", json!([[form("a")]]))).await);
    app.stop().await;
    assert_eq!(fake.cancelled().len(), 2, "it is cancelled when the gateway stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_call_belongs_to_its_client_and_ends_with_its_token() {
    let app = TestApp::start_enterprise().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("http", &fake).await;
    let tokens = [app.create_client("a", &["http"]).await, app.create_client("b", &["http"]).await];
    let agent = ModernAgent::at(&app, "/mcp").with(all());
    let send = async |params: &Value, token: &str| {
        let post = Post::of(agent.message(json!(1), "tools/call", params.clone()).to_string());
        agent.send(&post.adding("authorization", &bearer(token))).await.expect(200).json()
    };
    let call = ask("http", json!([[form("a")]]));
    let asked = send(&call, &tokens[0]).await["result"].clone();
    let retry = answering(call.clone(), &asked, json!({keys(&asked).remove(0): accept("1")}));
    assert_eq!(send(&retry, &tokens[1]).await["error"]["code"], -32602, "another client's");
    assert_eq!(told(&send(&retry, &tokens[0]).await["result"]), json!([[accept("1")]]));
    send(&call, &tokens[0]).await;
    app.delete("/api/v0/clients/a").await.expect(204);
    eventually("it is cancelled", async || fake.cancelled().len() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_cannot_ask_more_than_a_hundred_questions_at_once() {
    let (_app, _fake, agent) = one().await;
    let call = ask("http", json!([(0..150).map(|number| form(&number.to_string())).collect::<Vec<_>>()]));
    let mut result = agent.result("tools/call", call.clone()).await;
    let mut answered = 0;
    while result["resultType"] == "input_required" {
        let keys = keys(&result);
        assert!(keys.len() <= 100, "{} questions", keys.len());
        answered += keys.len();
        let answers: serde_json::Map<_, _> = keys.into_iter().map(|key| (key, accept("x"))).collect();
        result = agent.result("tools/call", answering(call.clone(), &result, answers.into())).await;
    }
    let told = told(&result);
    let answers = told[0].as_array().unwrap();
    let refused = answers.iter().filter(|answer| answer["code"] == -32601).count();
    assert_eq!((answers.len(), answered + refused), (150, 150), "{told}");
}
