//! Initializing an enterprise gateway, and resetting the admin's token if it was lost.

use std::sync::Arc;

use super::audit::user_note;
use super::{Error, Gateway, now_ms};
use model::{AuditNote, By, HolderName, Mode, Role, Secret, Token, User};
use store::Store;

const FIRST_ADMIN: &str = "admin";

impl Gateway {
    /// Creates the first admin and returns their token. In development mode there are no users, so nothing is done.
    pub async fn initialize(self: &Arc<Self>, mode: Option<Mode>, by: &By) -> Result<Option<Secret>, Error> {
        if mode.is_some_and(|mode| mode != self.mode) {
            return Err(Error::invalid(format!(
                "field \"mode\" does not match: this server runs in {} mode; SERVER_MODE sets the mode when it starts",
                self.mode.as_str()
            )));
        }
        match self.mode {
            Mode::Development => Ok(None),
            Mode::Enterprise => self.make_first_admin(Token::generate(), by.clone()).await.map(Some),
        }
    }

    /// Initializes an enterprise gateway with this token for its first admin, unless it is initialized already, perhaps by
    /// another gateway on the same database.
    pub async fn initialize_with(self: &Arc<Self>, token: Token) -> Result<(), Error> {
        if self.mode == Mode::Development || self.is_initialized() {
            return Ok(());
        }
        match self.make_first_admin(token, By::gateway()).await {
            Err(error) if !self.is_initialized() => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn make_first_admin(self: &Arc<Self>, token: Token, by: By) -> Result<Secret, Error> {
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _turn = gateway.turn().await?;
            let catalog = gateway.catalog();
            let is_late = || {
                Error::invalid(
                    "this server is already initialized; `toolgate reset-admin` creates a new token for the admin",
                )
            };
            if catalog.principals().is_initialized {
                return Err(is_late());
            }
            let (admin, token) = first_admin(token, &[])?;
            let note = AuditNote { target: String::new(), ..user_note(&by, "gateway.initialize", None, Some(&admin)) };
            if !gateway.store.initialize(gateway.mode, &admin, now_ms(), &note).await? {
                return Err(is_late());
            }
            let mut principals = catalog.principals().with_user(&gateway.store, None, admin.clone());
            principals.is_initialized = true;
            gateway.swap_principals(&catalog, principals);
            tracing::info!("initialized in enterprise mode");
            Ok(token)
        })
        .await
    }
}

/// Gives the user `admin` a new token and returns that; creates the user or restores its role if needed. No gateway may run
/// meanwhile.
pub async fn reset_admin(store: &Store) -> Result<Secret, Error> {
    match store.mode().await?.as_deref().map(Mode::parse) {
        Some(Some(Mode::Enterprise)) => {}
        Some(_) => {
            return Err(Error::invalid(
                "this database was initialized in development mode, which has no users",
            ));
        }
        None => {
            return Err(Error::invalid(
                "this database is not initialized yet; start the gateway in enterprise mode and send POST /init",
            ));
        }
    }
    let users = store.load_users().await?;
    let (admin, token) = first_admin(Token::generate(), &users)?;
    let before = users.iter().find(|user| user.username == admin.username);
    let note = user_note(&By::command_line(), "user.reset_token", before, Some(&admin));
    store.put_user(&admin, now_ms(), &note).await?;
    Ok(token)
}

/// An admin with this token. A name that somebody of the identity provider has is not taken from them.
fn first_admin(token: Token, users: &[User]) -> Result<(User, Secret), Error> {
    let is_taken = |name: &str| users.iter().any(|user| user.username.as_str() == name && user.idp.is_some());
    let username = HolderName::numbered(FIRST_ADMIN, is_taken).map_err(Error::internal)?;
    let secret = token.secret().clone();
    Ok((User::local(username, Role::Admin, token), secret))
}
