//! The data that outlives the process: servers, what they offer, what is disabled, groups, OAuth, users, clients,
//! settings. All SQL of the project is here, one file per table. Nothing is read from the database during an agent's
//! call.

mod authorizations;
mod backup;
mod catalogs;
mod check;
mod clients;
mod db;
mod disabled;
mod epoch;
mod failure;
mod grants;
mod groups;
mod health;
mod key;
mod lock;
mod migrate;
mod open;
mod open_error;
mod rate_limits;
mod retired_tokens;
mod server_config;
mod servers;
mod settings;
mod sqlite;
#[cfg(test)]
mod tests;
mod tokens;
mod tx_mode;
mod users;

use std::fs::File;

use tokio::sync::watch;

use model::ServerName;
use seal::{PurposeSeal, Seal, SecretKey};

use db::{Database, Tx};
use health::HealthSender;
use sqlite::Sqlite;
use tokens::TokenColumns;
use tx_mode::TxMode;

pub use authorizations::{AuthorizationKey, AuthorizationStatus, StoredAuthorization};
pub use backup::{BackupError, Copied, backup};
pub use check::{Finding, check};
pub use disabled::DisabledKind;
pub use failure::describe;
pub use grants::GrantChange;
pub use health::Health;
pub use open::OpenOptions;
pub use open_error::{KeyOrigin, OpenStoreError};
pub use servers::StoredServer;
pub use tokens::TokenHash;

#[derive(Debug)]
pub struct Store {
    database: Database,
    health: HealthSender,
    seal: Seal,
    tokens: TokenColumns,
    /// Held for as long as the store is open, so that no second gateway uses the same database. `None` in a store that
    /// only reads.
    lock: Option<File>,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("server \"{0}\" is not stored")]
    NotFound(ServerName),
    /// Nothing was written; the same request may work later.
    #[error("the database cannot be used now: {}", failure::describe(.0))]
    Unavailable(sqlx::Error),
    /// The disk failed during a commit, and the change could not be undone: it may exist after a restart.
    #[error("the database cannot be used now: {0}")]
    Unsure(String),
    /// The data was changed by something other than the gateway; a retry does not help.
    #[error("the database is damaged: {0}")]
    Corrupt(String),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match failure::is_damage(&error) {
            true => StoreError::Corrupt(failure::describe(&error)),
            false => StoreError::Unavailable(error),
        }
    }
}

impl Store {
    /// A store that only reads; a gateway may be running on the same database.
    fn to_read(sqlite: Sqlite, key: &SecretKey) -> Self {
        let seal = Seal::new(key);
        let (tokens, health) = (TokenColumns::new(&seal), HealthSender::default());
        Self { database: Database::Sqlite(sqlite), health, seal, tokens, lock: None }
    }

    /// Returns a seal under the same key as the database.
    pub fn seal_for(&self, purpose: &str) -> PurposeSeal {
        self.seal.for_purpose(purpose)
    }

    /// The hash by which the holder of a token is looked up. The database is not read for it.
    pub fn token_hash(&self, token: &[u8]) -> TokenHash {
        self.tokens.hash(token)
    }

    /// Watches whether changes are stored.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    /// Checks whether changes can be stored again, after one failed. The store counts as failing until
    /// [`Store::confirm`].
    pub async fn heal(&self) -> Result<(), StoreError> {
        Ok(self.database.heal().await?)
    }

    /// Reports that memory and database were compared and agree, after this many failed writes.
    pub fn confirm(&self, failures: u64) {
        self.health.confirm(failures);
    }

    async fn read(&self) -> Result<Tx, StoreError> {
        Ok(self.database.begin(TxMode::Read).await?)
    }

    /// Begins a write transaction, which increments the epoch.
    async fn write(&self) -> Result<Tx, StoreError> {
        let mut tx = self.database.begin(TxMode::Write).await?;
        settings::bump_epoch(&mut tx).await?;
        Ok(tx)
    }
}
