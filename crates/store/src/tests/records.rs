//! What is recorded of calls: it is found again, trimmed, and lost without harm.

use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

use super::open;
use crate::{CallCount, CallFilter, CallRow, CountedKind, Kept, Retention, SPANS};
use model::{CallRecord, Histogram, PrincipalId, RecordedPrincipal};

const DAY_MS: i64 = 86_400_000;

fn call(number: i64) -> CallRow {
    let record = CallRecord {
        id: format!("{number:016x}00000000"),
        at_ms: number * DAY_MS,
        principal: RecordedPrincipal {
            kind: "client".into(),
            name: "agent".into(),
            id: 6 + number.unsigned_abs() % 2,
        },
        server: if number % 2 == 0 { "even" } else { "odd" }.into(),
        name: "100%_sure".into(),
        outcome: "ok".into(),
        via: "mcp".into(),
        ..CallRecord::default()
    };
    CallRow { record, arguments: Some(b"secret words".to_vec()), result: None }
}

fn filter(limit: u32) -> CallFilter {
    CallFilter { limit, ..CallFilter::default() }
}

#[tokio::test]
async fn calls_are_found_after_a_restart_and_their_contents_are_sealed() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("toolgate.db");
    let rows: Vec<_> = (1..=250).map(call).collect();
    let store = open(&path).await.unwrap();
    let records = store.records();
    records.add("one", &rows, &[]).await.unwrap();
    // The same id again replaces the row.
    let mut again = call(7);
    again.record.outcome = "tool_error".into();
    records.add("one", &[again], &[]).await.unwrap();
    records.close().await;
    store.close().await;
    for entry in std::fs::read_dir(place.path()).unwrap() {
        let file = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!file.windows(12).any(|part| part == b"secret words"));
    }
    let store = open(&path).await.unwrap();
    let records = store.records();
    let all = records.calls(&filter(1000)).await.unwrap();
    assert_eq!(all.len(), 250);
    assert!(all.is_sorted_by(|newer, older| newer.id > older.id));
    assert_eq!(records.newest_id().await.unwrap().as_deref(), Some(all[0].id.as_str()));
    let kept = records.call(&all[3].id).await.unwrap().unwrap();
    assert_eq!((kept.arguments.as_deref(), kept.result), (Some(&b"secret words"[..]), None));
    assert_eq!(records.call("unknown").await.unwrap(), None);
    for (narrowed, count) in [
        (CallFilter { server: "odd".into(), ..filter(1000) }, 125),
        (CallFilter { outcome: "tool_error".into(), ..filter(1000) }, 1),
        (CallFilter { text: "0%_S".into(), ..filter(1000) }, 250),
        (CallFilter { text: "0__S".into(), ..filter(1000) }, 0),
        (CallFilter { since_ms: Some(249 * DAY_MS), ..filter(1000) }, 2),
        (CallFilter { until_ms: Some(2 * DAY_MS), ..filter(1000) }, 2),
        (CallFilter { before: all[9].id.clone(), ..filter(5) }, 5),
        (CallFilter { owner: Some(PrincipalId(7)), ..filter(1000) }, 125),
        (CallFilter { principal: "agent".into(), owner: Some(PrincipalId(8)), ..filter(5) }, 0),
    ] {
        let found = records.calls(&narrowed).await.unwrap();
        assert_eq!(found.len(), count, "{narrowed:?}");
        let unpaged = CallFilter { before: String::new(), ..narrowed };
        assert!(found.iter().all(|record| unpaged.fits(record)), "{unpaged:?}");
    }
    records.close().await;
    store.close().await;
}

#[tokio::test]
async fn few_calls_of_many_are_found_by_an_index() {
    let place = tempfile::tempdir().unwrap();
    let store = open(place.path().join("toolgate.db")).await.unwrap();
    let records = store.records();
    records.add("one", &[call(1)], &[]).await.unwrap();
    records.close().await;
    store.close().await;
    let options = SqliteConnectOptions::new().filename(place.path().join("toolgate.records.db"));
    let mut file = options.connect().await.unwrap();
    for (narrowed, index) in [
        (CallFilter { server: "odd".into(), ..filter(9) }, "calls_of_servers"),
        (CallFilter { principal: "agent".into(), ..filter(9) }, "calls_of_principals"),
        (CallFilter { owner: Some(PrincipalId(7)), ..filter(9) }, "calls_of_owners"),
        (CallFilter { outcome: "tool_error".into(), ..filter(9) }, "calls_that_failed"),
    ] {
        let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", narrowed.query().0));
        let steps: Vec<(i64, i64, i64, String)> = sqlx::query_as(explain).fetch_all(&mut file).await.unwrap();
        let [(.., step)] = steps.as_slice() else { panic!("{steps:?}") };
        assert!(step.starts_with(&format!("SEARCH calls USING INDEX {index} (")), "{step}");
    }
    file.close().await.unwrap();
}

#[tokio::test]
async fn the_oldest_calls_go_first() {
    let place = tempfile::tempdir().unwrap();
    let store = open(place.path().join("toolgate.db")).await.unwrap();
    let records = store.records();
    records.add("one", &(1..=700).map(call).collect::<Vec<_>>(), &[]).await.unwrap();
    let trim = async |days, rows, megabytes| {
        let mut gone = 0;
        loop {
            let kept = records.kept().await.unwrap();
            let retention = Retention { days, rows, megabytes };
            let step = records.trim(&retention, kept, 700 * DAY_MS).await.unwrap();
            gone += step.rows;
            if step == Kept::default() {
                return (gone, records.kept().await.unwrap().rows);
            }
        }
    };
    assert_eq!(trim(1000, 1000, 10).await, (0, 700));
    assert_eq!(trim(600, 1000, 10).await, (99, 601));
    assert_eq!(trim(1000, 5, 10).await, (596, 5));
    assert_eq!(trim(1000, 1000, 0).await, (5, 0));
    records.close().await;
    store.close().await;
}

#[tokio::test]
async fn what_several_writers_count_is_added() {
    let place = tempfile::tempdir().unwrap();
    let store = open(place.path().join("toolgate.db")).await.unwrap();
    let records = store.records();
    let count = |calls: u64| {
        let mut durations = Histogram::default();
        (0..calls).for_each(|_| durations.add(Duration::from_millis(10)));
        CallCount {
            span_ms: SPANS[0],
            at_ms: 60_000,
            kind: CountedKind::Tool,
            name: "s__echo".into(),
            calls,
            errors: 1,
            bytes: 7,
            own_times: durations.clone(),
            durations,
        }
    };
    // The second one of the same writer replaces the first.
    for (writer, calls) in [("one", 2), ("one", 5), ("two", 3)] {
        records.add(writer, &[], &[count(calls)]).await.unwrap();
    }
    let mut found = records.counts(SPANS[0], 0, CountedKind::Tool).await.unwrap();
    found.sort_by_key(|count| count.calls);
    assert_eq!(found, [count(3), count(5)]);
    for (span, since, kind) in [
        (SPANS[1], 0, CountedKind::Tool),
        (SPANS[0], 60_001, CountedKind::Tool),
        (SPANS[0], 0, CountedKind::Server),
    ] {
        assert!(records.counts(span, since, kind).await.unwrap().is_empty());
    }
    let retention = Retention { days: 1, rows: 1, megabytes: 1 };
    records.trim(&retention, Kept::default(), 10 * 3_600_000).await.unwrap();
    assert!(records.counts(SPANS[0], 0, CountedKind::Tool).await.unwrap().is_empty());
    records.close().await;
    store.close().await;
}

#[tokio::test]
async fn a_file_of_records_that_cannot_be_used_fails_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("toolgate.db");
    let beside = place.path().join("toolgate.records.db");
    std::fs::write(&beside, "this is not a database").unwrap();
    let store = open(&path).await.unwrap();
    let records = store.records();
    assert!(records.add("one", &[call(1)], &[]).await.is_err());
    assert!(store.health().borrow().is_ok());
    std::fs::remove_file(&beside).unwrap();
    records.add("one", &[call(1)], &[]).await.unwrap();
    assert_eq!(records.kept().await.unwrap().rows, 1);
    records.close().await;
    store.close().await;
}
