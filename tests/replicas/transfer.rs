//! `toolgate migrate-store` between a file and Postgres, in both directions.

use std::path::Path;

use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use tokio::process::Command;

use super::support::database::{self, Database};
use super::support::fake::{Behaviour, Fake};
use super::support::process::{Ended, Process, run};
use super::support::{bearer, client};

const KEY: &str = "7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c7c";

async fn migrate(folder: &Path, from: &str, to: &str, more: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolgate"));
    command.args(["migrate-store", "--from", from, "--to", to, "--output", "json"]).args(more);
    command.current_dir(folder).env_clear();
    run(command).await
}

async fn create() -> Database {
    Database::create(&database::server().expect("TOOLGATE_TEST_POSTGRES is set")).await
}

/// A gateway in enterprise mode with a server, a group, a client and another user; and the tokens of admin and client.
async fn filled(fake: &Fake, variables: &[(&str, &str)]) -> (Process, [String; 2]) {
    let mut all = vec![("SERVER_MODE", "enterprise")];
    all.extend(variables);
    let gateway = Process::start_in(TempDir::new().unwrap(), &all).await;
    let made = gateway.post("/init", &json!({})).await.expect(200).json();
    let admin = made["admin_access_token"].as_str().unwrap().to_owned();
    let post = async |path: &str, body: Value| {
        let headers = [("authorization", bearer(&admin)), ("content-type", "application/json".to_owned())];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let body = body.to_string().into_bytes();
        client::request(&gateway.address, "POST", path, &headers, body).await.expect(201).json()
    };
    let secret = json!({ "X-Key": "planted-secret" });
    let server =
        json!({ "name": "up", "transport": "streamable_http", "url": fake.url(), "headers": secret });
    post("/api/v0/servers", server).await;
    post("/api/v0/tool-groups", json!({ "name": "team", "included_servers": ["up"] })).await;
    post("/api/v0/users", json!({ "username": "Ünal", "role": "user" })).await;
    let agent = post("/api/v0/clients", json!({ "name": "agent", "allow_list": ["up"] })).await;
    (gateway, [admin, agent["access_token"].as_str().unwrap().to_owned()])
}

/// What the admin sees of everything.
async fn shown(gateway: &Process, admin: &str) -> Vec<String> {
    let mut pages = Vec::new();
    for path in ["server_configs", "tools", "tool-groups", "users", "clients", "audit", "audit/verify"] {
        let headers = [("authorization", bearer(admin))];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let page =
            client::request(&gateway.address, "GET", &format!("/api/v0/{path}"), &headers, vec![]).await;
        let page = page.expect(200);
        pages.push(match path {
            // Asking is being seen.
            "users" => without_last_seen(page.json()),
            _ => page.text(),
        });
    }
    pages
}

fn without_last_seen(mut users: Value) -> String {
    for user in users.as_array_mut().into_iter().flatten() {
        user["last_seen_at"].take();
    }
    users.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_moves_to_postgres_and_back_with_everything() {
    let fake = Fake::start(Behaviour::default()).await;
    let (gateway, [admin, agent]) = filled(&fake, &[]).await;
    let before = shown(&gateway, &admin).await;
    let postgres = create().await;
    let (url, key) = (postgres.url.as_str(), ["--to-key", KEY]);
    let running = migrate(gateway.folder.path(), "sqlite:toolgate.db", url, &key).await;
    assert!(running.sentence().ends_with("toolgate.db; stop it first"), "{running:?}");
    gateway.signal(libc::SIGTERM);
    let (_, folder) = gateway.end().await;

    let moved = migrate(folder.path(), "sqlite:toolgate.db", url, &key).await;
    assert_eq!((moved.code, moved.stderr.as_str()), (Some(0), ""), "{moved:?}");
    let moved: Value = serde_json::from_str(&moved.stdout).unwrap();
    assert_eq!((&moved["rows"]["users"], &moved["rows"]["servers"]), (&json!(2), &json!(1)), "{moved}");
    let variables = [("SERVER_MODE", "enterprise"), ("DATABASE_URL", url), ("TOOLGATE_SECRET_KEY", KEY)];
    let gateway = Process::start_in(TempDir::new().unwrap(), &variables).await;
    assert_eq!(shown(&gateway, &admin).await, before);
    let target = TempDir::new().unwrap();
    let from_key = ["--from-key", KEY];
    let running = migrate(target.path(), url, "sqlite:toolgate.db", &from_key).await;
    assert!(running.sentence().contains("a gateway uses database postgres://"), "{running:?}");
    let occupied = migrate(folder.path(), "sqlite:toolgate.db", url, &key).await;
    assert!(occupied.sentence().contains("a gateway uses database postgres://"), "{occupied:?}");
    gateway.signal(libc::SIGTERM);
    gateway.end().await;

    let back = migrate(target.path(), url, "sqlite:toolgate.db", &from_key).await;
    assert_eq!((back.code, back.stderr.as_str()), (Some(0), ""), "{back:?}");
    assert!(target.path().join("toolgate.key").exists());
    let gateway = Process::start_in(target, &[("SERVER_MODE", "enterprise")]).await;
    assert_eq!(shown(&gateway, &admin).await, before);
    let headers = [("authorization", bearer(&agent)), ("content-type", "application/json".to_owned())];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    let ping = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.to_vec();
    let answer = client::request(&gateway.address, "POST", "/mcp", &headers, ping).await;
    assert!(answer.status != 401 && answer.status != 403, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_with_data_is_refused_and_stays_as_it_is() {
    let fake = Fake::start(Behaviour::default()).await;
    let postgres = create().await;
    let variables = [("DATABASE_URL", postgres.url.as_str()), ("TOOLGATE_SECRET_KEY", KEY)];
    let (there, [admin, _]) = filled(&fake, &variables).await;
    let before = shown(&there, &admin).await;
    there.signal(libc::SIGTERM);
    there.end().await;
    let (here, _) = filled(&fake, &[]).await;
    here.signal(libc::SIGTERM);
    let (_, folder) = here.end().await;
    let to = postgres.url.replacen("postgres@", "postgres:planted-password@", 1);
    for key in [KEY, &"11".repeat(32)] {
        let refused = migrate(folder.path(), "sqlite:toolgate.db", &to, &["--to-key", key]).await;
        assert!(refused.sentence().ends_with(" is not empty; move to a new one"), "{refused:?}");
        assert!(!refused.stderr.contains("planted-password"), "{refused:?}");
    }
    let mut variables = variables.to_vec();
    variables.push(("SERVER_MODE", "enterprise"));
    let there = Process::start_in(TempDir::new().unwrap(), &variables).await;
    assert_eq!(shown(&there, &admin).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_fails_leaves_not_even_tables() {
    const TABLES: &str = "SELECT COUNT(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace";
    const DAMAGE: &str = "UPDATE clients SET token = x'00'";
    let fake = Fake::start(Behaviour::default()).await;
    let (here, _) = filled(&fake, &[]).await;
    here.signal(libc::SIGTERM);
    let (_, folder) = here.end().await;
    let postgres = create().await;
    let file = format!("sqlite:{}", folder.path().join("toolgate.db").display());
    let mut source = SqliteConnection::connect(&file).await.unwrap();
    sqlx::query(DAMAGE).execute(&mut source).await.unwrap();
    source.close().await.unwrap();
    let failed = migrate(folder.path(), "sqlite:toolgate.db", &postgres.url, &["--to-key", KEY]).await;
    assert!(failed.sentence().contains("row \"agent\" of table clients"), "{failed:?}");
    let mut target = PgConnection::connect(&postgres.url).await.unwrap();
    let count: i64 = sqlx::query_scalar(TABLES).fetch_one(&mut target).await.unwrap();
    assert_eq!(count, 0);
}
