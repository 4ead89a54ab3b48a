//! A gateway that is told to stop leaves its clients to the others.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::pair;
use super::support::{Agent, Behaviour, Fake, ModernAgent, TestApp, eventually, request};

#[tokio::test(flavor = "multi_thread")]
async fn no_call_fails_while_a_gateway_stops() {
    let (all, mut gateways) = TestApp::start_behind_balancer(TestApp::start().await, 2).await;
    let fake = Fake::start(Behaviour::default()).await;
    gateways[0].register_http("s", &fake).await;
    eventually("the server is known", || async { gateways[1].get("/api/v0/servers/s").await.status == 200 })
        .await;
    let mut leaving = gateways.remove(1);
    let mut stream = Agent::connect(&leaving, "/mcp").await.listen().await;
    let slow = tokio::spawn(invoke(leaving.address.clone(), json!({ "name": "s__slow", "ms": 2000 })));
    eventually("the call runs", || async { fake.calls_of("slow") == 1 }).await;

    let has_stopped = AtomicBool::new(false);
    let rest = async {
        while !has_stopped.load(Ordering::Relaxed) {
            assert_eq!(all.call("s__echo", json!({ "text": "rest" })).await, "rest");
        }
    };
    let modern = async {
        let agent = ModernAgent::at(&all, "/mcp");
        while !has_stopped.load(Ordering::Relaxed) {
            assert_eq!(agent.call_text("s__echo", json!({ "text": "modern" })).await, "modern");
        }
    };
    let address = leaving.address.clone();
    let stop = async {
        leaving.stop().await;
        has_stopped.store(true, Ordering::Relaxed);
    };
    let watch = async {
        eventually("it says that it is about to stop", || async {
            let ready = request(&address, "GET", "/ready", &[], Vec::new()).await;
            let is_draining = ready.status == 503 && ready.json() == json!({ "status": "draining" });
            assert_eq!(is_draining, ready.headers.get("connection").is_some_and(|value| value == "close"));
            is_draining
        })
        .await;
        // New connections are still served, until the balancer has noticed.
        let late = invoke(address.clone(), json!({ "name": "s__echo", "text": "late" })).await;
        assert_eq!(late["content"][0]["text"], "late", "{late}");
        all.balancer.as_ref().unwrap().remove(&address);
        eventually("it listens no more", || async { TcpStream::connect(&address).await.is_err() }).await;
        assert_eq!(slow.await.unwrap()["content"][0]["text"], "done");
        // The stream ends, so that its client comes back elsewhere.
        while stream.next().await.is_some() {}
    };
    tokio::join!(rest, modern, stop, watch);
    let agent = Agent::connect(&all, "/mcp").await;
    assert_eq!(agent.call_text("s__echo", json!({ "text": "elsewhere" })).await, "elsewhere");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_being_finished_are_answered_and_cancelled_through_another_gateway() {
    let (mut leaving, other) = pair().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    leaving.register_http("s", &fake).await;
    eventually("the server is known", || async { other.get("/api/v0/servers/s").await.status == 200 }).await;
    let mut asked = Agent::connect_with(&leaving, "/mcp", json!({ "elicitation": {} })).await;
    let mut asking = asked.begin_call(json!(1), "s__ask", json!({})).await;
    let question = asking.expect("elicitation/create").await;
    let patient = Agent::connect(&leaving, "/mcp").await;
    let session = patient.session.clone();
    let slow = tokio::spawn(async move {
        let mut call = patient.begin_call(json!(2), "s__slow", json!({ "ms": 60_000 })).await;
        while call.next().await.is_some() {}
    });
    eventually("the call runs", || async { fake.calls_of("slow") == 1 }).await;

    let address = leaving.address.clone();
    let finish = async {
        eventually("it listens no more", || async { TcpStream::connect(&address).await.is_err() }).await;
        asked.address.clone_from(&other.address);
        // A new request belongs elsewhere.
        asked.post(&json!({ "jsonrpc": "2.0", "id": 3, "method": "ping" })).await.expect(404);
        asked.reply(&question, json!({ "number": 7 })).await;
        assert_eq!(asking.answer().await["result"]["content"][0]["text"], r#"{"number":7}"#);
        let cancel = json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 2 }
        });
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-session-id", session.as_str()),
        ];
        other.send("POST", "/mcp", &headers, cancel.to_string()).await.expect(202);
        eventually("the server is told", || async { fake.seen_of("notifications/cancelled").len() == 1 })
            .await;
        slow.await.unwrap();
    };
    tokio::join!(leaving.stop(), finish);
}

async fn invoke(address: String, body: Value) -> Value {
    request(&address, "POST", "/api/v0/tools/invoke", &[], body.to_string().into()).await.expect(200).json()
}
