//! Lost links reconnect by themselves, and calls wait for them. Which calls are retried is in `doors_heal`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::app::stdio_input;
use crate::support::{Behaviour, Fake, TestApp, eventually};

fn legacy() -> Behaviour {
    Behaviour::of(json!({ "era": "legacy" }))
}

/// Waits until calls work again.
async fn heals(app: &TestApp, server: &str) {
    let tool = format!("{server}__echo");
    eventually("it is called again", async || app.invoke(&tool, json!({ "text": "hi" })).await.status == 200)
        .await;
}

async fn is_connected(app: &TestApp, server: &str) -> bool {
    app.server(server).await["status"] == "connected"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_is_started_again_without_a_call() {
    let app = TestApp::start().await;
    app.register_stdio("s", &legacy()).await;
    let before = app.call("s__pid", json!({})).await;
    let died = app.invoke("s__die", json!({ "code": 3 })).await.expect(500).error();
    assert!(died.contains("exit status: 3"), "{died}");
    eventually("it runs again", async || is_connected(&app, "s").await).await;
    assert_ne!(app.call("s__pid", json!({})).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_while_a_process_comes_back_wait_for_it() {
    let app = TestApp::start().await;
    let slow = json!({ "era": "legacy", "delay_ms": { "initialize": 400 } });
    app.register_stdio("s", &Behaviour::of(slow)).await;
    app.invoke("s__die", json!({})).await.expect(500);
    let calls = (0..20).map(|n| app.call("s__echo", json!({ "text": n.to_string() })));
    let answers = futures_join(calls).await;
    assert_eq!(answers, (0..20).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_never_reached_a_dying_process_go_to_the_next_one() {
    let app = TestApp::start().await;
    app.register_stdio("s", &legacy()).await;
    app.call("s__die", json!({ "after_ms": 30 })).await;
    // Calls from before until after its end: each is answered, or had reached the process that ended.
    let mut lost = 0;
    for _ in 0..60 {
        let answer = app.invoke("s__counter", json!({})).await;
        lost += usize::from(answer.status != 200);
    }
    assert!(lost <= 1, "{lost} calls were lost");
}

async fn futures_join<T>(calls: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut pending: Vec<_> = calls.map(Box::pin).collect();
    let mut done: Vec<Option<T>> = pending.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (call, slot) in pending.iter_mut().zip(&mut done) {
            if slot.is_none()
                && let std::task::Poll::Ready(value) = call.as_mut().poll(context)
            {
                *slot = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_session_costs_no_call_however_the_server_says_it() {
    let app = TestApp::start().await;
    for (number, stranger) in ["json404", "json400", "text400"].into_iter().enumerate() {
        for get_stream in [false, true] {
            let behaviour = json!({ "era": "legacy", "unknown_session": stranger, "get_stream": get_stream });
            let fake = Fake::start(Behaviour::of(behaviour)).await;
            let name = format!("s{number}{get_stream}");
            app.register_http(&name, &fake).await;
            fake.drop_sessions();
            // Not marked as idempotent, but it must be retried: the server refused to run it.
            assert_eq!(app.call(&format!("{name}__counter"), json!({})).await, "1", "{stranger}");
            assert_eq!(fake.seen_of("initialize").len(), 2, "{stranger}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_session_is_noticed_without_a_call_where_the_server_keeps_a_stream() {
    let app = TestApp::start().await;
    for stranger in ["json404", "json400", "text400"] {
        let fake = Fake::start(Behaviour::of(json!({ "era": "legacy", "unknown_session": stranger }))).await;
        app.register_http(stranger, &fake).await;
        eventually("it listens", async || fake.open_streams() == 1).await;
        fake.drop_sessions();
        eventually("there is a new session", async || fake.sessions().len() == 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_after_a_lost_session_connects_first() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy", "get_stream": false }))).await;
    app.register_http("s", &fake).await;
    fake.drop_sessions();
    fake.update(|behaviour| behaviour.show_tools(&["later".to_owned()]));
    let answer = app.post("/api/v0/servers/s/refresh", json!({})).await.expect(200).json();
    assert_eq!(answer["server"]["tool_count"], 1);
    assert_eq!(app.tools("").await, ["s__later"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_http_server_is_found_again_and_read_again() {
    let app = TestApp::start().await;
    let kinds = [
        ("legacy", json!({ "era": "legacy" })),
        ("sessionless", json!({ "era": "legacy", "session": false })),
        ("modern", json!({ "era": "modern", "ttl_ms": 0 })),
    ];
    for (name, behaviour) in kinds {
        let mut fake = Fake::start(Behaviour::of(behaviour)).await;
        app.register_http(name, &fake).await;
        eventually("it listens", async || fake.open_streams() == 1).await;
        fake.update(|behaviour| behaviour.show_tools(&["echo".to_owned(), "later".to_owned()]));
        fake.restart().await;
        // Without a call: the gateway notices by itself.
        let query = format!("?server={name}");
        eventually("its new lists are known", async || app.tools(&query).await.len() == 2).await;
        heals(&app, name).await;
        eventually("it listens again", async || fake.open_streams() == 1).await;
        fake.set_tools(&["echo"]);
        eventually("it is heard again", async || app.tools(&query).await.len() == 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http_server_that_was_away_for_a_while_is_listened_to_again() {
    let app = TestApp::start().await;
    for era in ["legacy", "modern"] {
        let mut fake = Fake::start(Behaviour::of(json!({ "era": era, "ttl_ms": 0 }))).await;
        fake.update(|behaviour| behaviour.show_tools(&["one".to_owned(), "two".to_owned()]));
        app.register_http(era, &fake).await;
        eventually("it listens", async || fake.open_streams() == 1).await;
        fake.stop().await;
        eventually("its absence is noticed", async || app.server(era).await["status"] == "failed").await;
        fake.restart().await;
        eventually("it listens again", async || fake.open_streams() == 1 && is_connected(&app, era).await)
            .await;
        fake.set_tools(&["only"]);
        let query = format!("?server={era}");
        eventually("it is heard", async || app.tools(&query).await.len() == 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_sse_stream_is_opened_again() {
    let app = TestApp::start().await;
    let fake = Fake::start(legacy()).await;
    app.register_sse("s", &fake).await;
    fake.drop_connections();
    heals(&app, "s").await;
    fake.drop_sessions();
    heals(&app, "s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_connection_heals_in_both_eras() {
    let app = TestApp::start().await;
    for era in ["legacy", "modern"] {
        let fake = Fake::start(Behaviour::of(json!({ "era": era }))).await;
        app.register_http(era, &fake).await;
        fake.drop_connections();
        heals(&app, era).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_call_is_made_again_when_its_answer_is_lost() {
    let app = TestApp::start().await;
    let slow = json!({ "era": "legacy", "delay_ms": { "tools/call": 300 } });
    let fake = Fake::start(Behaviour::of(slow)).await;
    app.register_http("http", &fake).await;
    app.register_sse("sse", &fake).await;
    for server in ["http", "sse"] {
        let before = fake.seen_of("tools/call").len();
        let tool = format!("{server}__read_only");
        let call = app.call(&tool, json!({ "text": "x" }));
        let cut = async {
            eventually("it arrived", async || fake.seen_of("tools/call").len() > before).await;
            fake.drop_connections();
        };
        let (text, ()) = tokio::join!(call, cut);
        assert_eq!(text, "x");
        assert_eq!(fake.seen_of("tools/call").len(), before + 2, "{server}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_hangs_up_does_not_take_its_server_down() {
    let app = TestApp::start().await;
    let fake = Fake::start(legacy()).await;
    app.register_http("s", &fake).await;
    for _ in 0..8 {
        app.invoke("s__hang_up", json!({})).await.expect(500);
        assert_eq!(app.call("s__echo", json!({ "text": "hi" })).await, "hi");
    }
    assert_eq!(app.server("s").await["status"], "connected");
    assert_eq!(fake.sessions().len(), 1, "the session is still good");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loop_shows_as_failed_with_the_reason_and_backs_off() {
    let app = TestApp::start().await;
    let noisy = Behaviour::of(json!({ "era": "legacy", "stderr": ["out of luck today"] }));
    app.register_stdio("s", &noisy).await;
    for _ in 0..3 {
        eventually("it is up", async || is_connected(&app, "s").await).await;
        app.invoke("s__die", json!({ "code": 9 })).await.expect(500);
    }
    eventually("it failed", async || app.server("s").await["status"] == "failed").await;
    let reason = app.server("s").await["status_reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("exit status: 9") && reason.contains("out of luck today"), "{reason}");
    // A call does not wait, fails with the reason, and makes the gateway reconnect.
    let begun = Instant::now();
    let error = app.invoke("s__echo", json!({})).await.expect(500).error();
    assert!(error.contains("exit status: 9") && begun.elapsed() < Duration::from_secs(5), "{error}");
    heals(&app, "s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_to_a_failed_server_answer_at_once_and_bring_it_back() {
    let app = TestApp::start().await;
    let mut fake = Fake::start(Behaviour::of(json!({ "era": "legacy", "get_stream": false }))).await;
    app.register_http("s", &fake).await;
    fake.stop().await;
    // A call whose connection breaks may have run, so the first error may have another reason.
    app.invoke("s__echo", json!({})).await.expect(500);
    eventually("it failed", async || app.server("s").await["status"] == "failed").await;
    let error = app.invoke("s__echo", json!({})).await.expect(500).error();
    assert!(error.contains("cannot reach") && error.contains("127.0.0.1"), "{error}");
    assert!(!app.tools("").await.is_empty(), "what it offered stays listed");
    let begun = Instant::now();
    app.invoke("s__echo", json!({})).await.expect(500);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    fake.restart().await;
    fake.forget_seen();
    heals(&app, "s").await;
    assert_eq!(fake.seen_of("initialize").len(), 1, "one reconnect is enough");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_of_a_dead_server_cannot_make_it_start_without_pause() {
    let app = TestApp::start().await;
    let (broken, starts) = (app.folder.path().join("broken"), app.folder.path().join("starts"));
    let script =
        format!("[ -e {} ] && {{ echo x >> {}; exit 4; }}; exec \"$@\"", broken.display(), starts.display());
    let mut input = stdio_input("s", &legacy());
    let mut args = vec![json!("-c"), json!(script), json!("sh"), input["command"].clone()];
    args.extend(input["args"].as_array().unwrap().clone());
    (input["command"], input["args"]) = (json!("sh"), json!(args));
    app.register(input).await;
    std::fs::write(&broken, "").unwrap();
    app.invoke("s__die", json!({})).await.expect(500);
    eventually("it failed", async || app.server("s").await["status"] == "failed").await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        let error = app.invoke("s__echo", json!({})).await.expect(500).error();
        assert!(error.contains("exit status: 4"), "{error}");
    }
    let starts = std::fs::read_to_string(&starts).unwrap().lines().count();
    assert!(starts < 16, "{starts} starts in a second");
    std::fs::remove_file(&broken).unwrap();
    heals(&app, "s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_servers_of_which_some_are_dead_neither_delay_nor_hide_the_others() {
    let app = TestApp::start_with(|config| config.init_timeout = Duration::from_secs(3)).await;
    let mut fakes = Vec::new();
    for number in 0..4 {
        let fake = Fake::start(Behaviour::of(json!({ "tool_count": 5 }))).await;
        app.register_http(&format!("h{number}"), &fake).await;
        fakes.push(fake);
    }
    app.register(stdio_input("child", &legacy())).await;
    let before = app.tools("").await;
    fakes[0].stop().await;
    fakes[1].update(|behaviour| {
        behaviour.stall = ["initialize", "server/discover", "tools/list"].map(str::to_owned).into();
    });
    let app = app.restart().await;
    let begun = Instant::now();
    assert_eq!(app.tools("").await, before, "all from the stored catalog");
    assert!(begun.elapsed() < Duration::from_secs(5));
    for living in ["h2", "h3", "child"] {
        let answer: Value = app.invoke(&format!("{living}__echo"), json!({ "text": "hi" })).await.json();
        assert_eq!(answer["content"][0]["text"], "hi", "{living}");
    }
    eventually("the dead one is known to be dead", async || app.server("h0").await["status"] == "failed")
        .await;
    assert_eq!(app.server("h1").await["status"], "connecting");
    eventually("the silent one, too", async || app.server("h1").await["status"] == "failed").await;
}
#[tokio::test(flavor = "multi_thread")]
async fn the_era_is_remembered_and_probed_again_after_a_failure() {
    let app = TestApp::start().await;
    let mut fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("s", &fake).await;
    fake.forget_seen();
    let app = app.restart().await;
    assert_eq!(app.call("s__echo", json!({ "text": "hi" })).await, "hi");
    assert!(fake.seen_of("server/discover").is_empty(), "the verdict of the last run counts");
    // The server at this address now uses the other era.
    fake.stop().await;
    fake.update(|behaviour| *behaviour = Behaviour::of(json!({ "era": "modern" })));
    fake.restart().await;
    eventually("it is called in its new era", async || {
        app.invoke("s__echo", json!({ "text": "hi" })).await.status == 200
    })
    .await;
    eventually("its record says so", async || app.server("s").await["protocol_version"] == "2026-07-28")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sessionless_server_that_changes_its_era_is_probed_again_by_a_failed_call() {
    let app = TestApp::start().await;
    for (before, after) in [("legacy", "modern"), ("modern", "legacy")] {
        let quiet = json!({ "session": false, "get_stream": false, "era": before });
        let fake = Fake::start(Behaviour::of(quiet.clone())).await;
        app.register_http(before, &fake).await;
        let mut quiet = quiet;
        quiet["era"] = json!(after);
        fake.update(|behaviour| *behaviour = Behaviour::of(quiet));
        let tool = format!("{before}__echo");
        eventually("it is called in its new era", async || {
            app.invoke(&tool, json!({ "text": "hi" })).await.status == 200
        })
        .await;
    }
}
