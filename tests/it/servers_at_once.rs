//! Concurrent changes of servers, callers that disconnect, and the cleanup after failures.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::app::stdio_input;
use crate::support::{Behaviour, Fake, TestApp, eventually, request};

/// Whether a process runs that has this text among its arguments.
fn is_running(marker: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.map(|process| process.path().join("cmdline")).any(|cmdline| {
        std::fs::read(cmdline).is_ok_and(|line| String::from_utf8_lossy(&line).contains(marker))
    })
}

/// A stdio server that can be recognized among all processes.
fn marked(marker: &str, mut behaviour: Value) -> Behaviour {
    behaviour["instructions"] = json!(marker);
    Behaviour::of(behaviour)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_registrations_at_once_all_succeed() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let inputs = (0..24).map(|number| match number % 8 {
        0 => stdio_input(&format!("s{number:02}"), &Behaviour::default()),
        1 => json!({ "name": format!("s{number:02}"), "transport": "sse", "url": fake.sse_url() }),
        _ => json!({ "name": format!("s{number:02}"), "transport": "streamable_http", "url": fake.url() }),
    });
    let mut running = tokio::task::JoinSet::new();
    for input in inputs {
        let address = app.address.clone();
        running.spawn(async move {
            let body = input.to_string().into();
            request(&address, "POST", "/api/v0/servers", &[], body).await.expect(201);
        });
    }
    running.join_all().await;
    let expected: Vec<_> = (0..24).map(|number| format!("s{number:02}")).collect();
    let names = async |app: &TestApp| -> Vec<String> {
        let servers = app.get("/api/v0/servers").await.json();
        servers.as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&app).await, expected);
    let app = app.restart().await;
    assert_eq!(names(&app).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_registrations_of_one_name_at_once_one_wins() {
    let app = TestApp::start().await;
    let fakes = [Fake::start(Behaviour::default()).await, Fake::start(Behaviour::default()).await];
    let slow = |behaviour: &mut Behaviour| behaviour.delay_ms = [("tools/list".into(), 200)].into();
    fakes.iter().for_each(|fake| fake.update(slow));
    let register = |fake: &Fake| {
        let input = json!({ "name": "web", "transport": "streamable_http", "url": fake.url() });
        app.post("/api/v0/servers", input)
    };
    let (one, two) = tokio::join!(register(&fakes[0]), register(&fakes[1]));
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409], "{} {}", one.text(), two.text());
    let (winner, loser) = if one.status == 201 { (0, 1) } else { (1, 0) };
    assert_eq!(app.server("web").await["url"], json!(fakes[winner].url()));
    assert!(fakes[loser].seen().is_empty(), "the loser was not connected");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_leaves_a_whole_server_or_none() {
    let app = TestApp::start().await;
    for (name, is_good) in [("good", true), ("bad", false)] {
        let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
        fake.update(|behaviour| {
            behaviour.delay_ms = [("prompts/list".into(), 200)].into();
            if !is_good {
                behaviour.fail = [("resources/list".into(), json!({ "code": -32000 }))].into();
            }
        });
        let input = json!({ "name": name, "transport": "streamable_http", "url": fake.url() });
        let register = app.post("/api/v0/servers", input.clone());
        let under_way =
            eventually("registration is under way", async || !fake.seen_of("prompts/list").is_empty());
        tokio::select! {
            answer = register => panic!("too early: {}", answer.text()),
            () = under_way => {}
        }
        // The name is taken until the registration has ended.
        app.post("/api/v0/servers", input).await.expect(409);
        if is_good {
            let path = format!("/api/v0/servers/{name}");
            eventually("the server is there", async || app.get(&path).await.status == 200).await;
            assert_eq!(app.call("good__echo", json!({ "text": "hi" })).await, "hi");
        } else {
            eventually("the name is free again", async || {
                let again = json!({ "name": name, "transport": "sse", "url": "http://127.0.0.1:1/" });
                app.post("/api/v0/servers", again).await.status == 500
            })
            .await;
            app.get("/api/v0/servers/bad").await.expect(404);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_registration_leaves_no_process_behind() {
    let app = TestApp::start_with(|config| config.init_timeout = Duration::from_secs(1)).await;
    let failing = json!({ "tools/list": { "code": -32000, "message": "no" } });
    for (number, (era, trouble)) in [
        ("legacy", json!({ "fail": failing })),
        ("modern", json!({ "fail": failing })),
        ("legacy", json!({ "stall": ["prompts/list"] })),
        ("modern", json!({ "stall": ["prompts/list"] })),
    ]
    .into_iter()
    .enumerate()
    {
        let marker = format!("left-behind-{}-{number}", std::process::id());
        let mut behaviour = trouble;
        behaviour["era"] = json!(era);
        let input = stdio_input("bad", &marked(&marker, behaviour));
        app.post("/api/v0/servers", input).await.expect(500);
        eventually(&format!("{era} process {number} ends"), async || !is_running(&marker)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_registration_leaves_no_session_or_stream_open() {
    let app = TestApp::start_with(|config| config.init_timeout = Duration::from_secs(1)).await;
    let failing = json!({ "fail": { "resources/list": { "code": -32000, "message": "no" } } });
    for (transport, era, trouble) in [
        ("streamable_http", "legacy", &failing),
        ("streamable_http", "modern", &failing),
        ("sse", "legacy", &failing),
        ("streamable_http", "legacy", &json!({ "stall": ["resources/list"] })),
    ] {
        let mut behaviour = trouble.clone();
        behaviour["era"] = json!(era);
        let fake = Fake::start(Behaviour::of(behaviour)).await;
        let url = if transport == "sse" { fake.sse_url() } else { fake.url() };
        let input = json!({ "name": "bad", "transport": transport, "url": url });
        app.post("/api/v0/servers", input).await.expect(500);
        eventually(&format!("{era} {transport} is let go"), async || {
            fake.sessions().is_empty() && fake.open_streams() == 0
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removing_a_server_ends_its_calls_at_once() {
    let app = TestApp::start().await;
    let kinds = [
        ("streamable_http", "legacy"),
        ("streamable_http", "modern"),
        ("stdio", "legacy"),
        ("stdio", "modern"),
        ("sse", "legacy"),
    ];
    for (transport, era) in kinds {
        let behaviour = Behaviour::of(json!({ "era": era }));
        let fake = Fake::start(behaviour.clone()).await;
        let url = if transport == "sse" { fake.sse_url() } else { fake.url() };
        app.register(match transport {
            "stdio" => stdio_input("web", &behaviour),
            _ => json!({ "name": "web", "transport": transport, "url": url }),
        })
        .await;
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let (address, body) = (app.address.clone(), json!({ "name": "web__slow", "ms": 60_000 }));
            calls.spawn(async move {
                request(&address, "POST", "/api/v0/tools/invoke", &[], body.to_string().into()).await
            });
        }
        let asked = std::cell::Cell::new(0);
        eventually("all calls arrived", async || {
            asked.set(asked.get() + 1);
            let seen = app.call("web__seen", json!({})).await;
            seen.matches("tools/call").count() == 8 + asked.get()
        })
        .await;
        let begun = Instant::now();
        app.delete("/api/v0/servers/web").await.expect(204);
        for answer in calls.join_all().await {
            let error = answer.expect(500).error();
            assert!(error.contains("web__slow"), "{error}");
        }
        assert!(begun.elapsed() < Duration::from_secs(9), "{transport} {era}: {:?}", begun.elapsed());
        app.invoke("web__slow", json!({})).await.expect(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removing_a_server_that_is_connecting_ends_the_calls_that_wait_for_it() {
    let app = TestApp::start().await;
    let mut fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("web", &fake).await;
    for change in ["remove", "disable"] {
        fake.update(|behaviour| behaviour.stall = vec!["initialize".into()]);
        fake.restart().await;
        eventually("it is connecting", async || app.server("web").await["status"] == "connecting").await;
        let begun = Instant::now();
        // The head of an event stream arrives as soon as the call is in flight.
        let mut call = app.post_for_events("/api/v0/tools/invoke", json!({ "name": "web__echo" })).await;
        match change {
            "remove" => app.delete("/api/v0/servers/web").await.expect(204),
            _ => app.post("/api/v0/servers/web/disable", json!({})).await.expect(200),
        };
        let last = String::from_utf8(call.next().await.unwrap().data.to_vec()).unwrap();
        assert!(last.contains("error"), "{last}");
        assert!(begun.elapsed() < Duration::from_secs(9), "{change}: {:?}", begun.elapsed());
        if change == "remove" {
            fake.update(|behaviour| behaviour.stall.clear());
            app.register_http("web", &fake).await;
            fake.forget_seen();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_keeps_announcing_changes_is_refreshed_and_removed_at_once() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("web", &fake).await;
    eventually("the pause between readings is long", async || {
        fake.notify_tools_changed();
        fake.seen_of("tools/list").len() > 5
    })
    .await;
    fake.notify_tools_changed();
    let begun = Instant::now();
    app.send("POST", "/api/v0/servers/web/refresh", &[], "").await.expect(200);
    fake.notify_tools_changed();
    app.delete("/api/v0/servers/web").await.expect(204);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_stops_does_not_wait_for_a_registration() {
    let mut app = TestApp::start_with(|config| config.init_timeout = Duration::from_secs(60)).await;
    let fake = Fake::start(Behaviour::of(json!({ "stall": ["initialize", "server/discover"] }))).await;
    let input = json!({ "name": "web", "transport": "streamable_http", "url": fake.url() });
    let register = app.post("/api/v0/servers", input);
    tokio::select! {
        answer = register => panic!("too early: {}", answer.text()),
        () = eventually("it is under way", async || !fake.seen().is_empty()) => {}
    }
    let begun = Instant::now();
    app.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
}
