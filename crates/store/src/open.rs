//! Opens and closes a database. A file: the lock first, then the key, then SQLite, and only then its tables. A server: the
//! key, then the connection, then its tables. Every problem with the address or the key is found here, before the tables are
//! migrated and the gateway starts.

use std::fs::File;
use std::path::Path;

use super::address::{DatabaseAddress, PostgresAddress};
use super::db::Database;
use super::health::HealthSender;
use super::open_error::{KeyOrigin, OpenStoreError};
use super::postgres::Postgres;
use super::sqlite::Sqlite;
use super::tokens::TokenColumns;
use super::tx_mode::TxMode;
use super::{CurrentUse, Store, StoreError, admission, key, lock, migrate};
use model::Secret;
use seal::{Seal, SecretKey};

#[derive(Debug)]
pub struct OpenOptions {
    pub database: DatabaseAddress,
    /// The value of TOOLGATE_SECRET_KEY; without it the key is in a file next to the database, if that is a file.
    pub secret_key: Option<Secret>,
}

/// A database whose tables have not been looked at.
struct Opened {
    database: Database,
    address: DatabaseAddress,
    health: HealthSender,
    key: SecretKey,
    origin: KeyOrigin,
    lock: Option<File>,
}

/// An open database that this program may use. Its tables may be those of an older version.
#[derive(Debug)]
pub struct UnmigratedStore {
    store: Store,
    address: DatabaseAddress,
    origin: KeyOrigin,
}

impl UnmigratedStore {
    /// Opens a database. Nothing in it is changed.
    pub async fn open(options: OpenOptions) -> Result<Self, OpenStoreError> {
        let given = options.secret_key.as_ref().map(Secret::expose);
        let opened = match &options.database {
            DatabaseAddress::File(path) => open_file(path, given).await?,
            DatabaseAddress::Postgres(address) => open_server(address, given).await?,
        };
        let Opened { database, address, health, key, origin, lock } = opened;
        let seal = Seal::new(&key);
        let store = Store {
            database,
            health,
            tokens: TokenColumns::new(&seal),
            seal,
            lock,
            latest_epoch: Default::default(),
        };
        let opened = Self { store, address, origin };
        match opened.check().await {
            Ok(()) => Ok(opened),
            Err(error) => {
                opened.close().await;
                Err(error)
            }
        }
    }

    pub async fn current_use(&self) -> Result<CurrentUse, StoreError> {
        self.store.current_use().await
    }

    /// Migrates its tables to this version.
    pub async fn migrate(self) -> Result<Store, OpenStoreError> {
        match self.make_ready().await {
            Ok(()) => Ok(self.store),
            Err(error) => {
                self.close().await;
                Err(error)
            }
        }
    }

    pub async fn close(&self) {
        self.store.close().await;
    }

    async fn check(&self) -> Result<(), OpenStoreError> {
        let begun = self.store.database.begin(TxMode::Read).await;
        let mut tx = begun.map_err(|cause| OpenStoreError::from_sqlx(&self.address, cause))?;
        admission::check(&mut tx, &self.address, &self.store.seal, &self.origin).await?;
        tx.commit().await.map_err(|cause| self.unreadable(cause))
    }

    async fn make_ready(&self) -> Result<(), OpenStoreError> {
        let Self { store, address, origin } = self;
        migrate::run(&store.database, address, &store.seal, origin).await?;
        match store.key_fits().await {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(OpenStoreError::KeyMismatch { database: address.to_string(), origin: origin.clone() })
            }
            Err(cause) => Err(self.unreadable(cause)),
        }
    }

    fn unreadable(&self, cause: StoreError) -> OpenStoreError {
        OpenStoreError::Content { database: self.address.to_string(), cause }
    }
}

impl Store {
    /// Opens a database and migrates its tables to this version.
    pub async fn open(options: OpenOptions) -> Result<Store, OpenStoreError> {
        UnmigratedStore::open(options).await?.migrate().await
    }

    /// Closes the database, and releases the lock of a file for another gateway, with all data in that single file. Later
    /// calls of the store fail.
    pub async fn close(&self) {
        self.database.close().await;
        if let Some(Err(error)) = self.lock.as_ref().map(File::unlock) {
            tracing::warn!(%error, "the database stays locked until the process ends");
        }
    }
}

async fn open_file(path: &Path, given: Option<&str>) -> Result<Opened, OpenStoreError> {
    let path = lock::locate(path)?;
    let lock = lock::take(&path)?;
    let contents = lock::prepare(&path)?;
    let (key, origin) = key::load(given, &path, contents)?;
    let health = HealthSender::default();
    let sqlite = Sqlite::open(&path, health.clone()).await;
    let address = DatabaseAddress::File(path);
    let sqlite = sqlite.map_err(|cause| OpenStoreError::from_sqlx(&address, cause))?;
    Ok(Opened { database: Database::Sqlite(sqlite), address, health, key, origin, lock: Some(lock) })
}

async fn open_server(address: &PostgresAddress, given: Option<&str>) -> Result<Opened, OpenStoreError> {
    let required = || OpenStoreError::KeyRequired { database: address.to_string() };
    let (key, origin) = key::given(given.ok_or_else(required)?, KeyOrigin::Environment)?;
    let health = HealthSender::default();
    let postgres = Postgres::open(address, health.clone()).await?;
    let address = DatabaseAddress::Postgres(Box::new(address.clone()));
    Ok(Opened { database: Database::Postgres(postgres), address, health, key, origin, lock: None })
}
