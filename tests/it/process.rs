//! The program itself: how it starts, why it refuses to start, and how it stops.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::support::app::stdio_input;
use crate::support::process::{command, run, send_signal};
use crate::support::{Behaviour, Fake, Process, client, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn start_prints_its_address_and_listens_there() {
    let gateway = Process::start().await;
    assert!(gateway.address.starts_with("127.0.0.1:"), "{}", gateway.address);
    gateway.get("/health").await.expect(200);
    let port = gateway.address.rsplit(':').next().unwrap();
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        let on_v6 = format!("[::1]:{port}");
        client::request(&on_v6, "GET", "/health", &[], Vec::new()).await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn start_prints_what_is_to_be_found_where() {
    for (mode, second, last) in [
        ("development", "  Dashboard     http://HERE/\n  Mode          development (no tokens)\n", ""),
        (
            "enterprise",
            "  Mode          enterprise (every caller needs a token)\n",
            "It is not initialized yet; run `toolgate --registry http://HERE init-server`.\n",
        ),
    ] {
        let folder = TempDir::new().unwrap();
        let database = folder.path().join("my.db");
        let database = database.to_str().unwrap();
        let variables = [("SERVER_MODE", mode), ("HOST", "127.0.0.1"), ("SQLITE_DB_PATH", database)];
        let printed = greeting(folder.path(), &variables, 7).await;
        let (_, rest) = printed.split_once("http://").unwrap();
        let here = rest.lines().next().unwrap();
        let wanted = format!(
            "toolgate v0.1.0 listens on http://HERE\n  MCP endpoint  http://HERE/mcp\n  REST API      http://HERE/api/v0\n\
             {second}  Database      {database} (new)\n  Servers       0\n{last}"
        );
        assert_eq!(printed.replace(here, "HERE"), wanted);
        let again = greeting(folder.path(), &variables, 7).await;
        assert!(again.contains(&format!("  Database      {database}\n")), "{again}");
    }
}

/// The first lines that a gateway prints.
async fn greeting(folder: &std::path::Path, variables: &[(&str, &str)], lines: usize) -> String {
    let mut child = command(folder, variables).spawn().unwrap();
    let mut reader = tokio::io::BufReader::new(child.stdout.take().unwrap());
    let mut printed = String::new();
    for _ in 0..lines {
        let read = tokio::io::AsyncBufReadExt::read_line(&mut reader, &mut printed);
        tokio::time::timeout(Duration::from_secs(30), read).await.expect("it greets").unwrap();
    }
    send_signal(&child, libc::SIGTERM);
    child.wait().await.unwrap();
    printed
}

#[tokio::test(flavor = "multi_thread")]
async fn start_warns_of_a_database_elsewhere_only_if_it_makes_a_new_one() {
    let home = TempDir::new().unwrap();
    let project = home.path().join("project");
    std::fs::create_dir(&project).unwrap();
    let variables = [("HOST", "127.0.0.1"), ("HOME", home.path().to_str().unwrap())];
    greeting(home.path(), &variables, 7).await;
    let printed = greeting(&project, &variables, 8).await;
    let other = home.path().join("toolgate.db");
    let warning = format!("Warning: this database is new, and there is one at {};", other.display());
    assert!(printed.contains(&warning) && printed.contains("--sqlite-db-path"), "{printed}");
    assert!(!greeting(&project, &variables, 7).await.contains("Warning"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_development_gateway_that_others_can_reach_says_so() {
    for (mode, host, is_open) in [
        ("development", "0.0.0.0", true),
        ("development", "127.0.0.1", false),
        ("enterprise", "0.0.0.0", false),
    ] {
        let folder = TempDir::new().unwrap();
        let mut child = command(folder.path(), &[("SERVER_MODE", mode), ("HOST", host)]).spawn().unwrap();
        let mut greeting = [0; 4096];
        let read = tokio::io::AsyncReadExt::read(child.stdout.as_mut().unwrap(), &mut greeting);
        let length = tokio::time::timeout(Duration::from_secs(30), read).await.expect("it greets").unwrap();
        send_signal(&child, libc::SIGTERM);
        let output = child.wait_with_output().await.unwrap();
        for said in [String::from_utf8_lossy(&greeting[..length]), String::from_utf8_lossy(&output.stderr)] {
            assert_eq!(
                said.contains("anyone who can reach it can run commands"),
                is_open,
                "{mode} {host}: {said}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_printed_and_wrong_usage_is_2() {
    for (argument, code, stdout) in [("version", 0, "toolgate v0.1.0\n"), ("fly", 2, ""), ("--fly", 2, "")] {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_toolgate"));
        command.arg(argument);
        let ended = run(command).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), stdout), "{argument}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_env_file_counts_below_the_environment_and_that_below_flags() {
    let folder = TempDir::new().unwrap();
    let text = "# ours\nPORT=notaport\nexport SQLITE_DB_PATH='from file.db'\nOTEL_ENABLED=1 # metrics\n";
    std::fs::write(folder.path().join(".env"), text).unwrap();
    let gateway = Process::start_in(folder, &[]).await;
    gateway.get("/metrics").await.expect(200);
    assert!(gateway.folder.path().join("from file.db").exists());
    gateway.signal(libc::SIGTERM);
    let (code, folder) = gateway.end().await;
    assert_eq!(code, Some(0));
    let gateway = Process::start_in(folder, &[("OTEL_ENABLED", "false")]).await;
    gateway.get("/metrics").await.expect(404);
    gateway.signal(libc::SIGTERM);
    let (_, folder) = gateway.end().await;
    let mut without_port = command(folder.path(), &[]);
    without_port.env_remove("PORT");
    assert!(run(without_port).await.sentence().contains("PORT=notaport"));
    let mut flagged = command(folder.path(), &[("SQLITE_DB_PATH", "a.db"), ("PORT", "1")]);
    flagged.args(["--port", "0", "--sqlite-db-path", "missing/b.db"]);
    assert!(run(flagged).await.sentence().contains("missing"), "the flag's path is the one that is missing");
    std::fs::write(folder.path().join(".env"), "RUST_LOG=toolgate=nolevel\n").unwrap();
    assert!(run(command(folder.path(), &[])).await.sentence().contains("RUST_LOG"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_value_is_one_sentence_that_names_the_variable() {
    let folder = TempDir::new().unwrap();
    for (name, value) in [
        ("PORT", "http"),
        ("PORT", "65536"),
        ("PORT", "-1"),
        ("HOST", "not a host"),
        ("SERVER_MODE", "sandbox"),
        ("DATABASE_URL", "postgres://u:secret@h:port/db"),
        ("DATABASE_URL", "postgresql://u:secret@h"),
        ("DATABASE_URL", "mysql://u:secret@h/db"),
        ("DATABASE_POOL", "1"),
        ("STALE_RIGHTS_SEC", "soon"),
        ("TOOLGATE_SECRET_KEY", "secret"),
        ("MCP_SERVER_INIT_REQ_TIMEOUT_SEC", "soon"),
        ("MCP_SERVER_INIT_REQ_TIMEOUT_SEC", "0"),
        ("SESSION_IDLE_TIMEOUT_SEC", "1.5"),
        ("PUBLIC_URL", "gate.example"),
        ("PUBLIC_URL", "ftp://gate.example"),
        ("TRUST_PROXY", "yes"),
        ("ALLOWED_ORIGINS", "*"),
        ("OAUTH_ALLOW_PRIVATE", "x"),
        ("OAUTH", "x"),
        ("OIDC_ISSUER", "http://idp.example"),
        ("OTEL_ENABLED", "on"),
        ("RUST_LOG", "toolgate=nolevel"),
        ("LOG_FORMAT", "xml"),
        ("LOG_FORMAT", "JSON"),
    ] {
        let ended = run(command(folder.path(), &[(name, value)])).await;
        let sentence = ended.sentence();
        assert!(sentence.contains(name), "{name}={value}: {sentence}");
        assert!(!sentence.contains("secret@") && !sentence.contains("=secret"), "{sentence}");
    }
    // Several gateways share a key, so none makes one up.
    for (name, value) in [("DATABASE_URL", "postgres://u:secret@h/db"), ("POSTGRES_HOST", "db.example")] {
        let ended = run(command(folder.path(), &[(name, value)])).await;
        let sentence = ended.sentence();
        assert!(sentence.contains("TOOLGATE_SECRET_KEY") && !sentence.contains("secret@"), "{sentence}");
    }
    let mut usage = command(folder.path(), &[]);
    usage.args(["--port", "many"]);
    assert_eq!(run(usage).await.code, Some(2), "a wrong flag is wrong usage");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_gateway_on_the_same_database_or_port_is_refused() {
    let gateway = Process::start().await;
    let path = gateway.folder.path();
    let sentence = run(command(path, &[])).await;
    assert!(sentence.sentence().contains("toolgate.db"), "{sentence:?}");
    let port = gateway.address.rsplit(':').next().unwrap();
    let elsewhere = TempDir::new().unwrap();
    let sentence = run(command(elsewhere.path(), &[("PORT", port)])).await;
    assert!(sentence.sentence().contains(port) && sentence.sentence().contains("in use"), "{sentence:?}");
    gateway.get("/health").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_file_is_private_and_a_missing_one_is_not_made_anew() {
    let gateway = Process::start().await;
    let key = gateway.folder.path().join("toolgate.key");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&key), 0o600);
    assert_eq!(mode(&gateway.folder.path().join("toolgate.db")), 0o600);
    gateway.signal(libc::SIGTERM);
    let (_, folder) = gateway.end().await;
    let kept = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    let ended = run(command(folder.path(), &[])).await;
    assert!(ended.sentence().contains("toolgate.key"), "{ended:?}");
    assert!(!key.exists());
    let other = "ab".repeat(32);
    let ended = run(command(folder.path(), &[("TOOLGATE_SECRET_KEY", &other)])).await;
    assert!(ended.sentence().contains("TOOLGATE_SECRET_KEY"), "{ended:?}");
    let text = String::from_utf8(kept).unwrap();
    Process::start_in(folder, &[("TOOLGATE_SECRET_KEY", text.trim())]).await.get("/health").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_it_with_0_and_calls_under_way_are_finished() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let gateway = Process::start().await;
        let fake = Fake::start(Behaviour::default()).await;
        let input = json!({ "name": "s", "transport": "streamable_http", "url": fake.url() });
        gateway.post("/api/v0/servers", &input).await.expect(201);
        // The stop waits neither for an idle connection nor for one that never sent a request.
        let address = gateway.address.clone();
        let _silent = TcpStream::connect(&address).await.unwrap();
        let _resting = client::open(&address, "GET", "/health", &[], Vec::new()).await;
        let call = tokio::spawn(async move {
            let body = json!({ "name": "s__slow", "ms": 700 }).to_string();
            client::request(&address, "POST", "/api/v0/tools/invoke", &[], body.into()).await
        });
        eventually("the call runs", async || fake.calls_of("slow") == 1).await;
        let begun = Instant::now();
        gateway.signal(signal);
        let address = gateway.address.clone();
        eventually("nobody new is let in", async || TcpStream::connect(&address).await.is_err()).await;
        assert!(call.await.unwrap().expect(200).text().contains("done"));
        assert_eq!(gateway.end().await.0, Some(0), "{signal}");
        assert!(begun.elapsed() < Duration::from_secs(8), "{signal}: {:?}", begun.elapsed());
        eventually("the session is ended", async || fake.sessions().is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_alone_stops_listening_before_its_calls_end() {
    let gateway = Process::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let input = json!({ "name": "s", "transport": "streamable_http", "url": fake.url() });
    gateway.post("/api/v0/servers", &input).await.expect(201);
    let address = gateway.address.clone();
    let call = tokio::spawn(async move {
        let body = json!({ "name": "s__slow", "ms": 5000 }).to_string();
        client::request(&address, "POST", "/api/v0/tools/invoke", &[], body.into()).await
    });
    eventually("the call runs", async || fake.calls_of("slow") == 1).await;
    gateway.signal(libc::SIGTERM);
    let address = gateway.address.clone();
    eventually("nobody new is let in", async || TcpStream::connect(&address).await.is_err()).await;
    assert!(!call.is_finished(), "nothing is waited for before the listener closes");
    assert!(call.await.unwrap().expect(200).text().contains("done"));
    assert_eq!(gateway.end().await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_end_gets_ten_seconds() {
    let gateway = Process::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let input = json!({ "name": "s", "transport": "streamable_http", "url": fake.url() });
    gateway.post("/api/v0/servers", &input).await.expect(201);
    let address = gateway.address.clone();
    let call = tokio::spawn(async move {
        let body = json!({ "name": "s__slow", "ms": 60_000 }).to_string();
        client::request(&address, "POST", "/api/v0/tools/invoke", &[], body.into()).await
    });
    eventually("the call runs", async || fake.calls_of("slow") == 1).await;
    let begun = Instant::now();
    gateway.signal(libc::SIGTERM);
    assert_eq!(gateway.end().await.0, Some(0));
    let took = begun.elapsed();
    assert!((Duration::from_secs(9)..Duration::from_secs(14)).contains(&took), "{took:?}");
    assert!(call.await.unwrap().expect(500).error().contains("s__slow"), "the caller is told");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_stops_immediately() {
    let gateway = Process::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let input = json!({ "name": "s", "transport": "streamable_http", "url": fake.url() });
    gateway.post("/api/v0/servers", &input).await.expect(201);
    let stalled = Fake::start(Behaviour::of(json!({ "stall": ["initialize", "server/discover"] }))).await;
    let call = json!({ "name": "s__slow", "ms": 60_000 });
    let register = json!({ "name": "silent", "transport": "streamable_http", "url": stalled.url() });
    let mut waiting = Vec::new();
    for (path, body) in [("/api/v0/tools/invoke", call), ("/api/v0/servers", register)] {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        waiting.push(client::raw(&gateway.address, head.as_bytes()).await);
    }
    eventually("both are under way", async || fake.calls_of("slow") == 1 && !stalled.seen().is_empty()).await;
    let begun = Instant::now();
    gateway.signal(libc::SIGTERM);
    let address = gateway.address.clone();
    eventually("it is stopping", async || TcpStream::connect(&address).await.is_err()).await;
    gateway.signal(libc::SIGTERM);
    assert_eq!(gateway.end().await.0, Some(0));
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_log_line_has_a_secret_an_argument_or_a_result() {
    let gateway = Process::start_in(TempDir::new().unwrap(), &[("RUST_LOG", "trace")]).await;
    let fake = Fake::start(Behaviour::of(json!({ "bearer": "hush-bearer" }))).await;
    let url = fake.url().replace("http://", "http://hush-user:hush-password@");
    let headers = json!({ "Authorization": "Bearer hush-bearer", "X-Key": "hush-header" });
    let input = json!({ "name": "web", "transport": "streamable_http", "url": url, "headers": headers });
    gateway.post("/api/v0/servers", &input).await.expect(201);
    let mut input = stdio_input("child", &Behaviour::of(json!({ "stderr": ["hush-env was given"] })));
    input["env"] = json!({ "KEY": "hush-env" });
    gateway.post("/api/v0/servers", &input).await.expect(201);
    for server in ["web", "child"] {
        assert_eq!(
            gateway.call(&format!("{server}__echo"), json!({ "text": "hush-argument" })).await,
            "hush-argument"
        );
    }
    gateway.get("/api/v0/server_configs").await.expect(200);
    let bad = json!({ "name": "bad", "transport": "streamable_http", "url": fake.url(), "bearer_token": "hush-wrong" });
    gateway.post("/api/v0/servers", &bad).await.expect(500);
    gateway.signal(libc::SIGTERM);
    let log = gateway.log.clone();
    assert_eq!(gateway.end().await.0, Some(0));
    let log = log.lock().unwrap();
    assert!(log.contains("stopping"), "the log was read: {log}");
    let told: Vec<_> = log.lines().filter(|line| line.contains("hush")).collect();
    assert!(told.is_empty(), "{told:#?}");
    assert!(!log.contains("panicked"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_task_panics_when_a_server_ends_by_itself() {
    let gateway = Process::start().await;
    gateway.post("/api/v0/servers", &stdio_input("s", &Behaviour::of(json!({})))).await.expect(201);
    gateway.post("/api/v0/tools/invoke", &json!({ "name": "s__die" })).await.expect(500);
    assert_eq!(gateway.call("s__echo", json!({ "text": "back" })).await, "back");
    gateway.signal(libc::SIGTERM);
    let log = gateway.log.clone();
    assert_eq!(gateway.end().await.0, Some(0));
    let log = log.lock().unwrap();
    assert!(log.contains("lost the link") && !log.contains("panicked"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_right_after_the_start_stops_gracefully_too() {
    for _ in 0..5 {
        let gateway = Process::start().await;
        gateway.signal(libc::SIGTERM);
        assert_eq!(gateway.end().await.0, Some(0));
    }
}
