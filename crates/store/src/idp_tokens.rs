//! The table `idp_tokens`: when people signed in at the identity provider (IdP), and with what it can be asked about them again.

use super::db::{Tx, on};
use super::{Store, StoreError};
use model::{PrincipalId, Secret};

const SEALED_FOR: &str = "token of an identity provider";

/// What is known of the last sign-in of somebody.
#[derive(Debug)]
pub struct IdpSignIn {
    pub user: PrincipalId,
    /// Asks the IdP again; `None` if it gave none.
    pub refresh_token: Option<Secret>,
    pub signed_in_at_ms: i64,
    /// When the IdP was last asked.
    pub checked_at_ms: i64,
}

/// The purpose for which a token of an IdP is sealed.
pub(super) fn purpose(_user: &str) -> String {
    SEALED_FOR.to_owned()
}

impl Store {
    /// All sign-ins.
    pub async fn load_idp_sign_ins(&self) -> Result<Vec<IdpSignIn>, StoreError> {
        const SQL: &str =
            "SELECT user_id, content, signed_in_at, checked_at FROM idp_tokens ORDER BY user_id";
        let mut tx = self.read().await?;
        let rows: Vec<(i64, Vec<u8>, i64, i64)> = on!(&mut tx, |db| sqlx::query_as(SQL).fetch_all(db).await)?;
        tx.commit().await?;
        let read = |(user, content, signed_in_at_ms, checked_at_ms): (i64, Vec<u8>, i64, i64)| {
            let user = PrincipalId(user.cast_unsigned());
            IdpSignIn { user, refresh_token: self.open_idp_token(&content), signed_in_at_ms, checked_at_ms }
        };
        Ok(rows.into_iter().map(read).collect())
    }

    /// A token that cannot be read counts like none: the others must be used all the same.
    fn open_idp_token(&self, content: &[u8]) -> Option<Secret> {
        if content.is_empty() {
            return None;
        }
        let plain = self.seal.open(SEALED_FOR, content).ok()?;
        std::str::from_utf8(&plain).ok().map(Secret::new)
    }

    /// Stores that somebody signed in.
    pub async fn put_idp_sign_in(
        &self,
        user: PrincipalId,
        refresh_token: Option<&Secret>,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO idp_tokens (user_id, content, signed_in_at, checked_at)
            VALUES ($1, $2, $3, $3) ON CONFLICT (user_id) DO UPDATE SET content = excluded.content,
            signed_in_at = excluded.signed_in_at, checked_at = excluded.checked_at";
        let content = self.idp_token(refresh_token);
        let mut tx = self.write().await?;
        on!(&mut tx, |db| {
            let query = sqlx::query(SQL).bind(user.0.cast_signed()).bind(content).bind(now_ms);
            query.execute(db).await.map(|_| ())
        })?;
        tx.commit().await
    }

    /// Takes the turn to ask the IdP about somebody. False if another gateway was faster: only one may use a refresh token.
    pub async fn take_idp_check(&self, sign_in: &IdpSignIn, now_ms: i64) -> Result<bool, StoreError> {
        const SQL: &str = "UPDATE idp_tokens SET checked_at = $3 WHERE user_id = $1 AND checked_at = $2";
        let mut tx = self.write().await?;
        let taken = on!(&mut tx, |db| {
            let query = sqlx::query(SQL).bind(sign_in.user.0.cast_signed()).bind(sign_in.checked_at_ms);
            query.bind(now_ms).execute(db).await.map(|done| done.rows_affected() > 0)
        })?;
        tx.commit().await?;
        Ok(taken)
    }

    /// Stores when the IdP was last asked and, if it gave another one, the refresh token. False if the person has signed in
    /// again since the turn was taken: what was asked before does not count then.
    pub async fn note_idp_check(
        &self,
        user: PrincipalId,
        refresh_token: Option<&Secret>,
        taken_at_ms: i64,
        checked_at_ms: i64,
    ) -> Result<bool, StoreError> {
        const CHECKED: &str = "UPDATE idp_tokens SET checked_at = $3 WHERE user_id = $1 AND checked_at = $2";
        const REPLACED: &str =
            "UPDATE idp_tokens SET checked_at = $3, content = $4 WHERE user_id = $1 AND checked_at = $2";
        let mut tx = self.write().await?;
        let is_noted = on!(&mut tx, |db| {
            let query = sqlx::query(if refresh_token.is_some() { REPLACED } else { CHECKED });
            let query = query.bind(user.0.cast_signed()).bind(taken_at_ms).bind(checked_at_ms);
            let query = match refresh_token {
                None => query,
                Some(_) => query.bind(self.idp_token(refresh_token)),
            };
            query.execute(db).await.map(|done| done.rows_affected() > 0)
        })?;
        tx.commit().await?;
        Ok(is_noted)
    }

    /// Forgets a sign-in, unless the person has signed in again or was asked about since.
    pub async fn forget_idp_sign_in(&self, user: PrincipalId, checked_at_ms: i64) -> Result<(), StoreError> {
        const SQL: &str = "DELETE FROM idp_tokens WHERE user_id = $1 AND checked_at = $2";
        let mut tx = self.write().await?;
        on!(&mut tx, |db| {
            let query = sqlx::query(SQL).bind(user.0.cast_signed()).bind(checked_at_ms);
            query.execute(db).await.map(|_| ())
        })?;
        tx.commit().await
    }

    fn idp_token(&self, refresh_token: Option<&Secret>) -> Vec<u8> {
        refresh_token.map_or_else(Vec::new, |token| self.seal.seal(SEALED_FOR, token.expose().as_bytes()))
    }
}

/// Forgets the sign-in of a user who is about to be deleted.
pub(super) async fn forget(tx: &mut Tx, user: PrincipalId) -> Result<(), sqlx::Error> {
    const SQL: &str = "DELETE FROM idp_tokens WHERE user_id = $1";
    on!(tx, |db| sqlx::query(SQL).bind(user.0.cast_signed()).execute(db).await.map(|_| ()))
}
