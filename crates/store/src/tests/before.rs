//! Tests that databases of an earlier version are migrated.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection};

use super::people::{client, user};
use super::{http, noted, odd_offering, only_server, open, open_with_key};
use crate::migrate::{MIGRATIONS, RECORDS, migrator};
use crate::{
    AuthorizationKey, AuthorizationStatus, CallFilter, CallRow, DatabaseAddress, GrantChange, OpenOptions,
    OpenStoreError, check,
};
use model::{CallRecord, Offering, OwnMeta, PrincipalId, RecordedPrincipal, Secret};
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

    let options =
        OpenOptions { database: DatabaseAddress::File(path.clone()), secret_key: Some(Secret::new(&key)) };
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

#[tokio::test]
async fn a_wrong_key_migrates_nothing() {
    const INSERT: &str = "INSERT INTO settings (key, value) VALUES ('key_check', $1)";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("toolgate.db");
    let (key, other) = ("5a".repeat(32), "a5".repeat(32));
    let check = Seal::new(&SecretKey::from_hex(&key).unwrap()).seal("key_check", b"toolgate");
    let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let mut before = options.connect().await.unwrap();
    migrator(&MIGRATIONS[..5]).run_direct(None, &mut before, false).await.unwrap();
    sqlx::query(INSERT).bind(STANDARD.encode(check)).execute(&mut before).await.unwrap();
    before.close().await.unwrap();
    let migrations = async || -> i64 {
        let mut connection = options.connect().await.unwrap();
        let sql = "SELECT COUNT(*) FROM _sqlx_migrations";
        let count = sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        count
    };

    let error = open_with_key(&path, &other).await.unwrap_err();
    assert!(matches!(error, OpenStoreError::KeyMismatch { .. }), "{error}");
    assert_eq!(migrations().await, 5);
    open_with_key(&path, &key).await.unwrap().close().await;
    assert_eq!(migrations().await, MIGRATIONS.len() as i64);
}

#[tokio::test]
async fn users_and_clients_of_a_database_without_rate_limits_have_none() {
    const USER: &str =
        "INSERT INTO users (username, role, token_hash, token, token_id, created_at, updated_at, id)
        SELECT username, role, token_hash, token, token_id, created_at, updated_at, id FROM new.users";
    const CLIENT: &str = "INSERT INTO clients (name, description, allow_list, is_custom_token, token_hash, token,
        token_id, created_at, updated_at, id) SELECT name, description, allow_list, is_custom_token, token_hash,
        token, token_id, created_at, updated_at, id FROM new.clients";
    let directory = tempfile::tempdir().unwrap();
    let [new, old] = ["new.db", "toolgate.db"].map(|name| directory.path().join(name));
    let store = open(&new).await.unwrap();
    let (ada, agent) = (user("ada", "12345678"), client("agent", "abcdefgh"));
    store.put_user(&ada, 1, &noted()).await.unwrap();
    store.put_client(&agent, 1, &noted()).await.unwrap();
    store.close().await;
    let options = SqliteConnectOptions::new().filename(&old).create_if_missing(true);
    let mut before = options.connect().await.unwrap();
    migrator(&MIGRATIONS[..7]).run_direct(None, &mut before, false).await.unwrap();
    let attach = format!("ATTACH '{}' AS new", new.display());
    sqlx::query(sqlx::AssertSqlSafe(attach)).execute(&mut before).await.unwrap();
    for copy in [USER, CLIENT] {
        sqlx::query(copy).execute(&mut before).await.unwrap();
    }
    before.close().await.unwrap();

    let store = open(&old).await.unwrap();
    assert_eq!(store.load_users().await.unwrap(), [ada]);
    assert_eq!(store.load_clients().await.unwrap(), [agent]);
}

#[tokio::test]
async fn servers_of_a_database_without_meta_have_none() {
    const SERVER: &str =
        "INSERT INTO servers (name, config, enabled, protocol_version, server_info, capabilities,
        instructions, ttl_ms, is_private, created_at, updated_at, discovered_at) SELECT name, config, enabled,
        protocol_version, server_info, capabilities, instructions, ttl_ms, is_private, created_at, updated_at,
        discovered_at FROM new.servers";
    const LISTS: &str =
        "INSERT INTO catalogs (server, kind, items) SELECT server, kind, items FROM new.catalogs";
    let directory = tempfile::tempdir().unwrap();
    let [new, old] = ["new.db", "toolgate.db"].map(|name| directory.path().join(name));
    let store = open(&new).await.unwrap();
    let registration = http("a");
    store.replace_server(&registration, &odd_offering(), GrantChange::Keep, 1, &noted()).await.unwrap();
    store.close().await;
    let options = SqliteConnectOptions::new().filename(&old).create_if_missing(true);
    let mut before = options.connect().await.unwrap();
    migrator(&MIGRATIONS[..8]).run_direct(None, &mut before, false).await.unwrap();
    let attach = format!("ATTACH '{}' AS new", new.display());
    sqlx::query(sqlx::AssertSqlSafe(attach)).execute(&mut before).await.unwrap();
    for copy in [SERVER, LISTS] {
        sqlx::query(copy).execute(&mut before).await.unwrap();
    }
    before.close().await.unwrap();

    let store = open(&old).await.unwrap();
    let loaded = only_server(&store).await;
    assert!(loaded.offering.same_as(&Offering { meta: OwnMeta::default(), ..odd_offering() }));
    store.update_offering(&registration.config.name, &odd_offering(), 2).await.unwrap();
    assert!(only_server(&store).await.offering.same_as(&odd_offering()));
}

#[tokio::test]
async fn calls_that_were_recorded_before_they_had_owners_belong_to_nobody() {
    const INSERT: &str = "INSERT INTO calls (id, at, server, name, principal, principal_kind, outcome, via, weight, searched,
        record, arguments, result, written) VALUES ($1, 1, 's', 'n', 'anna', 'user', 'ok', 'rest', 1, '', $2, '', '', 0)";
    let directory = tempfile::tempdir().unwrap();
    let record = |id: &str| CallRecord { id: id.into(), ..CallRecord::default() };
    let insert = async |file: &mut SqliteConnection, id: &str| {
        let record = serde_json::to_string(&record(id)).unwrap();
        sqlx::query(INSERT).bind(id).bind(record).execute(file).await.unwrap();
    };
    let options = SqliteConnectOptions::new().filename(directory.path().join("toolgate.records.db"));
    let options = options.create_if_missing(true);
    let mut before = options.connect().await.unwrap();
    migrator(&RECORDS[..1]).run_direct(None, &mut before, false).await.unwrap();
    insert(&mut before, "1").await;
    before.close().await.unwrap();

    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    let records = store.records();
    let principal = RecordedPrincipal { kind: "user".into(), name: "anna".into(), id: 7 };
    let row = CallRow { record: CallRecord { principal, ..record("2") }, ..CallRow::default() };
    records.add("one", &[row], &[]).await.unwrap();
    // A gateway of the version before may still write.
    let mut beside = options.connect().await.unwrap();
    insert(&mut beside, "3").await;
    beside.close().await.unwrap();
    let ids = async |filter: CallFilter| -> Vec<String> {
        let found = records.calls(&CallFilter { limit: 9, ..filter }).await.unwrap();
        found.into_iter().map(|record| record.id).collect()
    };
    assert_eq!(ids(CallFilter::default()).await, ["3", "2", "1"]);
    assert_eq!(ids(CallFilter { owner: Some(PrincipalId(7)), ..CallFilter::default() }).await, ["2"]);
    assert!(ids(CallFilter { owner: Some(PrincipalId(0)), ..CallFilter::default() }).await.is_empty());
    records.close().await;
    store.close().await;
}
