//! The data that outlives the process: servers, what they offer, what is disabled, groups, OAuth, users, clients,
//! their credentials, settings. All SQL of the project is here, one file per table. Nothing is read from the database during an agent's
//! call.

mod address;
mod admission;
mod allow_lists;
mod audit;
mod authorizations;
mod backup;
mod catalogs;
mod changes;
mod check;
mod clients;
mod db;
mod disabled;
mod ended_sessions;
mod epoch;
mod failure;
mod grants;
mod groups;
mod health;
mod homes;
mod idp_groups;
mod idp_tokens;
mod idp_users;
mod key;
mod leases;
mod load;
mod lock;
mod migrate;
mod oauth;
mod open;
mod open_error;
mod postgres;
mod quotas;
mod rate_limits;
mod records;
mod replicas;
mod retired_tokens;
mod rotation;
mod server_config;
mod servers;
mod settings;
mod shared;
mod sqlite;
mod tables;
#[cfg(test)]
mod tests;
mod tokens;
mod transfer;
mod tx_mode;
mod users;

use std::fs::File;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use tokio::sync::watch;

use model::{AuditNote, ServerName};
use seal::{PurposeSeal, Seal, SecretKey};

use changes::ChangeTx;
use db::{Database, Tx};
use health::HealthSender;
use tokens::TokenColumns;
use tx_mode::TxMode;

pub use address::{AddressError, DatabaseAddress, PostgresAddress, PostgresParts};
pub use admission::CurrentUse;
pub use audit::{AuditFilter, AuditProblem, AuditReport, verify_audit};
pub use authorizations::{AuthorizationKey, AuthorizationStatus, StoredAuthorization};
pub use backup::{BackupError, Copied, backup};
pub use changes::Changes;
pub use check::{Finding, check};
pub use disabled::DisabledKind;
pub use failure::describe;
pub use grants::GrantChange;
pub use health::Health;
pub use homes::HomeGateway;
pub use idp_tokens::IdpSignIn;
pub use leases::{Lease, Taking};
pub use load::Loaded;
pub use oauth::{
    AccessContent, AtEpoch, BrowserSessionRow, Consent, ConsentOfGrant, CredentialUses, HeldCredentials,
    MadeGrant, MadeSession, NewCode, NewOpaque, NewUserGrant, OAuthClient, OpaqueDigest, OpaqueKind,
    OpaqueTokens, RefreshedGrant, Rotation, StoredCode, UserGrant, form_token,
};
pub use open::{OpenOptions, UnmigratedStore};
pub use open_error::{KeyOrigin, OpenStoreError};
pub use quotas::{Forgetting, Reserved, quota_of_server, quota_of_tool};
pub use records::{CallCount, CallFilter, CallRow, CountedKind, Kept, KeptCall, Records, Retention, SPANS};
pub use replicas::{Membership, Replica};
pub use rotation::{Rotated, RotationError, RotationOptions, rotate};
pub use servers::StoredServer;
pub use shared::{ChangeWatch, Notice, SharedTurn};
pub use tokens::TokenHash;
pub use transfer::{TransferError, TransferOptions, Transferred, transfer};

#[derive(Debug)]
pub struct Store {
    database: Database,
    health: HealthSender,
    seal: Seal,
    tokens: TokenColumns,
    /// Held for as long as the store is open, so that no second gateway uses the same file. `None` on a database server,
    /// and in a store that only reads.
    lock: Option<File>,
    /// The epoch of the last change that was made or read here.
    latest_epoch: Arc<AtomicI64>,
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
    fn to_read(database: Database, key: &SecretKey) -> Self {
        let seal = Seal::new(key);
        let (tokens, health) = (TokenColumns::new(&seal), HealthSender::default());
        Self { database, health, seal, tokens, lock: None, latest_epoch: Arc::default() }
    }

    /// Returns a seal under the same key as the database.
    pub fn seal_for(&self, purpose: &str) -> PurposeSeal {
        self.seal.for_purpose(purpose)
    }

    /// The hash by which the holder of a token is looked up. The database is not read for it.
    pub fn token_hash(&self, token: &[u8]) -> TokenHash {
        self.tokens.hash(token)
    }

    /// The same under the other key, while the key is being replaced.
    pub fn other_token_hash(&self, token: &[u8]) -> Option<TokenHash> {
        self.tokens.other_hash(token)
    }

    /// Watches whether changes are stored.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    /// Sets who gets the time that each write took, unless somebody does already. It must not wait.
    pub fn watch_writes(&self, watcher: impl Fn(Duration) + Send + Sync + 'static) {
        self.health.watch_writes(watcher);
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

    /// Begins to write what no gateway holds in memory, and is no change that somebody made.
    async fn write(&self) -> Result<Tx, StoreError> {
        Ok(self.database.begin(TxMode::Write).await?)
    }

    /// Begins a change of what no gateway holds in memory, and notes it in the audit.
    async fn noted_write(&self, note: &AuditNote) -> Result<Tx, StoreError> {
        let mut tx = self.write().await?;
        audit::append(&mut tx, &self.seal, slice::from_ref(note)).await?;
        Ok(tx)
    }

    /// Begins a change of what gateways hold in memory, and notes it in the audit: neither exists without the other.
    async fn change(&self, note: &AuditNote) -> Result<ChangeTx, StoreError> {
        let mut tx = self.own_change().await?;
        audit::append(&mut tx, &self.seal, slice::from_ref(note)).await?;
        Ok(tx)
    }

    /// Begins a change that the gateway makes for itself, and that is not noted: the mode of a new database in development,
    /// the lists of a server (those that it changes are summed, and noted apart), renewed grants, credentials that
    /// expired, and the steps of replacing the key. The same holds for what is written with [`Store::write`]: heartbeats,
    /// leases, homes, quotas, ended sessions, the states of authorizations, rotated refresh tokens, when credentials were
    /// last used, and what is cleaned up.
    async fn own_change(&self) -> Result<ChangeTx, StoreError> {
        ChangeTx::begin(self.database.begin(TxMode::Write).await?, &self.latest_epoch).await
    }
}
