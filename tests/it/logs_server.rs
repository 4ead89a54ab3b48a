//! The log of a server: standard error and what the gateway noted, read once and followed, and when a stream of it ends.

use serde_json::{Value, json};

use crate::support::app::stdio_input;
use crate::support::cli::Cli;
use crate::support::client::{self, Events};
use crate::support::terminal::Terminal;
use crate::support::{Behaviour, Fake, Process, TestApp, bearer, eventually};

const EVENTS: (&str, &str) = ("accept", "text/event-stream");

/// The lines of a server, each as `source: text`.
async fn lines(app: &TestApp, server: &str) -> Vec<String> {
    let page = app.get(&format!("/api/v0/servers/{server}/logs?tail=1000")).await.expect(200).json();
    page["lines"].as_array().unwrap().iter().map(shown).collect()
}

fn shown(line: &Value) -> String {
    assert_eq!(line.as_object().unwrap().len(), 3, "{line}");
    let at = line["at"].as_str().unwrap();
    assert!(at.len() == "2026-11-17T10:00:35.123Z".len() && at.ends_with('Z'), "{line}");
    format!("{}: {}", line["source"].as_str().unwrap(), line["text"].as_str().unwrap())
}

/// Waits until the log has these lines in this order; each is the beginning of a line.
async fn has(app: &TestApp, server: &str, wanted: &[&str]) {
    eventually(&format!("the log has {wanted:?}"), async || {
        let lines = lines(app, server).await;
        let mut rest = lines.iter();
        wanted.iter().all(|wanted| rest.any(|line| line.starts_with(wanted)))
    })
    .await;
}

async fn follow(app: &TestApp, server: &str, query: &str, token: Option<&str>) -> Events {
    let authorization = token.map(bearer);
    let mut headers = vec![EVENTS];
    headers.extend(authorization.as_deref().map(|token| ("authorization", token)));
    let path = format!("/api/v0/servers/{server}/logs?follow=true{query}");
    Events::new(client::open(&app.address, "GET", &path, &headers, Vec::new()).await)
}

async fn next(events: &mut Events) -> String {
    let event = events.next().await.expect("the stream goes on");
    assert_eq!(event.name.as_deref(), Some("line"));
    shown(&serde_json::from_slice(&event.data).unwrap())
}

/// Reads until a line begins like this.
async fn until(events: &mut Events, wanted: &str) {
    while !next(events).await.starts_with(wanted) {}
}

/// Reads until the stream ends.
async fn end(mut events: Events) {
    while events.next().await.is_some() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_outlives_processes_links_and_being_disabled() {
    let app = TestApp::start().await;
    let behaviour = Behaviour::of(json!({"era": "legacy", "stderr": ["hello secret-0001"]}));
    let mut input = stdio_input("s", &behaviour);
    input["env"] = json!({"KEY": "secret-0001"});
    app.register(input).await;
    let (began, connected) = ("gateway: connecting", "gateway: connected, protocol 2025-11-25: ");
    has(&app, "s", &[began, "gateway: process 1 starts: ", "stderr: hello ***", connected]).await;
    app.invoke("s__die", json!({"code": 3})).await.expect(500);
    app.call("s__echo", json!({"text": "back"})).await;
    has(
        &app,
        "s",
        &[
            connected,
            "gateway: process 1 ended (exit status: 3)",
            "gateway: lost the link: ",
            began,
            "gateway: process 2 starts: ",
            "gateway: restarted and connected, protocol 2025-11-25: ",
        ],
    )
    .await;
    has(&app, "s", &["gateway: a call of die failed: "]).await;
    app.post("/api/v0/servers/s/disable", json!({})).await.expect(200);
    has(&app, "s", &[connected, "gateway: disabled", "gateway: process 2 was stopped"]).await;
    app.post("/api/v0/servers/s/enable", json!({})).await.expect(200);
    has(&app, "s", &["gateway: disabled", "gateway: enabled", began, "stderr: hello ***", connected]).await;
    // Other connection settings mean another process, and a change of the same kind.
    app.patch("/api/v0/servers/s", json!({"env": {"OTHER": "1234"}})).await.expect(200);
    has(&app, "s", &["gateway: enabled", "gateway: process 4 starts: ", connected]).await;
    app.patch("/api/v0/servers/s", json!({"enabled": false})).await.expect(200);
    has(&app, "s", &["gateway: enabled", "gateway: disabled"]).await;
    let all = lines(&app, "s").await;
    assert_eq!(all[0], began, "nothing was lost: {all:#?}");
    assert!(all.iter().all(|line| !line.contains("secret-0001") && !line.contains('\n')), "{all:#?}");
    // Another server of the same name has another log.
    app.delete("/api/v0/servers/s").await.expect(204);
    app.get("/api/v0/servers/s/logs").await.expect(404).error();
    app.register_stdio("s", &Behaviour::default()).await;
    assert!(lines(&app, "s").await.iter().all(|line| !line.contains("disabled")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_over_http_has_a_log_too() {
    let app = TestApp::start().await;
    let mut fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("web", &fake).await;
    has(&app, "web", &["gateway: connecting", "gateway: connected, protocol 2025-11-25: "]).await;
    app.invoke("web__fail", json!({})).await.expect(200);
    app.invoke("web__rpc_error", json!({})).await.expect(500);
    has(
        &app,
        "web",
        &[
            "gateway: a call of fail failed: it went wrong",
            "gateway: a call of rpc_error failed: the tool refused (code ",
        ],
    )
    .await;
    fake.set_tools(&["echo"]);
    has(&app, "web", &["gateway: its lists changed: 1 tool, "]).await;
    fake.stop().await;
    app.invoke("web__echo", json!({})).await.expect(500);
    has(&app, "web", &["gateway: its lists changed", "gateway: cannot connect: "]).await;
    let kept =
        json!({"name": "late", "transport": "streamable_http", "url": fake.url(), "keep_failed": true});
    app.register(kept).await;
    has(&app, "late", &["gateway: connecting", "gateway: cannot connect: "]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_are_checked() {
    let app = TestApp::start().await;
    app.register_stdio("s", &Behaviour::of(json!({"stderr": ["1", "2", "3"]}))).await;
    has(&app, "s", &["stderr: 3"]).await;
    for (query, parameter) in [
        ("tail=x", "tail"),
        ("tail=0", "tail"),
        ("tail=-1", "tail"),
        ("tail=1001", "tail"),
        ("tail=99999999999999999999", "tail"),
        ("follow=maybe", "follow"),
        ("tail=1.5&follow=true", "tail"),
    ] {
        let error = app.get(&format!("/api/v0/servers/s/logs?{query}")).await.expect(400).error();
        assert!(error.contains(parameter), "{query}: {error}");
    }
    for query in ["", "?tail=2", "?follow=true"] {
        app.get(&format!("/api/v0/servers/nosuch/logs{query}")).await.expect(404).error();
    }
    let two = app.get("/api/v0/servers/s/logs?tail=2").await.expect(200).json();
    assert_eq!(two["lines"].as_array().unwrap().len(), 2);
    assert!(
        lines(&app, "s")
            .await
            .ends_with(&two["lines"].as_array().unwrap().iter().map(shown).collect::<Vec<_>>())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_begins_with_the_tail_goes_on_and_ends_with_the_server() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    has(&app, "s", &["gateway: connected"]).await;
    let count = lines(&app, "s").await.len();
    let mut events = follow(&app, "s", "&tail=1", None).await;
    let mut all = follow(&app, "s", "", None).await;
    assert!(next(&mut events).await.starts_with("gateway: connected"));
    for _ in 0..count {
        next(&mut all).await;
    }
    app.invoke("s__fail", json!({})).await.expect(200);
    assert_eq!(next(&mut events).await, "gateway: a call of fail failed: it went wrong");
    assert_eq!(next(&mut all).await, "gateway: a call of fail failed: it went wrong");
    // Neither another connection nor being disabled ends it, and neither does the change of another server.
    app.register_stdio("other", &Behaviour::default()).await;
    app.delete("/api/v0/servers/other").await.expect(204);
    app.post("/api/v0/servers/s/disable", json!({})).await.expect(200);
    assert_eq!(next(&mut events).await, "gateway: disabled");
    app.post("/api/v0/servers/s/enable", json!({})).await.expect(200);
    until(&mut events, "gateway: connected").await;
    app.patch("/api/v0/servers/s", json!({"session_mode": "stateful"})).await.expect(200);
    until(&mut events, "gateway: connected").await;
    app.delete("/api/v0/servers/s").await.expect(204);
    tokio::join!(end(events), end(all));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_the_token_the_role_and_the_gateway() {
    let mut app = TestApp::start_enterprise().await;
    app.register_stdio("s", &Behaviour::default()).await;
    let (user, client) = (app.create_user("u", "user").await, app.create_client("c", &["*"]).await);
    for (token, status) in [(user.as_str(), 403), (client.as_str(), 401), ("nobody", 401)] {
        for query in ["", "?follow=true"] {
            let path = format!("/api/v0/servers/s/logs{query}");
            app.send_as(token, "GET", &path, json!({})).await.expect(status).error();
        }
    }
    for how in ["delete", "replace", "demote"] {
        let token = app.create_user("second", "admin").await;
        let mut events = follow(&app, "s", "", Some(&token)).await;
        until(&mut events, "gateway: connected").await;
        match how {
            "delete" => drop(app.delete("/api/v0/users/second").await.expect(204)),
            "replace" => {
                let change = json!({"access_token": "another-token-0001"});
                app.put("/api/v0/users/second", change).await.expect(200);
            }
            _ => drop(app.put("/api/v0/users/second", json!({"role": "user"})).await.expect(200)),
        }
        end(events).await;
        if how != "delete" {
            app.delete("/api/v0/users/second").await.expect(204);
        }
    }
    let own = app.authorization.clone().unwrap();
    let mut events = follow(&app, "s", "", Some(own.trim_start_matches("Bearer "))).await;
    until(&mut events, "gateway: connected").await;
    tokio::join!(end(events), app.stop());
}

#[tokio::test]
async fn streams_of_logs_are_bounded_like_others() {
    let app = TestApp::start_enterprise_with(|config| config.limits.streams = 1).await;
    app.register_stdio("s", &Behaviour::default()).await;
    let own = app.authorization.clone().unwrap();
    let token = own.trim_start_matches("Bearer ");
    let first = follow(&app, "s", "", Some(token)).await;
    let second = app.get("/api/v0/servers/s/logs?follow=true").await.expect(429);
    assert!(second.error().contains("MAX_STREAMS"));
    assert_eq!(second.headers["retry-after"], "1");
    app.get("/api/v0/servers/s/logs").await.expect(200);
    let other = app.create_user("second", "admin").await;
    follow(&app, "s", "", Some(&other)).await;
    drop(first);
    eventually("its place is free again", async || {
        let headers = [EVENTS, ("authorization", own.as_str())];
        let path = "/api/v0/servers/s/logs?follow=true";
        client::open(&app.address, "GET", path, &headers, Vec::new()).await.0.status() == 200
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_has_the_whole_reason_of_an_error_id() {
    let app = TestApp::start_enterprise().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy", "fail": {"tools/call": 500}}))).await;
    app.register_http("s", &fake).await;
    let user = app.create_user("u", "user").await;
    let told = app.send_as(&user, "POST", "/api/v0/tools/invoke", json!({"name": "s__echo"})).await;
    let told = told.expect(500).error();
    let id = told.rsplit_once("(error id ").unwrap().1.trim_end_matches(')').to_owned();
    has(&app, "s", &[&format!("gateway: error id {id}: ")]).await;
    let lines = lines(&app, "s").await;
    let line = lines.iter().find(|line| line.contains(&id)).unwrap();
    assert!(line.contains("/mcp") && line.contains("HTTP status 500"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_shows_the_last_lines_and_follows_them_over_a_restart() {
    let gateway = Process::start().await;
    let cli = Cli::new(&gateway.address);
    let mut input = stdio_input("s", &Behaviour::of(json!({"stderr": ["first \u{1b}[31m", "second"]})));
    input["env"] = json!({"KEY": "secret-0001"});
    gateway.post("/api/v0/servers", &input).await.expect(201);
    eventually("it is read", async || cli.ok(&["logs", "s"]).await.contains(" stderr  second\n")).await;
    let printed = cli.ok(&["logs", "s"]).await;
    assert!(printed.contains("Z stderr  first \\u{1b}[31m\n"), "{printed}");
    assert!(printed.starts_with("20") && printed.contains("Z gateway connecting\n"), "{printed}");
    assert_eq!(cli.ok(&["logs", "s", "--tail", "1"]).await.lines().count(), 1);
    let page = cli.json(&["logs", "s"]).await;
    assert!(page["lines"].as_array().unwrap().iter().any(|line| line["source"] == "stderr"), "{page}");
    for tail in ["0", "1001", "x"] {
        assert_eq!(cli.run(&["logs", "s", "--tail", tail]).await.code, Some(2), "{tail}");
    }
    assert!(cli.fails(&["logs", "nosuch"]).await.contains("nosuch"));
    assert!(cli.fails(&["logs", "nosuch", "-f"]).await.contains("nosuch"));

    let mut following = Terminal::start(&cli, &["logs", "s", "-f", "--tail", "1"]);
    let mut printed = Printed(following.stdout(), String::new());
    printed.until("\n").await;
    gateway.post("/api/v0/servers/s/disable", &json!({})).await.expect(200);
    printed.until("gateway disabled\n").await;
    // The gateway is restarted at the same address.
    let address = gateway.address.clone();
    gateway.signal(libc::SIGTERM);
    let (_, folder) = gateway.end().await;
    let port = address.rsplit_once(':').unwrap().1.to_owned();
    following.sees("opening it again").await;
    let gateway = Process::start_in(folder, &[("PORT", &port)]).await;
    gateway.post("/api/v0/servers/s/enable", &json!({})).await.expect(200);
    printed.until("gateway enabled\n").await;
    printed.until("stderr  second\n").await;
    assert_eq!(printed.1.matches("gateway disabled\n").count(), 1, "{}", printed.1);
    gateway.request("DELETE", "/api/v0/servers/s", &[]).await.expect(204);
    let ended = following.end().await;
    assert!(ended.code == Some(1) && ended.stderr.contains("does not exist"), "{ended:?}");
}

/// The output of a command so far.
struct Printed(tokio::process::ChildStdout, String);

impl Printed {
    async fn until(&mut self, text: &str) {
        use tokio::io::AsyncReadExt;
        while !self.1.contains(text) {
            let mut buffer = [0; 4096];
            let reading = tokio::time::timeout(std::time::Duration::from_secs(60), self.0.read(&mut buffer));
            let count = reading.await.unwrap_or_else(|_| panic!("{text:?} does not come after {}", self.1));
            let count = count.unwrap();
            assert!(count > 0, "the output ended before {text:?}: {}", self.1);
            self.1.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    }
}
