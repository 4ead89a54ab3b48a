//! What outlives the process: servers, what they offered, what is switched off, groups, OAuth, users, clients, settings.
//! The only SQL of the project, one file per table. Nothing here is read while an agent's call travels.

mod catalogs;
mod clients;
mod config;
mod db;
mod disabled;
mod grants;
mod groups;
mod key;
mod lock;
mod migrate;
mod open;
mod servers;
mod sessions;
mod settings;
#[cfg(test)]
mod tests;
mod tokens;
mod users;

use std::fs::File;

use crate::model::ServerName;
use crate::seal::{PurposeSeal, Seal};

use db::{Pool, Tx};
use tokens::Tokens;

pub use disabled::Kind;
pub use grants::GrantChange;
pub use key::KeyOrigin;
pub use open::{OpenError, OpenOptions};
pub use servers::StoredServer;
pub use sessions::{SessionKey, SessionStatus, StoredSession};
pub use tokens::TokenHash;

#[derive(Debug)]
pub struct Store {
    pool: Pool,
    seal: Seal,
    tokens: Tokens,
    /// Held for as long as the store is open, so that no second gateway works on the same database.
    lock: File,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("server \"{0}\" is already stored")]
    Conflict(ServerName),
    #[error("server \"{0}\" is not stored")]
    NotFound(ServerName),
    /// Nothing was written; the same request may work later.
    #[error("the database cannot be used now: {0}")]
    Unavailable(#[from] sqlx::Error),
    /// Something was changed behind our back; trying again does not help.
    #[error("the database is damaged: {0}")]
    Corrupt(String),
}

impl Store {
    /// Seals under the same key as the database.
    pub fn seal_for(&self, purpose: &str) -> PurposeSeal {
        self.seal.for_purpose(purpose)
    }

    /// What the holder of a token is found by. Nothing is read for it.
    pub fn token_hash(&self, token: &[u8]) -> TokenHash {
        self.tokens.hash(token)
    }

    async fn read(&self) -> Result<Tx, StoreError> {
        Ok(self.pool.begin().await?)
    }

    /// The epoch goes up first, which also takes the write lock before anything has been read.
    async fn write(&self) -> Result<Tx, StoreError> {
        let mut tx = self.pool.begin().await?;
        settings::bump_epoch(&mut tx).await?;
        Ok(tx)
    }
}
