//! Callers without a session: what belongs to one of them is on one gateway, and reached through all.

use serde_json::{Value, json};

use super::cluster;
use super::support::app::stdio_input;
use super::support::client::Events;
use super::support::{Behaviour, Fake, ModernAgent, TestApp, eventually, request};

/// Enough requests that each gateway gets some.
const REQUESTS: usize = 7;

/// Gateways with a process `p` that each caller has its own of.
async fn with_process(first: TestApp) -> (TestApp, Vec<TestApp>) {
    let (all, gateways) = TestApp::start_behind_balancer(first, 3).await;
    let mut input = stdio_input("p", &Behaviour::of(json!({ "era": "legacy" })));
    input["session_mode"] = json!("stateful");
    gateways[0].register(input).await;
    for gateway in &gateways {
        eventually("the server is known", || async { gateway.get("/api/v0/servers/p").await.status == 200 })
            .await;
    }
    (all, gateways)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_server_knows_a_caller_on_every_gateway() {
    let (all, gateways) = with_process(TestApp::start().await).await;
    let agent = ModernAgent::at(&all, "/mcp");
    let process = agent.call_text("p__pid", json!({})).await;
    for _ in 0..REQUESTS {
        assert_eq!(agent.call_text("p__pid", json!({})).await, process);
        assert_eq!(all.call("p__pid", json!({})).await, process, "callers over REST are the same here");
        assert!(agent.list("tools/list", "tools", "name").await.contains(&"p__pid".to_owned()));
    }
    let pages = gateways.iter().map(|gateway| async { gateway.call("p__pid", json!({})).await });
    for page in pages {
        assert_eq!(page.await, process);
    }
    // Also what only this caller is shown.
    agent.call("p__add_tool", json!({ "name": "later", "own_stream": true })).await;
    let is_listed =
        || async { agent.list("tools/list", "tools", "name").await.contains(&"p__later".to_owned()) };
    eventually("the gateway that has the process knows its new list", is_listed).await;
    for _ in 0..REQUESTS {
        assert!(is_listed().await, "all gateways show the list of that one");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_has_its_own_process_on_all_gateways_together() {
    let (all, _gateways) = with_process(TestApp::start_enterprise().await).await;
    let mut tokens = Vec::new();
    for name in ["a", "b"] {
        tokens.push(all.create_client(name, &["p"]).await);
    }
    let mut processes = Vec::new();
    for token in &tokens {
        let agent = ModernAgent::at(&all, "/mcp").using(token);
        let process = agent.call_text("p__pid", json!({})).await;
        for _ in 0..REQUESTS {
            assert_eq!(agent.call_text("p__pid", json!({})).await, process);
        }
        processes.push(process);
    }
    assert_ne!(processes[0], processes[1]);
    let user = all.create_user("u", "user").await;
    let mut users = Vec::new();
    for _ in 0..REQUESTS {
        let answer = all.send_as(&user, "POST", "/api/v0/tools/invoke", json!({ "name": "p__pid" })).await;
        users.push(answer.expect(200).json()["content"][0]["text"].clone());
    }
    assert!(users.iter().all(|process| *process == users[0]), "{users:?}");
    assert!(!processes.iter().any(|process| users[0] == json!(process)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_finds_another_home_when_its_own_stops() {
    let (all, mut gateways) = with_process(TestApp::start().await).await;
    let mut home = gateways.remove(1);
    let before = home.call("p__pid", json!({})).await;
    for other in &gateways {
        assert_eq!(other.call("p__pid", json!({})).await, before, "it knows the home now");
    }
    all.balancer.as_ref().unwrap().remove(&home.address);
    home.stop().await;
    let agent = ModernAgent::at(&all, "/mcp");
    eventually("another gateway serves the caller", || async {
        let body = json!({ "name": "p__pid" }).to_string();
        let answer = request(&gateways[0].address, "POST", "/api/v0/tools/invoke", &[], body.into()).await;
        if answer.status == 503 {
            assert!(answer.error().contains("another gateway"), "{}", answer.text());
            assert_eq!(answer.headers["retry-after"], "1");
        }
        answer.status == 200
    })
    .await;
    let after = agent.call_text("p__pid", json!({})).await;
    assert_ne!(after, before);
    for _ in 0..REQUESTS {
        assert_eq!(agent.call_text("p__pid", json!({})).await, after);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_and_errors_come_from_the_home_unchanged() {
    let (all, gateways) = with_process(TestApp::start().await).await;
    gateways[2].call("p__pid", json!({})).await;
    let (home, other) = (&gateways[2], &gateways[0]);
    for body in [
        json!({ "name": "p__rpc_error" }),
        json!({ "name": "p__fail" }),
        json!({ "name": "p__huge", "bytes": 3_000_000 }),
    ] {
        let (one, two) = (
            home.post("/api/v0/tools/invoke", body.clone()).await,
            other.post("/api/v0/tools/invoke", body).await,
        );
        assert_eq!((one.status, one.text()), (two.status, two.text()));
        assert_eq!(one.headers["content-type"], two.headers["content-type"]);
    }
    let mut events: Events =
        other.post_for_events("/api/v0/tools/invoke", json!({ "name": "p__progress", "steps": 3 })).await;
    let mut names = Vec::new();
    while let Some(event) = events.next().await {
        names.push(event.name.unwrap());
    }
    assert_eq!(names, ["progress", "progress", "progress", "result"]);
    drop(all);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_over_rest_is_answered_through_another_gateway() {
    let (all, gateways) = cluster().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    gateways[0].register_http("s", &fake).await;
    for gateway in &gateways {
        eventually("the server is known", || async { gateway.get("/api/v0/servers/s").await.status == 200 })
            .await;
    }
    let schema = json!({ "type": "object", "properties": { "x": { "type": "string" } } });
    let form =
        json!({ "method": "elicitation/create", "params": { "message": "m", "requestedSchema": schema } });
    for number in 0..REQUESTS {
        let call = json!({ "name": "s__ask", "rounds": [[form]] });
        let mut events = all.post_for_events("/api/v0/tools/invoke?input=true", call).await;
        let asked = named(&mut events, "input").await;
        let keys: Vec<_> = asked["requests"].as_object().unwrap().keys().cloned().collect();
        let path = format!("/api/v0/tools/invoke/{}/input", asked["call"].as_str().unwrap());
        let answer = json!({ "action": "accept", "content": { "x": number.to_string() } });
        // It must be the right one, wherever it arrives.
        all.post(&path, json!({ "responses": { "wrong": answer } })).await.expect(400);
        let open = all.post(&path, json!({ "responses": { keys[0].as_str(): answer } })).await.expect(200);
        assert_eq!(open.json(), json!({ "open": [] }));
        let told = named(&mut events, "result").await;
        assert!(told["content"][0]["text"].as_str().unwrap().contains(&number.to_string()), "{told}");
        all.post(&path, json!({ "responses": {} })).await.expect(404);
    }
}

/// The data of the next event with this name.
async fn named(events: &mut Events, name: &str) -> Value {
    loop {
        let event = events.next().await.expect("the stream goes on");
        if event.name.as_deref() == Some(name) {
            return serde_json::from_slice(&event.data).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_disconnects_cancels_its_call_at_the_home() {
    let (_all, gateways) = cluster().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    let (name, url) = ("s", fake.url());
    let server =
        json!({ "name": name, "transport": "streamable_http", "url": url, "session_mode": "stateful" });
    gateways[0].register(server).await;
    eventually("the server is known", || async { gateways[1].get("/api/v0/servers/s").await.status == 200 })
        .await;
    gateways[1].call("s__echo", json!({})).await;
    let held = gateways[0].invoke_and_hold(&json!({ "name": "s__slow", "ms": 60_000 })).await;
    eventually("it runs", || async { fake.calls_of("slow") == 1 }).await;
    drop(held);
    eventually("it is cancelled", || async { fake.cancelled().len() == 1 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_of_a_stateful_server_reach_a_listener_on_another_gateway() {
    let (_all, gateways) = with_process(TestApp::start().await).await;
    let one = ModernAgent::at(&gateways[1], "/mcp");
    let other = ModernAgent::at(&gateways[2], "/mcp");
    let wanted = json!({ "resourceSubscriptions": ["fake://text"] });
    let (mut first, granted) = one.listen(json!(1), wanted.clone()).await;
    let (mut second, also) = other.listen(json!(2), wanted).await;
    assert_eq!(granted, also);
    gateways[0].call("p__touch", json!({ "uri": "fake://text" })).await;
    first.expect("notifications/resources/updated").await;
    second.expect("notifications/resources/updated").await;
}
