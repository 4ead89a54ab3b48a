//! Credentials of users beside their static tokens: grants of software that acts for them (`codes`, `tokens`, `grants`), and
//! browser sessions (`sessions`); questions to the identity provider about people who use them (`recheck`). `signed_in` is
//! what is held in memory of them, and decides whether one still counts; `upkeep` ends those that expire. Also software that
//! admins registered (`clients`). The protocol, with its pages, belongs to the faces.

mod clients;
mod codes;
mod grants;
mod recheck;
mod sessions;
mod signed_in;
mod tokens;
mod upkeep;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::principals::Principal;
use super::{Error, Gateway};
use model::{AuditNote, By, GrantId, PrincipalId, Reach};
use store::{StoreError, UserGrant};

pub use clients::NewOAuthClient;
pub use codes::{Approval, PendingCode};
pub use grants::GrantRecord;
pub use recheck::PeopleRules;
pub use sessions::BrowserSession;
pub use tokens::{IssuedTokens, TokenProblem};

use signed_in::LiveGrant;
pub(super) use signed_in::SignedIn;

/// How long a code works.
const CODE_LIFE_MS: i64 = 60 * 1000;
/// How long an access token works.
const ACCESS_LIFE: Duration = Duration::from_secs(60 * 60);
/// How long a refresh token works. Each use gives one that lasts as long again.
const REFRESH_LIFE_MS: i64 = 30 * 24 * 60 * 60 * 1000;
/// How long a browser session lasts without being used, and in any case.
const SESSION_IDLE_MS: i64 = 12 * 60 * 60 * 1000;
const SESSION_LIFE_MS: i64 = 7 * 24 * 60 * 60 * 1000;

impl Gateway {
    /// The user of a credential, for as long as credentials of that user count.
    pub(super) fn holder(&self, user: PrincipalId) -> Option<Principal> {
        let catalog = self.catalog.load();
        let found = catalog.principals().by_id(user);
        found.filter(|found| matches!(found, Principal::User(_)) && !found.is_disabled()).cloned()
    }

    /// The same for a user who may be unknown here: another gateway on the same database may just have created them.
    pub(super) async fn holder_anew(self: &Arc<Self>, user: PrincipalId) -> Result<Option<Principal>, Error> {
        match self.holder(user) {
            Some(known) => Ok(Some(known)),
            None => self.holder_now(user).await,
        }
    }

    /// The same after everything was read that other gateways changed: whoever was just disabled or deleted is not a holder.
    async fn holder_now(self: &Arc<Self>, user: PrincipalId) -> Result<Option<Principal>, Error> {
        if self.store.is_shared() {
            let turn = self.local_turn().await;
            self.catch_up(&turn).await?;
        }
        Ok(self.holder(user))
    }

    /// Ends all grants and browser sessions of a user, with everything that runs under them.
    pub async fn end_credentials_of(self: &Arc<Self>, user: PrincipalId, by: &By) -> Result<(), Error> {
        let by = by.clone();
        self.to_the_end(async move |gateway: Arc<Self>| {
            let name = gateway.name_of(user);
            let note = AuditNote::new(&by, "user.end_credentials", name.as_str(), gateway.clock.now_ms());
            let epoch = gateway.store.end_credentials(user, &note).await?;
            gateway.signed_in.end_user(user, epoch);
            tracing::info!(user = name, "ended the grants and sessions of a user");
            Ok(())
        })
        .await
    }

    /// What other gateways did to the credentials of users.
    pub(super) fn take_over_credentials(
        &self,
        credentials: &[(PrincipalId, store::HeldCredentials)],
        epoch: i64,
    ) {
        for (user, held) in credentials {
            self.signed_in.take_over(*user, held, epoch);
        }
    }

    /// The signal that fires when a grant ends; `None` if it has ended. For requests that another gateway forwards.
    pub async fn grant_ends(&self, id: GrantId) -> Result<Option<CancellationToken>, Error> {
        let found = match self.signed_in.grant(id) {
            Some(grant) => Some(grant),
            None if self.store.is_shared() => self.look_up_grant(id).await?,
            None => None,
        };
        Ok(found.map(|grant| grant.ends.clone()))
    }

    /// Holds a grant in memory that exists in the database. `None` if it does not.
    pub(super) async fn look_up_grant(&self, id: GrantId) -> Result<Option<Arc<LiveGrant>>, StoreError> {
        loop {
            let found = self.store.held_grant(id).await?;
            let Some(user) = found.value else {
                self.signed_in.note_gone(id);
                return Ok(None);
            };
            // Otherwise it may have ended since it was read.
            if let Some(grant) = self.signed_in.add_grant(id, user, found.epoch) {
                return Ok(Some(grant));
            }
        }
    }

    fn name_of(&self, user: PrincipalId) -> String {
        let catalog = self.catalog.load();
        catalog.principals().by_id(user).map(|principal| principal.name().to_string()).unwrap_or_default()
    }

    fn grant_json(&self, grant: &UserGrant) -> Value {
        json!({
            "username": self.name_of(grant.user),
            "client_name": grant.client_name,
            "client_id": grant.client_id,
            "resource": grant.reach.as_str(),
        })
    }
}

/// The reach of an access token of a grant, if it may be narrowed so.
fn narrow(reach: &Reach, to: Option<&Reach>) -> Result<Reach, TokenProblem> {
    match to {
        None => Ok(reach.clone()),
        Some(to) => reach.narrowed(to).ok_or(TokenProblem::InvalidTarget),
    }
}
