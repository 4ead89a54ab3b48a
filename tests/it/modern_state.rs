//! Modern servers that need input of modern clients: the server responds with `input_required` and gets its state back in
//! the next round, but only from the client that the state was given to. Input across eras is in `input_*`.

use serde_json::{Value, json};

use crate::support::modern::{CAPABILITIES_KEY, Post};
use crate::support::{Behaviour, Fake, ModernAgent, TestApp};

async fn start() -> (TestApp, Fake, Fake) {
    let app = TestApp::start().await;
    let mut behaviour = Behaviour::of(json!({"era": "modern"}));
    behaviour.show_tools(&["ask".into(), "verbatim".into(), "other".into()]);
    let (one, two) = (Fake::start(behaviour.clone()).await, Fake::start(behaviour).await);
    app.register_http("s", &one).await;
    app.register_http("t", &two).await;
    app.post("/api/v0/tool-groups", json!({"name": "g", "included_servers": ["s"]})).await.expect(201);
    (app, one, two)
}

fn agent(app: &TestApp, path: &str) -> ModernAgent {
    ModernAgent::at(app, path).with(json!({"elicitation": {}}))
}

/// A call whose first response asks for input and contains this state, as JSON.
fn asking(tool: &str, state: &str) -> Value {
    let answer = format!(
        r#"{{"jsonrpc":"2.0","id":$ID,"result":{{"x-first":1.0,"resultType":"input_required","inputRequests":{{"q":{{"method":"elicitation/create","params":{{"message":"m","requestedSchema":{{"type":"object","properties":{{}}}}}}}}}},"requestState":{state},"x-last":98765432109876543210}}}}"#
    );
    json!({"name": tool, "arguments": {"answer": answer}})
}

fn with_state(mut params: Value, state: &Value) -> Value {
    params["requestState"] = state.clone();
    params["inputResponses"] = json!({"q": {"action": "accept", "content": {}}});
    params
}

#[tokio::test]
async fn the_state_of_a_server_is_sealed_on_its_way_and_comes_back_as_it_was() {
    let (app, fake, _other) = start().await;
    for (path, tool) in
        [("/mcp", "s__verbatim"), ("/v0/groups/g/mcp", "s__verbatim"), ("/v0/servers/s/mcp", "verbatim")]
    {
        let agent = agent(&app, path);
        // The state as the server writes it, and its value.
        for (written, state) in [
            (r#""plain-state""#, "plain-state"),
            (r#""s\u00e9\"\ud83d\ude00 😀\/\u0000""#, "sé\"😀 😀/\u{0}"),
            (r#""""#, ""),
        ] {
            let params = asking(tool, written);
            let call = agent.message(json!("r"), "tools/call", params.clone()).to_string();
            let answer = agent.send(&Post::of(call)).await.expect(200);
            let text = answer.text();
            let message = answer.json();
            let given = &message["result"]["requestState"];
            // Everything except id and state is as the server wrote it.
            let expected = params["arguments"]["answer"].as_str().unwrap();
            let expected = expected
                .replace("$ID", r#""r""#)
                .replace(&format!(r#""requestState":{written}"#), &format!(r#""requestState":{given}"#));
            assert_eq!(text, expected, "{path}");
            assert!(state.is_empty() || !given.as_str().unwrap().contains("plain"), "{given}");
            assert!(
                message["result"].get("ttlMs").is_none() && message["result"].get("cacheScope").is_none()
            );
            let result = agent.result("tools/call", with_state(params, given)).await;
            assert_eq!(result["resultType"], "input_required", "{path}");
            let arrived = fake.seen_of("tools/call").pop().unwrap();
            assert_eq!(arrived.params["requestState"], state, "{path}");
            assert_eq!(arrived.params["inputResponses"], json!({"q": {"action": "accept", "content": {}}}));
            assert_eq!(arrived.params["_meta"][CAPABILITIES_KEY], json!({"elicitation": {}}));
        }
    }
}

#[tokio::test]
async fn there_may_be_several_rounds() {
    let (app, fake, _other) = start().await;
    let agent = agent(&app, "/mcp");
    let mut state = Value::Null;
    for round in 0..5_u64 {
        let params = asking("s__verbatim", r#""mine""#);
        let params = if state.is_null() { params } else { with_state(params, &state) };
        let result = agent.result("tools/call", params).await;
        assert_eq!(result["resultType"], "input_required");
        let arrived = fake.seen_of("tools/call").pop().unwrap();
        let before = (round > 0).then(|| json!("mine"));
        assert_eq!(arrived.params.get("requestState"), before.as_ref());
        assert_ne!(result["requestState"], state);
        state = result["requestState"].clone();
    }
    // The server's standard tool asks a real question.
    let asked = agent.call("s__ask", json!({})).await;
    assert_eq!(asked["inputRequests"]["colour"]["method"], "elicitation/create");
    let mut params = json!({"name": "s__ask", "requestState": asked["requestState"]});
    params["inputResponses"] = json!({"colour": {"action": "accept", "content": {"colour": "red"}}});
    let told = agent.result("tools/call", params).await;
    assert!(told["content"][0]["text"].as_str().unwrap().contains("red"), "{told}");
    assert_eq!(fake.seen_of("tools/call").pop().unwrap().params["requestState"], "fake-state");
}

#[tokio::test]
async fn a_state_is_valid_only_for_its_own_request() {
    let (app, fake, other) = start().await;
    let agent = agent(&app, "/mcp");
    let given = agent.result("tools/call", asking("s__verbatim", r#""mine""#)).await["requestState"].clone();
    let sealed = given.as_str().unwrap();
    let flip = |at: usize| {
        let mut bytes = sealed.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        json!(String::from_utf8(bytes).unwrap())
    };
    fake.forget_seen();
    other.forget_seen();
    let last = sealed.len() - 1;
    for (tool, state) in [
        // Changed, cut off, or never issued.
        ("s__verbatim", flip(0)),
        ("s__verbatim", flip(last / 2)),
        ("s__verbatim", json!(sealed[..last - 3])),
        ("s__verbatim", json!(format!("{sealed}AAAA"))),
        ("s__verbatim", json!("mine")),
        ("s__verbatim", json!("")),
        // Not a string, which a lenient server might accept.
        ("s__verbatim", json!(5)),
        ("s__verbatim", json!({"mine": true})),
        ("s__verbatim", json!(["mine"])),
        // Issued for another tool, and for another server.
        ("s__other", given.clone()),
        ("t__verbatim", given.clone()),
    ] {
        let params = with_state(asking(tool, r#""mine""#), &state);
        let (status, error) = agent.error("tools/call", params).await;
        assert_eq!((status, &error["code"]), (200, &json!(-32602)), "{tool} {state}: {error}");
        assert!(error["message"].as_str().unwrap().contains("requestState"), "{error}");
    }
    // Nor with other arguments.
    let params = with_state(asking("s__verbatim", r#""other""#), &given);
    assert_eq!(agent.error("tools/call", params).await.1["code"], -32602);
    // Nor for another method.
    let params = with_state(json!({"name": "s__plain"}), &given);
    assert_eq!(agent.error("prompts/get", params).await.1["code"], -32602);
    let params = with_state(json!({"uri": "toolgate://res/s/ZmFrZTovL3RleHQ"}), &given);
    assert_eq!(agent.error("resources/read", params).await.1["code"], -32602);
    assert!(fake.seen().is_empty() && other.seen().is_empty(), "no server saw any of it");
}

#[tokio::test]
async fn a_state_outlives_a_restart_but_not_another_gateway() {
    let (app, fake, _other) = start().await;
    let params = asking("s__verbatim", r#""mine""#);
    let given = agent(&app, "/mcp").result("tools/call", params.clone()).await;
    let retry = with_state(params, &given["requestState"]);
    let app = app.restart().await;
    let result = agent(&app, "/mcp").result("tools/call", retry.clone()).await;
    assert_eq!(result["resultType"], "input_required");
    assert_eq!(fake.seen_of("tools/call").pop().unwrap().params["requestState"], "mine");
    let (elsewhere, _one, _two) = start().await;
    assert_eq!(agent(&elsewhere, "/mcp").error("tools/call", retry).await.1["code"], -32602);
}

#[tokio::test]
async fn prompts_and_resources_may_need_input_too() {
    let (app, fake, _other) = start().await;
    let asks = r#"{"resultType":"input_required","inputRequests":{},"requestState":"mine"}"#;
    fake.update(|behaviour| {
        for name in ["plain", "fake://item/5"] {
            behaviour.results.insert(name.into(), serde_json::from_str(asks).unwrap());
        }
    });
    let agent = agent(&app, "/v0/servers/s/mcp");
    for (method, params) in
        [("prompts/get", json!({"name": "plain"})), ("resources/read", json!({"uri": "fake://item/5"}))]
    {
        let result = agent.result(method, params.clone()).await;
        assert_eq!(result["resultType"], "input_required", "{method}");
        assert_ne!(result["requestState"], "mine");
        agent.result(method, with_state(params, &result["requestState"])).await;
        assert_eq!(fake.seen_of(method).pop().unwrap().params["requestState"], "mine", "{method}");
    }
}

#[tokio::test]
async fn a_question_after_progress_comes_on_the_stream() {
    let (app, _fake, _other) = start().await;
    let agent = agent(&app, "/mcp");
    let mut params = asking("s__verbatim", r#""mine""#);
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$TOKEN,"progress":1}}"#;
    params["arguments"]["before"] = json!([progress]);
    params["_meta"] = json!({"progressToken": "p"});
    let mut talk = agent.begin(&agent.message(json!(1), "tools/call", params)).await;
    talk.expect("notifications/progress").await;
    let answer = talk.next().await.unwrap();
    assert_eq!(answer["result"]["resultType"], "input_required");
    assert!(answer["result"]["requestState"].as_str().is_some_and(|state| !state.contains("mine")));
}
