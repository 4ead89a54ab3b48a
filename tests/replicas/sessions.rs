//! Clients behind a balancer without stickiness: what one gateway holds is reached through all of them.

use serde_json::{Value, json};

use super::cluster;
use super::support::{Agent, Behaviour, Fake, ModernAgent, TestApp, eventually};

/// Enough requests that each gateway gets some.
const REQUESTS: usize = 7;

async fn with_server(behaviour: Value) -> (TestApp, Vec<TestApp>, Fake) {
    let (all, gateways) = cluster().await;
    let fake = Fake::start(Behaviour::of(behaviour)).await;
    gateways[0].register_http("s", &fake).await;
    for gateway in &gateways {
        eventually("the server is known", || async { gateway.get("/api/v0/servers/s").await.status == 200 })
            .await;
    }
    (all, gateways, fake)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_works_through_every_gateway() {
    let (all, gateways, _fake) = with_server(json!({ "era": "legacy" })).await;
    let agent = Agent::connect(&all, "/mcp").await;
    for number in 0..REQUESTS {
        let text = format!("call {number}");
        assert_eq!(agent.call_text("s__echo", json!({ "text": text })).await, text);
        assert!(agent.tools().await.contains(&"s__echo".to_owned()));
    }
    agent.end().await.expect(204);
    for _ in 0..gateways.len() {
        let after = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
        agent.post(&after).await.expect(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_a_stateful_server_is_that_of_the_session() {
    let (all, gateways) = cluster().await;
    let mut input = super::support::app::stdio_input("p", &Behaviour::of(json!({ "era": "legacy" })));
    input["session_mode"] = json!("stateful");
    gateways[0].register(input).await;
    for gateway in &gateways {
        eventually("the server is known", || async { gateway.get("/api/v0/servers/p").await.status == 200 })
            .await;
    }
    let (one, other) = (Agent::connect(&all, "/mcp").await, Agent::connect(&all, "/mcp").await);
    let (first, second) =
        (one.call_text("p__pid", json!({})).await, other.call_text("p__pid", json!({})).await);
    assert_ne!(first, second);
    for _ in 0..REQUESTS {
        assert_eq!(one.call_text("p__pid", json!({})).await, first);
        assert_eq!(other.call_text("p__pid", json!({})).await, second);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_through_another_gateway() {
    let (all, _gateways, _fake) = with_server(json!({ "era": "legacy" })).await;
    let agent = Agent::connect_with(&all, "/mcp", json!({ "elicitation": {} })).await;
    for number in 0..REQUESTS {
        let mut talk = agent.begin_call(json!(number), "s__ask", json!({})).await;
        let question = talk.expect("elicitation/create").await;
        agent.reply(&question, json!({ "number": number })).await;
        let answer = talk.answer().await;
        assert_eq!(answer["result"]["content"][0]["text"], format!(r#"{{"number":{number}}}"#));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_call_is_resumed_through_another_gateway() {
    let (all, _gateways, _fake) = with_server(json!({ "era": "legacy" })).await;
    let agent = ModernAgent::at(&all, "/mcp").with(json!({ "elicitation": { "form": {} } }));
    let schema = json!({ "type": "object", "properties": { "x": { "type": "string" } } });
    let form =
        json!({ "method": "elicitation/create", "params": { "message": "m", "requestedSchema": schema } });
    for number in 0..REQUESTS {
        let mut params = json!({ "name": "s__ask", "arguments": { "rounds": [[form.clone()]] } });
        let asked = agent.result("tools/call", params.clone()).await;
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
        params["requestState"] = asked["requestState"].clone();
        params["inputResponses"] =
            json!({ key: { "action": "accept", "content": { "x": number.to_string() } } });
        let result = agent.result("tools/call", params.clone()).await;
        assert!(result.to_string().contains(&number.to_string()), "{result}");
        let (_, again) = agent.error("tools/call", params).await;
        assert!(again["message"].as_str().unwrap().contains("requestState"), "a state works once: {again}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_reaches_the_stream_that_was_opened_elsewhere() {
    let (all, _gateways, fake) = with_server(json!({ "era": "legacy" })).await;
    for _ in 0..3 {
        let agent = Agent::connect(&all, "/mcp").await;
        let mut stream = agent.listen().await;
        let subscribed = agent.request("resources/subscribe", json!({ "uri": "fake://text" })).await;
        assert_eq!(subscribed["result"], json!({}));
        agent.call_text("s__touch", json!({ "uri": "fake://text" })).await;
        let updated = stream.expect("notifications/resources/updated").await;
        assert_eq!(updated["params"]["uri"], "fake://text");
        agent.end().await.expect(204);
    }
    assert!(!fake.seen_of("resources/subscribe").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_older_transport_works_through_every_gateway() {
    let (all, _gateways, _fake) = with_server(json!({ "era": "legacy" })).await;
    let mut agent = super::support::mcp::SseAgent::connect(&all, "/sse", json!({})).await;
    for number in 0..REQUESTS {
        let answer = agent.call(json!(number), "s__echo", json!({ "text": "hi" })).await;
        assert_eq!(answer["result"]["content"][0]["text"], "hi");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_hears_of_changes_that_another_gateway_made() {
    let (all, gateways, _fake) = with_server(json!({ "era": "legacy" })).await;
    let agent = Agent::connect(&all, "/mcp").await;
    agent.tools().await;
    let mut stream = agent.listen().await;
    for gateway in &gateways {
        gateway.post("/api/v0/tools/disable?entity=s__echo", json!({})).await.expect(200);
        stream.expect("notifications/tools/list_changed").await;
        gateway.post("/api/v0/tools/enable?entity=s__echo", json!({})).await.expect(200);
        stream.expect("notifications/tools/list_changed").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sessions_of_a_gateway_that_ended_are_unknown() {
    let (all, mut gateways, _fake) = with_server(json!({ "era": "legacy" })).await;
    let mut ended = gateways.remove(0);
    let mut agent = Agent::connect(&ended, "/mcp").await;
    ended.stop().await;
    all.balancer.as_ref().unwrap().remove(&ended.address);
    agent.address.clone_from(&all.address);
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    for _ in 0..gateways.len() {
        agent.post(&ping).await.expect(404);
    }
    Agent::connect(&all, "/mcp").await.call_text("s__echo", json!({ "text": "hi" })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_without_the_key_can_send_what_gateways_send_each_other() {
    let (_, gateways, _fake) = with_server(json!({ "era": "legacy" })).await;
    for body in [Vec::new(), vec![1; 100], b"{}".to_vec()] {
        gateways[0].send("POST", "/internal/requests", &[], body).await.expect(403);
    }
}
