//! Tests of the path, the key and the lock of a database.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::{http, noted, only_server, open, open_with_key};
use crate::db::on;
use crate::{GrantChange, OpenStoreError, Store};
use model::Offering;

fn sentence(opened: Result<Store, OpenStoreError>) -> String {
    opened.unwrap_err().to_string()
}

/// A closed database with one server in it.
async fn filled(directory: &Path) -> std::path::PathBuf {
    let path = directory.join("toolgate.db");
    let store = open(&path).await.unwrap();
    store.replace_server(&http("a"), &Offering::default(), GrantChange::Keep, 1, &noted()).await.unwrap();
    store.close().await;
    path
}

#[tokio::test]
async fn a_second_gateway_is_refused_whatever_path_it_takes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("toolgate.db");
    let store = open(&path).await.unwrap();
    let link = directory.path().join("link.db");
    symlink(&path, &link).unwrap();
    fs::create_dir(directory.path().join("sub")).unwrap();
    for other in [&path, &link, &directory.path().join("sub/../toolgate.db")] {
        let refused = sentence(open(other).await);
        let real = path.canonicalize().unwrap();
        assert_eq!(refused, format!("database {} is in use by another toolgate process", real.display()));
    }
    store.claim_mode("development").await.unwrap();
    store.close().await;
    assert!(store.mode().await.is_err(), "a closed store must fail");
    let next = open(&link).await.unwrap();
    assert_eq!(next.mode().await.unwrap().as_deref(), Some("development"));
}

#[tokio::test]
async fn two_new_databases_beside_each_other_share_a_key() {
    let directory = tempfile::tempdir().unwrap();
    let one = open(directory.path().join("one.db")).await.unwrap();
    let two = open(directory.path().join("two.db")).await.unwrap();
    one.close().await;
    two.close().await;
    open(directory.path().join("one.db")).await.unwrap();
}

#[tokio::test]
async fn closing_leaves_one_file_with_everything_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = filled(directory.path()).await;
    assert!(!directory.path().join("toolgate.db-wal").exists());
    let elsewhere = tempfile::tempdir().unwrap();
    for file in ["toolgate.db", "toolgate.key"] {
        fs::copy(path.with_file_name(file), elsewhere.path().join(file)).unwrap();
    }
    let copy = open(elsewhere.path().join("toolgate.db")).await.unwrap();
    assert_eq!(only_server(&copy).await.registration, http("a"));
}

#[tokio::test]
async fn nobody_else_may_read_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    store.claim_mode("development").await.unwrap();
    let mut seen = Vec::new();
    for entry in fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", entry.file_name());
        seen.push(entry.file_name().into_string().unwrap());
    }
    seen.sort();
    let all = ["toolgate.db", "toolgate.db-shm", "toolgate.db-wal", "toolgate.db.lock", "toolgate.key"];
    assert_eq!(seen, all);
}

#[tokio::test]
async fn a_wrong_key_opens_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = filled(directory.path()).await;
    let refused = sentence(open_with_key(&path, &"ab".repeat(32)).await);
    assert!(refused.starts_with("the secret key does not match this database"), "{refused}");
    assert!(refused.contains("TOOLGATE_SECRET_KEY") && !refused.contains("abab"), "{refused}");

    let key = fs::read_to_string(directory.path().join("toolgate.key")).unwrap();
    fs::write(directory.path().join("toolgate.key"), "cd".repeat(32)).unwrap();
    let refused = sentence(open(&path).await);
    assert!(refused.contains("does not match") && refused.contains("toolgate.key"), "{refused}");

    let store = open_with_key(&path, &key).await.unwrap();
    assert_eq!(only_server(&store).await.registration, http("a"));
}

#[tokio::test]
async fn a_given_key_needs_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("toolgate.db");
    open_with_key(&path, &"AB".repeat(32)).await.unwrap().close().await;
    assert!(!directory.path().join("toolgate.key").exists());
    open_with_key(&path, &"ab".repeat(32)).await.unwrap();
}

#[tokio::test]
async fn a_lost_key_is_an_error_and_never_a_new_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = filled(directory.path()).await;
    fs::remove_file(directory.path().join("toolgate.key")).unwrap();
    let refused = sentence(open(&path).await);
    assert!(refused.contains("toolgate.key is missing"), "{refused}");
    assert!(!directory.path().join("toolgate.key").exists());
}

#[tokio::test]
async fn a_malformed_key_is_named_but_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("toolgate.db");
    let refused = sentence(open_with_key(&path, "hunter2").await);
    assert!(refused.contains("TOOLGATE_SECRET_KEY") && !refused.contains("hunter2"), "{refused}");
    for bad in [&b"hunter2"[..], &[0xff; 64], &[b'0'; 1000]] {
        fs::write(directory.path().join("toolgate.key"), bad).unwrap();
        let refused = sentence(open(&path).await);
        assert!(refused.contains("toolgate.key must be 64") && !refused.contains("hunter2"), "{refused}");
    }
}

#[tokio::test]
async fn a_bad_place_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let missing = sentence(open(at("no/such/toolgate.db")).await);
    assert!(missing.contains("no/such of database") && missing.contains("does not exist"), "{missing}");
    fs::write(at("file"), "").unwrap();
    symlink(at("nowhere"), at("dangling")).unwrap();
    for bad in ["file/toolgate.db", "dangling", "."] {
        let refused = sentence(open(at(bad)).await);
        assert!(refused.starts_with("cannot use "), "{bad}: {refused}");
    }
    for text in ["hello", "a text that is longer than any header could be\n"] {
        fs::write(at("notes.txt"), text).unwrap();
        let refused = sentence(open(at("notes.txt")).await);
        assert!(refused.ends_with("notes.txt is not a SQLite database"), "{refused}");
        assert_eq!(fs::read_to_string(at("notes.txt")).unwrap(), text);
    }
}

#[tokio::test]
async fn a_damaged_file_is_an_error_not_a_panic() {
    let directory = tempfile::tempdir().unwrap();
    let path = filled(directory.path()).await;
    let whole = fs::read(&path).unwrap();
    for end in [16, 100, 4096, whole.len() / 2] {
        fs::write(&path, &whole[..end]).unwrap();
        if let Ok(store) = open(&path).await {
            assert!(store.load_servers().await.is_err(), "cut at {end}");
            store.close().await;
        }
    }
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = filled(directory.path()).await;
    let store = open(&path).await.unwrap();
    let mut tx = store.read().await.unwrap();
    let sql = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
        VALUES (9999, 'later', true, x'00', 0)";
    on!(&mut tx, |db| sqlx::query(sql).execute(db).await.map(|_| ())).unwrap();
    tx.commit().await.unwrap();
    store.close().await;
    let refused = sentence(open(&path).await);
    assert!(refused.contains("newer version of toolgate"), "{refused}");
    assert!(sentence(open(&path).await).contains("newer"), "the lock must be released");
}
