//! A call that another gateway runs has one server span, in the trace of its caller.

use serde_json::json;

use super::support::app::stdio_input;
use super::support::modern::Post;
use super::support::{Behaviour, Collector, ModernAgent, SentSpan, TestApp, eventually};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

fn assert_tree([served, sent]: &[SentSpan; 2], what: &str) {
    assert_eq!((served.trace.as_str(), sent.trace.as_str()), (TRACE, TRACE), "{what}");
    assert_eq!((served.parent.as_str(), &sent.parent), (CALLER, &served.id), "{what}");
    assert_eq!((served.state.as_str(), sent.state.as_str()), ("rojo=1", "rojo=1"), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_another_gateway_runs_is_one_tree() {
    let collector = Collector::start().await;
    let first = TestApp::start_with(|config| config.traces = Some(collector.settings())).await;
    let second = TestApp::start_beside(&first).await;
    // Each caller has a process of its own, on one of the gateways.
    let mut input = stdio_input("own", &Behaviour::of(json!({ "era": "legacy" })));
    input["session_mode"] = json!("stateful");
    first.register(input).await;
    // One gateway runs the process for both.
    let mut input = stdio_input("one", &Behaviour::of(json!({ "era": "legacy" })));
    input["placement"] = json!("one");
    first.register(input).await;
    for name in ["own", "one"] {
        let path = format!("/api/v0/servers/{name}");
        eventually("the server is known", async || second.get(&path).await.status == 200).await;
    }
    let given = format!("00-{TRACE}-{CALLER}-01");
    let headers = [("traceparent", given.as_str()), ("tracestate", "rojo=1")];
    for (gateway, place) in [(&first, "first"), (&second, "second")] {
        for server in ["own", "one"] {
            let what = format!("{server} through the {place} gateway");
            let tool = format!("{server}__pid");
            let agent = ModernAgent::at(gateway, "/mcp");
            let message = agent.message(json!(1), "tools/call", json!({ "name": tool, "arguments": {} }));
            let post = Post::of(message.to_string());
            let post = headers.iter().fold(post, |post, (name, value)| post.adding(name, value));
            assert_eq!(agent.send(&post).await.status, 200, "{what}");
            assert_tree(&collector.take_call(&what).await, &what);
            let body = json!({ "name": tool }).to_string();
            gateway.send("POST", "/api/v0/tools/invoke", &headers, body).await.expect(200);
            assert_tree(&collector.take_call(&what).await, &what);
        }
    }
}
