//! `/metrics` as collectors and the dashboard for Grafana use it: its format, its names and its values.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::exposition::Exposition;
use crate::support::{Agent, Behaviour, Fake, TestApp, eventually, request};

const DASHBOARD: &str = include_str!("../../deploy/grafana/toolgate.json");
const PAGE: &str = include_str!("../../docs/metrics.md");

async fn metrics(app: &TestApp) -> Exposition {
    let text = app.get("/metrics").await.expect(200).text();
    Exposition::parse(&text).unwrap_or_else(|problem| panic!("{problem} in\n{text}"))
}

/// A gateway whose callers have done a bit of everything, and what must stay alive for that.
async fn busy() -> (TestApp, Fake, Agent, impl Sized) {
    let app = TestApp::start_with(|config| config.telemetry = true).await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("s", &fake).await;
    app.register_stdio("process", &Behaviour::of(json!({ "era": "legacy" }))).await;
    let limited = json!({ "name": "limited", "transport": "streamable_http", "url": fake.url(),
        "rate_limit": { "calls_per_minute": 1, "burst": 1 } });
    app.register(limited).await;
    app.call("s__echo", json!({})).await;
    app.call("s__fail", json!({})).await;
    app.invoke("s__rpc_error", json!({})).await.expect(500);
    app.invoke("s__unheard_of", json!({})).await.expect(404);
    app.call("limited__echo", json!({})).await;
    app.invoke("limited__echo", json!({})).await.expect(429);
    app.invoke("process__die", json!({})).await.expect(500);
    let is_up = async || app.server("process").await["status"] == "connected";
    eventually("the process runs again", is_up).await;
    let agent = Agent::connect(&app, "/mcp").await;
    let stream = agent.listen().await;
    agent.call_text("s__echo", json!({ "text": "hi" })).await;
    (app, fake, agent, stream)
}

#[test]
fn the_reader_of_metrics_is_strict() {
    let whole = "# HELP a x.\n# TYPE a counter\na_total{l=\"\\\"\\\\\\n\"} 1\n# EOF\n";
    let read = Exposition::parse(whole).unwrap();
    assert_eq!(read.series().next().unwrap().1["l"], "\"\\\n");
    let histogram = |buckets: &str| format!("# HELP h x.\n# TYPE h histogram\n{buckets}# EOF\n");
    let good = "h_sum 1.0\nh_count 2\nh_bucket{le=\"0.1\"} 1\nh_bucket{le=\"+Inf\"} 2\n";
    Exposition::parse(&histogram(good)).unwrap();
    for bad in [
        whole.replace("# EOF\n", ""),
        whole.replace("# HELP a x.\n", ""),
        whole.replace("# TYPE a counter\n", ""),
        whole.replace("a_total", "a"),
        whole.replace("a_total", "b_total"),
        whole.replace("\\n", "\\t"),
        whole.replace("\\n", "\""),
        whole.replace("} 1", ",} 1"),
        whole.replace("} 1", "} one"),
        whole.replace("# EOF", "a_total{l=\"\\\"\\\\\\n\"} 2\n# EOF"),
        whole.replace("# EOF", "# HELP b x.\n# TYPE b gauge\nb 1\n# HELP a x.\n# EOF"),
        whole.replace("# TYPE", "# HELP a y.\n# TYPE"),
        histogram(&good.replace("le=\"0.1\"} 1", "le=\"0.1\"} 3")),
        histogram(&good.replace("h_count 2", "h_count 3")),
        histogram(&good.replace("+Inf", "0.2")),
        histogram(&good.replace("h_sum 1.0\n", "")),
    ] {
        assert!(Exposition::parse(&bad).is_err(), "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_served_and_described() {
    let (app, _fake, _agent, _stream) = busy().await;
    let read = async || metrics(&app).await;
    let counted = async || read().await.sum("toolgate_tool_calls_total", &[]) >= 8.0;
    eventually("all calls are counted", counted).await;
    let all = read().await;
    for (name, labels, value) in [
        ("toolgate_build_info", &[("version", env!("CARGO_PKG_VERSION"))][..], 1.0),
        ("toolgate_tool_calls_total", &[("server", "s"), ("tool", "echo"), ("outcome", "ok")], 2.0),
        ("toolgate_tool_calls_total", &[("tool", "fail"), ("outcome", "tool_error")], 1.0),
        ("toolgate_tool_calls_total", &[("tool", "rpc_error"), ("outcome", "upstream_error")], 1.0),
        ("toolgate_tool_calls_total", &[("server", ""), ("outcome", "denied")], 1.0),
        ("toolgate_tool_calls_total", &[("server", "limited"), ("outcome", "limited")], 1.0),
        ("toolgate_call_duration_seconds_count", &[("server", "s")], 4.0),
        ("toolgate_gateway_seconds_count", &[("server", "s")], 4.0),
        ("toolgate_refused_calls_total", &[("server", "limited"), ("tool", "echo")], 1.0),
        ("toolgate_refusals_total", &[("bound", "rate_limit")], 1.0),
        ("toolgate_sessions", &[], 1.0),
        ("toolgate_streams", &[], 1.0),
        ("toolgate_processes", &[], 1.0),
        ("toolgate_process_restarts_total", &[("server", "process")], 1.0),
        ("toolgate_calls_waiting", &[], 0.0),
        ("toolgate_calls_parked", &[], 0.0),
        ("toolgate_links", &[("state", "failed")], 0.0),
        ("toolgate_catalog", &[("kind", "servers")], 3.0),
        ("toolgate_store_writable", &[], 1.0),
        ("toolgate_store_failures_total", &[], 0.0),
    ] {
        assert!(all.names().contains(name), "{name}");
        assert_eq!(all.sum(name, labels), value, "{name} {labels:?}");
    }
    for (name, labels) in [
        ("toolgate_links", &[("state", "connected")][..]),
        ("toolgate_catalog", &[("kind", "tools")]),
        ("toolgate_catalog", &[("kind", "prompts")]),
        ("toolgate_catalog", &[("kind", "resources")]),
        ("toolgate_catalog", &[("kind", "resource_templates")]),
        ("toolgate_store_seconds_count", &[]),
        ("toolgate_runtime_tasks", &[]),
    ] {
        assert!(all.sum(name, labels) >= 1.0, "{name} {labels:?}");
    }
    for family in all.families() {
        let shown = [family.to_owned(), format!("{family}_total"), format!("{family}_info")];
        let is_described = shown.iter().any(|name| PAGE.contains(&format!("| `{name}` |")));
        assert!(is_described, "{family} is not in docs/metrics.md");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_name_of_a_tool_is_a_valid_label() {
    let app = TestApp::start_with(|config| config.telemetry = true).await;
    let names = ["say \"hi\"", "back\\slash", "line\nbreak", "both\\\"", "ends\\", "{a=\"b\"} 1", "ünï"];
    let tools: Vec<_> =
        names.iter().map(|name| json!({ "name": name, "inputSchema": { "type": "object" } })).collect();
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy", "tools": tools }))).await;
    app.register_http("odd", &fake).await;
    for name in names {
        app.invoke(&format!("odd__{name}"), json!({})).await;
    }
    let all = metrics(&app).await;
    for name in names {
        assert_eq!(all.sum("toolgate_tool_calls_total", &[("server", "odd"), ("tool", name)]), 1.0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_that_a_call_waits_is_not_the_gateways_own() {
    let app = TestApp::start_with(|config| config.telemetry = true).await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    let url = fake.url();
    app.register(json!({ "name": "s", "transport": "streamable_http", "url": url, "max_concurrency": 1 }))
        .await;
    let (first, second) =
        tokio::join!(app.call("s__slow", json!({ "ms": 400 })), app.call("s__slow", json!({ "ms": 400 })));
    assert_eq!(first, second);
    let all = metrics(&app).await;
    let of = |name: &str| all.sum(name, &[("server", "s")]);
    assert_eq!(of("toolgate_gateway_seconds_count"), 2.0);
    // Each of them waited for the server for at least 400 ms.
    let own = of("toolgate_gateway_seconds_sum");
    assert!(own <= of("toolgate_call_duration_seconds_sum") - 0.8, "{own}");
    let held = app.invoke_and_hold(&json!({ "name": "s__slow", "ms": 60_000 })).await;
    eventually("it runs", async || fake.calls_of("slow") == 3).await;
    let waiting = app.invoke_and_hold(&json!({ "name": "s__slow", "ms": 1 })).await;
    let gauge = async || metrics(&app).await.sum("toolgate_calls_waiting", &[]);
    eventually("another call waits", async || gauge().await == 1.0).await;
    drop((held, waiting));
    eventually("nothing waits", async || gauge().await == 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_counted_once_for_each_request() {
    let app = TestApp::start_enterprise_with(|config| config.telemetry = true).await;
    let client = app.create_client("agent", &["*"]).await;
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let signed_in =
        async |outcome: &str| metrics(&app).await.sum("toolgate_sign_ins_total", &[("outcome", outcome)]);
    let (ok, refused) = (signed_in("ok").await, signed_in("refused").await);
    app.get("/api/v0/tools").await.expect(200);
    app.send_as(&client, "POST", "/mcp", list.clone()).await.expect(200);
    // A token that is recognized, but not enough, is no failed sign-in.
    app.send_as(&client, "GET", "/api/v0/tools", json!({})).await.expect(401);
    assert_eq!((signed_in("ok").await - ok, signed_in("refused").await - refused), (3.0, 0.0));
    app.send_as("wrong-token", "POST", "/mcp", list).await.expect(401);
    app.send_as("wrong-token", "GET", "/api/v0/tools", json!({})).await.expect(401);
    // Without a token nobody tries to sign in.
    request(&app.address, "GET", "/api/v0/tools", &[], Vec::new()).await.expect(401);
    assert_eq!((signed_in("ok").await - ok, signed_in("refused").await - refused), (3.0, 2.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_for_grafana_uses_metrics_that_exist() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    assert_eq!(dashboard["__inputs"][0]["name"], "DS_PROMETHEUS");
    assert_eq!(dashboard["__inputs"][0]["pluginId"], "prometheus");
    let mut panels = Vec::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{}", panel["title"]);
        assert!(panel["gridPos"]["w"].is_u64() && panel["title"].is_string());
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${DS_PROMETHEUS}", "{}", panel["title"]);
            assert!(!panel["targets"].as_array().unwrap().is_empty(), "{}", panel["title"]);
            panels.extend(panel["targets"].as_array().unwrap().clone());
        }
    }
    let mut used: BTreeSet<String> = BTreeSet::new();
    let queries = panels.iter().map(|target| target["expr"].as_str().unwrap());
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let variables = variables.filter_map(|variable| variable["definition"].as_str());
    for text in queries.chain(variables) {
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        used.extend(words.filter(|word| word.starts_with("toolgate_")).map(str::to_owned));
    }
    assert!(used.len() >= 15, "{used:?}");
    let (app, _fake, _agent, _stream) = busy().await;
    let all = metrics(&app).await;
    let served = all.names();
    let unknown: Vec<_> = used.iter().filter(|name| !served.contains(name.as_str())).collect();
    assert!(unknown.is_empty(), "{unknown:?} are not in {served:?}");
}
