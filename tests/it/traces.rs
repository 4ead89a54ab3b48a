//! Traces: the spans of a call at every door, and the context that goes from the caller through the gateway to the server.

use std::sync::Arc;

use serde_json::{Value, json};
use telemetry::traces::{Sampler, SamplerKind};

use crate::support::modern::Post;
use crate::support::{
    Agent, Behaviour, Callers, Collector, Door, Fake, ModernAgent, SentSpan, SseAgent, TestApp, eventually,
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const SERVER: u64 = 2;
const CLIENT: u64 = 3;
const ERROR: u64 = 2;

fn parent(flags: &str) -> String {
    format!("00-{TRACE}-{CALLER}-{flags}")
}

async fn start(collector: &Collector) -> Arc<TestApp> {
    Arc::new(TestApp::start_with(|config| config.traces = Some(collector.settings())).await)
}

/// A server with a tool `message`, which returns the message that arrived.
fn behaviour(era: &str) -> Behaviour {
    let mut behaviour = Behaviour::of(json!({ "era": era }));
    let mut tools = behaviour.tool_names();
    tools.push("message".to_owned());
    behaviour.show_tools(&tools);
    behaviour
}

async fn register(app: &TestApp, name: &str, era: &str) -> Fake {
    let fake = Fake::start(behaviour(era)).await;
    app.register_http(name, &fake).await;
    fake
}

/// The `_meta` of the last call that arrived at a server.
fn arrived_meta(fake: &Fake) -> Value {
    fake.seen_of("tools/call").last().expect("a call arrived").params["_meta"].clone()
}

/// Checks that the spans are a tree of the gateway's two, below `above` (empty for a trace that begins here).
fn assert_tree([server, client]: &[SentSpan; 2], above: &str, what: &str) {
    assert_eq!((server.kind, client.kind), (SERVER, CLIENT), "{what}");
    assert_eq!((server.parent.as_str(), &client.parent), (above, &server.id), "{what}");
    assert_eq!(server.trace, client.trace, "{what}");
    assert_ne!(server.id, client.id, "{what}");
    assert!(
        server.begun <= client.begun && client.begun <= client.ended && client.ended <= server.ended,
        "{what}"
    );
    let is_remote = if above.is_empty() { 0x100 } else { 0x300 };
    assert_eq!((server.flags & 0x300, client.flags & 0x300), (is_remote, 0x100), "{what}");
    assert_eq!((server.flags & 1, client.flags & 1), (1, 1), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_at_every_door_is_a_tree_that_goes_on_at_its_server() {
    let collector = Collector::start().await;
    let app = start(&collector).await;
    let fake = register(&app, "s", "legacy").await;
    let modern = register(&app, "m", "modern").await;
    let callers = Callers::of(&app).await;
    for door in Door::ALL {
        for (server, fake) in [("s", &fake), ("m", &modern)] {
            let what = format!("{door:?} {server}");
            callers.text(door, &format!("{server}__echo"), json!({ "text": "hi" })).await;
            let spans = collector.take_call(&what).await;
            assert_tree(&spans, "", &what);
            let [served, sent] = spans;
            assert_eq!(arrived_meta(fake)["traceparent"], sent.traceparent(), "{what}");
            assert_eq!(served.name, format!("tools/call {server}__echo"), "{what}");
            assert_eq!(sent.name, "tools/call echo", "{what}");
            for span in [&served, &sent] {
                assert_eq!(span.attribute("mcp.method.name"), "tools/call", "{what}");
                assert_eq!(span.attribute("gen_ai.operation.name"), "execute_tool", "{what}");
                assert_eq!(span.attribute("network.transport"), "tcp", "{what}");
                assert_eq!(span.attribute("toolgate.outcome"), "ok", "{what}");
                assert_eq!(span.attribute("toolgate.server"), server, "{what}");
                assert_eq!((span.attribute("error.type"), span.status), ("", 0), "{what}");
                assert_eq!(span.resource["service.name"], "toolgate", "{what}");
            }
            assert_eq!(served.attribute("gen_ai.tool.name"), format!("{server}__echo"), "{what}");
            assert_eq!(sent.attribute("gen_ai.tool.name"), "echo", "{what}");
            assert_eq!(sent.attribute("server.address"), "127.0.0.1", "{what}");
            assert!(fake.url().contains(&format!(":{}/", sent.attribute("server.port"))), "{what}");
            let version = match door {
                Door::Rest | Door::RestEvents => "",
                Door::Legacy => "2025-11-25",
                Door::Sse => "2024-11-05",
                Door::Modern => "2026-07-28",
            };
            assert_eq!(served.attribute("mcp.protocol.version"), version, "{what}");
            assert_eq!(served.attribute("jsonrpc.request.id").is_empty(), version.is_empty(), "{what}");
            let has_session = matches!(door, Door::Legacy | Door::Sse);
            assert_eq!(!served.attribute("mcp.session.id").is_empty(), has_session, "{what}");
            let version = if server == "m" { "2026-07-28" } else { "2025-11-25" };
            assert_eq!(sent.attribute("mcp.protocol.version"), version, "{what}");
            assert!(!sent.attribute("jsonrpc.request.id").is_empty(), "{what}");
            let record = app.get("/api/v0/calls?limit=1").await.expect(200).json();
            let newest = async || {
                let record = app.get("/api/v0/calls?limit=1").await.expect(200).json();
                record["calls"][0]["trace_id"] == json!(served.trace)
            };
            eventually(&format!("{what}: the record has the trace: {record}"), newest).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_gets_the_trace_too() {
    let collector = Collector::start().await;
    let app = start(&collector).await;
    for era in ["legacy", "modern"] {
        app.register_stdio(era, &behaviour(era)).await;
        let message = app.call(&format!("{era}__message"), json!({})).await;
        let spans = collector.take_call(era).await;
        assert_tree(&spans, "", era);
        let message: Value = serde_json::from_str(&message).unwrap();
        assert_eq!(message["params"]["_meta"]["traceparent"], spans[1].traceparent());
        assert_eq!(spans[1].attribute("network.transport"), "pipe");
        assert_eq!(spans[1].attribute("server.address"), "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trace_of_a_message_wins_over_that_of_the_headers() {
    let collector = Collector::start().await;
    let app = start(&collector).await;
    let legacy_server = register(&app, "legacy", "legacy").await;
    let modern_server = register(&app, "modern", "modern").await;
    let legacy = Agent::connect(&app, "/mcp").await;
    let modern = ModernAgent::at(&app, "/mcp");
    let mut sse = SseAgent::connect(&app, "/sse", json!({})).await;
    let other = "00-11111111111111111111111111111111-2222222222222222-01";
    for (name, fake) in [("legacy", &legacy_server), ("modern", &modern_server)] {
        let tool = format!("{name}__echo");
        let meta = json!({ "traceparent": parent("01"), "tracestate": "rojo=1,congo=2", "baggage": "a=b",
            "vendor": { "x": 1.5 }, "progressToken": "mine" });
        let params = json!({ "name": tool, "arguments": {}, "_meta": meta });
        for door in ["legacy", "modern", "sse"] {
            let what = format!("{door} client, {name} server");
            match door {
                "legacy" => drop(legacy.request("tools/call", params.clone()).await),
                "modern" => {
                    let message = modern.message(json!(1), "tools/call", params.clone());
                    let post = Post::of(message.to_string());
                    let post = post.adding("traceparent", other).adding("tracestate", "of=headers");
                    assert_eq!(modern.send(&post).await.status, 200);
                }
                _ => {
                    let message =
                        json!({ "jsonrpc": "2.0", "id": name, "method": "tools/call", "params": params });
                    sse.send(&message).await;
                    sse.answer(json!(name)).await;
                }
            }
            let spans = collector.take_call(&what).await;
            assert_tree(&spans, CALLER, &what);
            assert_eq!(spans[0].trace, TRACE, "{what}");
            assert!(spans.iter().all(|span| span.state == "rojo=1,congo=2"), "{what}");
            let links = if door == "modern" { vec!["2222222222222222"] } else { vec![] };
            assert_eq!(spans[0].links, links, "{what}");
            let mut arrived = arrived_meta(fake);
            assert_eq!(arrived["traceparent"], spans[1].traceparent(), "{what}");
            assert_ne!(arrived["progressToken"], "mine", "{what}");
            arrived["traceparent"] = meta["traceparent"].clone();
            arrived["progressToken"] = meta["progressToken"].clone();
            for (key, value) in meta.as_object().unwrap() {
                assert_eq!(arrived[key], *value, "{what}");
            }
            let marks = arrived.as_object().unwrap().keys().filter(|key| key.contains('/')).count();
            assert_eq!(marks > 0, name == "modern", "{what}: {arrived}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_headers_count_if_the_message_names_no_trace() {
    let collector = Collector::start().await;
    let app = start(&collector).await;
    let fake = register(&app, "s", "legacy").await;
    let given = parent("01");
    let headers = [("traceparent", given.as_str()), ("tracestate", "rojo=1"), ("tracestate", "congo=2")];
    let call = json!({ "name": "s__echo" }).to_string();
    app.send("POST", "/api/v0/tools/invoke", &headers, call).await.expect(200);
    let spans = collector.take_call("REST").await;
    assert_tree(&spans, CALLER, "REST");
    assert_eq!((spans[0].trace.as_str(), spans[0].state.as_str()), (TRACE, "rojo=1,congo=2"));
    assert_eq!(arrived_meta(&fake)["tracestate"], "rojo=1,congo=2");
    let modern = ModernAgent::at(&app, "/mcp");
    // What is malformed counts as none, and what belongs to it is not passed on.
    for wrong in [json!("00-xyz-01"), json!(7), Value::Null, json!(parent("01").to_uppercase())] {
        let meta = json!({ "traceparent": wrong, "tracestate": "lost=1" });
        let params = json!({ "name": "s__echo", "arguments": {}, "_meta": meta });
        let message = modern.message(json!(1), "tools/call", params).to_string();
        let post = Post::of(message.clone()).adding("traceparent", &given).adding("tracestate", "rojo=1");
        assert_eq!(modern.send(&post).await.status, 200);
        let spans = collector.take_call("MCP").await;
        assert_tree(&spans, CALLER, "MCP");
        assert_eq!(arrived_meta(&fake)["tracestate"], "rojo=1", "{wrong}");
        let post = Post::of(message).adding("traceparent", "00-0-0-0").adding("tracestate", "rojo=1");
        assert_eq!(modern.send(&post).await.status, 200);
        let spans = collector.take_call("a new trace").await;
        assert_tree(&spans, "", "a new trace");
        assert_ne!(spans[0].trace, TRACE);
        assert_eq!(arrived_meta(&fake)["traceparent"], spans[1].traceparent());
        assert_eq!(arrived_meta(&fake)["tracestate"], Value::Null, "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_context_of_an_unsampled_trace_goes_on() {
    let collector = Collector::start().await;
    let app = start(&collector).await;
    let fake = register(&app, "s", "legacy").await;
    let agent = Agent::connect(&app, "/mcp").await;
    let params = |flags: &str| json!({ "name": "s__echo", "arguments": {}, "_meta": { "traceparent": parent(flags) } });
    agent.request("tools/call", params("00")).await;
    let arrived = arrived_meta(&fake)["traceparent"].as_str().unwrap().to_owned();
    assert!(arrived.starts_with(&format!("00-{TRACE}-")) && arrived.ends_with("-00"), "{arrived}");
    assert!(!arrived.contains(CALLER), "{arrived}");
    agent.request("tools/call", params("01")).await;
    assert_tree(&collector.take_call("only the sampled one").await, CALLER, "sampled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ratio_decides_by_the_id_of_the_trace() {
    let collector = Collector::start().await;
    let mut settings = collector.settings();
    settings.tracer.sampler = Sampler::alone(SamplerKind::Ratio(0.5));
    let app = TestApp::start_with(|config| config.traces = Some(settings)).await;
    let fake = register(&app, "s", "legacy").await;
    for (trace, is_sampled) in [
        ("0000000000000000ffffffffffffffff", false),
        ("ffffffffffffffff0000000000000001", true),
        ("00000000000000018000000000000000", false),
        ("00000000000000017fffffffffffffff", true),
    ] {
        let given = format!("00-{trace}-{CALLER}-01");
        let body = json!({ "name": "s__echo" }).to_string();
        app.send("POST", "/api/v0/tools/invoke", &[("traceparent", &given)], body).await.expect(200);
        let arrived = arrived_meta(&fake)["traceparent"].as_str().unwrap().to_owned();
        assert_eq!(arrived.ends_with("-01"), is_sampled, "{arrived}");
        if is_sampled {
            // Those of the unsampled call before would be here, too.
            assert_eq!(collector.take_call(trace).await[0].trace, trace);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_say_what_went_wrong() {
    let collector = Collector::start().await;
    let app = start(&collector).await;
    let _fake = register(&app, "s", "legacy").await;
    let late = Fake::start(behaviour("legacy")).await;
    app.register(
        json!({ "name": "late", "transport": "streamable_http", "url": late.url(), "timeout_ms": 250 }),
    )
    .await;
    let callers = Callers::of(&app).await;
    for door in Door::ALL {
        for (tool, outcome, kind) in [
            ("s__fail", "tool_error", "tool_error"),
            ("s__rpc_error", "upstream_error", "upstream_error"),
            ("late__slow", "timed_out", "timed_out"),
        ] {
            let what = format!("{door:?} {tool}");
            callers.call(door, tool, json!({ "ms": 60_000 })).await;
            let spans = collector.take_call(&what).await;
            assert_tree(&spans, "", &what);
            for span in &spans {
                assert_eq!((span.attribute("toolgate.outcome"), span.status), (outcome, ERROR), "{what}");
                let code = span.attribute("rpc.response.status_code");
                let has_code = match span.kind {
                    SERVER => door.is_mcp() && outcome != "tool_error",
                    _ => outcome == "upstream_error",
                };
                assert_eq!(!code.is_empty(), has_code, "{what}: {span:?}");
                let kind = if has_code { code } else { kind };
                assert_eq!(span.attribute("error.type"), kind, "{what}: {span:?}");
            }
        }
        let what = format!("{door:?}, unknown");
        callers.call(door, "s__nothing", json!({})).await;
        let [span] = <[SentSpan; 1]>::try_from(collector.take(1, &what).await).unwrap();
        assert_eq!((span.kind, span.name.as_str()), (SERVER, "tools/call s__nothing"), "{what}");
        assert_eq!((span.attribute("toolgate.outcome"), span.status), ("denied", ERROR), "{what}");
        let kind = if door.is_mcp() { "-32602" } else { "denied" };
        assert_eq!(span.attribute("error.type"), kind, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_attempt_has_a_span() {
    let collector = Collector::start().await;
    let app = start(&collector).await;
    let fake = register(&app, "s", "legacy").await;
    app.call("s__echo", json!({})).await;
    collector.take_call("the first call").await;
    // The server refuses the next request, since it does not know the session any more.
    fake.drop_sessions();
    app.call("s__echo", json!({})).await;
    // The span of the call ends after those of its attempts.
    let is_there = async || collector.spans().iter().any(|span| span.kind == SERVER);
    eventually("the call is exported", is_there).await;
    let spans = collector.take(collector.spans().len(), "all attempts").await;
    let [served, lost @ .., sent] = spans.as_slice() else { panic!("{spans:?}") };
    assert!(!lost.is_empty(), "{spans:?}");
    for lost in lost {
        assert_eq!((lost.attribute("error.type"), lost.status), ("session_lost", ERROR));
        assert_eq!(lost.parent, served.id);
        assert_ne!(lost.id, sent.id);
    }
    assert_eq!((sent.attribute("error.type"), sent.status, served.status), ("", 0, 0));
    assert_eq!(sent.parent, served.id);
    assert_eq!(arrived_meta(&fake)["traceparent"], sent.traceparent());
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_and_resources_have_spans_and_lists_have_none() {
    let collector = Collector::start().await;
    let app = start(&collector).await;
    let _fake = register(&app, "s", "legacy").await;
    let agent = Agent::connect(&app, "/mcp").await;
    let resources = agent.request("resources/list", json!({})).await["result"]["resources"].clone();
    let prompts = agent.request("prompts/list", json!({})).await["result"]["prompts"].clone();
    let (uri, prompt) = (resources[0]["uri"].as_str().unwrap(), prompts[0]["name"].as_str().unwrap());
    agent.request("tools/list", json!({})).await;
    agent.request("ping", json!({})).await;
    agent.request("resources/read", json!({ "uri": uri })).await;
    let spans = collector.take_call("a resource").await;
    assert_tree(&spans, "", "a resource");
    for span in &spans {
        assert_eq!((span.name.as_str(), span.attribute("mcp.resource.uri")), ("resources/read", uri));
        assert_eq!(span.attribute("gen_ai.operation.name"), "");
    }
    agent.request("prompts/get", json!({ "name": prompt, "arguments": {} })).await;
    let spans = collector.take_call("a prompt").await;
    assert_tree(&spans, "", "a prompt");
    let native = prompt.strip_prefix("s__").unwrap();
    for (span, name) in spans.iter().zip([prompt, native]) {
        assert_eq!(span.name, format!("prompts/get {name}"));
        assert_eq!(span.attribute("gen_ai.prompt.name"), name);
    }
    app.post("/api/v0/prompts/render", json!({ "name": prompt, "arguments": { "who": "Ada" } }))
        .await
        .expect(200);
    assert_eq!(collector.take_call("over REST").await[0].name, format!("prompts/get {prompt}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_is_no_error() {
    let collector = Collector::start().await;
    let app = start(&collector).await;
    let fake = register(&app, "s", "legacy").await;
    let callers = Callers::of(&app).await;
    for door in Door::ALL {
        let begun = callers.begin(door, "s__slow", json!({ "ms": 60_000 })).await;
        eventually("it runs", async || fake.running_calls() == 1).await;
        begun.give_up().await;
        let what = format!("{door:?}");
        let spans = collector.take_call(&what).await;
        assert_tree(&spans, "", &what);
        for span in spans {
            assert_eq!((span.attribute("toolgate.outcome"), span.status), ("cancelled", 0), "{what}");
        }
        eventually("it ended", async || fake.running_calls() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tracing_a_message_is_passed_on_as_it_is() {
    let app = TestApp::start().await;
    let legacy_server = register(&app, "legacy", "legacy").await;
    let modern_server = register(&app, "modern", "modern").await;
    let (legacy, modern) = (Agent::connect(&app, "/mcp").await, ModernAgent::at(&app, "/mcp"));
    let meta = json!({ "traceparent": parent("01"), "tracestate": "rojo=1", "baggage": "a=b" });
    let is_ours = |key: &String| !key.contains('/');
    for (name, fake) in [("legacy", &legacy_server), ("modern", &modern_server)] {
        let params =
            |meta: &Value| json!({ "name": format!("{name}__echo"), "arguments": {}, "_meta": meta });
        for meta in [&meta, &json!({}), &json!({ "tracestate": "alone=1" })] {
            legacy.request("tools/call", params(meta)).await;
            let message = modern.message(json!(1), "tools/call", params(meta)).to_string();
            let post =
                Post::of(message).adding("traceparent", &parent("00")).adding("tracestate", "of=headers");
            assert_eq!(modern.send(&post).await.status, 200);
            for seen in fake.seen_of("tools/call").iter().rev().take(2) {
                let mut arrived = seen.params["_meta"].as_object().cloned().unwrap_or_default();
                arrived.retain(|key, _| is_ours(key));
                assert_eq!(Value::Object(arrived), *meta, "{name}");
            }
        }
        legacy.request("tools/call", json!({ "name": format!("{name}__echo"), "arguments": {} })).await;
        let arrived = arrived_meta(fake);
        assert_eq!(arrived["traceparent"], Value::Null, "{arrived}");
    }
    // The record nevertheless names the caller's trace.
    let records = async || app.get("/api/v0/calls?limit=1000").await.expect(200).json()["calls"].clone();
    eventually("all are recorded", async || records().await.as_array().unwrap().len() == 14).await;
    let traced = records().await.as_array().unwrap().iter().filter(|call| call["trace_id"] == TRACE).count();
    assert_eq!(traced, 8);
}
