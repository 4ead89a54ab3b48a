//! The table `consents`: what users agreed to, so that they are not asked again.

use super::super::db::{Tx, on};
use super::super::{Store, StoreError};
use super::opaque::digest;
use model::{PrincipalId, Reach};

/// How many consents of a user are kept; the oldest ones are dropped.
const MOST: i64 = 1000;

/// What a user agreed to.
#[derive(Clone, Copy)]
pub struct Consent<'a> {
    pub client_id: &'a str,
    pub redirect_uri: &'a str,
    pub reach: &'a Reach,
    /// Whether the user is not asked for the same again.
    pub is_remembered: bool,
}

impl Consent<'_> {
    fn id(&self, user: PrincipalId) -> String {
        digest(&[&user.0.to_string(), self.client_id, self.redirect_uri, self.reach.as_str()])
    }
}

impl Store {
    /// Whether a user agreed to exactly this, and is not to be asked again.
    pub async fn has_consent(
        &self,
        user: PrincipalId,
        client_id: &str,
        redirect_uri: &str,
        reach: &Reach,
    ) -> Result<bool, StoreError> {
        const SQL: &str = "SELECT is_remembered FROM consents WHERE id = $1";
        let id = Consent { client_id, redirect_uri, reach, is_remembered: false }.id(user);
        let mut tx = self.read().await?;
        let found: Option<i64> =
            on!(&mut tx, |db| sqlx::query_scalar(SQL).bind(id).fetch_optional(db).await)?;
        tx.commit().await?;
        Ok(found.is_some_and(|is_remembered| is_remembered != 0))
    }

    /// Whether a user ever agreed to this client with this redirect URI, for whatever it may reach.
    pub async fn has_agreed(
        &self,
        user: PrincipalId,
        client_id: &str,
        redirect_uri: &str,
    ) -> Result<bool, StoreError> {
        const SQL: &str =
            "SELECT id FROM consents WHERE user_id = $1 AND client = $2 AND redirect = $3 LIMIT 1";
        let mut tx = self.read().await?;
        let found: Option<String> = on!(&mut tx, |db| {
            let query = sqlx::query_scalar(SQL).bind(user.0.cast_signed());
            query.bind(digest(&[client_id])).bind(digest(&[redirect_uri])).fetch_optional(db).await
        })?;
        tx.commit().await?;
        Ok(found.is_some())
    }
}

/// Keeps a consent. One that is remembered stays so.
pub(super) async fn put(
    tx: &mut Tx,
    user: PrincipalId,
    consent: &Consent<'_>,
    now_ms: i64,
) -> Result<(), sqlx::Error> {
    const PUT: &str = "INSERT INTO consents (id, user_id, client, redirect, is_remembered, agreed_at)
        VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO UPDATE SET agreed_at = excluded.agreed_at,
        is_remembered = CASE WHEN consents.is_remembered = 1 THEN 1 ELSE excluded.is_remembered END";
    const DROP: &str = "DELETE FROM consents WHERE id IN (SELECT id FROM consents
        WHERE user_id = $1 ORDER BY agreed_at DESC, id LIMIT 10000 OFFSET $2)";
    let number = user.0.cast_signed();
    on!(&mut *tx, |db| {
        let query = sqlx::query(PUT).bind(consent.id(user)).bind(number).bind(digest(&[consent.client_id]));
        let query = query.bind(digest(&[consent.redirect_uri])).bind(i64::from(consent.is_remembered));
        query.bind(now_ms).execute(db).await.map(|_| ())
    })?;
    on!(tx, |db| sqlx::query(DROP).bind(number).bind(MOST).execute(db).await.map(|_| ()))
}

/// Forgets what a user agreed to for a client: they are asked again.
pub(super) async fn forget(tx: &mut Tx, user: PrincipalId, client_id: &str) -> Result<(), sqlx::Error> {
    const SQL: &str = "DELETE FROM consents WHERE user_id = $1 AND client = $2";
    on!(tx, |db| {
        let query = sqlx::query(SQL).bind(user.0.cast_signed()).bind(digest(&[client_id]));
        query.execute(db).await.map(|_| ())
    })
}
