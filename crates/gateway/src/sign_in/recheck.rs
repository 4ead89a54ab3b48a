//! Asks the identity provider (IdP) again about people who use the gateway, so that those who were removed there, or moved to
//! another group, have the rights that they should have.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::super::principals::Principal;
use super::super::{Error, ErrorKind, Gateway};
use model::{By, PrincipalId, Secret};
use store::IdpSignIn;
use upstream::sign_in::{IdentityProvider, Recheck};

/// The pause between two rounds of questions.
const PAUSE: Duration = Duration::from_secs(60);
/// The time of use after which the IdP is asked again: with the pause and a slow round less than 15 minutes.
const CURRENT_MS: i64 = 10 * 60 * 1000;
/// The most people whom the IdP is asked about at once.
const MOST_AT_ONCE: usize = 8;
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
    pub fn client_of_subject(&self, subject: &str) -> Option<Principal> {
        let catalog = self.catalog();
        let mut clients = catalog.principals().clients();
        let found = clients.find(|client| client.jwt_subject.as_deref() == Some(subject))?;
        catalog.principals().by_id(found.id).cloned()
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

    /// Begins to ask the IdP again about people who use the gateway. Without an IdP, those of an earlier one can only lose what
    /// they have.
    pub fn look_after_people(self: &Arc<Self>, provider: Option<Arc<IdentityProvider>>, rules: PeopleRules) {
        let (keep, stop) = (self.clone().keep_people_current(provider, rules), self.stop.clone());
        self.tasks.spawn(async move { stop.run_until_cancelled(keep).await });
    }

    async fn keep_people_current(
        self: Arc<Self>,
        provider: Option<Arc<IdentityProvider>>,
        rules: PeopleRules,
    ) {
        loop {
            tokio::time::sleep(PAUSE).await;
            if let Err(error) = self.check_people(provider.as_ref(), &rules).await {
                tracing::debug!(%error, "cannot look after the people of the identity provider; trying again");
            }
        }
    }

    /// Asks the IdP about those whom it was not asked about for some time, and ends what has lasted too long. What fails for
    /// one of them does not keep the others from being checked.
    pub async fn check_people(
        self: &Arc<Self>,
        provider: Option<&Arc<IdentityProvider>>,
        rules: &PeopleRules,
    ) -> Result<(), Error> {
        let mut running = JoinSet::new();
        for sign_in in self.store.load_idp_sign_ins().await? {
            let now = self.clock.now_ms();
            let Some(check) = self.due_check(&sign_in, provider, rules, now) else { continue };
            while running.len() >= MOST_AT_ONCE {
                running.join_next().await;
            }
            let (gateway, rules) = (self.clone(), rules.clone());
            running.spawn(async move {
                // To the end: an answer that nobody reads may have the only refresh token that still works.
                let checked = gateway.to_the_end(async move |gateway: Arc<Self>| match check {
                    DueCheck::Ask { provider, refresh, subject } => {
                        gateway.check_person(&provider, &rules, &sign_in, (&refresh, &subject), now).await
                    }
                    DueCheck::End => gateway.end_sign_in(&sign_in, sign_in.checked_at_ms).await,
                });
                if let Err(error) = checked.await {
                    tracing::debug!(%error, "cannot check a user of the identity provider; trying again");
                }
            });
        }
        running.join_all().await;
        Ok(())
    }

    /// What must be done about an enabled user now.
    fn due_check(
        &self,
        sign_in: &IdpSignIn,
        provider: Option<&Arc<IdentityProvider>>,
        rules: &PeopleRules,
        now: i64,
    ) -> Option<DueCheck> {
        let catalog = self.catalog();
        let Principal::User(user) = catalog.principals().by_id(sign_in.user)? else { return None };
        let account = user.holder.idp.as_ref().filter(|_| !user.holder.is_disabled)?;
        // Another IdP cannot be asked about them.
        let provider = provider.filter(|provider| provider.issuer() == account.issuer);
        match provider.zip(sign_in.refresh_token.as_ref()) {
            Some((provider, refresh)) => {
                let is_in_use = self.was_seen_since(sign_in.user, sign_in.checked_at_ms)
                    || self.usages.is_active(sign_in.user);
                let is_due = is_in_use && now > sign_in.checked_at_ms + CURRENT_MS;
                is_due.then(|| DueCheck::Ask {
                    provider: provider.clone(),
                    refresh: refresh.clone(),
                    subject: account.subject.clone(),
                })
            }
            None => {
                let ends_at = sign_in.signed_in_at_ms + i64::from(rules.max_days) * DAY_MS;
                (now > ends_at).then_some(DueCheck::End)
            }
        }
    }

    async fn check_person(
        self: &Arc<Self>,
        provider: &IdentityProvider,
        rules: &PeopleRules,
        sign_in: &IdpSignIn,
        (refresh, subject): (&Secret, &str),
        now: i64,
    ) -> Result<(), Error> {
        if !self.store.take_idp_check(sign_in, now).await? {
            return Ok(());
        }
        let user = sign_in.user;
        match provider.check_again(refresh, subject).await {
            Ok(person) => {
                let is_last =
                    self.store.note_idp_check(user, person.refresh_token.as_ref(), now, now).await?;
                if !is_last {
                    return Ok(());
                }
                match self.take_over_groups(person, rules, &By::gateway()).await {
                    // Their credentials have ended.
                    Err(error) if error.kind == ErrorKind::Forbidden => Ok(()),
                    taken => taken,
                }
            }
            Err(Recheck::Refused(_)) => {
                if !self.store.note_idp_check(user, None, now, now).await? {
                    return Ok(());
                }
                tracing::info!("the identity provider no longer confirms a user, so their grants end");
                self.end_sign_in(sign_in, now).await
            }
            Err(Recheck::NotNow { reason, refresh_token }) => {
                tracing::warn!(reason, "cannot ask the identity provider about a user; trying again");
                let asked_at = now - CURRENT_MS + AGAIN_MS;
                self.store.note_idp_check(user, refresh_token.as_ref(), now, asked_at).await?;
                Ok(())
            }
        }
    }

    /// Ends the credentials that came with a sign-in, then forgets it: in this order, so that a failure leaves it to be ended.
    async fn end_sign_in(self: &Arc<Self>, sign_in: &IdpSignIn, checked_at_ms: i64) -> Result<(), Error> {
        if self.store.has_credentials(sign_in.user).await? {
            self.end_credentials_of(sign_in.user, &By::gateway()).await?;
        }
        Ok(self.store.forget_idp_sign_in(sign_in.user, checked_at_ms).await?)
    }
}

/// What must be done about somebody.
enum DueCheck {
    /// Ask the IdP.
    Ask { provider: Arc<IdentityProvider>, refresh: Secret, subject: String },
    /// End their credentials: the last sign-in is too long ago.
    End,
}
