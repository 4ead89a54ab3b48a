//! Tests of replacing the key of a file. Those with running gateways are in `tests/replicas/`.

use std::fs;
use std::path::Path;

use super::transfer::{KEY, assert_filled, filled};
use super::{file, http, noted, odd_offering, open, open_with_key};
use crate::rotation::{begin, reseal_in_parts};
use crate::tables::RowSeal;
use crate::{GrantChange, OpenOptions, RotationError, RotationOptions, check, rotate, settings};
use model::Secret;
use seal::{Seal, SecretKey};

fn options(path: &Path, new_key: &str) -> RotationOptions {
    let new_key = Secret::new(new_key);
    RotationOptions { database: file(path), secret_key: None, new_key, finish: false, now_ms: 3 }
}

#[tokio::test]
async fn everything_is_sealed_under_the_new_key_and_the_old_one_opens_nothing() {
    let (directory, path) = filled().await;
    let key_file = directory.path().join("toolgate.key");
    let old = fs::read_to_string(&key_file).unwrap();
    let rotated = rotate(&options(&path, KEY)).await.unwrap();
    assert!(rotated.is_finished && rotated.rows == 10 && rotated.unreadable.is_empty(), "{rotated:?}");
    assert_eq!(rotated.key_file.unwrap().file_name().unwrap(), "toolgate.key");
    assert_eq!(fs::read_to_string(&key_file).unwrap().trim(), KEY);
    assert_eq!(fs::read_to_string(directory.path().join("toolgate.key.old")).unwrap(), old);
    assert!(open_with_key(&path, &old).await.is_err());
    assert_filled(&open(&path).await.unwrap()).await;
    let findings = check(&OpenOptions { database: file(&path), secret_key: None }).await.unwrap();
    assert!(findings.iter().all(|finding| finding.problems.is_empty()), "{findings:?}");
    let again = rotate(&options(&path, KEY)).await.unwrap();
    assert!(again.is_finished && again.rows == 0, "{again:?}");
}

#[tokio::test]
async fn an_interrupted_rotation_is_readable_with_both_keys_and_finished_by_the_next_run() {
    let new = SecretKey::from_hex(KEY).unwrap();
    for step in 0..4 {
        let (directory, path) = filled().await;
        let old = fs::read_to_string(directory.path().join("toolgate.key")).unwrap();
        let store = open(&path).await.unwrap();
        let pair = begin(&store, &options(&path, KEY), &Seal::new(&new)).await.unwrap().unwrap();
        let seals = (RowSeal::new(Seal::new(&pair.previous)), RowSeal::new(Seal::new(&pair.next)));
        if step > 0 {
            reseal_in_parts(&store, &seals.0, &seals.1).await.unwrap();
        }
        if step > 1 {
            let mut tx = store.write().await.unwrap();
            settings::replace_key_check(&mut tx, &seals.1.seal).await.unwrap();
            tx.commit().await.unwrap();
        }
        if step > 2 {
            crate::key::replace(&path, &new).unwrap();
        }
        store.close().await;
        for key in [old.trim(), KEY] {
            let store = open_with_key(&path, key).await.unwrap();
            assert_filled(&store).await;
            store.close().await;
            let secret_key = Some(Secret::new(key));
            let findings = check(&OpenOptions { database: file(&path), secret_key }).await.unwrap();
            assert!(findings.iter().all(|finding| finding.problems.is_empty()), "{step}: {findings:?}");
        }
        let another = rotate(&options(&path, &"11".repeat(32))).await.unwrap_err();
        assert!(matches!(another, RotationError::AnotherRotation(_)), "{step}: {another}");

        let rotated = rotate(&options(&path, KEY)).await.unwrap();
        assert!(rotated.is_finished, "{step}: {rotated:?}");
        assert!(open_with_key(&path, old.trim()).await.is_err());
        assert_filled(&open(&path).await.unwrap()).await;
    }
}

#[tokio::test]
async fn what_was_written_with_the_old_key_after_the_first_run_is_sealed_again() {
    let (directory, path) = filled().await;
    let old = fs::read_to_string(directory.path().join("toolgate.key")).unwrap();
    let new = SecretKey::from_hex(KEY).unwrap();
    let store = open(&path).await.unwrap();
    let pair = begin(&store, &options(&path, KEY), &Seal::new(&new)).await.unwrap().unwrap();
    let seals = (RowSeal::new(Seal::new(&pair.previous)), RowSeal::new(Seal::new(&pair.next)));
    reseal_in_parts(&store, &seals.0, &seals.1).await.unwrap();
    store.replace_server(&http("late"), &odd_offering(), GrantChange::Keep, 9, &noted()).await.unwrap();
    store.close().await;
    let rotated = rotate(&options(&path, KEY)).await.unwrap();
    assert_eq!(rotated.rows, 1);
    assert!(open_with_key(&path, old.trim()).await.is_err());
    assert_eq!(open(&path).await.unwrap().load_servers().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_bad_key_or_database_changes_nothing() {
    let (directory, path) = filled().await;
    let before = fs::read(&path).unwrap();
    let malformed = rotate(&options(&path, "hunter2")).await.unwrap_err().to_string();
    assert_eq!(malformed, "the secret key in --new-key must be 64 hexadecimal characters");
    let running = open(&path).await.unwrap();
    let in_use = rotate(&options(&path, KEY)).await.unwrap_err().to_string();
    assert!(in_use.contains("in use by another toolgate process"), "{in_use}");
    running.close().await;
    assert_eq!(fs::read(&path).unwrap(), before);
    let missing = directory.path().join("no.db");
    assert!(rotate(&options(&missing, KEY)).await.is_err() && !missing.exists());
}
