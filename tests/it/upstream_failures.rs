//! Servers that cannot be connected: the error names the server, the problem and the solution; nothing is left behind.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::app::stdio_input;
use crate::support::{Behaviour, Fake, TestApp, eventually};

async fn refused(app: &TestApp, input: Value) -> String {
    let name = input["name"].as_str().unwrap().to_owned();
    let error = app.post("/api/v0/servers", input).await.expect(500).error();
    app.get(&format!("/api/v0/servers/{name}")).await.expect(404);
    error
}

fn http_input(url: &str) -> Value {
    json!({ "name": "s", "transport": "streamable_http", "url": url })
}

async fn impatient() -> TestApp {
    TestApp::start_with(|config| config.init_timeout = Duration::from_millis(1200)).await
}

/// Whether a process with this text among its arguments is alive.
fn is_running(mark: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut commands = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    commands.any(|command| String::from_utf8_lossy(&command).contains(mark))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_is_given_up_naming_what_was_waited_for() {
    let app = impatient().await;
    for stalled in ["tools/list", "initialize"] {
        let behaviour = json!({ "era": "legacy", "stall": [stalled], "stderr": ["first line", "last line"] });
        let behaviour = Behaviour::of(behaviour);
        let fake = Fake::start(behaviour.clone()).await;
        let sse = json!({ "name": "sse", "transport": "sse", "url": fake.sse_url() });
        let (http, sse, stdio) = tokio::join!(
            refused(&app, http_input(&fake.url())),
            refused(&app, sse),
            refused(&app, stdio_input("stdio", &behaviour)),
        );
        for error in [&http, &sse, &stdio] {
            assert!(error.contains(stalled) && error.contains("1.2 s"), "{error}");
        }
        assert!(http.contains(&fake.url()) && sse.contains(&fake.sse_url()), "{http} {sse}");
        assert!(stdio.contains("first line\nlast line") && stdio.contains("fake_upstream"), "{stdio}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_server_that_was_given_up_goes_on() {
    let app = impatient().await;
    for era in ["legacy", "modern"] {
        let mark = format!("given-up-{era}-{}", std::process::id());
        let behaviour = Behaviour::of(json!({ "era": era, "stall": ["tools/list"], "instructions": mark }));
        let fake = Fake::start(behaviour.clone()).await;
        tokio::join!(refused(&app, stdio_input("stdio", &behaviour)), refused(&app, http_input(&fake.url())),);
        eventually("its process is gone", async || !is_running(&mark)).await;
        eventually("its streams are closed", async || fake.open_streams() == 0).await;
        eventually("its sessions are ended", async || fake.sessions().is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_does_not_exist_is_named() {
    let app = TestApp::start().await;
    let input = json!({ "name": "s", "transport": "stdio", "command": "no-such-command-anywhere" });
    let error = refused(&app, input).await;
    assert!(error.contains("no-such-command-anywhere") && error.contains("not found"), "{error}");
    let cwd = json!({ "name": "s", "transport": "stdio", "command": "true", "cwd": "/no/such/folder" });
    let error = refused(&app, cwd).await;
    assert!(error.contains("/no/such/folder"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_ends_at_once_gives_its_status_and_last_words() {
    let app = TestApp::start().await;
    for round in 0..5 {
        let lines: Vec<_> = (0..30).map(|n| format!("line {n} of round {round}")).collect();
        let behaviour = Behaviour::of(json!({ "exit_on_start": 7, "stderr": lines }));
        let error = refused(&app, stdio_input("s", &behaviour)).await;
        assert!(error.contains("exit status: 7"), "{error}");
        assert!(error.contains(&format!("line 29 of round {round}")), "{error}");
        assert!(!error.contains("line 0 "), "only the last lines: {error}");
    }
    let killed = json!({ "name": "s", "transport": "stdio", "command": "sh", "args": ["-c", "kill -9 $$"] });
    let error = refused(&app, killed).await;
    assert!(error.contains("signal: 9"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_where_nobody_listens_is_named() {
    let app = TestApp::start().await;
    let mut fake = Fake::start(Behaviour::default()).await;
    fake.stop().await;
    let sse = json!({ "name": "s", "transport": "sse", "url": fake.sse_url() });
    for input in [http_input(&fake.url()), sse] {
        let error = refused(&app, input.clone()).await;
        assert!(error.contains(input["url"].as_str().unwrap()) && error.contains("refused"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_wants_credentials_says_how_to_give_them() {
    let app = TestApp::start().await;
    for oauth_metadata in [false, true] {
        let behaviour = json!({ "bearer": "right-token", "oauth_metadata": oauth_metadata });
        let fake = Fake::start(Behaviour::of(behaviour)).await;
        let sse = json!({ "name": "s", "transport": "sse", "url": fake.sse_url() });
        for mut input in [http_input(&fake.url()), sse] {
            let error = refused(&app, input.clone()).await;
            assert!(error.contains("bearer_token") && error.contains("headers"), "{error}");
            assert!(error.contains("401"), "{error}");
            input["bearer_token"] = json!("wrong-token");
            let error = refused(&app, input).await;
            assert!(!error.contains("wrong-token"), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_or_header_reaches_every_request_and_authorization_in_headers_wins() {
    let app = TestApp::start().await;
    let required = json!({ "bearer": "right-token", "require_headers": { "x-key": "k-123" } });
    let fake = Fake::start(Behaviour::of(required)).await;
    let headers = json!({ "X-Key": "k-123" });
    let winning = json!({ "x-key": "k-123", "authorization": "Bearer right-token" });
    let ways = [
        ("token", json!({ "bearer_token": "right-token", "headers": headers })),
        ("header", json!({ "bearer_token": "wrong", "headers": winning })),
    ];
    for (name, way) in ways {
        for (transport, url) in [("streamable_http", fake.url()), ("sse", fake.sse_url())] {
            let mut input = way.clone();
            input["name"] = json!(format!("{name}-{}", &transport[..3]));
            (input["transport"], input["url"]) = (json!(transport), json!(url));
            app.register(input.clone()).await;
            let tool = format!("{}__echo", input["name"].as_str().unwrap());
            assert_eq!(app.call(&tool, json!({ "text": "in" })).await, "in");
        }
    }
    for seen in fake.seen() {
        assert_eq!(seen.headers["authorization"], "Bearer right-token", "{}", seen.method);
        assert_eq!(seen.headers["x-key"], "k-123", "{}", seen.method);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_followed_within_the_origin_only() {
    let app = TestApp::start().await;
    let elsewhere = Fake::start(Behaviour::default()).await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    let mut input = http_input(&fake.url_of("/moved"));
    input["bearer_token"] = json!("secret-token");
    app.register(input.clone()).await;
    assert_eq!(app.call("s__echo", json!({ "text": "there" })).await, "there");
    app.delete("/api/v0/servers/s").await.expect(204);
    assert_eq!(fake.deleted_sessions().len(), 1);
    for target in [None, Some(elsewhere.url())] {
        fake.update(|behaviour| behaviour.redirect = target);
        input["url"] = json!(fake.url_of("/away"));
        let error = refused(&app, input.clone()).await;
        assert!(error.contains("another origin"), "{error}");
    }
    assert!(elsewhere.seen().is_empty(), "not a byte goes to the other origin");
    let circle = fake.url_of("/away");
    fake.update(|behaviour| behaviour.redirect = Some(circle));
    let error = refused(&app, input).await;
    assert!(error.contains("too many times"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_sse_endpoint_of_another_origin_is_refused() {
    let app = TestApp::start().await;
    let elsewhere = Fake::start(Behaviour::default()).await;
    for endpoint in [elsewhere.url_of("/message"), "//localhost:1/message".into()] {
        let fake = Fake::start(Behaviour::of(json!({ "sse_endpoint": endpoint }))).await;
        let error = refused(&app, json!({ "name": "s", "transport": "sse", "url": fake.sse_url() })).await;
        assert!(error.contains("another origin"), "{error}");
    }
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamable_server_registered_as_sse_says_so() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "modern" }))).await;
    let error = refused(&app, json!({ "name": "s", "transport": "sse", "url": fake.url() })).await;
    assert!(error.contains("405") && error.contains("/mcp"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_ended_on_removal_on_disabling_and_on_stop() {
    let mut app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    for name in ["removed", "disabled", "stopped"] {
        app.register_http(name, &fake).await;
    }
    assert_eq!(fake.sessions().len(), 3);
    app.delete("/api/v0/servers/removed").await.expect(204);
    assert_eq!(fake.sessions().len(), 2);
    app.post("/api/v0/servers/disabled/disable", json!({})).await.expect(200);
    assert_eq!(fake.sessions().len(), 1);
    app.stop().await;
    assert!(fake.sessions().is_empty());
    assert_eq!(fake.deleted_sessions().len(), 3);
}
