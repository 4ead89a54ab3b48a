//! Tests that databases of an earlier version are migrated.

use sha2::{Digest, Sha256};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use super::open_with_key;
use crate::migrate::{MIGRATIONS, migrator};
use crate::{AuthorizationKey, AuthorizationStatus, OpenOptions, check};
use model::Secret;
use seal::{Seal, SecretKey};

#[tokio::test]
async fn an_authorization_outlives_the_renaming_of_its_table() {
    const INSERT: &str =
        "INSERT INTO oauth_sessions (id, server, state_digest, status, error, content, expires_at)
        VALUES ('i', 'a', $1, 'pending', '', $2, 5)";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("toolgate.db");
    let key = "5a".repeat(32);
    let sealed = Seal::new(&SecretKey::from_hex(&key).unwrap()).seal("oauth session i", b"content");
    let digest: String = Sha256::digest(b"state").iter().map(|byte| format!("{byte:02x}")).collect();
    let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let mut before = options.connect().await.unwrap();
    migrator(&MIGRATIONS[..5]).run_direct(None, &mut before, false).await.unwrap();
    sqlx::query(INSERT).bind(digest).bind(sealed).execute(&mut before).await.unwrap();
    before.close().await.unwrap();

    let options = OpenOptions { path: path.clone(), secret_key: Some(Secret::new(&key)) };
    let unread = check(&options).await.unwrap().pop().unwrap();
    let pending = MIGRATIONS.len() - 5;
    assert_eq!(unread.subject, format!("contents not read, migrations to run at the next start: {pending}"));
    assert!(unread.problems.is_empty());

    let store = open_with_key(&path, &key).await.unwrap();
    let state = Secret::new("state");
    for by in [AuthorizationKey::Id("i"), AuthorizationKey::State(&state)] {
        let found = store.authorization(by).await.unwrap().unwrap();
        assert_eq!((found.id.as_str(), found.server.as_str()), ("i", "a"));
        assert_eq!((found.status, found.expires_at_ms), (AuthorizationStatus::Pending, 5));
        assert_eq!(found.content.unwrap().expose(), "content");
    }
    assert!(store.claim_authorization("i", 4).await.unwrap());
}
