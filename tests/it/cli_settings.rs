//! Which gateway and which token the command line uses, and its errors when they do not work.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::cli::Cli;
use crate::support::{Behaviour, Fake, TestApp};

/// Responds to every request with the same bytes and records the heads it received.
async fn stub(answer: &'static str) -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = vec![0; 16 * 1024];
            let length = stream.read(&mut head).await.unwrap_or_default();
            let _ = sender.send(String::from_utf8_lossy(&head[..length]).to_lowercase());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (address, receiver)
}

const EMPTY_LIST: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n[]";

#[tokio::test(flavor = "multi_thread")]
async fn the_flag_wins_over_the_environment_and_that_over_the_file() {
    let (app, cli) = (TestApp::start().await, Cli::new("127.0.0.1:1"));
    let here = format!("http://{}", app.address);
    cli.write(".toolgate.conf", &format!("registry_url: {here}\n"));
    assert!(cli.fails(&["list", "servers"]).await.contains("http://127.0.0.1:1"), "the environment wins");
    cli.ok(&["list", "servers", "--registry", &here]).await;
    cli.ok(&["--registry", &format!("{here}/"), "list", "servers"]).await;
    let mut from_file = cli.command(&["list", "servers"]);
    let ended = from_file.env_remove("TOOLGATE_REGISTRY").output().await.unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_token_goes_only_to_the_files_gateway() {
    let (ours, mut at_ours) = stub(EMPTY_LIST).await;
    let (other, mut at_other) = stub(EMPTY_LIST).await;
    let cli = Cli::new(&ours);
    cli.write(".toolgate.conf", &format!("registry_url: \"http://{ours}/\"\naccess_token: file-token\n"));
    cli.ok(&["list", "servers"]).await;
    assert!(at_ours.recv().await.unwrap().contains("authorization: bearer file-token"));
    cli.ok(&["list", "servers", "--registry", &format!("http://{other}")]).await;
    assert!(!at_other.recv().await.unwrap().contains("authorization"));
    cli.run_with(
        &["list", "servers", "--registry", &format!("http://{other}")],
        &[("TOOLGATE_TOKEN", "env-token")],
    )
    .await;
    assert!(at_other.recv().await.unwrap().contains("authorization: bearer env-token"));
    cli.run_with(&["list", "servers"], &[("TOOLGATE_TOKEN", "env-token")]).await;
    assert!(at_ours.recv().await.unwrap().contains("authorization: bearer env-token"));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_escaped_and_a_path_of_the_gateway_is_kept() {
    let (address, mut heads) = stub(EMPTY_LIST).await;
    let cli = Cli::new(&address);
    cli.run(&["--registry", &format!("http://{address}/gate/"), "get", "server", "a/b ?#"]).await;
    let head = heads.recv().await.unwrap();
    assert!(head.starts_with("get /gate/api/v0/servers/a%2fb%20%3f%23 "), "{head}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_not_asked_for_this_machine() {
    let app = TestApp::start().await;
    let ended =
        Cli::new(&app.address).run_with(&["list", "servers"], &[("http_proxy", "http://127.0.0.1:1")]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_certificates_can_still_talk_over_http() {
    let app = TestApp::start().await;
    let nothing = [("SSL_CERT_FILE", "/nonexistent"), ("SSL_CERT_DIR", "/nonexistent")];
    let ended = Cli::new(&app.address).run_with(&["list", "servers"], &nothing).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_gateway_is_named_with_a_hint() {
    let cli = Cli::new("127.0.0.1:1");
    cli.write("a.json", r#"{"name": "a", "transport": "sse", "url": "http://h/"}"#);
    for arguments in [
        &["list", "servers"][..],
        &["invoke", "a__b"],
        &["register", "--conf", "a.json"],
        &["import", "a.json", "--yes"],
        &["export"],
        &["init-server"],
        &["login", "a-token"],
    ] {
        let sentence = cli.fails(arguments).await;
        assert!(sentence.contains("http://127.0.0.1:1") && sentence.contains("toolgate start"), "{sentence}");
    }
    assert!(!cli.home.path().join(".toolgate").exists(), "a failed export leaves nothing");
    assert!(!cli.home.path().join(".toolgate.conf").exists());
    let ended = cli.run(&["version"]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "toolgate v0.1.0\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_program_at_the_address_is_detected() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        "HTTP/1.1 301 Moved\r\nlocation: https://elsewhere/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    ] {
        let (address, _heads) = stub(answer).await;
        let sentence = Cli::new(&address).fails(&["list", "servers"]).await;
        assert!(sentence.contains("does not answer like a gateway"), "{sentence}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn printed_commands_name_the_gateway_of_the_flag() {
    let app = TestApp::start().await;
    for name in ["off", "broken"] {
        let input =
            json!({"name": name, "transport": "stdio", "command": "no-such-program", "keep_failed": true});
        app.post("/api/v0/servers", input).await.expect(201);
    }
    app.post("/api/v0/servers/off/disable", json!({})).await.expect(200);
    let cli = Cli::new("127.0.0.1:1");
    cli.write("several.json", r#"{"mcpServers": {}}"#);
    let registry = format!("http://{}", app.address);
    for (arguments, command) in [
        (&["list", "groups"][..], "create group`"),
        (&["update", "group"], "update group NAME`"),
        (&["update", "server"], "update server NAME`"),
        (&["update", "user"], "update user USERNAME`"),
        (&["update", "mcp-client"], "update mcp-client NAME`"),
        (&["enable"], "enable tool|prompt|server NAME`"),
        (&["register", "--conf", "several.json"], "import several.json`"),
        (&["refresh", "off"], "enable server off`"),
        (&["update", "server", "broken", "--keep", "--description", "x"], "update server broken`"),
    ] {
        let ended = cli.run(&[&["--registry", registry.as_str()], arguments].concat()).await;
        let command = format!("`toolgate --registry {registry} {command}");
        assert!(ended.stderr.contains(&command), "{command}: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_token_says_how_to_log_in() {
    let refusal =
        "HTTP/1.1 401 Unauthorized\r\ncontent-length: 18\r\nconnection: close\r\n\r\n{\"error\":\"no way\"}";
    let (address, _heads) = stub(refusal).await;
    let cli = Cli::new(&address);
    assert!(cli.fails(&["list", "servers"]).await.contains("toolgate login"));
    let ended = cli.run_with(&["list", "servers"], &[("TOOLGATE_TOKEN", "wrong-token")]).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("refused") && !ended.stderr.contains("wrong-token"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_configuration_file_is_named() {
    let cli = Cli::new("127.0.0.1:1");
    for text in ["registry_url: [", "registry_url: 7\n", "registry_url: nowhere\n", "access_token: {}\n"] {
        cli.write(".toolgate.conf", text);
        let sentence = cli.fails(&["list", "servers"]).await;
        assert!(sentence.contains(".toolgate.conf"), "{text}: {sentence}");
    }
    cli.write(".toolgate.conf", "");
    let ended = cli.run_with(&["list", "servers"], &[("TOOLGATE_REGISTRY", "localhost")]).await;
    assert!(ended.complaint().contains("TOOLGATE_REGISTRY"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn logging_in_keeps_the_token_for_its_owner_only() {
    let user = "HTTP/1.1 200 OK\r\ncontent-length: 34\r\nconnection: close\r\n\r\n{\"username\":\"alice\",\"role\":\"user\"}";
    let (address, mut heads) = stub(user).await;
    let cli = Cli::new(&address);
    cli.write(".toolgate.conf", "access_token: old\n");
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(cli.home.path().join(".toolgate.conf"), open).unwrap();
    let ended = cli.run_fed(&["login", "-"], "  -token: \"x\"\n").await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.stderr.contains("alice") && !ended.stderr.contains("token: \"x\""), "{ended:?}");
    assert!(heads.recv().await.unwrap().contains("authorization: bearer -token: \"x\""));
    let mode = std::fs::metadata(cli.home.path().join(".toolgate.conf")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut from_file = cli.command(&["whoami", "--output", "json"]);
    let ended = from_file.env_remove("TOOLGATE_REGISTRY").output().await.unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(shown, json!({"username": "alice", "role": "user"}));
    assert!(heads.recv().await.unwrap().contains("authorization: bearer -token: \"x\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_name_the_epoch_of_the_last_change() {
    let created = r#"{"name":"few","included_tools":[]}"#;
    let answer = format!(
        "HTTP/1.1 201 Created\r\nx-toolgate-epoch: 41\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{created}",
        created.len()
    );
    let (address, mut heads) = stub(answer.leak()).await;
    let cli = Cli::new(&address);
    cli.run(&["get", "group", "few"]).await;
    assert!(!heads.recv().await.unwrap().contains("x-toolgate-min-epoch"));
    for arguments in [&["get", "group", "few"][..], &["stdio"], &["connect", "cursor", "--dry-run"]] {
        cli.run_fed(arguments, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n").await;
        assert!(heads.recv().await.unwrap().contains("x-toolgate-min-epoch: 41"), "{arguments:?}");
        while heads.try_recv().is_ok() {}
    }
    let other = Cli::new(&address);
    other.run(&["get", "group", "few"]).await;
    assert!(!heads.recv().await.unwrap().contains("x-toolgate-min-epoch"), "another user made no change");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_epoch_of_a_database_that_was_replaced_is_forgotten() {
    let app = TestApp::start_on_file().await;
    let cli = Cli::new(&app.address);
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("up", &fake).await;
    let file = ".toolgate.epochs";
    cli.ok(&["create", "group", "few", "--included-tools", "up__echo"]).await;
    let mut entries: serde_json::Value = serde_json::from_str(&cli.read(file)).unwrap();
    assert!(entries[0]["epoch"].as_u64().unwrap() > 0, "{entries}");
    let mode = std::fs::metadata(cli.home.path().join(file)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    entries[0]["epoch"] = json!(1_000_000);
    cli.write(file, &entries.to_string());
    cli.ok(&["create", "group", "more", "--included-tools", "up__echo"]).await;
    let after: serde_json::Value = serde_json::from_str(&cli.read(file)).unwrap();
    assert!(after[0]["epoch"].as_u64().unwrap() < 1_000_000, "{after}");
    let refused = app.send("GET", "/api/v0/servers", &[("x-toolgate-min-epoch", "1000000")], "").await;
    assert_eq!(refused.expect(503).headers["x-error-code"], "unknown_epoch");
}
