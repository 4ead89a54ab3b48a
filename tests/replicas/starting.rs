//! Gateways that cannot start on a Postgres database say what to change, and leave the database as it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::Secret;
use serde_json::json;
use sqlx::{Connection, PgConnection};
use store::{DatabaseAddress, OpenOptions, PostgresAddress, Store};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::support::database::{self, Database};
use super::support::process::{Unready, command, run, send_signal};
use super::support::{Process, bearer, client, eventually};

/// A new database and its key, as variables of a gateway.
pub struct Place {
    database: Database,
    key: String,
}

impl Place {
    pub async fn new() -> Self {
        let database = Database::create(&server()).await;
        Self { database, key: database::key().expose().to_owned() }
    }

    fn variables(&self) -> [(&str, &str); 2] {
        [("DATABASE_URL", &self.database.url), ("TOOLGATE_SECRET_KEY", &self.key)]
    }

    pub async fn start(&self) -> Process {
        self.start_with(&[]).await
    }

    pub async fn start_with(&self, others: &[(&str, &str)]) -> Process {
        Process::start_in(TempDir::new().unwrap(), &[&self.variables(), others].concat()).await
    }

    /// The error of a gateway that does not start with these variables.
    async fn refusal(&self, others: &[(&str, &str)]) -> String {
        refusal(&[&self.variables(), others].concat()).await
    }

    async fn execute(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&mut self.connect().await).await.unwrap();
    }

    pub async fn strings(&self, sql: &'static str) -> Vec<String> {
        sqlx::query_scalar(sql).fetch_all(&mut self.connect().await).await.unwrap()
    }

    async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.database.url).await.unwrap()
    }
}

fn server() -> String {
    database::server().expect("TOOLGATE_TEST_POSTGRES names a server")
}

async fn refusal(variables: &[(&str, &str)]) -> String {
    let folder = TempDir::new().unwrap();
    run(command(folder.path(), variables)).await.sentence().to_owned()
}

pub async fn stop(gateway: Process) {
    gateway.signal(libc::SIGTERM);
    assert_eq!(gateway.end().await.0, Some(0));
}

const MEMBERS: &str = "SELECT version FROM replicas";

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_with_another_key_or_mode_does_not_join() {
    let place = Place::new().await;
    let first = place.start().await;
    let other_key = "ab".repeat(32);
    for (variable, value, advice) in [
        ("TOOLGATE_SECRET_KEY", other_key.as_str(), "set TOOLGATE_SECRET_KEY to that key"),
        ("SERVER_MODE", "enterprise", "set SERVER_MODE=development"),
    ] {
        let sentence = place.refusal(&[(variable, value)]).await;
        assert!(sentence.contains(advice) && !sentence.contains(&other_key), "{sentence}");
        assert_eq!(place.strings(MEMBERS).await.len(), 1, "{variable}");
    }
    stop(place.start().await).await;
    first.get("/ready").await.expect(200);
    assert_eq!(place.strings(MEMBERS).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_waits_to_be_initialized_decides_the_mode_too() {
    let place = Place::new().await;
    let enterprise = [("SERVER_MODE", "enterprise")];
    let first = place.start_with(&enterprise).await;
    let sentence = place.refusal(&[]).await;
    assert!(sentence.contains("set SERVER_MODE=enterprise"), "{sentence}");
    stop(place.start_with(&enterprise).await).await;
    stop(first).await;
    // It was not initialized, so the mode is free again.
    stop(place.start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_starts_while_another_is_initialized_is_initialized_too() {
    const WAITING: &str = "SELECT query FROM pg_stat_activity JOIN pg_locks USING (pid)
        WHERE NOT granted AND relation = 'replicas'::regclass";
    let place = Place::new().await;
    let enterprise = [("SERVER_MODE", "enterprise")];
    let first = place.start_with(&enterprise).await;
    let mut connection = place.connect().await;
    // Keeps gateways from joining, after they have read which mode the database has.
    let mut held = connection.begin().await.unwrap();
    sqlx::query("LOCK TABLE replicas IN ROW SHARE MODE").execute(&mut *held).await.unwrap();
    let initialize = async {
        eventually("the second one waits", || async { !place.strings(WAITING).await.is_empty() }).await;
        let made = first.post("/init", &json!({})).await.expect(200).json();
        held.rollback().await.unwrap();
        bearer(made["admin_access_token"].as_str().unwrap())
    };
    let (second, admin) = tokio::join!(place.start_with(&enterprise), initialize);
    second.post("/init", &json!({})).await.expect(400);
    for gateway in [first, second] {
        gateway.request("GET", "/api/v0/users", &[("authorization", &admin)]).await.expect(200);
        stop(gateway).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_of_another_major_version_does_not_join() {
    let place = Place::new().await;
    stop(place.start().await).await;
    place
        .execute(
            "INSERT INTO replicas (slot, instance, address, version, seen_at)
            VALUES (7, 'x', 'http://h', '99.1.0', EXTRACT(EPOCH FROM clock_timestamp()) * 1000)",
        )
        .await;
    let sentence = place.refusal(&[]).await;
    assert!(sentence.contains("version 99.1.0") && sentence.contains("stop the others first"), "{sentence}");
    assert_eq!(place.strings(MEMBERS).await, ["99.1.0"]);
    place.execute("DELETE FROM replicas").await;
    stop(place.start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_needs_a_newer_version_is_refused() {
    let place = Place::new().await;
    stop(place.start().await).await;
    place.execute("INSERT INTO settings (key, value) VALUES ('min_version', '99.1.0')").await;
    let sentence = place.refusal(&[]).await;
    assert!(sentence.contains("needs toolgate 99.1.0 or newer"), "{sentence}");
    assert!(place.strings(MEMBERS).await.is_empty());
    place.execute("UPDATE settings SET value = '0.0.1' WHERE key = 'min_version'").await;
    stop(place.start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_refused_does_not_migrate_the_database() {
    const LAST_MIGRATION: &str = "SELECT CAST(MAX(version) AS TEXT) FROM _sqlx_migrations";
    const KEYS: &str = "SELECT CAST(column_name AS TEXT) FROM information_schema.columns
        WHERE table_name = 'replicas' AND column_name = 'keys'";
    let place = Place::new().await;
    stop(place.start().await).await;
    let newest = place.strings(LAST_MIGRATION).await;
    // As a version before the last migrations left it.
    place
        .execute(
            "DROP TABLE homes; DROP TABLE calls; DROP TABLE call_counts; DROP TABLE audit; DROP TABLE audit_head;
            DROP TABLE refresh_tokens; DROP TABLE user_grants; DROP TABLE grant_codes; DROP TABLE consents;
            DROP TABLE browser_sessions; DROP TABLE oauth_clients; DROP TABLE token_keys;
            DROP TABLE idp_users; DROP TABLE idp_groups; DROP TABLE idp_tokens; ALTER TABLE clients DROP COLUMN jwt_subject;
            ALTER TABLE users DROP COLUMN allow_list; ALTER TABLE users DROP COLUMN is_disabled;
            ALTER TABLE users DROP COLUMN last_seen_at; ALTER TABLE replicas DROP COLUMN keys;
            DELETE FROM _sqlx_migrations WHERE version > 14",
        )
        .await;
    let refused = async |variables: &[(&str, &str)], advice: &str| {
        let sentence = place.refusal(variables).await;
        assert!(sentence.contains(advice), "{sentence}");
        assert_eq!(place.strings(LAST_MIGRATION).await, ["14"], "{advice}");
        assert!(place.strings(KEYS).await.is_empty(), "{advice}");
    };
    refused(&[("TOOLGATE_SECRET_KEY", &"ab".repeat(32))], "set TOOLGATE_SECRET_KEY to that key").await;
    refused(&[("SERVER_MODE", "enterprise")], "set SERVER_MODE=development").await;
    place
        .execute(
            "INSERT INTO replicas (slot, instance, address, version, seen_at)
            VALUES (7, 'x', 'http://h', '99.1.0', EXTRACT(EPOCH FROM clock_timestamp()) * 1000 + 600000)",
        )
        .await;
    refused(&[], "stop the others first").await;
    place.execute("DELETE FROM replicas").await;
    place.execute("INSERT INTO settings (key, value) VALUES ('min_version', '99.1.0')").await;
    refused(&[], "needs toolgate 99.1.0 or newer").await;
    place.execute("DELETE FROM settings WHERE key = 'min_version'").await;
    stop(place.start().await).await;
    assert_eq!(place.strings(LAST_MIGRATION).await, newest);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_fails_leaves_nothing() {
    const TABLES: &str =
        "SELECT CAST(table_name AS TEXT) FROM information_schema.tables WHERE table_schema = 'public'";
    let place = Place::new().await;
    place.execute("CREATE TABLE replicas (ours TEXT)").await;
    let sentence = place.refusal(&[]).await;
    assert!(sentence.contains("\"replicas\" already exists"), "{sentence}");
    assert_eq!(place.strings(TABLES).await, ["replicas"]);
    place.execute("DROP TABLE replicas").await;
    stop(place.start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_the_user_is_not_waited_for() {
    let missing = format!("{}/there_is_none", server());
    let key = "ab".repeat(32);
    let sentence = refusal(&[("DATABASE_URL", &missing), ("TOOLGATE_SECRET_KEY", &key)]).await;
    assert!(sentence.contains("there_is_none; create it first"), "{sentence}");
    for (code, query, advice) in [
        ("28P01", "", "check DATABASE_URL or POSTGRES_*"),
        ("42501", "", "make that user the owner"),
        ("", "?sslmode=require", "check sslmode and sslrootcert"),
    ] {
        let address = refusing_server(code).await;
        let url = format!("postgres://anna:geheim@{address}/tools{query}");
        let sentence = refusal(&[("DATABASE_URL", &url), ("TOOLGATE_SECRET_KEY", &key)]).await;
        assert!(
            sentence.contains(advice) && sentence.contains(&format!("anna@{address}/tools")),
            "{sentence}"
        );
        assert!(!sentence.contains("geheim"), "{sentence}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_reached_is_named_with_the_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://anna:geheim@{}/tools", listener.local_addr().unwrap());
    drop(listener);
    let address = PostgresAddress::parse(&Secret::new(url), None, 3).unwrap().reached_within(Duration::ZERO);
    let database = DatabaseAddress::Postgres(Box::new(address));
    let opened = Store::open(OpenOptions { database, secret_key: Some(database::key()) }).await;
    let Err(error) = opened else { panic!("nothing listens there") };
    let sentence = error.to_string();
    assert!(sentence.contains("cannot be reached: Connection refused"), "{sentence}");
    assert!(
        sentence.contains("check that Postgres runs there") && !sentence.contains("geheim"),
        "{sentence}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_yet_is_waited_for() {
    let place = Place::new().await;
    let (url, proxy) = late_server(&place.database.url, |count| count > 2).await;
    let variables = [("DATABASE_URL", url.as_str()), ("TOOLGATE_SECRET_KEY", &place.key)];
    let gateway = Process::start_in(TempDir::new().unwrap(), &variables).await;
    gateway.get("/ready").await.expect(200);
    assert_eq!(gateway.log.lock().unwrap().matches("waiting for the database").count(), 1);
    stop(gateway).await;
    proxy.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_is_ready_once_its_server_is_there() {
    let place = Place::new().await;
    let is_there = Arc::new(AtomicBool::new(false));
    let there = is_there.clone();
    let (url, proxy) = late_server(&place.database.url, move |_| there.load(Ordering::Relaxed)).await;
    let folder = TempDir::new().unwrap();
    let variables = [("DATABASE_URL", url.as_str()), ("TOOLGATE_SECRET_KEY", &place.key)];
    let gateway = Unready::start(command(folder.path(), &variables)).await;
    assert_eq!(gateway.send("GET", "/ready").await.expect(503).json(), json!({ "status": "starting" }));
    let mut unused = TcpStream::connect(&gateway.address).await.unwrap();
    // Accepted after that one, so that it is accepted, too.
    gateway.send("GET", "/health").await.expect(200);
    is_there.store(true, Ordering::Relaxed);
    eventually("it is ready", || async {
        let ready = gateway.send("GET", "/ready").await;
        let (status, body) = (ready.status, ready.json());
        assert!(body == json!({ "status": "ok" }) || body == json!({ "status": "starting" }), "{body}");
        status == 200
    })
    .await;
    gateway.send("GET", "/api/v0/servers").await.expect(200);
    unused.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    client::is_healthy(&mut unused).await;
    assert_eq!(gateway.stop().await, Some(0));
    proxy.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_the_wait_for_a_server() {
    let place = Place::new().await;
    let (url, proxy) = late_server(&place.database.url, |_| false).await;
    let folder = TempDir::new().unwrap();
    let variables = [("DATABASE_URL", url.as_str()), ("TOOLGATE_SECRET_KEY", &place.key)];
    let mut child = command(folder.path(), &variables).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = log.next_line().await.unwrap().unwrap();
    assert!(first.contains("waiting for the database"), "{first}");
    send_signal(&child, libc::SIGTERM);
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
    proxy.abort();
}

/// A server without TLS that answers every connection with an error.
async fn refusing_server(code: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut message = [0; 1024];
            // The request for TLS has 8 bytes; the message after it names the user.
            while let Ok(length) = client.read(&mut message).await
                && length > 0
            {
                let mut answer = vec![b'N'];
                if length != 8 {
                    let fields = format!("SFATAL\0VFATAL\0C{code}\0Mrefused\0\0");
                    answer = [b"E", &(fields.len() as u32 + 4).to_be_bytes()[..], fields.as_bytes()].concat();
                }
                client.write_all(&answer).await.unwrap();
            }
        }
    });
    address
}

/// The URL of a database whose server closes connections, as one that is starting does, until `accepts` says otherwise of the
/// number of a connection.
async fn late_server(
    url: &str,
    accepts: impl Fn(usize) -> bool + Send + 'static,
) -> (String, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (scheme, place) = url.rsplit_once('@').expect("the URL names a user");
    let (server, database) = place.split_once('/').unwrap();
    let (server, late) = (server.to_owned(), format!("{scheme}@{address}/{database}"));
    let serving = tokio::spawn(async move {
        let mut count = 0;
        while let Ok((mut client, _)) = listener.accept().await {
            count += 1;
            if !accepts(count) {
                let _ = client.read(&mut [0; 1024]).await;
                continue;
            }
            let mut server = TcpStream::connect(&server).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
        }
    });
    (late, serving)
}
