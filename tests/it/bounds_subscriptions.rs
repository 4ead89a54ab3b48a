//! The bounds of subscriptions: for each session and listen request, and for each principal. What is taken comes back
//! however the session or the request ends.

use serde_json::{Value, json};

use crate::support::mcp::Talk;
use crate::support::{Agent, Behaviour, Fake, ModernAgent, SseAgent, TestApp, eventually, refusals};

const OF_SESSION: usize = 1000;
const OF_PRINCIPAL: usize = 10_000;

async fn start(era: &str) -> (TestApp, Fake) {
    let app = TestApp::start_with(|config| config.telemetry = true).await;
    let fake = Fake::start(Behaviour::of(json!({"era": era}))).await;
    app.register_http("s", &fake).await;
    (app, fake)
}

fn items(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("fake://item/{number}")).collect()
}

fn to(uris: &[String]) -> Value {
    json!({"resourceSubscriptions": uris})
}

fn assert_refused(error: &Value, limit: usize) {
    assert_eq!(error["code"], -32602, "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(&limit.to_string()) && message.contains("subscriptions"), "{message}");
}

#[tokio::test]
async fn a_session_has_a_bounded_number_of_subscriptions() {
    let (app, _fake) = start("modern").await;
    let agent = Agent::connect(&app, "/mcp").await;
    let uris = items(OF_SESSION + 1);
    for uri in &uris[..OF_SESSION] {
        assert_eq!(agent.request("resources/subscribe", json!({"uri": uri})).await["result"], json!({}));
    }
    let one_more = json!({"uri": uris[OF_SESSION]});
    assert_refused(&agent.error("resources/subscribe", one_more.clone()).await, OF_SESSION);
    assert_eq!(refusals(&app, "subscriptions").await, 1);
    // What it has already needs no room, and what it gives up makes some.
    assert_eq!(agent.request("resources/subscribe", json!({"uri": uris[0]})).await["result"], json!({}));
    agent.request("resources/unsubscribe", json!({"uri": uris[0]})).await;
    assert_eq!(agent.request("resources/subscribe", one_more.clone()).await["result"], json!({}));
    assert_refused(&agent.error("resources/subscribe", json!({"uri": uris[0]})).await, OF_SESSION);
    let other = Agent::connect(&app, "/mcp").await;
    assert_eq!(other.request("resources/subscribe", one_more).await["result"], json!({}));
}

#[tokio::test]
async fn a_listen_request_has_a_bounded_number_of_subscriptions() {
    for era in ["legacy", "modern"] {
        let (app, fake) = start(era).await;
        let agent = ModernAgent::at(&app, "/mcp");
        let uris = items(8000);
        for many in [OF_SESSION + 1, 8000] {
            let wanted = json!({"notifications": to(&uris[..many])});
            let (status, error) = agent.error("subscriptions/listen", wanted).await;
            assert_eq!(status, 200);
            assert_refused(&error, OF_SESSION);
        }
        assert!(fake.seen_of("resources/subscribe").is_empty());
        let (_talk, granted) = agent.listen(json!(1), to(&uris[..OF_SESSION])).await;
        assert_eq!(granted, to(&uris[..OF_SESSION]));
        if era == "modern" {
            eventually("the server knows all of them", async || {
                let listens = fake.seen_of("subscriptions/listen");
                let last = &listens.last().unwrap().params["notifications"]["resourceSubscriptions"];
                last.as_array().is_some_and(|uris| uris.len() == OF_SESSION)
            })
            .await;
            // One for each URI would name half a million URIs in all.
            assert!(fake.seen_of("subscriptions/listen").len() < 100);
        }
    }
}

#[tokio::test]
async fn a_principal_has_a_bounded_number_of_subscriptions_and_gets_them_back() {
    let (app, _fake) = start("modern").await;
    let modern = ModernAgent::at(&app, "/mcp");
    let uris = items(OF_SESSION);
    let mut talks: Vec<Talk> = Vec::new();
    for _ in 1..OF_PRINCIPAL / OF_SESSION {
        talks.push(modern.listen(json!(1), to(&uris)).await.0);
    }
    // The last thousand, in ways that end differently.
    let (ended, mut streamed) =
        (Agent::connect(&app, "/mcp").await, SseAgent::connect(&app, "/sse", json!({})).await);
    for uri in &uris[..OF_SESSION / 2] {
        assert_eq!(ended.request("resources/subscribe", json!({"uri": uri})).await["result"], json!({}));
        streamed.send(&json!({"jsonrpc": "2.0", "id": uri, "method": "resources/subscribe", "params": {"uri": uri}})).await;
        assert_eq!(streamed.answer(json!(uri)).await["result"], json!({}));
    }
    let is_full = async || {
        let other = Agent::connect(&app, "/mcp").await;
        let answer = other.request("resources/subscribe", json!({"uri": "fake://text"})).await;
        other.end().await.expect(204);
        if answer.get("error").is_some() {
            assert_refused(&answer["error"], OF_PRINCIPAL);
        }
        answer.get("error").is_some()
    };
    let listen = async |count: usize| {
        let wanted = json!({"notifications": to(&uris[..count])});
        let mut talk = modern.begin(&modern.message(json!(1), "subscriptions/listen", wanted)).await;
        talk.next().await.unwrap().get("error").is_none()
    };
    assert!(is_full().await && !listen(1).await);
    drop(streamed);
    eventually("the closed stream gives its part back", async || listen(OF_SESSION / 2).await).await;
    assert!(!listen(OF_SESSION / 2 + 1).await);
    ended.end().await.expect(204);
    eventually("the ended session gives its part back", async || listen(OF_SESSION).await).await;
    talks.clear();
    for _ in 0..3 {
        eventually("listeners that are gone give their parts back", async || !is_full().await).await;
    }
    assert!(refusals(&app, "subscriptions").await > 3);
}

#[tokio::test]
async fn what_the_gateway_does_not_know_takes_no_part() {
    let (app, _fake) = start("modern").await;
    let agent = ModernAgent::at(&app, "/mcp");
    let unknown: Vec<_> = (0..OF_SESSION).map(|number| format!("unknown://{number}")).collect();
    let mut talks = Vec::new();
    for _ in 0..=OF_PRINCIPAL / OF_SESSION {
        let (talk, granted) = agent.listen(json!(1), to(&unknown)).await;
        assert_eq!(granted, json!({}));
        talks.push(talk);
    }
}
