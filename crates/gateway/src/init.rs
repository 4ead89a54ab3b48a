//! Initializing an enterprise gateway, and resetting the admin's token if it was lost.

use std::sync::Arc;

use super::{Error, Gateway, now_ms};
use model::{HolderName, Mode, PrincipalId, Role, Token, User};
use store::Store;

const FIRST_ADMIN: &str = "admin";

impl Gateway {
    /// Creates the first admin and returns it. In development mode there are no users, so nothing is done.
    pub async fn initialize(self: &Arc<Self>, mode: Option<Mode>) -> Result<Option<User>, Error> {
        if mode.is_some_and(|mode| mode != self.mode) {
            return Err(Error::invalid(format!(
                "field \"mode\" does not match: this server runs in {} mode; SERVER_MODE sets the mode when it starts",
                self.mode.as_str()
            )));
        }
        match self.mode {
            Mode::Development => Ok(None),
            Mode::Enterprise => self.make_first_admin().await.map(Some),
        }
    }

    async fn make_first_admin(self: &Arc<Self>) -> Result<User, Error> {
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _turn = gateway.turn().await?;
            let catalog = gateway.catalog();
            if catalog.principals().is_initialized {
                return Err(Error::invalid(
                    "this server is already initialized; `toolgate reset-admin` creates a new token for the admin",
                ));
            }
            let admin = first_admin()?;
            gateway.store.initialize(gateway.mode, &admin, now_ms()).await?;
            let mut principals = catalog.principals().with_user(&gateway.store, None, admin.clone());
            principals.is_initialized = true;
            gateway.swap_principals(&catalog, principals);
            tracing::info!("initialized in enterprise mode");
            Ok(admin)
        })
        .await
    }
}

/// Gives the user `admin` a new token; creates the user or restores its role if needed. No gateway may run meanwhile.
pub async fn reset_admin(store: &Store) -> Result<User, Error> {
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
    let admin = first_admin()?;
    store.put_user(&admin, now_ms()).await?;
    Ok(admin)
}

fn first_admin() -> Result<User, Error> {
    let username = HolderName::parse(FIRST_ADMIN).map_err(Error::internal)?;
    let (id, token) = (PrincipalId::random(), Token::generate());
    Ok(User { id, username, role: Role::Admin, token, rate_limit: None })
}
