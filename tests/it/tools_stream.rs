//! Invoking with `Accept: text/event-stream`: progress while the tool runs, then one result.

use serde_json::{Value, json};

use crate::support::client::{self, Events};
use crate::support::{Behaviour, Fake, Kinds, TestApp};

async fn all(mut events: Events) -> Vec<(String, Value)> {
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        let data = serde_json::from_slice(&event.data).expect("an event carries JSON");
        seen.push((event.name.map(|name| name.to_string()).unwrap_or_default(), data));
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_comes_before_the_one_result_over_every_kind_of_link() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    for server in &kinds.servers {
        let body = json!({ "name": format!("{server}__progress"), "steps": 3 });
        let events = all(app.post_for_events("/api/v0/tools/invoke", body).await).await;
        let names: Vec<_> = events.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["progress", "progress", "progress", "result"], "{server}");
        assert_eq!(events[1].1["progress"], 2, "{server}");
        assert_eq!(events[1].1["total"], 3, "{server}");
        assert_eq!(events[1].1["message"], "step 2", "{server}");
        let result = json!({ "content": [{ "type": "text", "text": "3 steps" }], "isError": false });
        assert_eq!(events[3].1, result, "{server}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_the_headers_that_keep_it_a_stream() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    let body = json!({ "name": "s__echo", "text": "x" }).to_string();
    for accept in ["text/event-stream", "application/json, Text/Event-Stream;q=0.5"] {
        let headers = [("accept", accept)];
        let (response, _open) =
            client::open(&app.address, "POST", "/api/v0/tools/invoke", &headers, body.clone().into()).await;
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header("content-type"), "text/event-stream");
        assert_eq!(header("cache-control"), "no-store");
        assert_eq!(header("x-accel-buffering"), "no");
    }
    for accept in ["*/*", "application/json", "text/plain", ""] {
        let answer = app.send("POST", "/api/v0/tools/invoke", &[("accept", accept)], body.clone()).await;
        assert_eq!(answer.headers["content-type"], "application/json", "{accept}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_after_the_start_of_a_stream_are_its_last_event() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    let failed =
        all(app.post_for_events("/api/v0/tools/invoke", json!({ "name": "s__rpc_error" })).await).await;
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].0, "error");
    assert_eq!(failed[0].1.as_object().unwrap().len(), 1);
    assert!(failed[0].1["error"].as_str().unwrap().contains("the tool refused"));
    let reported = all(app.post_for_events("/api/v0/tools/invoke", json!({ "name": "s__fail" })).await).await;
    assert_eq!(reported[0].0, "result");
    assert_eq!(reported[0].1["isError"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_progress_never_loses_the_result() {
    let app = TestApp::start().await;
    app.register_stdio("s", &Behaviour::default()).await;
    let body = json!({ "name": "s__progress", "steps": 400, "ms": 0 });
    let events = app.post_for_events("/api/v0/tools/invoke", body).await;
    let seen = all(events).await;
    let (last, steps) = seen.split_last().unwrap();
    assert_eq!(last.0, "result");
    assert!(steps.iter().all(|(name, _)| name == "progress"));
    assert!(steps.windows(2).all(|pair| pair[0].1["progress"].as_u64() < pair[1].1["progress"].as_u64()));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_stream_no_progress_is_requested_upstream() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    assert_eq!(app.call("s__progress", json!({ "steps": 2 })).await, "2 steps");
    let call = fake.seen_of("tools/call").remove(0);
    assert!(call.params["_meta"].get("progressToken").is_none(), "{}", call.params);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_messages_of_the_call_come_if_a_level_is_given_over_every_kind_of_link() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    for server in &kinds.servers {
        let log = async |level: &str, query: &str| {
            let body = json!({ "name": format!("{server}__log"), "level": level, "data": { "a": 1 } });
            let events = app.post_for_events(&format!("/api/v0/tools/invoke{query}"), body).await;
            let mut seen = all(events).await;
            let (last, _) = seen.pop().unwrap();
            assert_eq!(last, "result", "{server} {level} {query}");
            seen
        };
        let params = json!({ "level": "warning", "logger": "fake", "data": { "a": 1 } });
        let notice = json!({ "method": "notifications/message", "params": params });
        assert_eq!(
            log("warning", "?log_level=info").await,
            [("notification".to_owned(), notice)],
            "{server}"
        );
        assert_eq!(log("debug", "?log_level=info").await, [], "{server}");
        assert_eq!(log("warning", "").await, [], "{server}");
    }
    let path = "/api/dashboard/tools/http-modern__log/invoke?log_level=debug";
    let names: Vec<_> =
        all(app.post_for_events(path, json!({})).await).await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["notification", "result"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_log_level_is_refused() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    let body = json!({ "name": "s__log" }).to_string();
    let headers = [("accept", "text/event-stream")];
    let answer = app.send("POST", "/api/v0/tools/invoke?log_level=loud", &headers, body).await;
    assert!(answer.expect(400).error().contains("log_level"));
    assert!(fake.seen_of("tools/call").is_empty());
}
