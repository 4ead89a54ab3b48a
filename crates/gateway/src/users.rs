//! Creating, changing and deleting users. At least one admin always remains.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::audit::user_note;
use super::principals::{Principal, Principals};
use super::{Error, Gateway, now_ms};
use model::{By, FieldError, HolderName, Mode, Token, User, UserChange};

impl Gateway {
    /// All users, sorted by name.
    pub fn users(&self) -> Result<Vec<User>, Error> {
        self.require_enterprise()?;
        Ok(self.catalog().principals().users().cloned().collect())
    }

    pub fn user(&self, name: &str) -> Result<User, Error> {
        self.require_enterprise()?;
        find(self.catalog().principals(), name).cloned()
    }

    pub async fn create_user(self: &Arc<Self>, input: Map<String, Value>, by: &By) -> Result<User, Error> {
        self.require_enterprise()?;
        let (user, by) = (User::parse(input)?, by.clone());
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _turn = gateway.turn().await?;
            let catalog = gateway.catalog();
            let principals = catalog.principals();
            check_name_is_free(principals, &user.username)?;
            if let Some(token) = &user.token {
                gateway.check_token_is_free(principals, token)?;
            }
            let note = user_note(&by, "user.create", None, Some(&user));
            gateway.store.put_user(&user, now_ms(), &note).await?;
            gateway.swap_principals(&catalog, principals.with_user(&gateway.store, None, user.clone()));
            tracing::info!(user = %user.username, role = user.role.as_str(), "created a user");
            Ok(user)
        })
        .await
    }

    pub async fn change_user(
        self: &Arc<Self>,
        name: &str,
        input: Map<String, Value>,
        by: &By,
    ) -> Result<User, Error> {
        let name = self.user(name)?.username;
        let (change, by) = (UserChange::parse(input)?, by.clone());
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _turn = gateway.turn().await?;
            let catalog = gateway.catalog();
            let principals = catalog.principals();
            let before = find(principals, name.as_str())?;
            let mut user = before.clone();
            if let Some(username) = change.username.filter(|username| *username != name) {
                check_name_is_free(principals, &username)?;
                user.username = username;
            }
            user.role = change.role.unwrap_or(before.role);
            user.rate_limit = change.rate_limit;
            user.allow_list = change.allow_list.unwrap_or_else(|| before.allow_list.clone());
            user.is_disabled = change.is_disabled.unwrap_or(before.is_disabled);
            if let Some(token) = change.token {
                let known = before.token.as_ref().ok_or_else(no_token)?;
                // The same text is not a new token.
                if token.secret() != known.secret() {
                    gateway.check_token_is_free(principals, &token)?;
                    user.token = Some(token);
                }
            }
            let changed = principals.with_user(&gateway.store, Some(&name), user.clone());
            check_admin_remains(principals, &changed, || is_last_admin(before))?;
            let note = user_note(&by, "user.update", Some(before), Some(&user));
            gateway.store.change_user(&name, &user, now_ms(), &note).await?;
            gateway.swap_principals(&catalog, changed);
            tracing::info!(user = %user.username, before = %name, role = user.role.as_str(), "changed a user");
            Ok(user)
        })
        .await
    }

    pub async fn delete_user(self: &Arc<Self>, name: &str, by: &By) -> Result<(), Error> {
        let (name, by) = (self.user(name)?.username, by.clone());
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _turn = gateway.turn().await?;
            let catalog = gateway.catalog();
            let principals = catalog.principals();
            let before = find(principals, name.as_str())?;
            let changed = principals.without_user(&name);
            check_admin_remains(principals, &changed, || is_last_admin(before))?;
            let note = user_note(&by, "user.delete", Some(before), None);
            gateway.store.delete_user(before, now_ms(), &note).await?;
            gateway.swap_principals(&catalog, changed);
            tracing::info!(user = %name, "deleted a user");
            Ok(())
        })
        .await
    }

    /// Users and clients exist in enterprise mode only.
    pub fn require_enterprise(&self) -> Result<(), Error> {
        match self.mode {
            Mode::Enterprise => Ok(()),
            Mode::Development => Err(Error::forbidden(
                "users and clients are only allowed in enterprise mode; start the gateway with SERVER_MODE=enterprise",
            )),
        }
    }

    /// Checks that no other user or client has this token.
    pub(super) fn check_token_is_free(&self, principals: &Principals, token: &Token) -> Result<(), Error> {
        match principals.find(&self.store.token_hash(token.secret().expose().as_bytes())) {
            None => Ok(()),
            Some(Principal::User(_) | Principal::Client(_)) => Err(Error::conflict(
                FieldError::new("access_token", "is already the token of a user or client").to_string(),
            )),
        }
    }
}

fn find<'a>(principals: &'a Principals, name: &str) -> Result<&'a User, Error> {
    principals.user(name).ok_or_else(|| Error::not_found(format!("user {name:?} does not exist")))
}

fn check_name_is_free(principals: &Principals, name: &HolderName) -> Result<(), Error> {
    match principals.user(name.as_str()) {
        None => Ok(()),
        Some(_) => Err(Error::conflict(format!("user {:?} already exists", name.as_str()))),
    }
}

/// Checks that a change leaves an admin who is not kept out, if there was one. `last` says what the last admin is.
pub fn check_admin_remains(
    before: &Principals,
    after: &Principals,
    last: impl FnOnce() -> String,
) -> Result<(), Error> {
    match before.has_admin() && !after.has_admin() {
        true => Err(Error::invalid(format!("{}; make somebody else an admin first", last()))),
        false => Ok(()),
    }
}

fn is_last_admin(user: &User) -> String {
    format!("user {:?} is the last admin", user.username.as_str())
}

fn no_token() -> Error {
    let problem = "must be omitted: a user of the identity provider signs in there, and has no token here";
    FieldError::new("access_token", problem).into()
}
