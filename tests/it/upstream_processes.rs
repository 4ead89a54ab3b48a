//! Bounds on the processes of stdio servers: 32 of one server, `MAX_PROCESSES` of all, and idle ones make room.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::support::app::stdio_input;
use crate::support::fake::recorded;
use crate::support::process::is_alive;
use crate::support::{Agent, Behaviour, TestApp, eventually};

async fn register(app: &TestApp, name: &str, behaviour: Value) {
    let mut input = stdio_input(name, &Behaviour::of(behaviour));
    input["session_mode"] = json!("stateful");
    app.register(input).await;
}

async fn with_limit(processes: u64) -> TestApp {
    TestApp::start_with(|config| config.limits.processes = processes).await
}

#[tokio::test(flavor = "multi_thread")]
async fn forty_sessions_share_32_processes_of_a_stateful_server() {
    let app = TestApp::start().await;
    register(&app, "s", json!({ "era": "legacy" })).await;
    let (mut agents, mut pids) = (Vec::new(), Vec::new());
    for _ in 0..40 {
        let agent = Agent::connect(&app, "/mcp").await;
        pids.push(agent.call_text("s__pid", json!({})).await);
        agents.push(agent);
        // Besides these there is the process of the first link.
        assert!(pids.iter().filter(|pid| is_alive(pid)).count() < 32);
    }
    assert_eq!(pids.iter().collect::<HashSet<_>>().len(), 40, "{pids:?}");
    // The longest idle ones made room, and their sessions get a new process.
    assert!(pids[..9].iter().all(|pid| !is_alive(pid)) && pids[9..].iter().all(|pid| is_alive(pid)));
    assert_eq!(agents[39].call_text("s__pid", json!({})).await, pids[39]);
    assert!(!pids.contains(&agents[0].call_text("s__pid", json!({})).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_finds_every_process_busy_fails_with_the_bound() {
    let app = with_limit(3).await;
    let journal = app.folder.path().join("journal");
    register(&app, "s", json!({ "era": "legacy", "journal": journal })).await;
    let (one, two) = (Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await);
    let three = Agent::connect(&app, "/mcp").await;
    let (one_pid, two_pid) =
        (one.call_text("s__pid", json!({})).await, two.call_text("s__pid", json!({})).await);
    let slow = |mark: &str| json!({ "ms": 1500, "mark": mark });
    let refused = async {
        let is_busy = |mark| recorded(&journal, "ran", mark) == 1;
        eventually("both are busy", async || is_busy("one") && is_busy("two")).await;
        three.call("s__pid", json!({})).await
    };
    let (busy, also_busy, refused) =
        tokio::join!(one.call("s__slow", slow("one")), two.call("s__slow", slow("two")), refused);
    let said = refused.to_string();
    assert!(said.contains("server processes (3)"), "{said}");
    for answer in [busy, also_busy] {
        assert_eq!(answer["result"]["content"][0]["text"], "done");
    }
    // An idle process makes room, that of the session that has been quiet for longer.
    one.call_text("s__pid", json!({})).await;
    three.call_text("s__pid", json!({})).await;
    let alive = [&one_pid, &two_pid].iter().filter(|pid| is_alive(pid)).count();
    assert!(alive <= 1, "{one_pid} {two_pid}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_process_of_another_server_makes_room_for_the_total() {
    let app = with_limit(4).await;
    register(&app, "a", json!({ "era": "legacy" })).await;
    register(&app, "b", json!({ "era": "legacy" })).await;
    let agents = [Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await];
    let first = agents[0].call_text("a__pid", json!({})).await;
    // It is in use until its lists have been read.
    eventually("the lists of the process are read", || async {
        let seen = agents[0].call_text("a__seen", json!({})).await;
        ["tools", "prompts", "resources", "resources/templates"]
            .iter()
            .all(|of| seen.contains(&format!("{of}/list")))
    })
    .await;
    let second = agents[1].call_text("a__pid", json!({})).await;
    agents[0].call_text("b__pid", json!({})).await;
    assert!(!is_alive(&first) && is_alive(&second));
    // With the bound reached and nothing idle, not even a new server can start.
    let app = with_limit(1).await;
    register(&app, "a", json!({ "era": "legacy" })).await;
    let input = stdio_input("b", &Behaviour::default());
    let error = app.post("/api/v0/servers", input).await.expect(500).error();
    assert!(error.contains("server processes (1)"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_counts_until_it_is_gone() {
    let app = with_limit(2).await;
    register(&app, "s", json!({ "era": "legacy", "stubborn": true })).await;
    let (one, two) = (Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await);
    let first = one.call_text("s__pid", json!({})).await;
    one.end().await.expect(204);
    // It ignores SIGTERM, so it ends after two seconds; until then the other session waits.
    let second = two.call_text("s__pid", json!({})).await;
    assert!(second != first && !is_alive(&first));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_lists_are_still_read_makes_room_when_they_are() {
    let app = with_limit(2).await;
    register(&app, "s", json!({ "era": "legacy", "delay_ms": { "tools/list": 300 } })).await;
    let (one, two) = (Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await);
    let first = one.call_text("s__pid", json!({})).await;
    let second = two.call_text("s__pid", json!({})).await;
    assert!(second != first && !is_alive(&first));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_has_ended_starts_no_process() {
    let app = with_limit(2).await;
    register(&app, "s", json!({ "era": "legacy" })).await;
    // The gateway reads the lists of a new process in the background; sooner or later a session ends before that begins.
    for _ in 0..20 {
        let agent = Agent::connect(&app, "/mcp").await;
        agent.call_text("s__pid", json!({})).await;
        agent.end().await.expect(204);
    }
    let agent = Agent::connect(&app, "/mcp").await;
    agent.call_text("s__pid", json!({})).await;
}
