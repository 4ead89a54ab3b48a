//! Stateful servers and callers without a session (modern clients, and users over REST): each such caller has its own
//! upstream session or process, separate from those of sessions, until the idle timeout.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::app::stdio_input;
use crate::support::{Agent, Behaviour, Fake, ModernAgent, TestApp, eventually};

fn stateful(mut input: Value) -> Value {
    input["session_mode"] = json!("stateful");
    input
}

async fn with_http(era: &str, idle: Option<Duration>) -> (TestApp, Fake) {
    let app = TestApp::start_with(|config| config.session_idle_timeout = idle).await;
    let fake = Fake::start(Behaviour::of(json!({"era": era}))).await;
    app.register(stateful(json!({"name": "s", "transport": "streamable_http", "url": fake.url()}))).await;
    (app, fake)
}

/// The upstream session that a call ran in, by the headers that the server saw.
fn session_in(headers: &str) -> String {
    let headers: Value = serde_json::from_str(headers).unwrap();
    headers["mcp-session-id"].as_str().unwrap_or_else(|| panic!("no session: {headers}")).to_owned()
}

async fn session_of(agent: &ModernAgent) -> String {
    session_in(&agent.call_text("s__headers", json!({})).await)
}

fn is_running(process: &str) -> bool {
    std::path::Path::new(&format!("/proc/{process}")).exists()
}

#[tokio::test]
async fn callers_without_a_session_have_an_upstream_session_apart_from_sessions() {
    let (app, fake) = with_http("legacy", None).await;
    let legacy = Agent::connect(&app, "/mcp").await;
    let theirs = session_in(&legacy.call_text("s__headers", json!({})).await);
    let agent = ModernAgent::at(&app, "/mcp");
    let ours = session_of(&agent).await;
    assert_ne!(ours, theirs);
    // In development mode callers have no identity, so they all count as one caller.
    assert_eq!(session_of(&ModernAgent::at(&app, "/mcp")).await, ours);
    assert_eq!(session_in(&app.call("s__headers", json!({})).await), ours, "people over REST, too");
    assert_eq!(fake.sessions().len(), 3, "the two and the gateway's own");
    legacy.end().await.expect(204);
    eventually("its session ends", async || fake.deleted_sessions() == [theirs.clone()]).await;
    assert_eq!(session_of(&agent).await, ours);
}

#[tokio::test]
async fn callers_without_a_session_have_a_process_apart_from_sessions() {
    for era in ["legacy", "modern"] {
        let app = TestApp::start().await;
        app.register(stateful(stdio_input("s", &Behaviour::of(json!({"era": era}))))).await;
        let legacy = Agent::connect(&app, "/mcp").await;
        let theirs = legacy.call_text("s__pid", json!({})).await;
        let agent = ModernAgent::at(&app, "/v0/servers/s/mcp");
        let ours = agent.call_text("pid", json!({})).await;
        assert_ne!(ours, theirs, "{era}");
        assert_eq!(agent.call_text("pid", json!({})).await, ours, "{era}");
        assert_eq!(app.call("s__pid", json!({})).await, ours, "{era}: people over REST, too");
        legacy.end().await.expect(204);
        eventually("the other process ends", async || !is_running(&theirs)).await;
        assert_eq!(agent.call_text("pid", json!({})).await, ours, "{era}");
    }
}

#[tokio::test]
async fn an_idle_upstream_session_is_ended() {
    let (app, fake) = with_http("legacy", Some(Duration::from_millis(400))).await;
    let agent = ModernAgent::at(&app, "/mcp");
    let first = session_of(&agent).await;
    // A session with a running call is not idle, however long the call takes.
    let long = agent.call_text("s__slow", json!({"ms": 1500}));
    assert_eq!(long.await, "done");
    assert!(fake.deleted_sessions().is_empty());
    eventually("it ends", async || fake.deleted_sessions() == [first.clone()]).await;
    // The next caller gets a new one.
    let second = session_of(&agent).await;
    assert_ne!(first, second);
    eventually("it ends, too", async || fake.deleted_sessions() == [first.clone(), second.clone()]).await;
    assert_eq!(fake.sessions().len(), 1, "the gateway's own stays");
}

#[tokio::test]
async fn an_idle_process_is_ended() {
    let app =
        TestApp::start_with(|config| config.session_idle_timeout = Some(Duration::from_millis(400))).await;
    app.register(stateful(stdio_input("s", &Behaviour::of(json!({"era": "legacy"}))))).await;
    let agent = ModernAgent::at(&app, "/mcp");
    let first = agent.call_text("s__pid", json!({})).await;
    eventually("it ends", async || !is_running(&first)).await;
    let second = agent.call_text("s__pid", json!({})).await;
    assert_ne!(first, second);
    // The gateway's own session is always open, for the lists.
    assert_eq!(app.server("s").await["status"], "connected");
}

#[tokio::test]
async fn a_modern_server_over_http_has_no_sessions_to_keep_apart() {
    let (app, fake) = with_http("modern", None).await;
    let agent = ModernAgent::at(&app, "/mcp");
    let headers: Value = serde_json::from_str(&agent.call_text("s__headers", json!({})).await).unwrap();
    assert!(headers.get("mcp-session-id").is_none());
    assert!(fake.sessions().is_empty());
}

#[tokio::test]
async fn updates_of_a_stateful_server_are_heard_for_as_long_as_somebody_listens() {
    let (app, fake) = with_http("legacy", Some(Duration::from_millis(400))).await;
    let agent = ModernAgent::at(&app, "/mcp");
    let (mut talk, _) = agent.listen(json!(1), json!({"resourceSubscriptions": ["fake://text"]})).await;
    let session = session_of(&agent).await;
    fake.notify_resource_updated("fake://text");
    talk.expect("notifications/resources/updated").await;
    // The calls of this caller use the same session, which stays open although no call is made.
    let later = std::time::Instant::now() + Duration::from_millis(1200);
    eventually("it is idle for long", async || std::time::Instant::now() > later).await;
    fake.notify_resource_updated("fake://text");
    talk.expect("notifications/resources/updated").await;
    assert!(fake.deleted_sessions().is_empty());
    drop(talk);
    eventually("the session ends", async || fake.deleted_sessions() == [session.clone()]).await;
}

#[tokio::test]
async fn a_lost_upstream_session_is_opened_again() {
    let (app, fake) = with_http("legacy", None).await;
    let agent = ModernAgent::at(&app, "/mcp");
    let before = session_of(&agent).await;
    fake.drop_sessions();
    let after = session_of(&agent).await;
    assert_ne!(before, after);
    assert_eq!(session_of(&agent).await, after);
}
