//! The table `call_counts`: how many calls there were in each span of time, and how long they took. There are spans of several
//! lengths, so that a month is read from as few rows as an hour.

use sqlx::AssertSqlSafe;

use super::{Records, parts, placeholders};
use crate::StoreError;
use crate::db::{Tx, on};
use model::Histogram;

const MINUTE_MS: i64 = 60_000;

/// The lengths of the spans: a 60th of an hour, of a day, of a week and of 30 days.
pub const SPANS: [i64; 4] = [MINUTE_MS, 24 * MINUTE_MS, 7 * 24 * MINUTE_MS, 30 * 24 * MINUTE_MS];
/// For how many spans the counts are kept: one window, and the span that ends it.
const KEPT: i64 = 62;

const COLUMNS: usize = 9;

/// What calls are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CountedKind {
    Server,
    /// By full name.
    Tool,
    /// By kind and name.
    Principal,
}

impl CountedKind {
    fn as_str(self) -> &'static str {
        match self {
            CountedKind::Server => "server",
            CountedKind::Tool => "tool",
            CountedKind::Principal => "principal",
        }
    }
}

/// The calls of one server, tool or principal in one span of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallCount {
    pub span_ms: i64,
    /// When the span begins.
    pub at_ms: i64,
    pub kind: CountedKind,
    pub name: String,
    pub calls: u64,
    pub errors: u64,
    pub bytes: u64,
    pub durations: Histogram,
    /// The time of the gateway itself.
    pub own_times: Histogram,
}

impl CallCount {
    /// Both histograms: the length of the first, and one after the other.
    fn histograms(&self) -> Vec<u8> {
        let (durations, own_times) = (self.durations.to_bytes(), self.own_times.to_bytes());
        let length = u32::try_from(durations.len()).unwrap_or(u32::MAX).to_le_bytes();
        [&length, durations.as_slice(), &own_times].concat()
    }

    fn read_histograms(bytes: &[u8]) -> Option<(Histogram, Histogram)> {
        let (length, rest) = bytes.split_first_chunk()?;
        let (durations, own_times) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        Some((Histogram::from_bytes(durations)?, Histogram::from_bytes(own_times)?))
    }
}

impl Records {
    /// The counts of spans of this length that begin at this time or later.
    pub async fn counts(
        &self,
        span_ms: i64,
        since_ms: i64,
        kind: CountedKind,
    ) -> Result<Vec<CallCount>, StoreError> {
        const SQL: &str = "SELECT at, name, calls, errors, bytes, durations FROM call_counts
            WHERE span = $1 AND at >= $2 AND kind = $3";
        let mut tx = self.read().await?;
        let rows: Vec<(i64, String, i64, i64, i64, Vec<u8>)> = on!(&mut tx, |db| {
            sqlx::query_as(SQL).bind(span_ms).bind(since_ms).bind(kind.as_str()).fetch_all(db).await
        })?;
        tx.commit().await?;
        let damaged = || StoreError::Corrupt("counts of calls".to_owned());
        let count =
            |(at_ms, name, calls, errors, bytes, histograms): (i64, String, i64, i64, i64, Vec<u8>)| {
                let (durations, own_times) = CallCount::read_histograms(&histograms).ok_or_else(damaged)?;
                let [calls, errors, bytes] =
                    [calls, errors, bytes].map(|number| number.try_into().unwrap_or_default());
                Ok(CallCount { span_ms, at_ms, kind, name, calls, errors, bytes, durations, own_times })
            };
        rows.into_iter().map(count).collect()
    }

    /// Replaces what this writer counted in spans.
    pub(super) async fn set_counts(
        &self,
        tx: &mut Tx,
        writer: &str,
        counts: &[CallCount],
    ) -> Result<(), StoreError> {
        const INSERT: &str =
            "INSERT INTO call_counts (span, at, kind, name, writer, calls, errors, bytes, durations) VALUES ";
        const UPDATE: &str =
            " ON CONFLICT (span, at, kind, name, writer) DO UPDATE SET calls = excluded.calls,
            errors = excluded.errors, bytes = excluded.bytes, durations = excluded.durations";
        for chunk in parts(counts) {
            let sql = [INSERT, &placeholders(chunk.len(), COLUMNS, "", self.is_shared()), UPDATE].concat();
            on!(&mut *tx, |db| {
                let mut query = sqlx::query(AssertSqlSafe(sql.clone()));
                for count in chunk {
                    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
                    query = query.bind(count.span_ms).bind(count.at_ms).bind(count.kind.as_str());
                    query = query.bind(&count.name).bind(writer).bind(number(count.calls));
                    query =
                        query.bind(number(count.errors)).bind(number(count.bytes)).bind(count.histograms());
                }
                query.execute(db).await.map(|_| ())
            })?;
        }
        Ok(())
    }

    /// Deletes counts that no window includes any more.
    pub(super) async fn trim_counts(&self, tx: &mut Tx, now_ms: i64) -> Result<(), StoreError> {
        const SQL: &str = "DELETE FROM call_counts WHERE span = $1 AND at < $2";
        for span in SPANS {
            on!(&mut *tx, |db| {
                sqlx::query(SQL).bind(span).bind(now_ms - KEPT * span).execute(db).await.map(|_| ())
            })?;
        }
        Ok(())
    }
}
