//! `toolgate audit`, while the gateway of the database runs and while it does not.

use std::path::Path;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::cli::Cli;
use crate::support::process::{Ended, Process, run};

async fn toolgate(folder: &Path, arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolgate"));
    command.args(arguments).current_dir(folder).env_clear();
    run(command).await
}

/// A server that is registered although nobody listens there.
fn unreachable(name: &str) -> Value {
    json!({ "name": name, "transport": "streamable_http", "url": "http://127.0.0.1:1/mcp", "keep_failed": true })
}

async fn with_entry() -> Process {
    let gateway = Process::start().await;
    gateway.post("/api/v0/servers", &unreachable("first")).await.expect(201);
    gateway
}

fn head(ended: &Ended) -> String {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    report["head"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_listed_and_verified_over_the_api() {
    let gateway = with_entry().await;
    let cli = Cli::new(&gateway.address);
    let listed = cli.run(&["audit", "--action", "server"]).await;
    assert!(listed.stdout.contains("server.register") && listed.stdout.contains("first"), "{listed:?}");
    let none = cli.run(&["audit", "--actor", "nobody"]).await;
    assert!(none.stdout.is_empty() && none.stderr.contains("no such changes"), "{none:?}");
    let verified = cli.run(&["audit", "verify"]).await;
    assert!(verified.code == Some(0) && verified.stdout.contains("1:"), "{verified:?}");
    let wrong = format!("2:{}", "ab".repeat(32));
    let missing = cli.run(&["audit", "verify", "--head", &wrong]).await;
    assert!(missing.code == Some(1) && missing.stderr.contains("entry 2"), "{missing:?}");
    let usage = cli.run(&["audit", "verify", "--head", "2"]).await;
    assert!(usage.code == Some(2) && usage.stderr.contains("--head"), "{usage:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_open_the_database_have_entries_too() {
    let variables = [("SERVER_MODE", "enterprise")];
    let gateway = Process::start_in(tempfile::TempDir::new().unwrap(), &variables).await;
    gateway.post("/init", &json!({})).await.expect(200);
    gateway.signal(libc::SIGTERM);
    let (_, folder) = gateway.end().await;
    let reset = toolgate(folder.path(), &["reset-admin"]).await;
    let admin = format!("Bearer {}", reset.stdout.trim());
    let rotated = toolgate(folder.path(), &["rotate-key", "--new-key", &"5a".repeat(32)]).await;
    assert_eq!(rotated.code, Some(0), "{rotated:?}");
    let gateway = Process::start_in(folder, &variables).await;
    let listed =
        gateway.request("GET", "/api/v0/audit", &[("authorization", &admin)]).await.expect(200).json();
    let listed: Vec<_> =
        listed["entries"].as_array().unwrap().iter().map(|entry| entry["action"].clone()).collect();
    assert_eq!(listed, ["key.retire", "key.rotate", "user.reset_token", "gateway.initialize"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_is_verified_beside_the_database_running_or_not_and_after_a_kill() {
    let gateway = with_entry().await;
    let folder = gateway.folder.path();
    let beside = ["audit", "verify", "--database", "--output", "json"];
    let running = head(&toolgate(folder, &beside).await);
    gateway.post("/api/v0/servers", &unreachable("second")).await.expect(201);
    // Answered, so it is stored, and so is its entry.
    gateway.signal(libc::SIGKILL);
    let (_, folder) = gateway.end().await;
    let killed = toolgate(folder.path(), &[&beside[..], &["--head", &running]].concat()).await;
    assert!(head(&killed).starts_with("2:"), "{killed:?}");
    // Nobody listens there, so the database of the settings is read.
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolgate"));
    command.args(["audit", "verify", "--output", "json"]).current_dir(folder.path()).env_clear();
    command.env("TOOLGATE_REGISTRY", "http://127.0.0.1:1");
    let alone = run(command).await;
    assert_eq!(head(&alone), head(&killed), "{alone:?}");
    let copied = toolgate(folder.path(), &["backup", "copy.db"]).await;
    assert_eq!(copied.code, Some(0), "{copied:?}");
    let copy =
        toolgate(folder.path(), &["audit", "verify", "--sqlite-db-path", "copy.db", "--output", "json"])
            .await;
    assert_eq!(head(&copy), head(&killed));
    let later = head(&killed).replace("2:", "3:");
    let cut = toolgate(folder.path(), &["audit", "verify", "--database", "--head", &later]).await;
    assert!(cut.code == Some(1) && cut.stdout.contains(&head(&killed)), "{cut:?}");
    assert!(cut.stderr.contains("the chain ends before it"), "{cut:?}");
}
