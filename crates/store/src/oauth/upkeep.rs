//! What is written about credentials from time to time: when they were last used, and that they expired.

use super::super::db::on;
use super::super::{Store, StoreError};
use super::{note_user, refresh_tokens};
use model::{GrantId, PrincipalId};

/// How long a code is remembered after it expired: a second use of it ends its grant.
const KEPT_MS: i64 = 24 * 60 * 60 * 1000;
/// How many grants or sessions end in one transaction.
const PORTION: i64 = 500;

/// When credentials were last used.
#[derive(Debug, Default)]
pub struct CredentialUses {
    pub grants: Vec<(GrantId, i64)>,
    /// By digest.
    pub sessions: Vec<(String, i64)>,
}

impl CredentialUses {
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty() && self.sessions.is_empty()
    }
}

impl Store {
    pub async fn note_uses(&self, uses: &CredentialUses) -> Result<(), StoreError> {
        const GRANT: &str = "UPDATE user_grants SET last_used_at = $2 WHERE id = $1 AND last_used_at < $2";
        const SESSION: &str = "UPDATE browser_sessions SET used_at = $2 WHERE digest = $1 AND used_at < $2";
        let grants = uses.grants.iter().map(|(id, at)| (GRANT, id.to_string(), *at));
        let sessions = uses.sessions.iter().map(|(digest, at)| (SESSION, digest.clone(), *at));
        // In one order for all gateways, so that none waits for a row of the other.
        let mut rows: Vec<_> = grants.chain(sessions).collect();
        rows.sort();
        let mut tx = self.write().await?;
        for (sql, key, at) in rows {
            on!(&mut tx, |db| sqlx::query(sql).bind(key).bind(at).execute(db).await.map(|_| ()))?;
        }
        tx.commit().await
    }

    /// Ends the grants that expired, and the sessions that were begun or used too long ago. Forgets old codes and tokens.
    /// Returns whether there may be more, and the users whose credentials ended.
    pub async fn end_expired(
        &self,
        now_ms: i64,
        session_began_ms: i64,
        session_used_ms: i64,
    ) -> Result<(bool, Vec<PrincipalId>), StoreError> {
        const GRANTS: &str =
            "SELECT id, user_id FROM user_grants WHERE expires_at <= $1 ORDER BY id LIMIT $2";
        const SESSIONS: &str = "SELECT digest, user_id FROM browser_sessions
            WHERE created_at <= $1 OR used_at <= $2 ORDER BY digest LIMIT $3";
        const GRANT: &str = "DELETE FROM user_grants WHERE id = $1 AND expires_at <= $2";
        const SESSION: &str = "DELETE FROM browser_sessions WHERE digest = $1
            AND (created_at <= $2 OR used_at <= $3)";
        let mut tx = self.read().await?;
        let grants: Vec<(String, i64)> =
            on!(&mut tx, |db| sqlx::query_as(GRANTS).bind(now_ms).bind(PORTION).fetch_all(db).await)?;
        let sessions: Vec<(String, i64)> = on!(&mut tx, |db| {
            let query = sqlx::query_as(SESSIONS).bind(session_began_ms).bind(session_used_ms).bind(PORTION);
            query.fetch_all(db).await
        })?;
        tx.commit().await?;
        let may_be_more = [grants.len(), sessions.len()].contains(&(PORTION as usize));
        let mut users: Vec<_> = grants.iter().chain(&sessions).map(|(_, user)| *user).collect();
        users.sort_unstable();
        users.dedup();
        let users: Vec<_> = users.into_iter().map(|user| PrincipalId(user.cast_unsigned())).collect();
        if !users.is_empty() {
            let mut tx = self.own_change().await?;
            // What is still expired: another gateway may just have seen a use.
            for (id, _) in &grants {
                on!(&mut tx, |db| sqlx::query(GRANT).bind(id).bind(now_ms).execute(db).await.map(|_| ()))?;
            }
            for (digest, _) in &sessions {
                on!(&mut tx, |db| {
                    let query =
                        sqlx::query(SESSION).bind(digest).bind(session_began_ms).bind(session_used_ms);
                    query.execute(db).await.map(|_| ())
                })?;
            }
            for user in &users {
                note_user(&mut tx, *user).await?;
            }
            tx.commit().await?;
        }
        self.forget_used(now_ms).await?;
        Ok((may_be_more, users))
    }

    async fn forget_used(&self, now_ms: i64) -> Result<(), StoreError> {
        const CODES: &str = "DELETE FROM grant_codes WHERE expires_at <= $1";
        let mut tx = self.write().await?;
        on!(&mut tx, |db| sqlx::query(CODES).bind(now_ms - KEPT_MS).execute(db).await.map(|_| ()))?;
        refresh_tokens::clean(&mut tx, now_ms).await?;
        tx.commit().await
    }
}
