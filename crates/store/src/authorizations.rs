//! The table `oauth_authorizations`: authorizations that a person is asked for, and their outcome. The data needed to
//! finish one is sealed, and wiped when it is over.

use sha2::{Digest, Sha256};

use super::db::on;
use super::{Store, StoreError};
use model::{AuditNote, Secret, ServerName};

/// Part of the sealed data, so it must stay the same, although the table has a different name.
const PURPOSE: &str = "oauth session";

/// What is left of the sealed data when it is wiped.
const NOTHING: &[u8] = &[];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationStatus {
    Pending,
    /// The person has returned, and the gateway is finishing the authorization.
    Finishing,
    Completed,
    Failed,
}

impl AuthorizationStatus {
    fn as_str(self) -> &'static str {
        match self {
            AuthorizationStatus::Pending => "pending",
            AuthorizationStatus::Finishing => "finishing",
            AuthorizationStatus::Completed => "completed",
            AuthorizationStatus::Failed => "failed",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        use AuthorizationStatus::{Completed, Failed, Finishing, Pending};
        [Pending, Finishing, Completed, Failed].into_iter().find(|status| status.as_str() == text)
    }
}

#[derive(Debug)]
pub struct StoredAuthorization {
    pub id: String,
    pub server: String,
    pub status: AuthorizationStatus,
    pub error: String,
    /// The data needed to finish it; `None` when it is over.
    pub content: Option<Secret>,
    pub expires_at_ms: i64,
    pub finished_at_ms: Option<i64>,
}

/// How an authorization is looked up: by id for the caller who began it, by state for the person who returns.
pub enum AuthorizationKey<'a> {
    Id(&'a str),
    State(&'a Secret),
}

impl Store {
    /// Stores a new authorization. A pending one for the same server fails, since only the latest one counts.
    pub async fn insert_authorization(
        &self,
        id: &str,
        server: &ServerName,
        state: &Secret,
        content: &Secret,
        expires_at_ms: i64,
        note: &AuditNote,
    ) -> Result<(), StoreError> {
        const SUPERSEDE: &str =
            "UPDATE oauth_authorizations SET status = 'failed', content = $2, finished_at = $3,
            error = 'superseded by a later registration of the same server'
            WHERE server = $1 AND status = 'pending' AND expires_at > $3";
        const INSERT: &str =
            "INSERT INTO oauth_authorizations (id, server, state_digest, status, error, content,
            expires_at) VALUES ($1, $2, $3, 'pending', '', $4, $5)";
        let sealed = self.seal_authorization(id, content);
        let mut tx = self.noted_write(note).await?;
        on!(&mut tx, |db| {
            let query = sqlx::query(SUPERSEDE).bind(server.as_str()).bind(NOTHING).bind(note.at_ms);
            query.execute(db).await.map(|_| ())
        })?;
        on!(&mut tx, |db| {
            let query = sqlx::query(INSERT).bind(id).bind(server.as_str()).bind(digest(state));
            query.bind(sealed).bind(expires_at_ms).execute(db).await.map(|_| ())
        })?;
        tx.commit().await
    }

    pub async fn authorization(
        &self,
        key: AuthorizationKey<'_>,
    ) -> Result<Option<StoredAuthorization>, StoreError> {
        const BY_ID: &str = "SELECT id, server, status, error, content, expires_at, finished_at
            FROM oauth_authorizations WHERE id = $1";
        const BY_STATE: &str = "SELECT id, server, status, error, content, expires_at, finished_at
            FROM oauth_authorizations WHERE state_digest = $1";
        let (sql, key) = match key {
            AuthorizationKey::Id(id) => (BY_ID, id.to_owned()),
            AuthorizationKey::State(state) => (BY_STATE, digest(state)),
        };
        let mut tx = self.read().await?;
        type Row = (String, String, String, String, Vec<u8>, i64, Option<i64>);
        let row: Option<Row> = on!(&mut tx, |db| sqlx::query_as(sql).bind(key).fetch_optional(db).await)?;
        tx.commit().await?;
        let Some((id, server, status, error, sealed, expires_at_ms, finished_at_ms)) = row else {
            return Ok(None);
        };
        let unknown = || StoreError::Corrupt(format!("an authorization has the unknown status \"{status}\""));
        let status = AuthorizationStatus::parse(&status).ok_or_else(unknown)?;
        let content = self.open_authorization(&id, &sealed);
        Ok(Some(StoredAuthorization { id, server, status, error, content, expires_at_ms, finished_at_ms }))
    }

    /// Whether the state belongs to this authorization.
    pub async fn authorization_has_state(&self, id: &str, state: &Secret) -> Result<bool, StoreError> {
        let found = self.authorization(AuthorizationKey::State(state)).await?;
        Ok(found.is_some_and(|found| found.id == id))
    }

    /// Claims a pending authorization, so that nobody else can finish it. Returns whether it was pending.
    pub async fn claim_authorization(&self, id: &str, now_ms: i64) -> Result<bool, StoreError> {
        const SQL: &str = "UPDATE oauth_authorizations SET status = 'finishing'
            WHERE id = $1 AND status = 'pending' AND expires_at > $2";
        let mut tx = self.write().await?;
        let claimed = on!(&mut tx, |db| {
            let query = sqlx::query(SQL).bind(id).bind(now_ms);
            query.execute(db).await.map(|done| done.rows_affected())
        })?;
        tx.commit().await?;
        Ok(claimed > 0)
    }

    pub async fn update_authorization(&self, id: &str, content: &Secret) -> Result<(), StoreError> {
        const SQL: &str =
            "UPDATE oauth_authorizations SET content = $2 WHERE id = $1 AND status = 'finishing'";
        let sealed = self.seal_authorization(id, content);
        let mut tx = self.write().await?;
        on!(&mut tx, |db| sqlx::query(SQL).bind(id).bind(sealed).execute(db).await.map(|_| ()))?;
        tx.commit().await
    }

    /// Stores the outcome of an authorization. An error of `None` means success, which the change of the server notes; a failure
    /// has a note.
    pub async fn settle_authorization(
        &self,
        id: &str,
        error: Option<(&str, &AuditNote)>,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        const SQL: &str =
            "UPDATE oauth_authorizations SET status = $2, error = $3, content = $4, finished_at = $5
            WHERE id = $1 AND status IN ('pending', 'finishing')";
        let status =
            if error.is_some() { AuthorizationStatus::Failed } else { AuthorizationStatus::Completed };
        let mut tx = match error {
            Some((_, note)) => self.noted_write(note).await?,
            None => self.write().await?,
        };
        let error = error.map(|(error, _)| error).unwrap_or_default();
        on!(&mut tx, |db| {
            let query = sqlx::query(SQL).bind(id).bind(status.as_str()).bind(error);
            query.bind(NOTHING).bind(now_ms).execute(db).await.map(|_| ())
        })?;
        tx.commit().await
    }

    /// Removes authorizations that ended more than `retention_ms` ago, and wipes those that expired.
    pub async fn clean_authorizations(&self, now_ms: i64, retention_ms: i64) -> Result<(), StoreError> {
        const DELETE: &str = "DELETE FROM oauth_authorizations WHERE finished_at <= $1
            OR (status = 'pending' AND expires_at <= $1)";
        const WIPE: &str =
            "UPDATE oauth_authorizations SET content = $2 WHERE status = 'pending' AND expires_at <= $1";
        // Completing one takes seconds, so a gateway that still does so after all that time has ended.
        const INTERRUPTED: &str =
            "UPDATE oauth_authorizations SET status = 'failed', content = $2, finished_at = $1,
            error = 'the gateway was stopped while it finished the authorization; authorize again'
            WHERE status = 'finishing' AND expires_at <= $1";
        let mut tx = self.write().await?;
        let before = now_ms.saturating_sub(retention_ms);
        on!(&mut tx, |db| sqlx::query(DELETE).bind(before).execute(db).await.map(|_| ()))?;
        on!(&mut tx, |db| sqlx::query(WIPE).bind(now_ms).bind(NOTHING).execute(db).await.map(|_| ()))?;
        on!(&mut tx, |db| sqlx::query(INTERRUPTED).bind(now_ms).bind(NOTHING).execute(db).await.map(|_| ()))?;
        tx.commit().await
    }

    /// Fails the authorizations that the previous process was finishing, after a start. They cannot be finished, since
    /// a code works only once.
    pub async fn fail_interrupted_authorizations(&self, now_ms: i64) -> Result<(), StoreError> {
        const SQL: &str = "UPDATE oauth_authorizations SET status = 'failed', content = $2, finished_at = $1,
            error = 'the gateway was stopped while it finished the authorization; authorize again'
            WHERE status = 'finishing'";
        let mut tx = self.write().await?;
        on!(&mut tx, |db| sqlx::query(SQL).bind(now_ms).bind(NOTHING).execute(db).await.map(|_| ()))?;
        tx.commit().await
    }

    /// The ids of unfinished authorizations whose data cannot be opened.
    pub(super) async fn unreadable_authorizations(&self) -> Result<Vec<String>, StoreError> {
        const SQL: &str =
            "SELECT id, content FROM oauth_authorizations WHERE status IN ('pending', 'finishing')";
        let mut tx = self.read().await?;
        let rows: Vec<(String, Vec<u8>)> = on!(&mut tx, |db| sqlx::query_as(SQL).fetch_all(db).await)?;
        tx.commit().await?;
        // The data of an expired one is wiped.
        let unreadable = |(id, sealed): &(String, Vec<u8>)| {
            !sealed.is_empty() && self.open_authorization(id, sealed).is_none()
        };
        Ok(rows.into_iter().filter(unreadable).map(|(id, _)| id).collect())
    }

    fn seal_authorization(&self, id: &str, content: &Secret) -> Vec<u8> {
        self.seal.seal(&purpose(id), content.expose().as_bytes())
    }

    fn open_authorization(&self, id: &str, sealed: &[u8]) -> Option<Secret> {
        let plain = self.seal.open(&purpose(id), sealed).ok()?;
        std::str::from_utf8(&plain).ok().map(Secret::new)
    }
}

/// The purpose for which the data of an authorization is sealed.
pub(super) fn purpose(id: &str) -> String {
    format!("{PURPOSE} {id}")
}

fn digest(state: &Secret) -> String {
    Sha256::digest(state.expose().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
