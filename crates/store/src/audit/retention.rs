//! Deletes old entries of the audit.

use sqlx::AssertSqlSafe;

use super::{COLUMNS, Chain, EntryRow, HeadRow, NAME, StoredEntry, values};
use crate::db::on;
use crate::{Store, StoreError};

/// How many entries are deleted in one transaction.
const PORTION: i64 = 200;

impl Store {
    /// Deletes some of the entries from before a time, the oldest first, and keeps the hash of the last one of them, with
    /// which the rest can still be checked. Returns how many it deleted. An entry that does not fit into the chain is kept:
    /// deleting it would hide that.
    pub async fn trim_audit(&self, before_ms: i64) -> Result<usize, StoreError> {
        const LOCK: &str = "UPDATE audit_head SET number = number WHERE name = $1";
        const DELETE: &str = "DELETE FROM audit WHERE number <= $1";
        const ANCHOR: &str =
            "UPDATE audit_head SET anchor_number = $2, anchor_hash = $3, anchor_proof = $4 WHERE name = $1";
        if !self.has_old_entry(before_ms).await? {
            return Ok(0);
        }
        let mut tx = self.write().await?;
        on!(&mut tx, |db| sqlx::query(LOCK).bind(NAME).execute(db).await.map(|_| ()))?;
        let sql = format!("SELECT {COLUMNS} FROM audit ORDER BY number LIMIT $1");
        let rows: Vec<EntryRow> = on!(&mut tx, |db| {
            sqlx::query_as(AssertSqlSafe(sql.clone())).bind(PORTION).fetch_all(db).await
        })?;
        let Some(row) = HeadRow::read(&mut tx).await? else {
            tx.commit().await?;
            return Ok(0);
        };
        let (chain, values) = (Chain::open(&self.seal, &row.chain_key)?, values(&self.seal));
        let mut last = row.anchor(&chain);
        let mut count = 0;
        for row in rows {
            let (number, at_ms) = (row.0, row.1);
            let Some(before) = last.filter(|last| at_ms < before_ms && number == last.number + 1) else {
                break;
            };
            let Ok(next) = StoredEntry::read(row, &values).and_then(|stored| stored.follows(&before, &chain))
            else {
                break;
            };
            last = Some(next);
            count += 1;
        }
        if let Some(anchor) = last.filter(|_| count > 0) {
            let proof = chain.proof(&anchor);
            on!(&mut tx, |db| sqlx::query(DELETE).bind(anchor.number).execute(db).await.map(|_| ()))?;
            on!(&mut tx, |db| {
                let query = sqlx::query(ANCHOR).bind(NAME).bind(anchor.number);
                query.bind(&anchor.hash[..]).bind(&proof[..]).execute(db).await.map(|_| ())
            })?;
        }
        tx.commit().await?;
        Ok(count)
    }

    /// Whether the first entry is from before a time.
    async fn has_old_entry(&self, before_ms: i64) -> Result<bool, StoreError> {
        const SQL: &str = "SELECT at FROM audit ORDER BY number LIMIT 1";
        let mut tx = self.read().await?;
        let at: Option<i64> = on!(&mut tx, |db| sqlx::query_scalar(SQL).fetch_optional(db).await)?;
        tx.commit().await?;
        Ok(at.is_some_and(|at| at < before_ms))
    }
}
