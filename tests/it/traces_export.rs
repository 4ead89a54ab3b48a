//! The export of spans: what the collector gets, and that a collector that is down, slow or silent disturbs nobody.

use std::time::{Duration, Instant};

use model::Secret;
use serde_json::json;
use telemetry::traces::{Sampler, SamplerKind};
use toolgate::config::TraceSettings;

use crate::support::{Behaviour, Collector, Fake, TestApp, eventually};

/// A gateway that exports as `settings` say, with a server.
async fn start(settings: TraceSettings) -> (TestApp, Fake) {
    let app = TestApp::start_with(|config| {
        config.traces = Some(settings);
        config.telemetry = true;
    })
    .await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("s", &fake).await;
    (app, fake)
}

async fn dropped(app: &TestApp) -> u64 {
    let metrics = app.get("/metrics").await.expect(200).text();
    let line = metrics.lines().find_map(|line| line.strip_prefix("toolgate_spans_dropped_total "));
    line.expect("the metric is there").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_have_the_headers_and_the_resource_of_the_settings() {
    let collector = Collector::start().await;
    let mut settings = collector.settings();
    settings.headers = vec![("api-key".into(), Secret::new("geheim")), ("x-team".into(), Secret::new("a b"))];
    settings.tracer.resource = vec![("service.name".into(), "gate".into()), ("team".into(), "blue".into())];
    let (app, _fake) = start(settings).await;
    app.call("s__echo", json!({})).await;
    for span in collector.take_call("a call").await {
        assert_eq!(
            (span.resource["service.name"].as_str(), span.resource["team"].as_str()),
            ("gate", "blue")
        );
    }
    for request in collector.requests() {
        assert_eq!((request["api-key"].as_str(), request["x-team"].as_str()), ("geheim", "a b"));
        assert_eq!(request["content-type"], "application/x-protobuf");
        assert!(request["user-agent"].starts_with("toolgate/"));
    }
    assert_eq!(dropped(&app).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_refused_for_now_is_sent_again() {
    let collector = Collector::start().await;
    collector.refuse(&[503, 429]);
    let (app, _fake) = start(collector.settings()).await;
    app.call("s__echo", json!({})).await;
    collector.take_call("sent three times").await;
    // The two spans may have been sent one after the other.
    assert!((3..=4).contains(&collector.requests().len()));
    assert_eq!(dropped(&app).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_refused_is_dropped_and_counted() {
    // A redirect is not followed.
    for status in [400, 401, 307] {
        let collector = Collector::start().await;
        collector.refuse(&[status]);
        let (app, _fake) = start(collector.settings()).await;
        app.call("s__echo", json!({})).await;
        eventually("it is counted", async || dropped(&app).await > 0).await;
        // The two spans may have been sent one after the other, and one was refused.
        assert!(collector.spans().len() < 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_down_disturbs_no_call_and_no_stop() {
    let collector = Collector::start().await;
    let mut settings = collector.settings();
    drop(collector);
    settings.tracer.queue = 10;
    let (mut app, _fake) = start(settings).await;
    for _ in 0..50 {
        app.call("s__echo", json!({})).await;
    }
    eventually("what does not fit is counted", async || dropped(&app).await > 0).await;
    assert_stops_soon(&mut app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_never_answers_disturbs_no_call_and_no_stop() {
    let collector = Collector::start().await;
    collector.fall_silent();
    let mut settings = collector.settings();
    settings.timeout = Duration::from_secs(600);
    settings.tracer.queue = 10;
    let (mut app, _fake) = start(settings).await;
    app.call("s__echo", json!({})).await;
    eventually("it is asked", async || !collector.requests().is_empty()).await;
    for _ in 0..50 {
        app.call("s__echo", json!({})).await;
    }
    eventually("what does not fit is counted", async || dropped(&app).await > 0).await;
    assert_eq!(collector.requests().len(), 1);
    assert_stops_soon(&mut app).await;
}

/// The gateway stops although a collector takes its time, in less than the time that a request may take.
async fn assert_stops_soon(app: &mut TestApp) {
    let begun = Instant::now();
    app.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_stop_sends_the_last_spans() {
    let collector = Collector::start().await;
    let settings = TraceSettings { delay: Duration::from_secs(3600), ..collector.settings() };
    let (mut app, _fake) = start(settings).await;
    app.call("s__echo", json!({})).await;
    assert!(collector.spans().is_empty());
    app.stop().await;
    collector.take_call("after the stop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_batch_does_not_wait() {
    let collector = Collector::start().await;
    let mut settings = TraceSettings { delay: Duration::from_secs(3600), ..collector.settings() };
    settings.tracer.batch = 4;
    let (app, _fake) = start(settings).await;
    for _ in 0..2 {
        app.call("s__echo", json!({})).await;
    }
    collector.take(4, "two calls").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_traced_without_records_and_nothing_is_exported_without_samples() {
    let collector = Collector::start().await;
    let mut settings = collector.settings();
    let app = TestApp::start_with(|config| {
        config.traces = Some(settings.clone());
        config.recording.calls = gateway::recorder::CallLog::Off;
    })
    .await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("s", &fake).await;
    app.call("s__echo", json!({})).await;
    collector.take_call("without records").await;
    settings.tracer.sampler = Sampler::alone(SamplerKind::Never);
    let (mut app, _fake) = start(settings).await;
    app.call("s__echo", json!({})).await;
    app.stop().await;
    assert!(collector.spans().is_empty());
}
