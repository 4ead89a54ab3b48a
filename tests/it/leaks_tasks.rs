//! Tasks belong to the client that started them; for every other client they are unknown.

use serde_json::{Value, json};

use crate::support::client;
use crate::support::modern::{ModernAgent, VERSION};
use crate::support::{Agent, Behaviour, Fake, TestApp, bearer};

const NATIVE: &str = "/v0/servers/s/mcp";

async fn register(app: &TestApp, era: &str) -> Fake {
    let fake = Fake::start(Behaviour::of(json!({"era": era, "tasks": ["one", "two", "three"]}))).await;
    fake.update(|behaviour| behaviour.show_tools(&["verbatim".into()]));
    app.register_http("s", &fake).await;
    fake
}

/// The arguments of a call that starts the task with this id.
fn starting(id: &str) -> Value {
    let task = json!({"task": {"taskId": id, "status": "working"}}).to_string();
    let answer = format!(r#"{{"jsonrpc":"2.0","id":$ID,"result":{task}}}"#);
    json!({"name": "verbatim", "arguments": {"answer": answer}, "task": {"ttl": 60_000}})
}

async fn ids(agent: &Agent) -> Vec<String> {
    agent.list("tasks/list", "tasks", "taskId").await
}

#[tokio::test]
async fn a_client_sees_and_uses_only_its_own_tasks() {
    let app = TestApp::start_enterprise().await;
    let fake = register(&app, "legacy").await;
    let (anna, bob) = (app.create_client("anna", &["s"]).await, app.create_client("bob", &["s"]).await);
    let (mut anna_agent, bob_agent) =
        (Agent::connect_as(&app, NATIVE, &anna).await, Agent::connect_as(&app, NATIVE, &bob).await);
    assert!(ids(&anna_agent).await.is_empty());
    anna_agent.request("tools/call", starting("one")).await;
    bob_agent.request("tools/call", starting("two")).await;
    // Through another endpoint it is the same client.
    let aggregated = Agent::connect_as(&app, "/mcp", &bob).await;
    let mut call = starting("three");
    call["name"] = json!("s__verbatim");
    aggregated.request("tools/call", call).await;
    assert_eq!(ids(&anna_agent).await, ["one"]);
    assert_eq!(ids(&bob_agent).await, ["two", "three"]);
    fake.forget_seen();
    for method in ["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"] {
        assert_eq!(anna_agent.request(method, json!({"taskId": "one"})).await["result"]["taskId"], "one");
        for foreign in [json!("two"), json!("three"), json!("never"), json!(7), Value::Null, json!(["two"])] {
            let error = anna_agent.error(method, json!({"taskId": foreign})).await;
            assert_eq!(error["code"], -32602, "{method} {foreign}: {error}");
        }
        assert_eq!(fake.seen_of(method).len(), 1, "only the own one reaches the server");
    }
    assert_eq!(anna_agent.error("tasks/get", json!({})).await["code"], -32602);
    assert_eq!(anna_agent.error("vendor/x", json!({"taskId": "two"})).await["code"], -32602);
    // The tasks belong to the client, not to its session or token.
    let token = "a-token-that-is-long-enough-0123456789";
    app.put("/api/v0/clients/anna", json!({"access_token": token, "allow_list": null})).await.expect(200);
    anna_agent.use_token(token);
    assert_eq!(ids(&anna_agent).await, ["one"]);
    // A notice about a task reaches nobody else.
    let status = |id: &str| {
        let params = json!({"taskId": id, "status": "completed"});
        json!({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": params}).to_string()
    };
    let answer = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}"#;
    let arguments = json!({"before": [status("one"), status("two")], "answer": answer});
    let mut talk = bob_agent.begin_call(json!(9), "verbatim", arguments).await;
    let notice = talk.expect("notifications/tasks/status").await;
    assert_eq!(notice["params"]["taskId"], "two");
    assert!(talk.answer().await.get("result").is_some());
}

#[tokio::test]
async fn tasks_of_modern_servers_belong_to_their_clients_too() {
    let app = TestApp::start_enterprise().await;
    let fake = register(&app, "modern").await;
    let (anna, bob) = (app.create_client("anna", &["s"]).await, app.create_client("bob", &["s"]).await);
    let agent = ModernAgent::at(&app, NATIVE);
    let post = async |token: &str, method: &str, name: &str, params: Value| {
        let body = agent.message(json!(1), method, params).to_string();
        let authorization = bearer(token);
        let mut headers = vec![
            ("authorization", authorization.as_str()),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", VERSION),
            ("mcp-method", method),
        ];
        headers.push(("mcp-name", name));
        client::request(&app.address, "POST", NATIVE, &headers, body.into()).await.json()
    };
    let answer =
        r#"{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"task","taskId":"one","status":"working"}}"#;
    let call = json!({"name": "verbatim", "arguments": {"answer": answer}});
    assert_eq!(post(&anna, "tools/call", "verbatim", call).await["result"]["taskId"], "one");
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let own = post(&anna, method, "one", json!({"taskId": "one"})).await;
        assert_eq!(own["result"]["taskId"], "one", "{own}");
        let foreign = post(&bob, method, "one", json!({"taskId": "one"})).await;
        assert_eq!(foreign["error"]["code"], -32602, "{foreign}");
        assert_eq!(fake.seen_of(method).len(), 1);
    }
}

#[tokio::test]
async fn in_development_mode_everybody_sees_all_tasks() {
    let app = TestApp::start().await;
    let _fake = register(&app, "legacy").await;
    let agent = Agent::connect(&app, NATIVE).await;
    assert_eq!(ids(&agent).await, ["one", "two", "three"]);
    assert_eq!(agent.request("tasks/get", json!({"taskId": "two"})).await["result"]["taskId"], "two");
}
