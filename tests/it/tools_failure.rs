//! Failed calls: invalid requests, and failures of the upstream.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::app::stdio_input;
use crate::support::{Behaviour, Fake, Kinds, TestApp, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_request_gets_a_sentence_and_never_reaches_the_server() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    fake.forget_seen();
    for (body, status, word) in [
        ("", 400, "JSON"),
        ("  ", 400, "JSON"),
        ("name=s__echo", 400, "JSON"),
        ("{\"name\":\"s__echo\"", 400, "JSON"),
        ("{\"name\":\"s__echo\"} x", 400, "JSON"),
        ("{\"name\":\"s__echo\",\"n\":01}", 400, "JSON"),
        ("{\"name\":\"s__echo\",\"n\":NaN}", 400, "JSON"),
        ("[\"s__echo\"]", 400, "object"),
        ("\"s__echo\"", 400, "object"),
        ("null", 400, "object"),
        ("{}", 400, "name"),
        (r#"{"Name":"s__echo"}"#, 400, "name"),
        (r#"{"name":null}"#, 400, "name"),
        (r#"{"name":7}"#, 400, "name"),
        (r#"{"name":["s__echo"]}"#, 400, "name"),
        (r#"{"name":"s__\ud800"}"#, 400, "name"),
        (r#"{"name":"s__echo","name":"s__fail"}"#, 400, "name"),
        (r#"{"name":""}"#, 400, "full name"),
        (r#"{"name":"echo"}"#, 400, "echo"),
        (r#"{"name":"s__nothing"}"#, 404, "s__nothing"),
        (r#"{"name":"S__echo"}"#, 404, "S"),
        (r#"{"name":"nobody__echo"}"#, 404, "nobody"),
    ] {
        let error = app.invoke_raw(body).await.expect(status).error();
        assert!(error.contains(word), "{body}: {error}");
        let streamed =
            app.send("POST", "/api/v0/tools/invoke", &[("accept", "text/event-stream")], body).await;
        assert_eq!(streamed.expect(status).error(), error, "{body}: the same before a stream begins");
    }
    assert_eq!(fake.seen_of("tools/call").len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_of_a_disabled_server_is_refused() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    app.post("/api/v0/servers/s/disable", json!({})).await.expect(200);
    for accept in ["application/json", "text/event-stream"] {
        let body = json!({ "name": "s__echo" }).to_string();
        let refused = app.send("POST", "/api/v0/tools/invoke", &[("accept", accept)], body).await;
        let error = refused.expect(400).error();
        assert!(error.contains("\"s\"") && error.contains("disabled"), "{accept}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstreams_error_is_500_with_its_words() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    for server in &kinds.servers {
        let error = app.invoke(&format!("{server}__rpc_error"), json!({})).await.expect(500).error();
        assert!(error.contains("the tool refused") && error.contains("-32050"), "{server}: {error}");
        assert!(error.contains(&format!("{server}__rpc_error")), "{server}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_asks_for_input_needs_an_mcp_client() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    for server in &kinds.servers {
        let error = app.invoke(&format!("{server}__ask"), json!({})).await.expect(500).error();
        assert!(error.contains("MCP client"), "{server}: {error}");
        assert_eq!(
            app.call(&format!("{server}__echo"), json!({ "text": "on" })).await,
            "on",
            "{server} works on"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_to_open_first_needs_an_mcp_client_too() {
    let app = TestApp::start().await;
    let failure = json!({ "tools/call": { "code": -32042, "message": "open a page first" } });
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy", "fail": failure }))).await;
    app.register_http("s", &fake).await;
    let error = app.invoke("s__echo", json!({})).await.expect(500).error();
    assert!(error.contains("MCP client"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_ends_with_its_time_limit_and_is_cancelled_upstream() {
    let app = TestApp::start().await;
    let (mut servers, mut fakes) = (Vec::new(), Vec::new());
    for era in ["legacy", "modern"] {
        let behaviour = Behaviour::of(json!({ "era": era }));
        let fake = Fake::start(behaviour.clone()).await;
        let stdio = stdio_input(&format!("stdio-{era}"), &behaviour);
        let http =
            json!({ "name": format!("http-{era}"), "transport": "streamable_http", "url": fake.url() });
        let sse = json!({ "name": "sse", "transport": "sse", "url": fake.sse_url() });
        for mut input in [stdio, http, sse] {
            if era == "modern" && input["name"] == "sse" {
                continue;
            }
            input["timeout_ms"] = json!(150);
            app.register(input.clone()).await;
            servers.push(input["name"].as_str().unwrap().to_owned());
        }
        fakes.push(fake);
    }
    for server in &servers {
        let begun = Instant::now();
        let error = app.invoke(&format!("{server}__slow"), json!({ "ms": 20_000 })).await.expect(500).error();
        assert!(error.contains("0.15 s"), "{server}: {error}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{server}");
        let cancelled = format!("{server}__cancelled");
        // On a busy machine this call, too, may exceed the short time limit.
        eventually("the call is cancelled", async || {
            let answer = app.invoke(&cancelled, json!({})).await;
            answer.status == 200 && answer.json()["content"][0]["text"] != "[]"
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_time_limit_means_none() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let input = json!({ "name": "s", "transport": "streamable_http", "url": fake.url(), "timeout_ms": 0 });
    app.register(input).await;
    assert_eq!(app.call("s__slow", json!({ "ms": 300 })).await, "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_server_goes_away_fails_and_the_next_one_works() {
    let app = TestApp::start().await;
    for (era, answer) in [("legacy", "json"), ("legacy", "sse"), ("modern", "json")] {
        let server = format!("http-{era}-{answer}");
        let fake = Fake::start(Behaviour::of(json!({ "era": era, "answer": answer }))).await;
        app.register_http(&server, &fake).await;
        let error = app.invoke(&format!("{server}__hang_up"), json!({})).await.expect(500).error();
        assert!(error.contains("127.0.0.1"), "{server}: {error}");
        assert_eq!(fake.calls_of("hang_up"), 1, "{server}: a call that may have run is not repeated");
        assert_eq!(app.call(&format!("{server}__echo"), json!({ "text": "back" })).await, "back");
    }
    for era in ["legacy", "modern"] {
        let server = format!("stdio-{era}");
        app.register_stdio(&server, &Behaviour::of(json!({ "era": era }))).await;
        let error = app.invoke(&format!("{server}__die"), json!({ "code": 3 })).await.expect(500).error();
        assert!(error.contains("exit status: 3"), "{server}: {error}");
        assert_eq!(app.call(&format!("{server}__echo"), json!({ "text": "back" })).await, "back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_an_upstreams_error_is_masked() {
    let app = TestApp::start().await;
    let failure = json!({ "tools/call": { "code": -32000, "message": "bad token tok-12345678 given" } });
    let fake = Fake::start(Behaviour::of(json!({ "fail": failure, "bearer": "tok-12345678" }))).await;
    let input = json!({ "name": "s", "transport": "streamable_http", "url": fake.url(), "bearer_token": "tok-12345678" });
    app.register(input).await;
    let error = app.invoke("s__echo", json!({})).await.expect(500).error();
    assert!(error.contains("bad token *** given"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_server_is_taken_away_ends_at_once() {
    let app = TestApp::start().await;
    let delays = json!({ "tools/call": 60_000 });
    for (server, path) in [("off", "/api/v0/servers/off/disable"), ("gone", "/api/v0/servers/gone")] {
        for tool in ["echo", "read_only"] {
            let fake = Fake::start(Behaviour::of(json!({ "delay_ms": delays }))).await;
            app.register_http(server, &fake).await;
            let full = format!("{server}__{tool}");
            let call = app.invoke(&full, json!({}));
            let take_away = async {
                eventually("the call is there", async || fake.seen_of("tools/call").len() == 1).await;
                let method = if path.ends_with("disable") { "POST" } else { "DELETE" };
                assert!(app.send(method, path, &[], "").await.status < 300);
                Instant::now()
            };
            let (answer, taken) = tokio::join!(call, take_away);
            assert!(answer.expect(500).error().contains(&full));
            assert!(taken.elapsed() < Duration::from_secs(9), "{full}: {:?}", taken.elapsed());
            app.delete(&format!("/api/v0/servers/{server}")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_connection_fails_the_call_and_the_next_one_works() {
    let app = TestApp::start().await;
    for (server, era) in [("http-legacy", "legacy"), ("http-modern", "modern"), ("sse", "legacy")] {
        let fake = Fake::start(Behaviour::of(json!({ "era": era }))).await;
        match server {
            "sse" => app.register_sse(server, &fake).await,
            _ => app.register_http(server, &fake).await,
        };
        let full = format!("{server}__slow");
        let call = app.invoke(&full, json!({ "ms": 60_000 }));
        let cut = async {
            eventually("the call runs", async || fake.calls_of("slow") == 1).await;
            fake.drop_connections();
        };
        let (answer, ()) = tokio::join!(call, cut);
        assert!(answer.expect(500).error().contains("127.0.0.1"), "{server}");
        assert_eq!(app.call(&format!("{server}__echo"), json!({ "text": "back" })).await, "back", "{server}");
        assert_eq!(fake.calls_of("slow"), 1, "{server}: a call that may have run is not repeated");
    }
}
