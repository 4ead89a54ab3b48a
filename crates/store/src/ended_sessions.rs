//! The table `ended_sessions`: the numbers of sessions that ended, for the gateways that come after the one that held them.

use super::db::on;
use super::{Store, StoreError};

/// How long the number of a session is kept after its end. Clients forget a session that they ended.
const KEPT_MS: i64 = 7 * 24 * 60 * 60 * 1000;
/// How many are read at a start.
const MOST: i64 = 100_000;

impl Store {
    /// Keeps the number of a session that ended.
    pub async fn add_ended_session(&self, serial: u64, now_ms: i64) -> Result<(), StoreError> {
        const SQL: &str =
            "INSERT INTO ended_sessions (serial, ended_at) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        let mut tx = self.write().await?;
        on!(&mut tx, |db| {
            let query = sqlx::query(SQL).bind(serial.cast_signed()).bind(now_ms);
            query.execute(db).await.map(|_| ())
        })?;
        tx.commit().await
    }

    /// Loads the numbers of the sessions that ended last, the latest at the end, and forgets those that are old.
    pub async fn load_ended_sessions(&self, now_ms: i64) -> Result<Vec<u64>, StoreError> {
        const FORGET: &str = "DELETE FROM ended_sessions WHERE ended_at < $1";
        const SQL: &str = "SELECT serial FROM ended_sessions ORDER BY ended_at DESC LIMIT $1";
        let mut tx = self.write().await?;
        on!(&mut tx, |db| sqlx::query(FORGET).bind(now_ms - KEPT_MS).execute(db).await.map(|_| ()))?;
        let mut serials: Vec<i64> =
            on!(&mut tx, |db| sqlx::query_scalar(SQL).bind(MOST).fetch_all(db).await)?;
        tx.commit().await?;
        serials.reverse();
        Ok(serials.into_iter().map(i64::cast_unsigned).collect())
    }
}
