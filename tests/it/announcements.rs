//! Servers that announce changes of their lists without a change.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Behaviour, Fake, TestApp, eventually};

/// Far shorter than the current pause between reads of the lists.
const AT_ONCE: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_false_announcements_is_refreshed_and_removed_at_once() {
    let (app, fake) = (TestApp::start().await, Fake::start(Behaviour::default()).await);
    app.register_http("s", &fake).await;
    fake.forget_seen();
    eventually("five readings for nothing", || async {
        fake.notify_tools_changed();
        fake.seen_of("resources/templates/list").len() >= 5
    })
    .await;
    fake.notify_tools_changed();
    let begun = Instant::now();
    fake.update(|behaviour| behaviour.show_tools(&["fresh".into()]));
    app.post("/api/v0/servers/s/refresh", json!({})).await.expect(200);
    assert_eq!(app.tools("").await, ["s__fresh"]);
    fake.notify_tools_changed();
    app.delete("/api/v0/servers/s").await.expect(204);
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_during_a_read_returns_the_later_lists() {
    let (app, fake) = (TestApp::start().await, Fake::start(Behaviour::default()).await);
    app.register_http("s", &fake).await;
    fake.forget_seen();
    // Tools are read first, so they are outdated while the last list is still being read.
    fake.update(|behaviour| {
        behaviour.delay_ms.insert("resources/templates/list".into(), 1500);
    });
    fake.notify_tools_changed();
    eventually("a reading is under way", async || !fake.seen_of("tools/list").is_empty()).await;
    eventually("its tools are read", async || !fake.seen_of("resources/templates/list").is_empty()).await;
    fake.update(|behaviour| {
        behaviour.show_tools(&["fresh".into()]);
        behaviour.delay_ms.clear();
    });
    app.post("/api/v0/servers/s/refresh", json!({})).await.expect(200);
    assert_eq!(app.tools("").await, ["s__fresh"]);
}
