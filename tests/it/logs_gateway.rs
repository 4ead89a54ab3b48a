//! The log of the gateway itself: text on a terminal, JSON lines otherwise, and nothing of what callers and servers say
//! to each other.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::app::stdio_input;
use crate::support::cli::Cli;
use crate::support::modern::ModernAgent;
use crate::support::terminal::Terminal;
use crate::support::{Agent, Behaviour, Fake, Process, TestApp, bearer};

/// Stands for arguments, results and other content of messages.
const MARK: &str = "mark-7261";

async fn log_of(gateway: Process) -> String {
    gateway.signal(libc::SIGTERM);
    let log = gateway.log.clone();
    assert_eq!(gateway.end().await.0, Some(0));
    let log = log.lock().unwrap().clone();
    assert!(log.contains("stopping"), "it was read to its end: {log}");
    log
}

/// The lines of a log in JSON, which must have the usual members.
#[track_caller]
fn objects(log: &str) -> Vec<Value> {
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    for line in &lines {
        assert!(["at", "level", "target", "message"].iter().all(|key| line[key].is_string()), "{line}");
        assert!(line["at"].as_str().unwrap().ends_with('Z'), "{line}");
    }
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_json_unless_they_go_to_a_terminal() {
    let gateway = Process::start().await;
    gateway.post("/api/v0/servers", &stdio_input("s", &Behaviour::default())).await.expect(201);
    let lines = objects(&log_of(gateway).await);
    let stored = lines.iter().find(|line| line["message"] == "stored a server").unwrap();
    assert_eq!((&stored["level"], &stored["server"]), (&json!("info"), &json!("s")));
    assert!(stored["tools"].is_u64() && stored["target"].as_str().unwrap().starts_with("gateway::"));
    let gateway = Process::start_in(TempDir::new().unwrap(), &[("LOG_FORMAT", "text")]).await;
    let log = log_of(gateway).await;
    assert!(log.contains(" INFO ") && !log.contains('{'), "{log}");

    for (file, wanted, unwanted) in
        [("", "INFO", "\"level\""), ("LOG_FORMAT=json", "\"level\":\"info\"", "INFO")]
    {
        let cli = Cli::new("127.0.0.1:1");
        cli.write(".env", file);
        let mut terminal = Terminal::start(&cli, &["start", "--port", "0"]);
        let mut started = tokio::io::BufReader::new(terminal.stdout());
        tokio::io::AsyncBufReadExt::read_line(&mut started, &mut String::new()).await.unwrap();
        terminal.types("\u{3}");
        terminal.sees("stopping").await;
        let shown = terminal.end().await.stderr;
        assert!(shown.contains(wanted) && !shown.contains(unwanted), "{file}: {shown}");
    }
}

fn is_id(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_line_has_arguments_or_results() {
    for format in ["text", "json"] {
        let variables = [("RUST_LOG", "debug"), ("LOG_FORMAT", format)];
        let gateway = Process::start_in(TempDir::new().unwrap(), &variables).await;
        let app = TestApp::elsewhere(&gateway.address, None);
        let fake = Fake::start(Behaviour::of(json!({"era": "legacy", "answer": "sse"}))).await;
        app.register_http("web", &fake).await;
        app.register_stdio("local", &Behaviour::of(json!({"stderr": [MARK]}))).await;
        let old = Agent::connect(&app, "/mcp").await;
        let new = ModernAgent::at(&app, "/mcp");
        for server in ["web", "local"] {
            let name = |tool: &str| format!("{server}__{tool}");
            for (tool, arguments) in [
                ("echo", json!({"text": MARK})),
                ("echo_args", json!({"text": MARK})),
                ("structured", json!({"city": MARK})),
                ("progress", json!({"steps": 2, "text": MARK})),
                ("log", json!({"data": MARK, "level": "error"})),
                ("rpc_error", json!({"text": MARK})),
                ("fail", json!({"text": MARK})),
                ("garbage", json!({"text": MARK})),
                ("nosuch", json!({"text": MARK})),
            ] {
                app.invoke(&name(tool), arguments.clone()).await;
                let mut body = arguments.clone();
                body["name"] = json!(name(tool));
                let events = [("accept", "text/event-stream")];
                app.send("POST", "/api/v0/tools/invoke", &events, body.to_string()).await;
                old.request("tools/call", json!({"name": name(tool), "arguments": arguments})).await;
                new.request("tools/call", json!({"name": name(tool), "arguments": arguments})).await;
            }
            let prompt = json!({"name": name("greet"), "arguments": {"who": MARK, "name": MARK}});
            old.request("prompts/get", prompt).await;
            app.call(&name("echo"), json!({"text": MARK})).await;
        }
        // Calls that fail because of the link, the time or the server's answer.
        fake.update(|behaviour| {
            behaviour.fail.insert("tools/call".into(), json!({"code": -1, "message": MARK, "data": MARK}));
        });
        app.invoke("web__echo", json!({"text": MARK})).await.expect(500);
        fake.update(|behaviour| drop(behaviour.fail.insert("tools/call".into(), json!(500))));
        app.invoke("web__echo", json!({"text": MARK})).await.expect(500);
        fake.update(|behaviour| behaviour.fail.clear());
        app.patch("/api/v0/servers/web", json!({"timeout_ms": 100})).await.expect(200);
        app.invoke("web__slow", json!({"ms": 60_000, "text": MARK})).await.expect(500);
        app.invoke("local__die", json!({"text": MARK, "code": 1})).await.expect(500);
        app.call("local__echo", json!({"text": MARK})).await;
        let log = log_of(gateway).await;
        assert!(log.contains("a call ended") && log.contains("lost the link to a server"), "{log}");
        let told: Vec<_> = log.lines().filter(|line| line.contains(MARK)).collect();
        assert!(told.is_empty(), "{told:#?}");
        let ended: Vec<_> = log.lines().filter(|line| line.contains("a call ended")).collect();
        assert!(ended.len() > 60, "{}", ended.len());
        let key = if format == "json" { "\"call\":\"" } else { "call=" };
        let has_id = |line: &&str| line.split_once(key).is_some_and(|(_, id)| is_id(&id[..24]));
        let unnamed: Vec<_> = ended.iter().filter(|line| !has_id(line)).collect();
        assert!(unnamed.is_empty(), "{unnamed:#?}");
        if format == "json" {
            objects(&log);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_a_user_may_not_see_is_logged_without_what_the_server_said() {
    let variables = [("SERVER_MODE", "enterprise"), ("HOST", "127.0.0.1"), ("RUST_LOG", "debug")];
    let gateway = Process::start_in(TempDir::new().unwrap(), &variables).await;
    let admin = gateway.post("/init", &json!({})).await.expect(200).json();
    let admin = admin["admin_access_token"].as_str().unwrap().to_owned();
    let app = TestApp::elsewhere(&gateway.address, Some(bearer(&admin)));
    app.register_stdio("s", &Behaviour::of(json!({"stderr": [MARK]}))).await;
    let user = app.create_user("u", "user").await;
    let call = json!({"name": "s__die", "code": 3, "text": MARK});
    let told = app.send_as(&user, "POST", "/api/v0/tools/invoke", call).await.expect(500).error();
    let id = told.rsplit_once("(error id ").unwrap().1.trim_end_matches(')').to_owned();
    let lines = objects(&log_of(gateway).await);
    let line = lines.iter().find(|line| line["error_id"] == *id).expect("it is logged");
    assert_eq!((&line["level"], &line["server"]), (&json!("warn"), &json!("s")));
    assert_eq!(line["reason"], "the process ended with status 3");
    assert!(!lines.iter().any(|line| line.to_string().contains(MARK)), "{lines:#?}");
}
