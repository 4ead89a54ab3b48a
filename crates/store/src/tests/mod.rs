//! Tests of the store on real files. `place` is about opening, `before` about databases of earlier versions, `content`
//! and `people` about reading back what was stored, `secrecy` about secrets in the files, `transfer` about moving
//! all of it, `rotation` about another key, `records` about what is recorded of calls, `audit`
//! about its chain, `oauth` about grants of users.

mod audit;
mod before;
mod content;
mod idp_tokens;
mod oauth;
mod people;
mod place;
mod records;
mod rotation;
mod secrecy;
mod transfer;

use std::path::Path;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::db::on;
use super::{DatabaseAddress, OpenOptions, OpenStoreError, Store, StoredServer};
use model::{
    AuditNote, By, Offering, OwnMeta, Prompt, Registration, Resource, Secret, ServerName, Template, Tool,
};

async fn open(path: impl AsRef<Path>) -> Result<Store, OpenStoreError> {
    Store::open(OpenOptions { database: file(path), secret_key: None }).await
}

async fn open_with_key(path: impl AsRef<Path>, key: &str) -> Result<Store, OpenStoreError> {
    let secret_key = Some(Secret::new(key));
    Store::open(OpenOptions { database: file(path), secret_key }).await
}

fn file(path: impl AsRef<Path>) -> DatabaseAddress {
    DatabaseAddress::File(path.as_ref().to_owned())
}

fn registration(value: Value) -> Registration {
    let Value::Object(object) = value else { panic!("tests pass an object") };
    Registration::parse(object).unwrap()
}

fn http(name: &str) -> Registration {
    registration(json!({"name": name, "transport": "streamable_http", "url": "http://localhost:1/mcp"}))
}

fn name(text: &str) -> ServerName {
    ServerName::parse(text).unwrap()
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

/// Definitions that would change if they were parsed and written again.
fn odd_offering() -> Offering {
    Offering {
        protocol_version: "2025-06-18".into(),
        server_info: Some(raw(r#"{"version":"1.0", "name":"odd\u0000","z":1,"a":2}"#)),
        capabilities: Some(raw(r#"{ "tools" : {"listChanged":true} }"#)),
        instructions: Some("line\nquote\" NUL\0 ü".into()),
        tools: [
            r#"{"name":"a","inputSchema":{"maximum":18446744073709551615,"minimum":-98765432109876543210}}"#,
            r#"{ "z" : 1.0, "a":1e400 ,"name" : "b\u00fc\ud83d\ude00", "x-vendor":{"k":1,"k":2} }"#,
            "{\"name\":\"c\",\n\t\"description\":\"],[\\\" \\/ ä\",\"n\":1.50000000000000000000000001}",
        ]
        .map(|definition| Arc::new(Tool::parse(raw(definition)).unwrap()))
        .into(),
        prompts: vec![Arc::new(Prompt::parse(raw(r#"{"name":"p","arguments":[ ]}"#)).unwrap())],
        resources: vec![Arc::new(
            Resource::parse(raw(r#"{"uri":"file:///a","size":12345678901234567890}"#)).unwrap(),
        )],
        templates: vec![Arc::new(Template::parse(raw(r#"{"uriTemplate":"file:///{a}"}"#)).unwrap())],
        ttl_ms: Some(60_000),
        is_private: true,
        meta: OwnMeta {
            handshake: Some(raw(r#"{"b":1.0, "a":"\u0000"}"#)),
            templates: Some(raw(r#"{ "n" : 12345678901234567890123 }"#)),
            ..OwnMeta::default()
        },
    }
}

/// What is noted of a change whose entry does not matter.
fn noted() -> AuditNote {
    noted_at(1)
}

fn noted_at(at_ms: i64) -> AuditNote {
    AuditNote::new(&By::gateway(), "test.change", "", at_ms)
}

async fn only_server(store: &Store) -> StoredServer {
    let mut servers = store.load_servers().await.unwrap();
    assert_eq!(servers.len(), 1);
    servers.remove(0)
}

/// The epoch, a number that grows with every change to the database.
async fn epoch(store: &Store) -> i64 {
    const SQL: &str = "SELECT CAST(value AS BIGINT) FROM settings WHERE key = 'epoch'";
    let mut tx = store.read().await.unwrap();
    let epoch: Option<i64> = on!(&mut tx, |db| sqlx::query_scalar(SQL).fetch_optional(db).await).unwrap();
    tx.commit().await.unwrap();
    epoch.unwrap_or(0)
}
