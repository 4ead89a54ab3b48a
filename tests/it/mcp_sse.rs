//! The older HTTP+SSE transport, for all servers and for groups.

use serde_json::json;

use crate::support::{Agent, Behaviour, Fake, SseAgent, TestApp, eventually};

async fn with_group(behaviour: serde_json::Value) -> (TestApp, Fake) {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(behaviour)).await;
    app.register_http("s", &fake).await;
    let group = json!({"name": "g", "included_tools": ["s__echo", "s__slow", "s__progress", "s__ask"]});
    app.post("/api/v0/tool-groups", group).await.expect(201);
    (app, fake)
}

const PLACES: [(&str, &str); 2] =
    [("/sse", "/message?sessionId="), ("/v0/groups/g/sse", "/v0/groups/g/message?sessionId=")];

#[tokio::test]
async fn answers_come_on_the_stream_that_began_with_its_endpoint() {
    let (app, _fake) = with_group(json!({"era": "legacy", "answer": "sse"})).await;
    for (path, endpoint) in PLACES {
        let mut agent = SseAgent::connect(&app, path, json!({})).await;
        assert!(agent.endpoint.starts_with(endpoint), "{}", agent.endpoint);
        let answer = agent.call(json!("one"), "s__echo", json!({"text": "hi"})).await;
        assert_eq!(answer["id"], "one");
        assert_eq!(answer["result"]["content"][0]["text"], "hi");
        agent.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})).await;
        let tools = agent.next().await.unwrap();
        let count = tools["result"]["tools"].as_array().unwrap().len();
        assert_eq!(count == 4, path != "/sse");
        let params =
            json!({"name": "s__progress", "arguments": {"steps": 2}, "_meta": {"progressToken": "t"}});
        agent.send(&json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params})).await;
        for step in 1..=2 {
            let notice = agent.next().await.unwrap();
            assert_eq!(notice["params"]["progressToken"], "t");
            assert_eq!(notice["params"]["progress"], step);
        }
        assert_eq!(agent.next().await.unwrap()["id"], 3);
        agent.send(&json!({"jsonrpc": "2.0", "id": 4, "method": "no/such"})).await;
        assert_eq!(agent.next().await.unwrap()["error"]["code"], -32601);
    }
}

#[tokio::test]
async fn questions_of_servers_reach_the_client_and_come_back() {
    let (app, _fake) = with_group(json!({"era": "legacy"})).await;
    for (path, _) in PLACES {
        let mut agent = SseAgent::connect(&app, path, json!({"elicitation": {}})).await;
        let question = agent.call(json!(1), "s__ask", json!({})).await;
        assert_eq!(question["method"], "elicitation/create");
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"colour": "red"}}});
        agent.send(&answer).await;
        let result = agent.next().await.unwrap();
        assert!(result["result"]["content"][0]["text"].as_str().unwrap().contains("red"), "{result}");
    }
}

#[tokio::test]
async fn closing_the_stream_cancels_its_calls_and_ends_the_session() {
    let (app, fake) = with_group(json!({"era": "legacy"})).await;
    for (count, (path, _)) in PLACES.iter().enumerate() {
        let mut agent = SseAgent::connect(&app, path, json!({})).await;
        let params = json!({"name": "s__slow", "arguments": {"ms": 60_000}});
        agent.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})).await;
        agent.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "ping"})).await;
        assert_eq!(agent.next().await.unwrap()["id"], 2);
        eventually("the call runs", async || fake.calls_of("slow") == count as u64 + 1).await;
        let endpoint = agent.endpoint.clone();
        drop(agent);
        eventually("the call is cancelled", async || fake.cancelled().len() == count + 1).await;
        let ping = json!({"jsonrpc": "2.0", "id": 3, "method": "ping"});
        app.post(&endpoint, ping).await.expect(404).error();
    }
}

#[tokio::test]
async fn posts_that_belong_to_no_stream_are_refused() {
    let (app, _fake) = with_group(json!({})).await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    app.post("/message", ping.clone()).await.expect(400).error();
    app.post("/message?sessionId=x", ping.clone()).await.expect(404).error();
    let agent = SseAgent::open(&app, "/sse").await;
    let query = agent.endpoint.split_once('?').unwrap().1.to_owned();
    app.post(&format!("/v0/groups/g/message?{query}"), ping.clone()).await.expect(404).error();
    let streamable = Agent::connect(&app, "/mcp").await;
    app.post(&format!("/message?sessionId={}", streamable.session), ping.clone()).await.expect(404).error();
    let broken = app.send("POST", &agent.endpoint, &[], "{").await.expect(400).json();
    assert_eq!(broken["error"]["code"], -32700);
    app.get(&agent.endpoint).await.expect(405).error();
    app.post("/sse", ping.clone()).await.expect(405).error();
    for path in ["/v0/groups/none/sse", "/v0/groups/none/message?sessionId=x"] {
        app.get(path).await.expect(404).error();
        app.post(path, ping.clone()).await.expect(404).error();
    }
}
