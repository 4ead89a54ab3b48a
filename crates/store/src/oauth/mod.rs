//! What the authorization server keeps: the grants of software that acts for users, its codes and refresh tokens, what users
//! agreed to, browser sessions, and software that admins registered. Codes, refresh tokens and cookies are stored as digests
//! only; access tokens are not stored at all.

mod access_tokens;
mod clients;
mod codes;
mod consents;
mod grants;
mod opaque;
mod refresh_tokens;
mod sessions;
mod upkeep;

use super::changes::{ChangeTx, ChangedKind};
use super::db::{Tx, on};
use super::{Store, StoreError, settings};
use model::{AuditNote, GrantId, PrincipalId};

pub use access_tokens::AccessContent;
pub use clients::OAuthClient;
pub use codes::{NewCode, StoredCode};
pub use consents::Consent;
pub use grants::{ConsentOfGrant, MadeGrant, NewUserGrant, UserGrant};
pub use opaque::{NewOpaque, OpaqueDigest, OpaqueKind, OpaqueTokens, form_token};
pub use refresh_tokens::{RefreshedGrant, Rotation};
pub use sessions::{BrowserSessionRow, MadeSession};
pub use upkeep::CredentialUses;

pub(super) use clients::purpose as client_purpose;
pub(super) use codes::purpose as code_purpose;
pub(super) use grants::{purpose as grant_purpose, read_held as read_held_grants};
pub(super) use opaque::purpose as key_purpose;
pub(super) use refresh_tokens::purpose as successor_purpose;
pub(super) use sessions::read_all as read_browser_sessions;

/// The grants and browser sessions of a user, as far as gateways hold them in memory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HeldCredentials {
    pub grants: Vec<GrantId>,
    pub sessions: Vec<BrowserSessionRow>,
}

/// A row that was read, with the epoch of the database at that moment.
#[derive(Debug)]
pub struct AtEpoch<T> {
    pub epoch: i64,
    pub value: T,
}

impl Store {
    /// Ends all grants, codes and browser sessions of a user. Returns the epoch of the change.
    pub async fn end_credentials(&self, user: PrincipalId, note: &AuditNote) -> Result<i64, StoreError> {
        let mut tx = self.change(note).await?;
        end_all_of(&mut tx, user).await?;
        note_user(&mut tx, user).await?;
        let epoch = tx.epoch();
        tx.commit().await?;
        Ok(epoch)
    }

    /// Whether there is anything of a user to end.
    pub async fn has_credentials(&self, user: PrincipalId) -> Result<bool, StoreError> {
        const FOUND: &str = "SELECT (SELECT COUNT(*) FROM user_grants WHERE user_id = $1)
            + (SELECT COUNT(*) FROM grant_codes WHERE user_id = $1)
            + (SELECT COUNT(*) FROM browser_sessions WHERE user_id = $1)";
        let mut tx = self.read().await?;
        let number = user.0.cast_signed();
        let found: i64 = on!(&mut tx, |db| sqlx::query_scalar(FOUND).bind(number).fetch_one(db).await)?;
        tx.commit().await?;
        Ok(found > 0)
    }

    /// The grants and sessions of a user.
    pub async fn held_credentials(&self, user: PrincipalId) -> Result<AtEpoch<HeldCredentials>, StoreError> {
        let mut tx = self.read().await?;
        let epoch = settings::epoch(&mut tx).await?;
        let value = self.read_credentials_of(&mut tx, user).await?;
        tx.commit().await?;
        Ok(AtEpoch { epoch, value })
    }

    /// The same within a transaction.
    pub(super) async fn read_credentials_of(
        &self,
        tx: &mut Tx,
        user: PrincipalId,
    ) -> Result<HeldCredentials, StoreError> {
        const GRANTS: &str = "SELECT id FROM user_grants WHERE user_id = $1 ORDER BY id";
        const SESSIONS: &str =
            "SELECT digest, created_at, used_at FROM browser_sessions WHERE user_id = $1 ORDER BY digest";
        let number = user.0.cast_signed();
        let ids: Vec<String> =
            on!(&mut *tx, |db| sqlx::query_scalar(GRANTS).bind(number).fetch_all(db).await)?;
        let rows: Vec<(String, i64, i64)> =
            on!(tx, |db| sqlx::query_as(SESSIONS).bind(number).fetch_all(db).await)?;
        let grants = ids.iter().map(|id| grants::read_id(id)).collect::<Result<_, _>>()?;
        let session = |(digest, created_at_ms, used_at_ms)| BrowserSessionRow {
            digest,
            user,
            created_at_ms,
            used_at_ms,
        };
        Ok(HeldCredentials { grants, sessions: rows.into_iter().map(session).collect() })
    }
}

/// Forgets everything of a user who is about to be deleted.
pub(super) async fn forget_user(tx: &mut ChangeTx, user: PrincipalId) -> Result<(), sqlx::Error> {
    const CONSENTS: &str = "DELETE FROM consents WHERE user_id = $1";
    on!(&mut *tx, |db| sqlx::query(CONSENTS).bind(user.0.cast_signed()).execute(db).await.map(|_| ()))?;
    end_user(tx, user).await
}

/// Ends all grants and browser sessions of a user as a part of a change.
pub(super) async fn end_user(tx: &mut ChangeTx, user: PrincipalId) -> Result<(), sqlx::Error> {
    end_all_of(tx, user).await?;
    note_user(tx, user).await
}

async fn end_all_of(tx: &mut Tx, user: PrincipalId) -> Result<(), sqlx::Error> {
    // Refresh tokens end with their grants.
    const ALL: [&str; 3] = [
        "DELETE FROM user_grants WHERE user_id = $1",
        "DELETE FROM grant_codes WHERE user_id = $1",
        "DELETE FROM browser_sessions WHERE user_id = $1",
    ];
    for sql in ALL {
        let number = user.0.cast_signed();
        on!(&mut *tx, |db| sqlx::query(sql).bind(number).execute(db).await.map(|_| ()))?;
    }
    Ok(())
}

/// Tells the other gateways that credentials of a user began or ended. Not each credential has a row there, so that the table
/// does not grow with every sign-in.
async fn note_user(tx: &mut ChangeTx, user: PrincipalId) -> Result<(), sqlx::Error> {
    tx.note(ChangedKind::Credentials, &user.0.to_string()).await
}
