//! `toolgate backup` and `toolgate check`, while the gateway of the database runs and while it does not.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::process::{Ended, Process, run};
use crate::support::{Behaviour, Fake};

async fn toolgate(folder: &Path, arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolgate"));
    command.args(arguments).current_dir(folder).env_clear();
    run(command).await
}

async fn with_server(fake: &Fake) -> Process {
    let gateway = Process::start().await;
    let input = json!({
        "name": "web", "transport": "streamable_http", "url": fake.url(), "headers": { "X-Key": "planted-secret" }
    });
    gateway.post("/api/v0/servers", &input).await.expect(201);
    gateway
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_running_gateway_is_a_whole_database_under_the_same_key() {
    let fake = Fake::start(Behaviour::default()).await;
    let gateway = with_server(&fake).await;
    let folder = gateway.folder.path();
    let made = toolgate(folder, &["backup", "copy.db", "--output", "json"]).await;
    assert_eq!(made.code, Some(0), "{made:?}");
    let made: Value = serde_json::from_str(&made.stdout).unwrap();
    assert!(made["key"].as_str().unwrap().ends_with("toolgate.key"), "{made}");
    assert_eq!(made["key_fingerprint"].as_str().unwrap().len(), 16, "{made}");
    let again = toolgate(folder, &["backup", "copy.db"]).await;
    assert!(again.sentence().contains("copy.db already exists"), "{again:?}");
    // Later changes are not in it.
    gateway
        .post("/api/v0/tool-groups", &json!({ "name": "late", "included_servers": ["web"] }))
        .await
        .expect(201);

    let elsewhere = TempDir::new().unwrap();
    std::fs::copy(folder.join("copy.db"), elsewhere.path().join("toolgate.db")).unwrap();
    std::fs::copy(folder.join("toolgate.key"), elsewhere.path().join("toolgate.key")).unwrap();
    let checked = toolgate(elsewhere.path(), &["check"]).await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let restored = Process::start_in(elsewhere, &[]).await;
    assert_eq!(restored.get("/api/v0/tool-groups").await.json(), json!([]));
    let configs = |gateway: &Process| {
        let address = gateway.address.clone();
        async move {
            crate::support::client::request(&address, "GET", "/api/v0/server_configs", &[], vec![]).await
        }
    };
    assert_eq!(configs(&restored).await.text(), configs(&gateway).await.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_finds_nothing_wrong_with_a_sound_database_running_or_not() {
    let fake = Fake::start(Behaviour::default()).await;
    let gateway = with_server(&fake).await;
    let running = toolgate(gateway.folder.path(), &["check"]).await;
    assert_eq!((running.code, running.stderr.as_str()), (Some(0), ""), "{running:?}");
    assert!(running.stdout.contains("ok     servers: 1\n"), "{running:?}");
    gateway.signal(libc::SIGTERM);
    let (_, folder) = gateway.end().await;
    let stopped = toolgate(folder.path(), &["check"]).await;
    assert_eq!((stopped.code, stopped.stdout), (Some(0), running.stdout));
    let nothing = TempDir::new().unwrap();
    let missing = toolgate(nothing.path(), &["check"]).await;
    assert!(missing.sentence().contains("there is no database"), "{missing:?}");
    assert_eq!(std::fs::read_dir(nothing.path()).unwrap().count(), 0, "looking leaves nothing behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_names_everything_that_is_wrong() {
    let fake = Fake::start(Behaviour::default()).await;
    let gateway = with_server(&fake).await;
    gateway.signal(libc::SIGTERM);
    let (_, folder) = gateway.end().await;
    let (database, key) = (folder.path().join("toolgate.db"), folder.path().join("toolgate.key"));
    let (whole, right) = (std::fs::read(&database).unwrap(), std::fs::read(&key).unwrap());

    std::fs::write(&key, "cd".repeat(32)).unwrap();
    let wrong_key = toolgate(folder.path(), &["check"]).await;
    assert_eq!(wrong_key.code, Some(1));
    assert!(wrong_key.stdout.contains("is not the one that encrypted this database"), "{wrong_key:?}");
    assert!(wrong_key.stdout.contains("server \"web\": its configuration"), "{wrong_key:?}");
    assert!(wrong_key.stderr.contains("problems were found"), "{wrong_key:?}");
    std::fs::remove_file(&key).unwrap();
    let no_key = toolgate(folder.path(), &["check"]).await;
    assert!(no_key.code == Some(1) && no_key.stdout.contains("toolgate.key is missing"), "{no_key:?}");
    std::fs::write(&key, &right).unwrap();

    let mut damaged = whole.clone();
    damaged[4096 * 2..4096 * 4].fill(0xa5);
    std::fs::write(&database, &damaged).unwrap();
    let ended = toolgate(folder.path(), &["check", "--output", "json"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let findings: Vec<Value> = serde_json::from_str(&ended.stdout).unwrap();
    assert!(!findings[0]["problems"].as_array().unwrap().is_empty(), "{findings:?}");
    assert_eq!(std::fs::read(&database).unwrap(), damaged, "a check changes nothing");
}
