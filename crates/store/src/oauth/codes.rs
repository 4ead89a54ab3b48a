//! The table `grant_codes`: codes with which software fetches its first tokens.

use super::super::db::{Tx, on};
use super::super::{Store, StoreError};
use super::consents::{self, Consent};
use super::opaque::OpaqueDigest;
use model::{AuditNote, GrantId, PrincipalId, Secret};

const PURPOSE: &str = "grant code";

/// How many codes of a user are kept, used ones included. The oldest ones are dropped.
const MOST: i64 = 100;

pub struct NewCode<'a> {
    pub digest: &'a OpaqueDigest,
    pub user: PrincipalId,
    /// What was agreed to; sealed.
    pub content: &'a Secret,
    pub expires_at_ms: i64,
    pub consent: Consent<'a>,
}

#[derive(Debug)]
pub struct StoredCode {
    pub user: PrincipalId,
    pub content: Secret,
    pub expires_at_ms: i64,
    /// The grant that it gave, if it was used.
    pub grant: Option<GrantId>,
}

impl Store {
    /// Stores a code, and the consent that led to it.
    pub async fn insert_code(&self, code: &NewCode<'_>, note: &AuditNote) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO grant_codes (digest, user_id, content, expires_at, used_at, grant_id)
            VALUES ($1, $2, $3, $4, 0, '')";
        const DROP: &str = "DELETE FROM grant_codes WHERE digest IN (SELECT digest FROM grant_codes
            WHERE user_id = $1 ORDER BY expires_at DESC, digest LIMIT 10000 OFFSET $2)";
        let user = code.user.0.cast_signed();
        let sealed = self.seal.seal(&purpose(code.digest.as_str()), code.content.expose().as_bytes());
        let mut tx = self.noted_write(note).await?;
        on!(&mut tx, |db| {
            let query = sqlx::query(SQL).bind(code.digest.as_str()).bind(user).bind(sealed);
            query.bind(code.expires_at_ms).execute(db).await.map(|_| ())
        })?;
        on!(&mut tx, |db| sqlx::query(DROP).bind(user).bind(MOST).execute(db).await.map(|_| ()))?;
        consents::put(&mut tx, code.user, &code.consent, note.at_ms).await?;
        tx.commit().await
    }

    /// Finds a code, also one that was used or has expired, until it is forgotten.
    pub async fn code(&self, digest: &OpaqueDigest) -> Result<Option<StoredCode>, StoreError> {
        let mut tx = self.read().await?;
        let code = self.read_code(&mut tx, digest).await?;
        tx.commit().await?;
        Ok(code)
    }

    async fn read_code(&self, tx: &mut Tx, digest: &OpaqueDigest) -> Result<Option<StoredCode>, StoreError> {
        const SQL: &str = "SELECT user_id, content, expires_at, grant_id FROM grant_codes WHERE digest = $1";
        type Row = (i64, Vec<u8>, i64, String);
        let row: Option<Row> =
            on!(tx, |db| sqlx::query_as(SQL).bind(digest.as_str()).fetch_optional(db).await)?;
        let Some((user, sealed, expires_at_ms, grant)) = row else { return Ok(None) };
        let opened = self.seal.open(&purpose(digest.as_str()), &sealed);
        let opened = opened.map_err(|error| StoreError::Corrupt(format!("a code of a grant: {error}")))?;
        let content = std::str::from_utf8(&opened).map(Secret::new);
        let content =
            content.map_err(|_| StoreError::Corrupt("a code of a grant has no text in it".into()))?;
        let (user, grant) = (PrincipalId(user.cast_unsigned()), GrantId::parse(&grant));
        Ok(Some(StoredCode { user, content, expires_at_ms, grant }))
    }
}

/// Marks a code as used; false if it was used before, has expired or does not exist.
pub(super) async fn claim(
    tx: &mut Tx,
    digest: &OpaqueDigest,
    grant: GrantId,
    now_ms: i64,
) -> Result<bool, sqlx::Error> {
    const SQL: &str = "UPDATE grant_codes SET used_at = $2, grant_id = $3
        WHERE digest = $1 AND used_at = 0 AND expires_at > $2";
    on!(tx, |db| {
        let query = sqlx::query(SQL).bind(digest.as_str()).bind(now_ms).bind(grant.to_string());
        query.execute(db).await.map(|done| done.rows_affected() > 0)
    })
}

/// The purpose for which the content of a code is sealed.
pub(in super::super) fn purpose(digest: &str) -> String {
    format!("{PURPOSE} {digest}")
}
