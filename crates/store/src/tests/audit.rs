//! Tests of the chain of the audit: whatever somebody does to its tables shows.

use std::path::{Path, PathBuf};

use serde_json::json;
use sqlx::AssertSqlSafe;
use tempfile::TempDir;

use super::transfer::KEY;
use super::{file, open};
use crate::db::on;
use crate::{
    AuditFilter, AuditReport, OpenOptions, RotationOptions, Store, TransferOptions, check, rotate, transfer,
    verify_audit,
};
use model::{AuditHead, AuditNote, AuditOutcome, By, Secret};

/// A database with so many entries.
async fn with_entries(count: i64) -> (TempDir, PathBuf, Store) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("toolgate.db");
    let store = open(&path).await.unwrap();
    store.note(&notes(1, count)).await.unwrap();
    (directory, path, store)
}

fn notes(first: i64, count: i64) -> Vec<AuditNote> {
    let note = |number: i64| {
        let by = By::user(format!("user {number}"), Some("192.0.2.1".into()));
        AuditNote::new(&by, "server.update", format!("server {number}"), number * 1000)
            .before(json!({"description": "old"}))
            .after(json!({"description": format!("planted-after-{number}")}))
    };
    (first..first + count).map(note).collect()
}

async fn run(store: &Store, sql: &str) {
    let mut tx = store.write().await.unwrap();
    on!(&mut tx, |db| sqlx::query(AssertSqlSafe(sql)).execute(db).await.map(|_| ())).unwrap();
    tx.commit().await.unwrap();
}

async fn verify(store: &Store) -> AuditReport {
    store.verify_audit(None).await.unwrap()
}

fn problem(report: &AuditReport) -> i64 {
    report.problem.as_ref().unwrap_or_else(|| panic!("nothing was found: {report:?}")).number
}

#[tokio::test]
async fn what_was_noted_reads_back_newest_first_and_by_every_filter() {
    let (_directory, _path, store) = with_entries(5).await;
    let by = By::client("agent_1", None);
    let refused = AuditNote { count: 7, ..AuditNote::new(&by, "api.request", "NUL\0", 9000) };
    store.note(&[refused.clone().outcome(AuditOutcome::Refused)]).await.unwrap();
    let find = async |filter: AuditFilter| -> Vec<i64> {
        let found = store.audit(&AuditFilter { limit: filter.limit.max(1), ..filter }).await.unwrap();
        found.into_iter().map(|entry| entry.number).collect()
    };
    let all = AuditFilter { limit: 100, ..AuditFilter::default() };
    assert_eq!(find(all.clone()).await, [6, 5, 4, 3, 2, 1]);
    assert_eq!(find(AuditFilter { limit: 2, before: Some(5), ..all.clone() }).await, [4, 3]);
    assert_eq!(find(AuditFilter { actor: "user 3".into(), ..all.clone() }).await, [3]);
    assert_eq!(find(AuditFilter { action: "api.request".into(), ..all.clone() }).await, [6]);
    assert_eq!(find(AuditFilter { action: "api".into(), ..all.clone() }).await, [6]);
    assert_eq!(find(AuditFilter { action: "server.*".into(), ..all.clone() }).await, [5, 4, 3, 2, 1]);
    assert_eq!(find(AuditFilter { action: "serve".into(), ..all.clone() }).await, [0; 0]);
    assert_eq!(find(AuditFilter { target: "server 2".into(), ..all.clone() }).await, [2]);
    assert_eq!(find(AuditFilter { outcome: "refused".into(), ..all.clone() }).await, [6]);
    let (since_ms, until_ms) = (Some(2000), Some(3000));
    assert_eq!(find(AuditFilter { since_ms, until_ms, ..all.clone() }).await, [3, 2]);
    assert_eq!(find(AuditFilter { text: "USER 4".into(), ..all.clone() }).await, [4]);
    assert_eq!(find(AuditFilter { text: "agent_".into(), ..all.clone() }).await, [6]);
    assert_eq!(find(AuditFilter { text: "agent%1".into(), ..all.clone() }).await, [0; 0]);
    let found = store.audit(&all).await.unwrap();
    assert_eq!(found[5].note, notes(1, 1)[0]);
    assert_eq!((found[0].note.count, found[0].note.target.as_str()), (7, "NUL\u{fffd}"));
}

#[tokio::test]
async fn an_untouched_chain_holds_and_its_head_is_found_later() {
    let (_directory, path, store) = with_entries(3).await;
    let early = store.audit_head().await.unwrap();
    store.note(&notes(4, 1200)).await.unwrap();
    let report = store.verify_audit(Some(early)).await.unwrap();
    assert_eq!((report.problem.as_ref(), report.entries, report.head.number), (None, 1203, 1203));
    assert_eq!(report.head, store.audit_head().await.unwrap());
    let beside = OpenOptions { database: file(&path), secret_key: None };
    assert_eq!(verify_audit(&beside, Some(early)).await.unwrap(), report, "the store is open meanwhile");
    let findings = check(&beside).await.unwrap();
    assert!(findings.iter().any(|finding| finding.subject == "audit: 1203" && finding.problems.is_empty()));
    let other = AuditHead { hash: [7; 32], ..early };
    assert_eq!(problem(&store.verify_audit(Some(other)).await.unwrap()), 3);
}

#[tokio::test]
async fn an_empty_chain_holds() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    let report = store.verify_audit(Some(AuditHead::default())).await.unwrap();
    assert_eq!((report.head, report.entries), (AuditHead::default(), 0));
    let noted = AuditHead { number: 1, hash: [1; 32] };
    assert_eq!(problem(&store.verify_audit(Some(noted)).await.unwrap()), 1);
}

#[tokio::test]
async fn every_altered_column_shows() {
    let columns = [
        ("at", "at + 1"),
        ("actor_kind", "'client'"),
        ("actor", "'somebody else'"),
        ("action", "'server.delete'"),
        ("target", "'another server'"),
        ("before_value", "after_value"),
        ("before_value", "x''"),
        ("after_value", "(SELECT after_value FROM audit WHERE number = 3)"),
        ("outcome", "'failed'"),
        ("address", "'192.0.2.2'"),
        ("address", "NULL"),
        ("count", "2"),
        ("hash", "(SELECT hash FROM audit WHERE number = 1)"),
    ];
    for (column, value) in columns {
        let (_directory, path, store) = with_entries(4).await;
        run(&store, &format!("UPDATE audit SET {column} = {value} WHERE number = 2")).await;
        assert_eq!(problem(&verify(&store).await), 2, "{column}");
        let findings = check(&OpenOptions { database: file(&path), secret_key: None }).await.unwrap();
        assert!(findings.iter().any(|finding| !finding.problems.is_empty()), "{column}");
    }
}

#[tokio::test]
async fn a_removed_a_moved_and_an_added_entry_show() {
    let cases: [(&[&str], i64); 7] = [
        (&["DELETE FROM audit WHERE number = 1"], 1),
        (&["DELETE FROM audit WHERE number = 3"], 3),
        (&["DELETE FROM audit WHERE number = 4"], 4),
        (
            &[
                "DELETE FROM audit WHERE number = 2",
                "UPDATE audit SET number = number - 1 WHERE number = 3",
                "UPDATE audit SET number = number - 1 WHERE number = 4",
                "UPDATE audit_head SET number = 3",
            ],
            2,
        ),
        (
            &[
                "UPDATE audit SET number = 0 WHERE number = 2",
                "UPDATE audit SET number = 2 WHERE number = 3",
                "UPDATE audit SET number = 3 WHERE number = 0",
            ],
            2,
        ),
        (&["DELETE FROM audit_head"], 1),
        (
            &["INSERT INTO audit SELECT 5, at, actor_kind, actor, action, target, before_value, after_value, outcome,
                address, count, hash FROM audit WHERE number = 4"],
            5,
        ),
    ];
    for (statements, number) in cases {
        let (_directory, _path, store) = with_entries(4).await;
        for sql in statements {
            run(&store, sql).await;
        }
        assert_eq!(problem(&verify(&store).await), number, "{statements:?}");
    }
}

#[tokio::test]
async fn a_lost_head_does_not_stop_changes_and_still_shows() {
    let (_directory, _path, store) = with_entries(4).await;
    run(&store, "DELETE FROM audit_head").await;
    store.note(&notes(5, 1)).await.unwrap();
    assert_eq!(problem(&verify(&store).await), 1);
}

#[tokio::test]
async fn a_cut_tail_shows_only_against_a_noted_head() {
    let (_directory, _path, store) = with_entries(4).await;
    let noted = store.audit_head().await.unwrap();
    run(&store, "DELETE FROM audit WHERE number > 2").await;
    run(&store, "UPDATE audit_head SET number = 2, hash = (SELECT hash FROM audit WHERE number = 2)").await;
    assert_eq!(verify(&store).await.problem, None);
    assert_eq!(problem(&store.verify_audit(Some(noted)).await.unwrap()), 4);
    store.note(&notes(30, 2)).await.unwrap();
    assert_eq!(verify(&store).await.problem, None);
    assert_eq!(problem(&store.verify_audit(Some(noted)).await.unwrap()), 4);
}

#[tokio::test]
async fn trimming_leaves_a_chain_that_holds_and_nobody_can_forge_it() {
    let (_directory, _path, store) = with_entries(500).await;
    let (early, late) = (store.audit_head().await.unwrap(), 450_500);
    store.note(&notes(501, 20)).await.unwrap();
    let mut trimmed = 0;
    loop {
        match store.trim_audit(late).await.unwrap() {
            0 => break,
            count => trimmed += count,
        }
    }
    assert_eq!(trimmed, 450);
    let report = store.verify_audit(Some(early)).await.unwrap();
    assert_eq!((report.problem.as_ref(), report.entries, report.anchor.number), (None, 70, 450));
    assert_eq!(store.verify_audit(Some(report.anchor)).await.unwrap().problem, None);
    let trimmed_before = AuditHead { number: 449, hash: [1; 32] };
    assert_eq!(problem(&store.verify_audit(Some(trimmed_before)).await.unwrap()), 449);

    run(&store, "UPDATE audit_head SET anchor_number = 460, anchor_hash = (SELECT hash FROM audit WHERE number = 460)").await;
    run(&store, "DELETE FROM audit WHERE number <= 460").await;
    assert_eq!(problem(&verify(&store).await), 460);
    assert_eq!(store.trim_audit(i64::MAX).await.unwrap(), 0, "trimming would hide it");
}

#[tokio::test]
async fn trimming_stops_at_an_altered_entry_and_may_delete_all() {
    let (_directory, _path, store) = with_entries(4).await;
    run(&store, "UPDATE audit SET actor = 'nobody' WHERE number = 3").await;
    assert_eq!(store.trim_audit(i64::MAX).await.unwrap(), 2);
    assert_eq!(problem(&verify(&store).await), 3);

    let (_directory, _path, store) = with_entries(4).await;
    assert_eq!(store.trim_audit(i64::MAX).await.unwrap(), 4);
    let report = verify(&store).await;
    assert_eq!((report.problem, report.entries, report.head), (None, 0, report.anchor));
    store.note(&notes(5, 1)).await.unwrap();
    assert_eq!(verify(&store).await.entries, 1);
}

#[tokio::test]
async fn the_chain_holds_after_a_move_and_under_another_key() {
    let (directory, path, store) = with_entries(250).await;
    store.trim_audit(10_000).await.unwrap();
    let noted = store.audit_head().await.unwrap();
    store.close().await;
    let target = directory.path().join("other.db");
    let options = TransferOptions {
        from: file(&path),
        to: file(&target),
        from_key: None,
        to_key: Some(Secret::new(KEY)),
        secret_key: None,
    };
    transfer(&options).await.unwrap();
    let key = Some(Secret::new(KEY));
    let moved =
        verify_audit(&OpenOptions { database: file(&target), secret_key: key }, Some(noted)).await.unwrap();
    assert_eq!((moved.problem.as_ref(), moved.entries, moved.head), (None, 241, noted));

    let options = RotationOptions {
        database: file(&path),
        secret_key: None,
        new_key: Secret::new(KEY),
        finish: false,
        now_ms: 5,
    };
    assert!(rotate(&options).await.unwrap().is_finished);
    let store = open(&path).await.unwrap();
    let report = store.verify_audit(Some(noted)).await.unwrap();
    assert_eq!((report.problem.as_ref(), report.entries), (None, 243));
    let newest = store.audit(&AuditFilter { limit: 2, ..AuditFilter::default() }).await.unwrap();
    let actions: Vec<_> = newest.iter().map(|entry| entry.note.action.as_str()).collect();
    assert_eq!(actions, ["key.retire", "key.rotate"]);
    store.note(&notes(300, 1)).await.unwrap();
    assert_eq!(verify(&store).await.problem, None);
}

#[tokio::test]
async fn what_changed_is_not_readable_in_the_files() {
    let (directory, _path, store) = with_entries(3).await;
    assert!(!is_in_files(directory.path(), "planted-after"));
    assert!(is_in_files(directory.path(), "server.update"));
    store.close().await;
    assert!(!is_in_files(directory.path(), "planted-after"));
}

fn is_in_files(directory: &Path, text: &str) -> bool {
    std::fs::read_dir(directory).unwrap().any(|entry| {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}
