//! Secrets never appear in a record, an error, a log or a file. The gateway runs as a separate process here, with the
//! most verbose log.

use std::path::Path;
use std::process::Stdio;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::support::{Answer, Behaviour, Fake, TestApp, eventually, request, stdio_command};

/// The prefixes of all secrets below: not even a part of one may appear.
const SECRETS: [&str; 9] =
    ["quok", "narw", "okap", "tapi", "axol", "dugo", "lemu", "b2thcGk6YXhvbG90", "MIIBlem"];

#[track_caller]
fn assert_clean(place: &str, text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret:?} is in {place}: {text}");
    }
}

/// A gateway as a process, with its log in a file.
struct Process {
    address: String,
    folder: TempDir,
    _child: Child,
    _stdout: Lines<BufReader<ChildStdout>>,
}

impl Process {
    async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_toolgate"))
            .args(["start", "--port", "0", "--sqlite-db-path", "data/toolgate.db"])
            .current_dir(folder.path())
            .env("RUST_LOG", "trace")
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().expect("it says where it listens");
        let address = line.split("http://").nth(1).expect("it names an address").to_owned();
        Self { address, folder, _child: child, _stdout: lines }
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> Answer {
        request(&self.address, method, path, &[], body.to_string().into()).await
    }

    /// The log and every file of the database, whatever its name.
    fn assert_files_clean(&self) {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        assert!(log.contains("\"level\":\"debug\""), "the log is talkative: {log}");
        assert_clean("the log", &log);
        let files: Vec<_> = std::fs::read_dir(self.folder.path().join("data")).unwrap().flatten().collect();
        assert!(files.iter().any(|file| file.path().ends_with("toolgate.db")));
        for file in files {
            assert_clean(&file.path().display().to_string(), &lossy(&file.path()));
        }
    }
}

fn lossy(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()
}

/// A server that responds to everything with a status and the whole request, repeated many times.
async fn parrot() -> String {
    let repeat = async |uri: Uri, headers: HeaderMap| {
        let headers: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
        let said =
            format!("{uri} {} okapi axolotl%2F1 axolotl/1 tapir/2 ", headers.join(" ").replace('"', ""));
        (StatusCode::INTERNAL_SERVER_ERROR, said.repeat(20))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(repeat)).await });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_repeats_what_it_was_told_gives_no_secret_away() {
    let gateway = Process::start().await;
    let address = parrot().await;
    let url = format!("http://okapi:axolotl%2F1@{address}/mcp?key=tapir%2F2&narwhal");
    for transport in ["streamable_http", "sse"] {
        for credentials in [json!({ "bearer_token": "quokka-0003" }), json!({})] {
            // With increasing length, so that an excerpt ends in the middle of each secret.
            for padding in 0..40 {
                let mut input = json!({ "name": "web", "transport": transport, "url": url });
                input["headers"] = json!({ "X-Pad": "=".repeat(padding), "X-Key": "dugong  0004" });
                input.as_object_mut().unwrap().extend(credentials.as_object().unwrap().clone());
                let error = gateway.send("POST", "/api/v0/servers", input).await.expect(500).error();
                assert!(error.contains("***") && error.contains(&address), "{error}");
                assert_clean("the error", &error);
            }
        }
    }
    gateway.assert_files_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_prints_its_environment_gives_no_secret_away() {
    let gateway = Process::start().await;
    let key = "-----BEGIN KEY-----\nMIIBlemur0001\nlemur0002\n-----END KEY-----\n";
    let script = "printf '%s' \"$KEY\" >&2; echo \"token=$TOKEN\" >&2; exit 3 # narwhal";
    let input = json!({
        "name": "local", "transport": "stdio", "command": "sh", "args": ["-c", script],
        "env": { "KEY": key, "TOKEN": "quokka-0001" },
    });
    let error = gateway.send("POST", "/api/v0/servers", input).await.expect(500).error();
    assert!(error.contains("token=***") && error.contains('3'), "{error}");
    assert_clean("the error", &error);
    let script = "printf '%0*d' $PAD 0 >&2; echo $TOKEN >&2; exit 3";
    for padding in [4090, 65530] {
        let input = json!({
            "name": "local", "transport": "stdio", "command": "sh", "args": ["-c", script],
            "env": { "PAD": padding.to_string(), "TOKEN": "quokka-0001" },
        });
        let error = gateway.send("POST", "/api/v0/servers", input).await.expect(500).error();
        assert!(error.contains("0000"), "{error}");
        assert_clean("the error", &error);
    }
    let input = json!({ "name": "local", "transport": "stdio", "command": "/no/such", "args": ["narwhal"],
        "env": { "TOKEN": "quokka-0001" }, "cwd": "/" });
    let error = gateway.send("POST", "/api/v0/servers", input).await.expect(500).error();
    assert!(error.contains("/no/such"), "{error}");
    assert_clean("the error", &error);
    gateway.assert_files_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_could_be_secrets_are_masked() {
    let app = TestApp::start().await;
    let input = |name: &str, script: &str| {
        let args = ["-c", script, "x", "--api-key", "hunter-two", "db://mary:pass-word@host", "ordinary"];
        json!({ "name": name, "transport": "stdio", "command": "sh", "args": args })
    };
    let error =
        app.post("/api/v0/servers", input("s", "echo \"got $*\" >&2; exit 3")).await.expect(500).error();
    assert!(error.contains("got --api-key *** db://***:***@host ordinary"), "{error}");
    // The same in a failed call, its note and the lines of standard error.
    let (command, args) = stdio_command(&Behaviour::default());
    let script = format!("echo \"got $*\" >&2; exec {command} {} {} '{}'", args[0], args[1], args[2]);
    app.register(input("s", &script)).await;
    let error = app.invoke("s__die", json!({ "code": 3 })).await.expect(500).error();
    let servers = app.get("/api/dashboard/servers").await.expect(200).text();
    for text in [error, servers, app.server("s").await["status_reason"].to_string()] {
        assert!(!text.contains("hunter-two") && !text.contains("pass-word"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registered_server_gives_no_secret_away_until_admins_export_it() {
    let gateway = Process::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "bearer": "quokka-0003" }))).await;
    let url = fake.url().replace("http://", "http://okapi:axolotl@") + "?key=tapir-0006";
    let web = json!({ "name": "web", "transport": "streamable_http", "url": url,
        "bearer_token": "quokka-0003", "headers": { "X-Key": "dugong-0004" } });
    let script = format!("exec {} --stdio # narwhal", crate::support::stdio_command(&Behaviour::default()).0);
    let local = json!({ "name": "local", "transport": "stdio", "command": "sh", "args": ["-c", script],
        "env": { "TOKEN": "lemur-0001" } });
    for input in [web, local.clone()] {
        gateway.send("POST", "/api/v0/servers", input).await.expect(201);
    }
    let mut servers = gateway.send("GET", "/api/v0/servers", json!(null)).await.expect(200).json();
    assert_eq!(servers[0]["args"].take(), local["args"], "in development everybody is an admin");
    assert_clean("the records", &servers.to_string());
    let exported = gateway.send("GET", "/api/v0/server_configs", json!(null)).await.expect(200).text();
    for secret in ["quokka-0003", "dugong-0004", "tapir-0006", "okapi:axolotl", "narwhal", "lemur-0001"] {
        assert!(exported.contains(secret), "{secret}: {exported}");
    }

    let said = "quokka-0003 dugong-0004 tapir-0006 okapi axolotl Basic b2thcGk6YXhvbG90bA==";
    let failure = json!({ "code": -32000, "message": said });
    let broken_tool = json!({ "name": ["not a name"], "x": said });
    fake.update(|behaviour| {
        behaviour.fail =
            [("tools/call".into(), failure.clone()), ("prompts/list".into(), failure.clone())].into();
        behaviour.tools = Some(vec![serde_json::value::to_raw_value(&broken_tool).unwrap()]);
    });
    let invoke = json!({ "name": "web__echo", "text": "hi" });
    let answers = [
        gateway.send("POST", "/api/v0/tools/invoke", invoke).await.expect(500),
        gateway.send("POST", "/api/v0/servers/web/refresh", json!(null)).await.expect(500),
    ];
    for answer in answers {
        let error = answer.error();
        assert!(error.contains("***"), "{error}");
        assert_clean("the error", &error);
    }
    let degraded = async || {
        let record = gateway.send("GET", "/api/v0/servers/web", json!(null)).await.expect(200).json();
        assert_clean("the record", &record.to_string());
        record["status"] == "degraded"
    };
    eventually("it is degraded", degraded).await;
    // An agent gets the error as it is; its record is for others.
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "agent", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {} });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "web__echo", "arguments": {}, "_meta": meta } });
    let headers = [
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "web__echo"),
    ];
    let answer = request(&gateway.address, "POST", "/mcp", &headers, call.to_string().into()).await;
    assert!(answer.text().contains("quokka-0003"), "{}", answer.text());
    let recorded = async || {
        let calls = gateway.send("GET", "/api/v0/calls", json!(null)).await.expect(200).json();
        assert_clean("the records of calls", &calls.to_string());
        calls["calls"].as_array().unwrap().iter().filter(|call| call["name"] == "echo").count() == 2
    };
    eventually("both calls are recorded", recorded).await;
    gateway.send("POST", "/api/v0/servers/web/disable", json!(null)).await.expect(200);
    gateway.send("DELETE", "/api/v0/servers/local", json!(null)).await.expect(204);
    gateway.assert_files_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_reason_gives_no_secret_away() {
    let app = TestApp::start().await;
    let twice = json!({ "name": "quokka-0003", "inputSchema": { "type": "object" } });
    let fake = Fake::start(Behaviour::of(json!({ "tools": [twice, twice] }))).await;
    let record = app
        .register(json!({ "name": "web", "transport": "streamable_http", "url": fake.url(),
            "bearer_token": "quokka-0003" }))
        .await;
    assert_eq!(record["status"], "degraded");
    assert!(record["status_reason"].as_str().unwrap().contains("***"), "{record}");
    assert_clean("the record", &record.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_in_a_secret_is_named_without_its_value() {
    let app = TestApp::start().await;
    let http = json!({ "name": "web", "transport": "streamable_http", "url": "http://h/" });
    let stdio = json!({ "name": "web", "transport": "stdio", "command": "x" });
    for (base, key, value) in [
        (&http, "bearer_token", json!("quokka\n")),
        (&http, "bearer_token", json!(["quokka"])),
        (&http, "headers", json!({ "A": "quokka\n" })),
        (&http, "headers", json!({ "A": { "quokka": 1 } })),
        (&http, "headers", json!({ "Accept": "quokka" })),
        (&http, "url", json!("ftp://okapi:axolotl@h/?x=tapir")),
        (&http, "url", json!("http://okapi:axolotl@:80/?x=tapir")),
        (&http, "oauth_client_secret", json!({ "quokka": 1 })),
        (&http, "env", json!({ "A": "quokka" })),
        (&stdio, "env", json!({ "A": "quokka\0" })),
        (&stdio, "env", json!({ "A": ["quokka"] })),
        (&stdio, "args", json!(["quokka\0"])),
        (&stdio, "url", json!("http://okapi:axolotl@h/")),
        (&stdio, "bearer_token", json!("quokka")),
    ] {
        let mut input = base.clone();
        input[key] = value;
        let error = app.post("/api/v0/servers", input).await.expect(400).error();
        assert!(error.contains(key), "{error}");
        assert_clean("the error", &error);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_path_of_a_url_is_shown_to_admins_only() {
    let app = TestApp::start_enterprise().await;
    let fake = Fake::start(Behaviour::default()).await;
    let base = fake.url().trim_end_matches("/mcp").to_owned();
    let host = base.trim_start_matches("http://");
    let url = format!("http://me:pass@{host}/mcp?key=planted");
    app.register(json!({"name": "s", "transport": "streamable_http", "url": url})).await;
    let user = app.create_user("ada", "user").await;
    assert_eq!(app.server("s").await["url"], format!("http://***@{host}/mcp?key=***"));
    let one = app.send_as(&user, "GET", "/api/v0/servers/s", json!({})).await.expect(200).json();
    let all = app.send_as(&user, "GET", "/api/v0/servers", json!({})).await.expect(200).json();
    assert_eq!((one["url"].as_str(), all[0]["url"].as_str()), (Some(base.as_str()), Some(base.as_str())));
}
