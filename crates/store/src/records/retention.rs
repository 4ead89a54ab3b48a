//! How long records are kept, and how many: the oldest are deleted in small steps, so that writing never waits for long.

use super::{CallCount, CallRow, Records};
use crate::StoreError;
use crate::db::on;

/// How many calls are deleted at once.
const STEP: i64 = 500;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// The limits of what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub days: u32,
    pub rows: u64,
    pub megabytes: u64,
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    pub rows: u64,
    pub bytes: u64,
}

impl Retention {
    /// Whether some of the oldest calls have to go to keep within rows and bytes.
    pub fn is_exceeded(&self, kept: Kept) -> bool {
        kept.rows > self.rows || kept.bytes > self.megabytes.saturating_mul(1024 * 1024)
    }
}

impl Records {
    /// Writes calls, and what this writer has counted, in one transaction.
    pub async fn add(&self, writer: &str, rows: &[CallRow], counts: &[CallCount]) -> Result<(), StoreError> {
        let mut tx = self.write().await?;
        self.add_calls(&mut tx, rows).await?;
        self.set_counts(&mut tx, writer, counts).await?;
        tx.commit().await
    }

    /// How many calls are kept, and about how much room they take. Reads all of them.
    pub async fn kept(&self) -> Result<Kept, StoreError> {
        const SQL: &str = "SELECT COUNT(*), CAST(COALESCE(SUM(weight), 0) AS BIGINT) FROM calls";
        let mut tx = self.read().await?;
        let (rows, bytes): (i64, i64) = on!(&mut tx, |db| sqlx::query_as(SQL).fetch_one(db).await)?;
        tx.commit().await?;
        Ok(Kept { rows: rows.try_into().unwrap_or_default(), bytes: bytes.try_into().unwrap_or_default() })
    }

    /// Deletes some of the oldest calls: those that are too old, or as many as one step takes if there are too many. Returns how
    /// many they were, and the room that they took.
    pub async fn trim(&self, retention: &Retention, kept: Kept, now_ms: i64) -> Result<Kept, StoreError> {
        const OLDEST: &str = "SELECT id, at, weight FROM calls ORDER BY id LIMIT $1";
        const DELETE: &str = "DELETE FROM calls WHERE id <= $1";
        let too_old = now_ms.saturating_sub(i64::from(retention.days) * DAY_MS);
        let mut tx = self.write().await?;
        self.trim_counts(&mut tx, now_ms).await?;
        let oldest: Vec<(String, i64, i64)> =
            on!(&mut tx, |db| sqlx::query_as(OLDEST).bind(STEP).fetch_all(db).await)?;
        let mut left = kept;
        let mut gone = Kept::default();
        let mut last = None;
        for (id, at, weight) in &oldest {
            if *at >= too_old && !retention.is_exceeded(left) {
                break;
            }
            let bytes = weight.unsigned_abs();
            left = Kept { rows: left.rows.saturating_sub(1), bytes: left.bytes.saturating_sub(bytes) };
            gone = Kept { rows: gone.rows + 1, bytes: gone.bytes + bytes };
            last = Some(id);
        }
        if let Some(last) = last {
            on!(&mut tx, |db| sqlx::query(DELETE).bind(last).execute(db).await.map(|_| ()))?;
        }
        tx.commit().await?;
        Ok(gone)
    }
}
