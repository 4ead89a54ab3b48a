//! The grants of users, as people see and end them.

use std::sync::Arc;

use serde_json::json;

use super::super::{Error, Gateway};
use model::{AuditNote, By, GrantId, PrincipalId, Reach};
use store::{ConsentOfGrant, UserGrant};

/// A grant, as people see it.
#[derive(Clone, Debug)]
pub struct GrantRecord {
    pub id: GrantId,
    pub username: String,
    pub client_name: String,
    pub client_id: String,
    pub reach: Reach,
    pub created_at_ms: i64,
    pub last_used_at_ms: Option<i64>,
}

impl Gateway {
    /// The grants of a user, or of all users, the newest first.
    pub async fn grants(&self, of: Option<PrincipalId>) -> Result<Vec<GrantRecord>, Error> {
        self.require_enterprise()?;
        let grants = self.store.user_grants(of).await?;
        let record = |grant: UserGrant| GrantRecord {
            id: grant.id,
            username: self.name_of(grant.user),
            client_name: grant.client_name,
            client_id: grant.client_id,
            reach: grant.reach,
            created_at_ms: grant.created_at_ms,
            // That of the last minute is not stored yet.
            last_used_at_ms: grant.last_used_at_ms.max(self.signed_in.last_use(grant.id)),
        };
        Ok(grants.into_iter().map(record).collect())
    }

    /// Ends a grant, with everything that runs under it. The user is asked again before the same software gets another one.
    /// With an owner, grants of other users do not exist.
    pub async fn end_grant(
        self: &Arc<Self>,
        id: &str,
        owner: Option<PrincipalId>,
        by: &By,
    ) -> Result<(), Error> {
        self.require_enterprise()?;
        let unknown = || Error::not_found(format!("grant {id:?} does not exist"));
        let found = match GrantId::parse(id) {
            Some(id) => self.store.user_grant(id).await?,
            None => None,
        };
        let is_visible = |grant: &UserGrant| owner.is_none_or(|owner| owner == grant.user);
        let grant = found.filter(is_visible).ok_or_else(unknown)?;
        self.end_stored(grant, ConsentOfGrant::Forget, None, by).await
    }

    /// Ends a grant, if it still exists, since somebody used again what may be used once.
    pub(super) async fn end_reused(
        self: &Arc<Self>,
        id: GrantId,
        reason: &'static str,
        by: &By,
    ) -> Result<(), Error> {
        let Some(grant) = self.store.user_grant(id).await? else { return Ok(()) };
        tracing::warn!(user = self.name_of(grant.user), grant = %id, reason, "revoking a grant");
        self.end_stored(grant, ConsentOfGrant::Keep, Some(reason), by).await
    }

    /// Ends a grant that was read from the database.
    pub(super) async fn end_stored(
        self: &Arc<Self>,
        grant: UserGrant,
        consent: ConsentOfGrant,
        reason: Option<&'static str>,
        by: &By,
    ) -> Result<(), Error> {
        let by = by.clone();
        self.to_the_end(async move |gateway: Arc<Self>| {
            let mut note = AuditNote::new(&by, "grant.revoke", grant.id.to_string(), gateway.clock.now_ms());
            note.before = Some(gateway.grant_json(&grant));
            note.after = reason.map(|reason| json!({ "reason": reason }));
            if let Some(epoch) = gateway.store.end_grant(&grant, consent, &note).await? {
                gateway.signed_in.end(&[grant.id], &[], epoch);
                tracing::info!(user = gateway.name_of(grant.user), grant = %grant.id, "ended a grant");
            }
            Ok(())
        })
        .await
    }
}
