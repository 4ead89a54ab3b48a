//! Tests of moving everything from one file to another. Those with Postgres are in `tests/replicas/`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;

use super::oauth::give;
use super::people::{client, user};
use super::{file, http, name, noted, noted_at, odd_offering, only_server, open, open_with_key};
use crate::db::on;
use crate::migrate::{MIGRATIONS, migrator};
use crate::tables::{RETIRED_TOKENS, TABLES};
use crate::{
    AuthorizationKey, GrantChange, Store, TransferError, TransferOptions, Transferred, check, transfer,
};
use model::{Mode, PrincipalId, Secret};

pub const KEY: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";

/// A folder with a database that has something in every table with secrets.
pub async fn filled() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("toolgate.db");
    let store = open(&path).await.unwrap();
    let grant = Secret::new("granted");
    let put = GrantChange::Put("lineage", &grant);
    store.replace_server(&http("a"), &odd_offering(), put, 1, &noted()).await.unwrap();
    store.initialize(Mode::Enterprise, &user("ada", "12345678"), 1, &noted()).await.unwrap();
    store.put_client(&client("agent", "abcdefgh"), 1, &noted()).await.unwrap();
    store.put_user(&user("gone", "ijklmnop"), 1, &noted()).await.unwrap();
    store.delete_user(&user("gone", "ijklmnop"), 2, &noted()).await.unwrap();
    let (state, content) = (Secret::new("state"), Secret::new("content"));
    store.insert_authorization("i", &name("a"), &state, &content, 50, &noted_at(1)).await.unwrap();
    store
        .insert_authorization("j", &name("a"), &Secret::new("later"), &content, 50, &noted_at(2))
        .await
        .unwrap();
    for serial in 0..250 {
        store.add_ended_session(u64::MAX - serial, 1).await.unwrap();
    }
    give(&store, users_of(&store).await, "software", 1).await;
    store.put_idp_sign_in(PrincipalId(8), Some(&Secret::new("idp")), 5).await.unwrap();
    store.put_idp_sign_in(PrincipalId(9), None, 6).await.unwrap();
    store.close().await;
    (directory, path)
}

fn options(from: &Path, to: &Path, to_key: Option<&str>) -> TransferOptions {
    let to_key = to_key.map(Secret::new);
    TransferOptions { from: file(from), to: file(to), from_key: None, to_key, secret_key: None }
}

fn counts(moved: &Transferred) -> BTreeMap<&str, usize> {
    moved.tables.iter().copied().collect()
}

/// Checks that a database has what [`filled`] made.
pub async fn assert_filled(store: &Store) {
    let server = only_server(store).await;
    assert_eq!(server.registration, http("a"));
    assert!(server.offering.same_as(&odd_offering()));
    assert_eq!(store.load_grants().await.unwrap()["a"].expose(), "granted");
    assert_eq!(store.mode().await.unwrap().as_deref(), Some("enterprise"));
    let users = store.load_users().await.unwrap();
    assert_eq!(users[0].token.as_ref().unwrap().secret().expose(), "12345678");
    assert_eq!(store.load_clients().await.unwrap()[0].token.secret().expose(), "abcdefgh");
    for token in ["12345678", "abcdefgh"] {
        assert!(store.has_token(token.as_bytes()).await.unwrap(), "{token}");
    }
    let later = Secret::new("later");
    let pending = store.authorization(AuthorizationKey::State(&later)).await.unwrap().unwrap();
    assert_eq!(pending.content.unwrap().expose(), "content");
    let over = store.authorization(AuthorizationKey::Id("i")).await.unwrap().unwrap();
    assert!(over.content.is_none() && over.error.starts_with("superseded"), "{over:?}");
    assert_eq!(store.load_ended_sessions(1).await.unwrap().len(), 250);
    let grants = store.read_user_grants().await.unwrap();
    assert!(matches!(grants.as_slice(), [Ok(_)]), "{grants:?}");
    let sign_ins = store.load_idp_sign_ins().await.unwrap();
    let found: Vec<_> = sign_ins
        .iter()
        .map(|of| (of.user.0, of.refresh_token.as_ref().map(Secret::expose), of.signed_in_at_ms))
        .collect();
    assert_eq!(found, [(8, Some("idp"), 5), (9, None, 6)]);
}

/// The id of the only user.
async fn users_of(store: &Store) -> PrincipalId {
    store.load_users().await.unwrap()[0].id
}

#[tokio::test]
async fn all_columns_of_all_tables_are_described() {
    const TABLE_NAMES: &str = "SELECT name FROM sqlite_schema WHERE type = 'table'
        AND name NOT IN ('homes', 'leases', 'quotas', 'replicas', '_sqlx_migrations') ORDER BY name";
    const COLUMN_NAMES: &str = "SELECT name FROM pragma_table_info($1) ORDER BY name";
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    let mut tx = store.read().await.unwrap();
    let names: Vec<String> = on!(&mut tx, |db| sqlx::query_scalar(TABLE_NAMES).fetch_all(db).await).unwrap();
    let mut described: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for table in TABLES.iter().chain([&RETIRED_TOKENS]) {
        let mut columns: Vec<_> = table.columns.iter().map(|column| column.name).collect();
        columns.sort_unstable();
        described.insert(table.name, columns);
    }
    assert_eq!(described.keys().copied().collect::<Vec<_>>(), names);
    for (table, columns) in described {
        let stored: Vec<String> =
            on!(&mut tx, |db| sqlx::query_scalar(COLUMN_NAMES).bind(table).fetch_all(db).await).unwrap();
        assert_eq!(columns, stored, "{table}");
    }
}

#[tokio::test]
async fn everything_moves_and_is_sealed_under_the_new_key() {
    let (directory, path) = filled().await;
    let before = fs::read(&path).unwrap();
    let target = directory.path().join("other.db");
    let moved = transfer(&options(&path, &target, Some(KEY))).await.unwrap();
    assert!(moved.has_another_key && moved.left_tokens == 1, "{moved:?}");
    let expected =
        [("users", 1), ("clients", 1), ("oauth_grants", 1), ("idp_tokens", 2), ("ended_sessions", 250)];
    for (table, count) in expected {
        assert_eq!(counts(&moved)[table], count, "{table}");
    }
    assert!(!counts(&moved).contains_key("retired_tokens"));
    assert_eq!(fs::read(&path).unwrap(), before, "the source stays as it is");

    assert!(open(&target).await.is_err(), "the old key does not open the new database");
    let store = open_with_key(&target, KEY).await.unwrap();
    assert_filled(&store).await;
    store.close().await;
    let options = crate::OpenOptions { database: file(&target), secret_key: Some(Secret::new(KEY)) };
    let findings = check(&options).await.unwrap();
    assert!(findings.iter().all(|finding| finding.problems.is_empty()), "{findings:?}");
}

#[tokio::test]
async fn under_the_same_key_retired_tokens_move_too() {
    let (directory, path) = filled().await;
    let target = directory.path().join("other.db");
    let moved = transfer(&options(&path, &target, None)).await.unwrap();
    assert!(!moved.has_another_key && moved.left_tokens == 0, "{moved:?}");
    assert_eq!(counts(&moved)["retired_tokens"], 1);
    let store = open(&target).await.unwrap();
    assert_filled(&store).await;
    let retired = store.load(3).await.unwrap().retired_tokens;
    assert_eq!(retired, [(store.token_hash(b"ijklmnop"), 2)]);
}

#[tokio::test]
async fn a_target_that_is_not_empty_stays_as_it_is() {
    let (directory, path) = filled().await;
    let target = directory.path().join("other.db");
    let store = open(&target).await.unwrap();
    store.replace_server(&http("b"), &odd_offering(), GrantChange::Keep, 1, &noted()).await.unwrap();
    store.close().await;
    let before = fs::read(&target).unwrap();
    let refused = transfer(&options(&path, &target, Some(KEY))).await.unwrap_err();
    assert!(matches!(refused, TransferError::NotEmpty(_)), "{refused}");
    assert_eq!(fs::read(&target).unwrap(), before);
    let itself = transfer(&options(&path, &path, None)).await.unwrap_err();
    assert!(matches!(itself, TransferError::Same(_)), "{itself}");
}

#[tokio::test]
async fn a_database_in_which_nothing_was_stored_yet_is_empty() {
    let (directory, path) = filled().await;
    let target = directory.path().join("other.db");
    open(&target).await.unwrap().close().await;
    let wrong = transfer(&options(&path, &target, Some(KEY))).await.unwrap_err();
    assert!(wrong.to_string().contains("the one in --to-key"), "{wrong}");
    transfer(&options(&path, &target, None)).await.unwrap();
    assert_filled(&open(&target).await.unwrap()).await;
}

#[tokio::test]
async fn a_database_that_is_in_use_is_not_moved() {
    let (directory, path) = filled().await;
    let running = open(&path).await.unwrap();
    let target = directory.path().join("other.db");
    let refused = transfer(&options(&path, &target, None)).await.unwrap_err();
    assert!(refused.to_string().ends_with("toolgate.db; stop it first"), "{refused}");
    assert!(!target.exists());
    running.close().await;
    transfer(&options(&path, &target, None)).await.unwrap();
}

#[tokio::test]
async fn a_move_that_fails_leaves_no_file() {
    let (directory, path) = filled().await;
    let store = open(&path).await.unwrap();
    let mut tx = store.write().await.unwrap();
    const SWAP: &str = "UPDATE users SET token_hash = $1";
    on!(&mut tx, |db| sqlx::query(SWAP).bind(&[7_u8; 32][..]).execute(db).await.map(|_| ())).unwrap();
    tx.commit().await.unwrap();
    store.close().await;
    let target = directory.path().join("other.db");
    let refused = transfer(&options(&path, &target, Some(KEY))).await.unwrap_err().to_string();
    assert!(refused.starts_with("row \"ada\" of table users: its token does not match"), "{refused}");
    for suffix in ["", "-wal", "-shm"] {
        assert!(!directory.path().join(format!("other.db{suffix}")).exists(), "{suffix}");
    }
}

#[tokio::test]
async fn nothing_is_moved_from_a_database_without_data_or_with_another_key() {
    let (directory, path) = filled().await;
    let at = |name: &str| directory.path().join(name);
    let refuse = async |options: TransferOptions| transfer(&options).await.unwrap_err().to_string();
    let missing = refuse(options(&at("no.db"), &at("other.db"), None)).await;
    assert!(missing.starts_with("there is no database ") && !at("no.db").exists(), "{missing}");
    fs::write(at("empty.db"), "").unwrap();
    let empty = refuse(options(&at("empty.db"), &at("other.db"), None)).await;
    assert!(empty.starts_with("there is nothing to move"), "{empty}");
    let from_key = Some(Secret::new(KEY));
    let wrong = refuse(TransferOptions { from_key, ..options(&path, &at("other.db"), None) }).await;
    assert!(wrong.ends_with("the one in --from-key; give that key with --from-key"), "{wrong}");
    let from_key = Some(Secret::new("hunter2"));
    let malformed = refuse(TransferOptions { from_key, ..options(&path, &at("other.db"), None) }).await;
    assert_eq!(malformed, "the secret key in --from-key must be 64 hexadecimal characters");
    assert!(!at("other.db").exists());
    // The key file next to the source counts before the variable, which is that of the target.
    let secret_key = Some(Secret::new(KEY));
    let moved = transfer(&TransferOptions { secret_key, ..options(&path, &at("other.db"), None) }).await;
    assert!(moved.unwrap().has_another_key);
}

#[tokio::test]
async fn a_database_of_an_earlier_version_moves_without_being_migrated() {
    const SETTING: &str = "INSERT INTO settings (key, value) SELECT key, value FROM new.settings";
    const GROUP: &str = "INSERT INTO groups (name, config, created_at, updated_at) VALUES ('g', '{}', 1, 1)";
    let (directory, path) = filled().await;
    let old = directory.path().join("old.db");
    let mut before =
        SqliteConnectOptions::new().filename(&old).create_if_missing(true).connect().await.unwrap();
    migrator(&MIGRATIONS[..5]).run_direct(None, &mut before, false).await.unwrap();
    let attach = format!("ATTACH '{}' AS new", path.display());
    sqlx::query(sqlx::AssertSqlSafe(attach)).execute(&mut before).await.unwrap();
    for sql in [SETTING, GROUP] {
        sqlx::query(sql).execute(&mut before).await.unwrap();
    }
    before.close().await.unwrap();
    let target = directory.path().join("other.db");
    assert_eq!(counts(&transfer(&options(&old, &target, None)).await.unwrap())["groups"], 1);
    let mut after = SqliteConnectOptions::new().filename(&old).connect().await.unwrap();
    let count: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM _sqlx_migrations").fetch_one(&mut after).await.unwrap();
    assert_eq!(count, 5);
    after.close().await.unwrap();
}
