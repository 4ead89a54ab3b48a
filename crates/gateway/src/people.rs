//! People of the identity provider: the user of an account is found by issuer and subject, created at the first sign-in, and
//! gets its groups at each one.

use std::sync::Arc;

use super::audit::user_note;
use super::catalog::Catalog;
use super::principals::Principal;
use super::sign_in::PeopleRules;
use super::{Error, Gateway, now_ms};
use model::{AllowList, By, HolderName, IdpAccount, PrincipalId, Role, User};
use upstream::sign_in::Person;

impl Gateway {
    /// Finds or creates the user of somebody who signed in, and keeps what the identity provider can be asked with again.
    pub async fn sign_in_person(
        self: &Arc<Self>,
        person: Person,
        rules: &PeopleRules,
        by: &By,
    ) -> Result<Principal, Error> {
        let refresh_token = person.refresh_token.clone();
        let user = self.take_over_person(person, rules, by).await?;
        self.store.put_idp_sign_in(user.id(), refresh_token.as_ref(), self.clock.now_ms()).await?;
        Ok(user)
    }

    /// Finds or creates the user of an account, and takes over its groups. Fails if the person may not sign in: all their
    /// credentials end then.
    pub async fn take_over_person(
        self: &Arc<Self>,
        person: Person,
        rules: &PeopleRules,
        by: &By,
    ) -> Result<Principal, Error> {
        self.require_enterprise()?;
        self.check_groups(&person, rules, by).await?;
        // Nothing waits for a change where there is none.
        let catalog = self.catalog();
        let known = catalog.principals().of_account(&person.issuer, &person.subject);
        let is_new = |user: &&User| user.idp.as_ref().is_none_or(|idp| idp.groups != person.groups);
        if let Some(known) = known.filter(|user| !is_new(user) && !user.is_disabled)
            && let Some(user) = catalog.principals().by_id(known.id)
        {
            return Ok(user.clone());
        }
        let address = by.address.clone();
        let id = self
            .to_the_end(async move |gateway: Arc<Self>| gateway.keep_person(person, address).await)
            .await?;
        let user = self.catalog().principals().by_id(id).cloned();
        match user {
            Some(user) if user.is_disabled() => {
                Err(Error::forbidden("an admin of this gateway has disabled your account"))
            }
            Some(user) => Ok(user),
            None => {
                Err(Error::forbidden("an admin of this gateway has just deleted your account; sign in again"))
            }
        }
    }

    /// Takes over the groups of somebody whom the identity provider was asked about again. Nobody is created: an admin may
    /// have deleted the user since.
    pub(super) async fn take_over_groups(
        self: &Arc<Self>,
        person: Person,
        rules: &PeopleRules,
        by: &By,
    ) -> Result<(), Error> {
        self.check_groups(&person, rules, by).await?;
        let by = by.clone();
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _turn = gateway.turn().await?;
            let catalog = gateway.catalog();
            let Person { issuer, subject, groups, .. } = person;
            match catalog.principals().of_account(&issuer, &subject) {
                Some(before) => {
                    let account = IdpAccount { issuer, subject, groups };
                    gateway.keep_account(&catalog, before, account, &by).await
                }
                None => Ok(()),
            }
        })
        .await
    }

    /// Fails if a person is in no group that may use the gateway: all their credentials end then.
    async fn check_groups(
        self: &Arc<Self>,
        person: &Person,
        rules: &PeopleRules,
        by: &By,
    ) -> Result<(), Error> {
        if rules.admit(&person.groups) {
            return Ok(());
        }
        let known =
            self.catalog().principals().of_account(&person.issuer, &person.subject).map(|user| user.id);
        // They may try again and again, and only the first time changes anything.
        if let Some(user) = known
            && self.store.has_credentials(user).await?
        {
            self.end_credentials_of(user, by).await?;
        }
        Err(Error::forbidden("your account is in no group that may use this gateway; ask its admin"))
    }

    /// Stores the account of a person, if anything about it is new.
    async fn keep_person(
        self: Arc<Self>,
        person: Person,
        address: Option<String>,
    ) -> Result<PrincipalId, Error> {
        let _turn = self.turn().await?;
        let catalog = self.catalog();
        let principals = catalog.principals();
        let Person { issuer, subject, username, groups, .. } = person;
        let before = principals.of_account(&issuer, &subject);
        let account = IdpAccount { issuer, subject, groups };
        let Some(before) = before else {
            let username = HolderName::numbered(&username, |name| {
                // That is a path of the API.
                name == "whoami" || principals.user(name).is_some()
            });
            let user = User {
                id: PrincipalId::random(),
                username: username.map_err(Error::invalid)?,
                role: Role::User,
                token: None,
                rate_limit: None,
                allow_list: AllowList::new(Vec::new()),
                is_disabled: false,
                idp: Some(account),
            };
            let by = By::user(user.username.as_str(), address);
            self.store.put_user(&user, now_ms(), &user_note(&by, "user.create", None, Some(&user))).await?;
            self.swap_principals(&catalog, principals.with_user(&self.store, None, user.clone()));
            tracing::info!(user = %user.username, "created a user of the identity provider");
            return Ok(user.id);
        };
        let by = By::user(before.username.as_str(), address);
        self.keep_account(&catalog, before, account, &by).await?;
        Ok(before.id)
    }

    /// Stores the groups of a known user, if they are new. Needs the turn.
    async fn keep_account(
        self: &Arc<Self>,
        catalog: &Catalog,
        before: &User,
        account: IdpAccount,
        by: &By,
    ) -> Result<(), Error> {
        if before.idp.as_ref() == Some(&account) || before.is_disabled {
            return Ok(());
        }
        let user = User { idp: Some(account), ..before.clone() };
        let note = user_note(by, "user.update", Some(before), Some(&user));
        self.store.change_user(&before.username, &user, now_ms(), &note).await?;
        let changed = catalog.principals().with_user(&self.store, Some(&before.username), user.clone());
        self.swap_principals(catalog, changed);
        tracing::info!(user = %user.username, "the groups of a user changed");
        Ok(())
    }
}
