//! The table `browser_sessions`: people who signed in with a browser.

use super::super::db::{Tx, on};
use super::super::{Store, StoreError, settings};
use super::opaque::OpaqueDigest;
use super::{AtEpoch, note_user};
use model::{AuditNote, PrincipalId};

/// How many sessions a user may have; those that were idle longest end.
const MOST: i64 = 50;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrowserSessionRow {
    pub digest: String,
    pub user: PrincipalId,
    pub created_at_ms: i64,
    pub used_at_ms: i64,
}

/// What a new session changed.
#[derive(Debug)]
pub struct MadeSession {
    pub epoch: i64,
    /// The digests of sessions of the same user that ended, since there were too many.
    pub ended: Vec<String>,
}

type Row = (String, i64, i64, i64);

fn read((digest, user, created_at_ms, used_at_ms): Row) -> BrowserSessionRow {
    BrowserSessionRow { digest, user: PrincipalId(user.cast_unsigned()), created_at_ms, used_at_ms }
}

impl Store {
    pub async fn insert_browser_session(
        &self,
        digest: &OpaqueDigest,
        user: PrincipalId,
        note: &AuditNote,
    ) -> Result<MadeSession, StoreError> {
        const SQL: &str =
            "INSERT INTO browser_sessions (digest, user_id, created_at, used_at) VALUES ($1, $2, $3, $3)";
        const OTHERS: &str = "SELECT digest FROM browser_sessions WHERE user_id = $1 AND digest <> $2
            ORDER BY used_at DESC, digest LIMIT 10000 OFFSET $3";
        let number = user.0.cast_signed();
        let mut tx = self.change(note).await?;
        on!(&mut tx, |db| {
            let query = sqlx::query(SQL).bind(digest.as_str()).bind(number).bind(note.at_ms);
            query.execute(db).await.map(|_| ())
        })?;
        let ended: Vec<String> = on!(&mut tx, |db| {
            let query = sqlx::query_scalar(OTHERS).bind(number).bind(digest.as_str()).bind(MOST - 1);
            query.fetch_all(db).await
        })?;
        for digest in &ended {
            delete(&mut tx, digest).await?;
        }
        note_user(&mut tx, user).await?;
        let epoch = tx.epoch();
        tx.commit().await?;
        Ok(MadeSession { epoch, ended })
    }

    pub async fn browser_session(
        &self,
        digest: &OpaqueDigest,
    ) -> Result<AtEpoch<Option<BrowserSessionRow>>, StoreError> {
        const SQL: &str =
            "SELECT digest, user_id, created_at, used_at FROM browser_sessions WHERE digest = $1";
        let mut tx = self.read().await?;
        let epoch = settings::epoch(&mut tx).await?;
        let row: Option<Row> =
            on!(&mut tx, |db| sqlx::query_as(SQL).bind(digest.as_str()).fetch_optional(db).await)?;
        tx.commit().await?;
        Ok(AtEpoch { epoch, value: row.map(read) })
    }

    /// Ends a session. Returns the epoch of the change; `None` if it had ended before.
    pub async fn end_browser_session(
        &self,
        session: &BrowserSessionRow,
        note: &AuditNote,
    ) -> Result<Option<i64>, StoreError> {
        let mut tx = self.change(note).await?;
        if !delete(&mut tx, &session.digest).await? {
            tx.roll_back().await;
            return Ok(None);
        }
        note_user(&mut tx, session.user).await?;
        let epoch = tx.epoch();
        tx.commit().await?;
        Ok(Some(epoch))
    }
}

/// Reads all sessions.
pub(in super::super) async fn read_all(tx: &mut Tx) -> Result<Vec<BrowserSessionRow>, sqlx::Error> {
    const SQL: &str = "SELECT digest, user_id, created_at, used_at FROM browser_sessions ORDER BY digest";
    let rows: Vec<Row> = on!(tx, |db| sqlx::query_as(SQL).fetch_all(db).await)?;
    Ok(rows.into_iter().map(read).collect())
}

/// Deletes a session. Returns whether it existed.
pub(super) async fn delete(tx: &mut Tx, digest: &str) -> Result<bool, sqlx::Error> {
    const SQL: &str = "DELETE FROM browser_sessions WHERE digest = $1";
    on!(tx, |db| sqlx::query(SQL).bind(digest).execute(db).await.map(|done| done.rows_affected() > 0))
}
