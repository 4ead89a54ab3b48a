//! Detection of a server's era: every response to the probe that is seen in practice leads to a working link or to an
//! error with the reason.

use serde_json::{Value, json};

use crate::support::app::stdio_input;
use crate::support::{Behaviour, Fake, TestApp};

const PROBES: [&str; 7] =
    ["method_not_found", "http400", "http404", "http500", "empty_result", "close", "exit"];

fn legacy(probe: &str) -> Behaviour {
    Behaviour::of(json!({ "era": "legacy", "probe": probe }))
}

fn failing(method: &str, failure: Value) -> Behaviour {
    Behaviour::of(json!({ "era": "legacy", "fail": { method: failure } }))
}

async fn refusal(app: &TestApp, name: &str, behaviour: Behaviour) -> (String, Fake) {
    let fake = Fake::start(behaviour).await;
    let input = json!({ "name": name, "transport": "streamable_http", "url": fake.url() });
    let error = app.post("/api/v0/servers", input).await.expect(500).error();
    app.get(&format!("/api/v0/servers/{name}")).await.expect(404);
    (error, fake)
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_legacy_http_server_says_to_the_probe_the_handshake_decides() {
    let app = TestApp::start().await;
    for probe in PROBES.into_iter().filter(|probe| *probe != "exit") {
        let fake = Fake::start(legacy(probe)).await;
        let name = probe.replace('_', "-");
        let record = app.register_http(&name, &fake).await;
        assert_eq!(record["protocol_version"], "2025-11-25", "{probe}: {record}");
        assert_eq!(record["status"], "connected", "{probe}: {record}");
        assert_eq!(app.call(&format!("{name}__echo"), json!({ "text": "hi" })).await, "hi");
        assert_eq!(fake.seen_of("server/discover").len(), 1, "{probe}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_legacy_process_says_to_the_probe_the_handshake_decides() {
    let app = TestApp::start().await;
    for probe in PROBES {
        let name = probe.replace('_', "-");
        let record = app.register_stdio(&name, &legacy(probe)).await;
        assert_eq!(record["protocol_version"], "2025-11-25", "{probe}: {record}");
        assert_eq!(app.call(&format!("{name}__echo"), json!({ "text": "hi" })).await, "hi");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ignores_the_probe_still_gets_the_handshake() {
    let app = TestApp::start_with(|config| config.init_timeout = std::time::Duration::from_secs(6)).await;
    let fake = Fake::start(legacy("silence")).await;
    let behaviour = legacy("silence");
    let (http, stdio) =
        tokio::join!(app.register_http("http", &fake), app.register_stdio("stdio", &behaviour));
    for record in [http, stdio] {
        assert_eq!(record["protocol_version"], "2025-11-25", "{record}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_modern_process_is_still_found_to_be_modern() {
    let app = TestApp::start().await;
    let slow = json!({ "era": "modern", "delay_ms": { "server/discover": 2300 }, "stall": ["initialize"] });
    let record = app.register_stdio("late", &Behaviour::of(slow)).await;
    assert_eq!(record["protocol_version"], "2026-07-28", "{record}");
    assert_eq!(app.call("late__echo", json!({ "text": "hi" })).await, "hi");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_modern_process_may_refuse_the_handshake_before_it_answers_the_probe() {
    let app = TestApp::start().await;
    let slow = json!({ "era": "modern", "delay_ms": { "server/discover": 2600 } });
    let record = app.register_stdio("late", &Behaviour::of(slow)).await;
    assert_eq!(record["protocol_version"], "2026-07-28", "{record}");
    // A server that is not modern still says why it refuses the handshake.
    let failure = json!({ "code": -32099, "message": "we are closed" });
    let closed = json!({ "era": "legacy", "delay_ms": { "server/discover": 2600 }, "fail": { "initialize": failure } });
    let input = stdio_input("closed", &Behaviour::of(closed));
    let error = app.post("/api/v0/servers", input).await.expect(500).error();
    assert!(error.contains("we are closed"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_modern_process_that_starts_to_read_late_is_found_to_be_modern() {
    let app = TestApp::start().await;
    let late = |name: &str| {
        let mut input = stdio_input(name, &Behaviour::of(json!({ "era": "modern" })));
        let mut args = vec![json!("-c"), json!("sleep 2.3; exec \"$0\" \"$@\""), input["command"].clone()];
        args.extend(input["args"].as_array().unwrap().clone());
        (input["command"], input["args"]) = (json!("sh"), json!(args));
        input
    };
    let register = async |name: &str| app.register(late(name)).await;
    let (a, b, c) = (register("a"), register("b"), register("c"));
    let (d, e, f) = (register("d"), register("e"), register("f"));
    let registered: [Value; 6] = tokio::join!(a, b, c, d, e, f).into();
    for record in registered {
        assert_eq!(record["protocol_version"], "2026-07-28", "{record}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overloaded_server_fails_with_its_status_and_gets_no_handshake() {
    let app = TestApp::start().await;
    for status in [429, 502, 503, 504] {
        let (error, fake) = refusal(&app, "busy", failing("server/discover", json!(status))).await;
        assert!(error.contains(&status.to_string()) && error.contains(&fake.url()), "{error}");
        assert!(fake.seen_of("initialize").is_empty(), "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_the_revision_it_lists_is_asked_once_more() {
    let app = TestApp::start().await;
    let failure = json!({ "code": -32022, "message": "no", "data": { "supported": ["2026-07-28"] } });
    let (error, fake) = refusal(&app, "fickle", failing("server/discover", failure)).await;
    assert!(error.contains("refuses protocol version 2026-07-28"), "{error}");
    assert_eq!(fake.seen_of("server/discover").len(), 2);
    assert!(fake.seen_of("initialize").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_modern_server_of_unknown_revisions_is_refused_by_naming_them() {
    let app = TestApp::start().await;
    let failure = json!({ "code": -32022, "message": "no", "data": { "supported": ["2031-01-01"] } });
    let (error, fake) = refusal(&app, "future", failing("server/discover", failure)).await;
    assert!(error.contains("2031-01-01"), "{error}");
    assert!(fake.seen_of("initialize").is_empty());
    // A legacy revision among them can be used.
    let both =
        json!({ "code": -32022, "message": "no", "data": { "supported": ["2031-01-01", "2025-06-18"] } });
    let fake = Fake::start(failing("server/discover", both)).await;
    assert_eq!(app.register_http("old", &fake).await["status"], "connected");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_that_only_modern_servers_give_are_not_answered_with_a_handshake() {
    let app = TestApp::start().await;
    for code in [-32020, -32021] {
        let failure = json!({ "code": code, "message": "a modern complaint" });
        let (error, fake) = refusal(&app, "strict", failing("server/discover", failure)).await;
        assert!(error.contains("a modern complaint") && error.contains(&code.to_string()), "{error}");
        assert!(fake.seen_of("initialize").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_handshake_gives_the_servers_own_words() {
    let app = TestApp::start().await;
    let failure = json!({ "code": -32099, "message": "we are closed" });
    let (error, _fake) = refusal(&app, "closed", failing("initialize", failure)).await;
    assert!(error.contains("initialize") && error.contains("we are closed"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_registered_as_sse_is_never_probed() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "both" }))).await;
    let record = app.register_sse("old", &fake).await;
    assert_eq!(record["protocol_version"], "2025-11-25");
    assert!(fake.seen_of("server/discover").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_legacy_revision_is_agreed_on_and_sent_as_header() {
    let app = TestApp::start().await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let fake = Fake::start(Behaviour::of(json!({ "era": "legacy", "max_version": version }))).await;
        let record = app.register_http(&format!("v{version}"), &fake).await;
        assert_eq!(record["protocol_version"], version);
        let listed = fake.seen_of("tools/list").remove(0);
        assert_eq!(listed.headers["mcp-protocol-version"], version);
        assert!(!fake.seen_of("initialize")[0].headers.contains_key("mcp-protocol-version"));
    }
    let (error, _fake) =
        refusal(&app, "odd", Behaviour::of(json!({ "era": "legacy", "max_version": "1999-01-01" }))).await;
    assert!(error.contains("1999-01-01"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_asked_before_the_server_knows_that_the_handshake_is_over() {
    // The fake refuses such requests, so one of many registrations would fail.
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    for round in 0..20 {
        app.register_http(&format!("http-{round}"), &fake).await;
        app.register_sse(&format!("sse-{round}"), &fake).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_without_the_handshake_is_refused_with_what_it_said() {
    let app = TestApp::start().await;
    let failure = json!({ "code": -32099, "message": "we are closed" });
    let input = stdio_input("closed", &failing("initialize", failure));
    let error = app.post("/api/v0/servers", input).await.expect(500).error();
    assert!(error.contains("we are closed"), "{error}");
}
