//! Tests that no secret is ever readable in any file of a database. Every new secret field must be added here.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::oauth::{code, give};
use super::people::{client, user};
use super::{noted, odd_offering, open, registration};
use crate::{GrantChange, OAuthClient, OpaqueKind, Rotation};
use model::{Mode, PrincipalId, Secret};

/// Secrets that are long and unique, so that finding one means that it leaked.
const PLANTED: [&str; 15] = [
    "planted-env-value",
    "planted-header-value",
    "planted-bearer-token",
    "planted-url-user",
    "planted-url-password",
    "planted-query-value",
    "planted-argument",
    "planted-client-secret",
    "planted-second-value",
    "planted-user-token",
    "planted-client-token",
    "planted-later-token",
    "planted-software",
    "planted-code-content",
    "planted-oauth-client",
];

fn assert_no_secret_in(directory: &Path, expected_files: &[&str]) {
    for file in expected_files {
        assert!(directory.join(file).exists(), "{file}");
    }
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        for secret in PLANTED {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{secret} in {}", path.display());
        }
    }
}

#[tokio::test]
async fn no_file_contains_a_secret_while_open_or_after() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("toolgate.db");
    let store = open(&path).await.unwrap();
    let stdio = |value: &str| {
        registration(json!({
            "name": "stdio", "transport": "stdio", "command": "npx", "args": ["planted-argument"],
            "env": {"KEY": value},
        }))
    };
    let http = registration(json!({
        "name": "http", "transport": "sse", "bearer_token": "planted-bearer-token",
        "url": "https://planted-url-user:planted-url-password@h/mcp?key=planted-query-value",
        "headers": {"X-Key": "planted-header-value"}, "oauth_client_secret": "planted-client-secret",
    }));
    store
        .replace_server(&stdio("planted-env-value"), &odd_offering(), GrantChange::Keep, 1, &noted())
        .await
        .unwrap();
    store.replace_server(&http, &odd_offering(), GrantChange::Keep, 1, &noted()).await.unwrap();
    store
        .replace_server(&stdio("planted-second-value"), &odd_offering(), GrantChange::Keep, 2, &noted())
        .await
        .unwrap();
    store.initialize(Mode::Enterprise, &user("ada", "planted-user-token"), 1, &noted()).await.unwrap();
    store.put_client(&client("agent", "planted-client-token"), 1, &noted()).await.unwrap();
    store.put_client(&client("agent", "planted-later-token"), 2, &noted()).await.unwrap();
    code(&store, PrincipalId(1), "planted-code-content", 1).await;
    let given = give(&store, PrincipalId(1), "planted-software", 1).await;
    let registered = OAuthClient {
        id: "i".into(),
        client_id: "c".into(),
        name: "n".into(),
        software: Secret::new("planted-oauth-client"),
        created_at_ms: 1,
    };
    store.insert_oauth_client(&registered, &noted()).await.unwrap();
    let next = store.opaque_tokens().await.unwrap().generate(OpaqueKind::Refresh);
    let rotated = store.rotate(&given.refresh.digest, given.id, &next, 2, 50).await.unwrap();
    assert!(matches!(rotated, Rotation::Successor(_)), "{rotated:?}");
    for given in [&given.refresh, &next] {
        let secret = given.secret.expose();
        for entry in fs::read_dir(directory.path()).unwrap() {
            let bytes = fs::read(entry.unwrap().path()).unwrap();
            assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()));
        }
    }
    assert_no_secret_in(directory.path(), &["toolgate.db", "toolgate.db-wal", "toolgate.db-shm"]);

    let (users, clients) = (store.load_users().await.unwrap(), store.load_clients().await.unwrap());
    let printed = format!("{store:?} {:?} {users:?} {clients:?}", store.load_servers().await.unwrap());
    for secret in PLANTED {
        assert!(!printed.contains(secret), "{secret} in {printed}");
    }
    store.close().await;
    assert_no_secret_in(directory.path(), &["toolgate.db", "toolgate.key"]);
}
