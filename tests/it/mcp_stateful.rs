//! Stateful servers: each agent's session has its own upstream session or process.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::app::stdio_input;
use crate::support::{Agent, Behaviour, Fake, SseAgent, TestApp, eventually};

fn stateful(mut input: Value) -> Value {
    input["session_mode"] = json!("stateful");
    input
}

fn is_running(process: &str) -> bool {
    std::path::Path::new(&format!("/proc/{process}")).exists()
}

async fn with_http(idle: Option<Duration>) -> (TestApp, Fake) {
    let app = TestApp::start_with(|config| config.session_idle_timeout = idle).await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register(stateful(json!({"name": "s", "transport": "streamable_http", "url": fake.url()}))).await;
    (app, fake)
}

/// The upstream session that a call of this agent runs in.
async fn session_of(agent: &Agent) -> String {
    let headers: Value = serde_json::from_str(&agent.call_text("s__headers", json!({})).await).unwrap();
    headers["mcp-session-id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn each_session_has_an_upstream_session_that_ends_with_it() {
    let (app, fake) = with_http(None).await;
    let (one, two) = (Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await);
    let (first, second) = (session_of(&one).await, session_of(&two).await);
    assert_ne!(first, second);
    assert_eq!(session_of(&one).await, first);
    assert_eq!(fake.sessions().len(), 3, "two and the gateway's own");
    one.end().await.expect(204);
    eventually("its upstream session ends", async || fake.deleted_sessions() == [first.clone()]).await;
    assert_eq!(session_of(&two).await, second);
}

#[tokio::test]
async fn each_session_has_a_process_that_ends_with_it() {
    let app = TestApp::start().await;
    app.register(stateful(stdio_input("s", &Behaviour::of(json!({"era": "legacy"}))))).await;
    let (one, two) = (Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/v0/servers/s/mcp").await);
    let (first, second) = (one.call_text("s__pid", json!({})).await, two.call_text("pid", json!({})).await);
    assert_ne!(first, second);
    assert_eq!(one.call_text("s__pid", json!({})).await, first);
    let mut sse = SseAgent::connect(&app, "/sse", json!({})).await;
    let answer = sse.call(json!(1), "s__pid", json!({})).await;
    let third = answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(third != first && third != second);
    one.end().await.expect(204);
    eventually("its process ends", async || !is_running(&first)).await;
    drop(sse);
    eventually("its process ends with the stream", async || !is_running(&third)).await;
    assert!(is_running(&second));
    assert_eq!(two.call_text("pid", json!({})).await, second);
}

#[tokio::test]
async fn an_idle_session_loses_its_upstream_session_and_is_over() {
    let (app, fake) = with_http(Some(Duration::from_millis(400))).await;
    let (idle, busy) = (Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await);
    let listening = Agent::connect(&app, "/mcp").await;
    let _stream = listening.listen().await;
    let gone = session_of(&idle).await;
    let kept = [session_of(&busy).await, session_of(&listening).await];
    // A session with a running call is not idle, however long the call takes.
    let long = busy.call("s__slow", json!({"ms": 1500}));
    let end = eventually("the idle one is over", async || fake.deleted_sessions() == [gone.clone()]);
    let (answer, ()) = tokio::join!(long, end);
    assert_eq!(answer["result"]["content"][0]["text"], "done");
    idle.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})).await.expect(404).error();
    assert_eq!([session_of(&busy).await, session_of(&listening).await], kept);
}

#[tokio::test]
async fn a_lost_upstream_session_is_opened_again_for_its_owner() {
    let (app, fake) = with_http(None).await;
    let agent = Agent::connect_with(&app, "/mcp", json!({"elicitation": {}})).await;
    let before = session_of(&agent).await;
    fake.drop_sessions();
    let after = session_of(&agent).await;
    assert_ne!(before, after);
    assert_eq!(session_of(&agent).await, after);
}
