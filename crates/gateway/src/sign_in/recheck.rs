//! Asks the identity provider (IdP) again about people who use the gateway, so that those who were removed there, or moved to
//! another group, have the rights that they should have.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::super::principals::Principal;
use super::super::{Error, ErrorKind, Gateway};
use model::{By, PrincipalId};
use store::IdpSignIn;
use upstream::sign_in::{IdentityProvider, Recheck};

/// The pause between two rounds of questions.
const PAUSE: Duration = Duration::from_secs(60);
/// The time of use after which the IdP is asked again: with the pause less than 15 minutes.
const CURRENT_MS: i64 = 13 * 60 * 1000;
/// How long after a failed question the next one is asked.
const AGAIN_MS: i64 = 60 * 1000;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Who may sign in.
#[derive(Clone, Debug, Default)]
pub struct PeopleRules {
    /// The groups whose members may; if empty, everybody.
    pub allowed_groups: Vec<String>,
    /// How long somebody may go on after a sign-in that the IdP cannot be asked about again.
    pub max_days: u32,
}

impl PeopleRules {
    pub fn admit(&self, groups: &[String]) -> bool {
        self.allowed_groups.is_empty() || groups.iter().any(|group| self.allowed_groups.contains(group))
    }
}

impl Gateway {
    /// Sets the groups of the IdP whose members are admins.
    pub async fn set_admin_groups(self: &Arc<Self>, groups: &[String]) {
        let _turn = self.local_turn().await;
        let catalog = self.catalog();
        self.swap_principals(&catalog, catalog.principals().with_admin_groups(groups.into()));
    }

    /// The groups that somebody had when they were last known.
    pub fn known_groups(&self, issuer: &str, subject: &str) -> Option<Vec<String>> {
        let catalog = self.catalog();
        let user = catalog.principals().of_account(issuer, subject)?;
        user.idp.as_ref().map(|idp| idp.groups.clone())
    }

    /// The client that has this subject at another issuer.
    pub fn client_of_subject(&self, subject: &str) -> Option<PrincipalId> {
        let catalog = self.catalog();
        let mut clients = catalog.principals().clients();
        clients.find(|client| client.jwt_subject.as_deref() == Some(subject)).map(|client| client.id)
    }

    /// A user or client that is not kept out.
    pub fn enabled_principal(&self, id: PrincipalId) -> Option<Principal> {
        self.catalog().principals().by_id(id).filter(|principal| !principal.is_disabled()).cloned()
    }

    /// A signal that fires when a token expires, or its holder is gone or kept out.
    pub fn until_expiry(self: &Arc<Self>, holder: &Principal, expires_at_ms: i64) -> CancellationToken {
        let ends = holder.revoked().child_token();
        let left = u64::try_from(expires_at_ms - self.clock.now_ms()).unwrap_or_default();
        let (signal, stop) = (ends.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(left)) => signal.cancel(),
                () = signal.cancelled() => {}
                () = stop.cancelled() => {}
            }
        });
        ends
    }

    /// The time now, in milliseconds.
    pub fn clock_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// Begins to ask the IdP again about people who use the gateway.
    pub fn look_after_people(self: &Arc<Self>, provider: Arc<IdentityProvider>, rules: PeopleRules) {
        let (keep, stop) = (self.clone().keep_people_current(provider, rules), self.stop.clone());
        self.tasks.spawn(async move { stop.run_until_cancelled(keep).await });
    }

    async fn keep_people_current(self: Arc<Self>, provider: Arc<IdentityProvider>, rules: PeopleRules) {
        loop {
            tokio::time::sleep(PAUSE).await;
            if let Err(error) = self.check_people(&provider, &rules).await {
                tracing::debug!(%error, "cannot look after the people of the identity provider; trying again");
            }
        }
    }

    /// Asks the IdP about those whom it was not asked about for some time, and ends what has lasted too long.
    pub async fn check_people(
        self: &Arc<Self>,
        provider: &IdentityProvider,
        rules: &PeopleRules,
    ) -> Result<(), Error> {
        for sign_in in self.store.load_idp_sign_ins().await? {
            let now = self.clock.now_ms();
            let Some(subject) = self.subject_of(sign_in.user, provider.issuer()) else { continue };
            if !self.signed_in.has_any(sign_in.user) {
                continue;
            }
            match &sign_in.refresh_token {
                None if now > sign_in.signed_in_at_ms + i64::from(rules.max_days) * DAY_MS => {
                    tracing::info!("the last sign-in of a user is too long ago, so their grants end");
                    self.end_credentials_of(sign_in.user, &By::gateway()).await?;
                }
                Some(_)
                    if now > sign_in.checked_at_ms + CURRENT_MS
                        && self.was_seen_since(sign_in.user, sign_in.checked_at_ms) =>
                {
                    self.check_person(provider, rules, &sign_in, &subject, now).await?;
                }
                None | Some(_) => {}
            }
        }
        Ok(())
    }

    /// The subject of an enabled user at this IdP.
    fn subject_of(&self, user: PrincipalId, issuer: &str) -> Option<String> {
        let catalog = self.catalog();
        let found = catalog.principals().users().find(|known| known.id == user && !known.is_disabled)?;
        found.idp.as_ref().filter(|idp| idp.issuer == issuer).map(|idp| idp.subject.clone())
    }

    async fn check_person(
        self: &Arc<Self>,
        provider: &IdentityProvider,
        rules: &PeopleRules,
        sign_in: &IdpSignIn,
        subject: &str,
        now: i64,
    ) -> Result<(), Error> {
        let Some(refresh) = &sign_in.refresh_token else { return Ok(()) };
        if !self.store.take_idp_check(sign_in, now).await? {
            return Ok(());
        }
        let by = By::gateway();
        match provider.check_again(refresh, subject).await {
            Ok(person) => {
                self.store.note_idp_check(sign_in.user, person.refresh_token.as_ref(), now).await?;
                match self.take_over_person(person, rules, &by).await {
                    // Their credentials have ended.
                    Err(error) if error.kind == ErrorKind::Forbidden => Ok(()),
                    taken => taken.map(|_| ()),
                }
            }
            Err(Recheck::Refused(_)) => {
                tracing::info!("the identity provider no longer confirms a user, so their grants end");
                self.end_credentials_of(sign_in.user, &by).await
            }
            Err(Recheck::NotNow { reason, refresh_token }) => {
                tracing::warn!(reason, "cannot ask the identity provider about a user; trying again");
                let asked_at = now - CURRENT_MS + AGAIN_MS;
                Ok(self.store.note_idp_check(sign_in.user, refresh_token.as_ref(), asked_at).await?)
            }
        }
    }
}
