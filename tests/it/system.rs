//! Routes about the gateway itself, and common behaviour of all routes.

use std::net::Ipv4Addr;

use serde_json::json;
use toolgate::config::Bind;

use crate::support::{Behaviour, Fake, TestApp, client, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn health_and_version_answer_exactly() {
    let app = TestApp::start().await;
    for (path, body) in [("/health", r#"{"status":"ok"}"#), ("/metadata", r#"{"version":"v0.1.0"}"#)] {
        let answer = app.get(path).await.expect(200);
        assert_eq!(answer.text(), body);
        assert_eq!(answer.headers["content-type"], "application/json");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_development_server_is_initialized_by_itself() {
    let app = TestApp::start().await;
    for body in ["", " ", "{}", r#"{"mode":"development"}"#, r#"{"mode":null}"#, r#"{"mode":"Development"}"#]
    {
        let answer = app.send("POST", "/init", &[], body).await.expect(200).json();
        assert_eq!(answer.as_object().unwrap().len(), 1, "{body}: {answer}");
        assert!(answer["status"].is_string(), "{body}: {answer}");
    }
    for (body, word) in [
        (r#"{"mode":"enterprise"}"#, "development"),
        (r#"{"mode":"production"}"#, "development"),
        (r#"{"mode":"staging"}"#, "mode"),
        (r#"{"mode":""}"#, "mode"),
        (r#"{"mode":true}"#, "mode"),
        (r#"{"token":"x"}"#, "token"),
        ("[]", "object"),
        ("development", "JSON"),
    ] {
        let error = app.send("POST", "/init", &[], body).await.expect(400).error();
        assert!(error.contains(word), "{body}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_telemetry_there_are_no_metrics() {
    let app = TestApp::start().await;
    let error = app.get("/metrics").await.expect(404).error();
    assert!(error.contains("OTEL_ENABLED"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_calls_by_outcome_time_them_and_show_links() {
    let app = TestApp::start_with(|config| config.telemetry = true).await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    let url = fake.url();
    app.register(json!({ "name": "s", "transport": "streamable_http", "url": url })).await;
    app.register_http("off", &fake).await;
    app.post("/api/v0/servers/off/disable", json!({})).await.expect(200);
    app.call("s__echo", json!({})).await;
    app.call("s__echo", json!({})).await;
    app.call("s__fail", json!({})).await;
    app.invoke("s__rpc_error", json!({})).await.expect(500);
    app.patch("/api/v0/servers/s", json!({ "timeout_ms": 200 })).await.expect(200);
    app.invoke("s__slow", json!({ "ms": 60_000 })).await.expect(500);
    app.invoke("s__unheard_of", json!({})).await.expect(404);
    app.invoke("nobody__echo", json!({})).await.expect(404);
    app.register_http("left", &fake).await;
    let held = app.invoke_and_hold(&json!({ "name": "left__slow", "ms": 60_000 })).await;
    eventually("the call runs", async || fake.calls_of("slow") == 2).await;
    drop(held);
    let count = async |series: &str| app.get("/metrics").await.expect(200).text().contains(series);
    eventually("the call that was given up is counted", async || {
        count("toolgate_tool_calls_total{server=\"left\",tool=\"slow\",outcome=\"cancelled\"} 1").await
    })
    .await;
    let answer = app.get("/metrics").await.expect(200);
    assert!(answer.headers["content-type"].to_str().unwrap().contains("text"));
    let text = answer.text();
    for series in [
        r#"toolgate_tool_calls_total{server="s",tool="echo",outcome="ok"} 2"#,
        r#"toolgate_tool_calls_total{server="s",tool="fail",outcome="tool_error"} 1"#,
        r#"toolgate_tool_calls_total{server="s",tool="rpc_error",outcome="upstream_error"} 1"#,
        r#"toolgate_tool_calls_total{server="s",tool="slow",outcome="timed_out"} 1"#,
        r#"toolgate_call_duration_seconds_count{server="s"} 5"#,
        r#"toolgate_links{state="connected"} 2"#,
        r#"toolgate_links{state="disabled"} 1"#,
    ] {
        assert!(text.contains(series), "{series} is not in\n{text}");
    }
    assert!(!text.contains("unheard_of") && !text.contains("nobody"), "unknown names become no labels");
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_server_leaves_no_series_behind() {
    let app = TestApp::start_with(|config| config.telemetry = true).await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("gone", &fake).await;
    app.call("gone__echo", json!({})).await;
    app.invoke("gone__rpc_error", json!({})).await.expect(500);
    assert!(app.get("/metrics").await.expect(200).text().contains("gone"));
    app.delete("/api/v0/servers/gone").await.expect(204);
    let text = app.get("/metrics").await.expect(200).text();
    assert!(!text.contains("gone"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gauge_of_tasks_rises_with_open_streams_and_falls_when_they_end() {
    let app = TestApp::start_with(|config| {
        config.telemetry = true;
        // Each address is served by a task; with one of them that task answers the first request.
        config.bind = Bind::Address(Ipv4Addr::LOCALHOST.into());
    })
    .await;
    let tasks = async || {
        let text = app.get("/metrics").await.expect(200).text();
        let value = text.lines().find_map(|line| line.strip_prefix("toolgate_runtime_tasks "));
        value.unwrap_or_else(|| panic!("no gauge in\n{text}")).parse::<usize>().unwrap()
    };
    let before = tasks().await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        let head = "GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
        streams.push(client::raw(&app.address, head.as_bytes()).await);
    }
    eventually("every stream has a task", async || tasks().await >= before + streams.len()).await;
    drop(streams);
    eventually("no stream left a task behind", async || tasks().await <= before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_routes_are_404_with_one_sentence() {
    let app = TestApp::start().await;
    for path in [
        "/nothing",
        "/health/",
        "//health",
        "/HEALTH",
        "/api",
        "/api/v0",
        "/api/v0/",
        "/api/v0/tools/",
        "/api/v0/tools/echo",
        "/api/v1/tools",
        "/api/v0/servers/a/b",
        "/api/v0/servers/",
        "/.well-known/oauth-protected-resource",
        "/%68ealth/x",
    ] {
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"] {
            let answer = app.send(method, path, &[], "").await;
            assert!(answer.expect(404).error().contains(path), "{method} {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_methods_are_405_and_name_the_right_ones() {
    let app = TestApp::start().await;
    for (path, allowed) in [
        ("/health", vec!["GET", "HEAD"]),
        ("/metadata", vec!["GET", "HEAD"]),
        ("/metrics", vec!["GET", "HEAD"]),
        ("/init", vec!["POST"]),
        ("/api/v0/servers", vec!["GET", "HEAD", "POST"]),
        ("/api/v0/servers/s", vec!["DELETE", "GET", "HEAD", "PATCH"]),
        ("/api/v0/servers/s/enable", vec!["POST"]),
        ("/api/v0/servers/s/disable", vec!["POST"]),
        ("/api/v0/servers/s/refresh", vec!["POST"]),
        ("/api/v0/server_configs", vec!["GET", "HEAD"]),
        ("/api/v0/tools", vec!["GET", "HEAD"]),
        ("/api/v0/tool", vec!["GET", "HEAD"]),
        ("/api/v0/tools/invoke", vec!["POST"]),
        ("/api/v0/tools/enable", vec!["POST"]),
        ("/api/v0/tools/disable", vec!["POST"]),
    ] {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"] {
            if allowed.contains(&method) {
                continue;
            }
            let answer = app.send(method, path, &[], "{}").await.expect(405);
            let error = answer.error();
            assert!(error.contains(method) && error.contains(path), "{method} {path}: {error}");
            let named = answer.headers.get("allow").map(|value| value.to_str().unwrap().to_owned());
            let named = named.unwrap_or_else(|| panic!("{method} {path} does not say what is allowed"));
            let mut named: Vec<_> = named.split(',').map(|method| method.trim().to_owned()).collect();
            named.sort_unstable();
            assert_eq!(named, allowed, "{method} {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn head_answers_like_get_without_a_body() {
    let app = TestApp::start().await;
    for (path, status) in [
        ("/health", 200),
        ("/metadata", 200),
        ("/metrics", 404),
        ("/api/v0/servers", 200),
        ("/api/v0/servers/nobody", 404),
        ("/api/v0/server_configs", 200),
        ("/api/v0/tools", 200),
        ("/api/v0/tool", 400),
        ("/nothing", 404),
        ("/init", 405),
    ] {
        let head = app.send("HEAD", path, &[], "").await.expect(status);
        assert!(head.body.is_empty(), "{path}");
        if status != 405 {
            let get = app.get(path).await.expect(status);
            let length = |answer: &crate::support::Answer| answer.headers.get("content-length").cloned();
            if path != "/nothing" {
                assert_eq!(length(&head), length(&get), "{path}");
            }
            assert_eq!(head.headers["content-type"], get.headers["content-type"], "{path}");
        }
    }
}

// Elsewhere the system's own limit may be lower than this burst.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_burst_of_connections_waits_its_turn() {
    let app = TestApp::start().await;
    let address = app.address.parse().unwrap();
    // No connection is accepted meanwhile: gateway and test share this thread, and connecting blocks it.
    let connect = |_| std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_millis(500));
    let connected: Result<Vec<_>, _> = (0..500).map(connect).collect();
    assert!(connected.is_ok(), "{connected:?}");
}
