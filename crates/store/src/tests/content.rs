//! Tests that stored data is read back complete and unchanged, and that a write changes nothing else.

use serde_json::json;

use super::{epoch, http, name, noted, odd_offering, only_server, open, registration};
use crate::db::on;
use crate::{DisabledKind, GrantChange, Store, StoreError};
use model::{Offering, Registration};

fn full_http() -> Registration {
    registration(json!({
        "name": "a", "transport": "sse", "url": "https://u:p@h:8443/mcp?key=v", "description": "d",
        "bearer_token": "t", "headers": {"X-Key": "k"}, "session_mode": "stateful", "timeout_ms": 0,
        "max_concurrency": 3, "enabled": false, "disabled_tools": ["x", "gone"], "disabled_prompts": ["y"],
        "oauth_redirect_uri": "http://localhost:1/cb", "oauth_client_id": "c", "oauth_client_secret": "s",
        "oauth_scopes": ["one"], "rate_limit": {"calls_per_minute": 60, "burst": 5},
        "tool_limits": {"get_*": {"calls_per_minute": 1}, "x": {"calls_per_minute": 2}},
    }))
}

#[tokio::test]
async fn everything_comes_back_byte_for_byte_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("toolgate.db");
    let stdio = registration(json!({
        "name": "b", "transport": "stdio", "command": "npx", "args": ["-y", ""], "env": {"K": "v"}, "cwd": "/",
    }));
    let store = open(&path).await.unwrap();
    store.replace_server(&stdio, &Offering::default(), GrantChange::Keep, 7, &noted()).await.unwrap();
    store.replace_server(&full_http(), &odd_offering(), GrantChange::Keep, 5, &noted()).await.unwrap();
    store.close().await;

    let servers = open(&path).await.unwrap().load_servers().await.unwrap();
    let [first, second] = servers.as_slice() else { panic!("expected two servers, ordered by name") };
    assert_eq!(first.registration, full_http());
    assert!(first.offering.same_as(&odd_offering()));
    assert_eq!((first.created_at_ms, first.updated_at_ms, first.discovered_at_ms), (5, 5, Some(5)));
    assert_eq!(second.registration, stdio);
    assert!(second.offering.same_as(&Offering::default()));
    assert_eq!((second.created_at_ms, second.updated_at_ms, second.discovered_at_ms), (7, 7, None));
}

#[tokio::test]
async fn a_crash_loses_no_answered_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("toolgate.db");
    let store = open(&path).await.unwrap();
    store.replace_server(&full_http(), &odd_offering(), GrantChange::Keep, 5, &noted()).await.unwrap();

    // The files that would be on the disk after a power cut now.
    let after = tempfile::tempdir().unwrap();
    for file in ["toolgate.db", "toolgate.db-wal", "toolgate.key"] {
        std::fs::copy(directory.path().join(file), after.path().join(file)).unwrap();
    }
    let recovered = open(after.path().join("toolgate.db")).await.unwrap();
    assert_eq!(only_server(&recovered).await.registration, full_http());

    drop(store);
    let reopened = open(&path).await.unwrap();
    assert!(only_server(&reopened).await.offering.same_as(&odd_offering()));
}

#[tokio::test]
async fn a_server_is_replaced_whole() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    store.replace_server(&full_http(), &odd_offering(), GrantChange::Keep, 1, &noted()).await.unwrap();
    assert_eq!(only_server(&store).await.registration, full_http());

    let fewer = Offering { protocol_version: "2025-11-25".into(), ..Offering::default() };
    store.replace_server(&http("a"), &fewer, GrantChange::Keep, 3, &noted()).await.unwrap();
    let server = only_server(&store).await;
    assert_eq!(server.registration, http("a"));
    assert!(server.offering.same_as(&fewer));
    assert_eq!((server.created_at_ms, server.updated_at_ms, server.discovered_at_ms), (1, 3, Some(3)));

    store.replace_server(&http("new"), &Offering::default(), GrantChange::Keep, 4, &noted()).await.unwrap();
    assert_eq!(store.load_servers().await.unwrap().len(), 2);
}

#[tokio::test]
async fn flags_change_alone_and_outlive_new_lists() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    store.replace_server(&http("a"), &odd_offering(), GrantChange::Keep, 1, &noted()).await.unwrap();
    let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    store
        .set_disabled(&name("a"), DisabledKind::Tool, &names(&["a", "later", "a"]), true, 2, &noted())
        .await
        .unwrap();
    store.set_disabled(&name("a"), DisabledKind::Prompt, &names(&["p"]), true, 3, &noted()).await.unwrap();
    store
        .set_disabled(&name("a"), DisabledKind::Tool, &names(&["a", "never"]), false, 4, &noted())
        .await
        .unwrap();
    store.set_enabled(&name("a"), false, 5, &noted()).await.unwrap();
    store.update_offering(&name("a"), &Offering::default(), 6).await.unwrap();

    let server = only_server(&store).await;
    let flags = &server.registration.flags;
    assert!(!flags.enabled);
    assert_eq!(flags.disabled_tools.iter().collect::<Vec<_>>(), ["later"]);
    assert_eq!(flags.disabled_prompts.iter().collect::<Vec<_>>(), ["p"]);
    assert_eq!(server.registration.config, http("a").config);
    assert!(server.offering.tools.is_empty());
    assert_eq!(server.updated_at_ms, 5);
}

#[tokio::test]
async fn a_server_that_offers_the_same_again_keeps_its_stored_lists() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    store.replace_server(&http("a"), &odd_offering(), GrantChange::Keep, 1, &noted()).await.unwrap();
    let before = epoch(&store).await;
    store.confirm_offering(&name("a"), &odd_offering(), 7).await.unwrap();

    let server = only_server(&store).await;
    assert!(server.offering.same_as(&odd_offering()));
    assert_eq!((server.discovered_at_ms, server.updated_at_ms), (Some(7), 1));
    assert!(epoch(&store).await > before);
}

#[tokio::test]
async fn a_deleted_server_leaves_nothing_for_the_next_of_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    store.replace_server(&full_http(), &odd_offering(), GrantChange::Keep, 1, &noted()).await.unwrap();
    assert!(store.delete_server(&name("a"), &noted()).await.unwrap());
    assert!(!store.delete_server(&name("a"), &noted()).await.unwrap());
    store.replace_server(&http("a"), &Offering::default(), GrantChange::Keep, 2, &noted()).await.unwrap();
    let server = only_server(&store).await;
    assert_eq!(server.registration, http("a"));
    assert!(server.offering.same_as(&Offering::default()));
}

#[tokio::test]
async fn a_change_to_an_unknown_server_is_refused_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    let before = epoch(&store).await;
    let unknown = name("nobody");
    let answers = [
        store.set_enabled(&unknown, true, 1, &noted()).await,
        store.set_disabled(&unknown, DisabledKind::Tool, &["x".into()], true, 1, &noted()).await,
        store.update_offering(&unknown, &odd_offering(), 1).await,
        store.confirm_offering(&unknown, &odd_offering(), 1).await,
    ];
    for answer in answers {
        assert!(matches!(answer, Err(StoreError::NotFound(_))), "{answer:?}");
    }
    assert_eq!(epoch(&store).await, before);
}

#[tokio::test]
async fn every_write_raises_the_epoch() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    let mut last = epoch(&store).await;
    let mut rose = async |store: &Store| {
        let now = epoch(store).await;
        assert!(now > std::mem::replace(&mut last, now));
    };
    store.replace_server(&http("a"), &Offering::default(), GrantChange::Keep, 1, &noted()).await.unwrap();
    rose(&store).await;
    store.replace_server(&http("a"), &Offering::default(), GrantChange::Keep, 1, &noted()).await.unwrap();
    rose(&store).await;
    store.update_offering(&name("a"), &odd_offering(), 1).await.unwrap();
    rose(&store).await;
    store.set_enabled(&name("a"), false, 1, &noted()).await.unwrap();
    rose(&store).await;
    store.set_disabled(&name("a"), DisabledKind::Prompt, &["p".into()], true, 1, &noted()).await.unwrap();
    rose(&store).await;
    store.claim_mode("development").await.unwrap();
    rose(&store).await;
    store.delete_server(&name("a"), &noted()).await.unwrap();
    rose(&store).await;
}

#[tokio::test]
async fn a_database_gets_a_mode_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    assert_eq!(store.mode().await.unwrap(), None);
    assert_eq!(store.load(1).await.unwrap().mode, None);
    store.claim_mode("development").await.unwrap();
    let before = store.load(1).await.unwrap();
    store.claim_mode("enterprise").await.unwrap();
    let after = store.load(1).await.unwrap();
    assert_eq!(after.mode.as_deref(), Some("development"));
    assert_eq!(after.epoch, before.epoch, "nothing was changed");
    assert!(store.health().borrow().is_ok(), "and nothing failed");
}

#[tokio::test]
async fn a_damaged_server_is_an_error_that_names_it() {
    let damages = [
        "UPDATE servers SET config = x'0102' WHERE name = 'bad'",
        "UPDATE servers SET config = (SELECT config FROM servers WHERE name = 'good') WHERE name = 'bad'",
        "UPDATE servers SET capabilities = '{' WHERE name = 'bad'",
        "UPDATE servers SET ttl_ms = -1 WHERE name = 'bad'",
        "UPDATE catalogs SET items = '[{}]' WHERE server = 'bad' AND kind = 'tool'",
        "UPDATE catalogs SET kind = 'song' WHERE server = 'bad' AND kind = 'tool'",
        "INSERT INTO disabled (server, kind, name) VALUES ('bad', 'song', 'x')",
    ];
    for damage in damages {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path().join("toolgate.db")).await.unwrap();
        store.replace_server(&http("good"), &odd_offering(), GrantChange::Keep, 1, &noted()).await.unwrap();
        store.replace_server(&http("bad"), &odd_offering(), GrantChange::Keep, 1, &noted()).await.unwrap();
        let mut tx = store.read().await.unwrap();
        on!(&mut tx, |db| sqlx::query(damage).execute(db).await.map(|_| ())).unwrap();
        tx.commit().await.unwrap();
        match store.load_servers().await {
            Err(StoreError::Corrupt(what)) => assert!(what.contains("server \"bad\""), "{what}"),
            other => panic!("{damage}: {other:?}"),
        }
    }
}
