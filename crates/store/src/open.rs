//! Opens and closes a database: the lock first, then the key, then SQLite, and only then its tables. Every problem with
//! the path or the key is found here, before the gateway starts.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::db::Database;
use super::health::HealthSender;
use super::open_error::{KeyOrigin, OpenStoreError};
use super::sqlite::Sqlite;
use super::tokens::TokenColumns;
use super::{Store, key, lock, migrate};
use model::Secret;
use seal::Seal;

#[derive(Debug)]
pub struct OpenOptions {
    pub path: PathBuf,
    /// The value of TOOLGATE_SECRET_KEY; without it the key is in a file next to the database.
    pub secret_key: Option<Secret>,
}

impl Store {
    pub async fn open(options: OpenOptions) -> Result<Store, OpenStoreError> {
        let database = lock::locate(&options.path)?;
        let lock = lock::take(&database)?;
        let contents = lock::prepare(&database)?;
        let given = options.secret_key.as_ref().map(Secret::expose);
        let (key, origin) = key::load(given, &database, contents)?;
        let health = HealthSender::default();
        let opened = Sqlite::open(&database, health.clone()).await;
        let opened = opened.map_err(|cause| OpenStoreError::from_sqlx(&database, cause))?;
        let seal = Seal::new(&key);
        let store = Store {
            database: Database::Sqlite(opened),
            health,
            tokens: TokenColumns::new(&seal),
            seal,
            lock: Some(lock),
        };
        match store.make_ready(&database, origin).await {
            Ok(()) => Ok(store),
            Err(error) => {
                store.close().await;
                Err(error)
            }
        }
    }

    /// Moves all data into the single database file and releases the lock for another gateway. Later calls of the store
    /// fail.
    pub async fn close(&self) {
        self.database.close().await;
        if let Some(Err(error)) = self.lock.as_ref().map(File::unlock) {
            tracing::warn!(%error, "the database stays locked until the process ends");
        }
    }

    async fn make_ready(&self, database: &Path, origin: KeyOrigin) -> Result<(), OpenStoreError> {
        migrate::run(&self.database, database).await?;
        match self.key_fits().await {
            Ok(true) => Ok(()),
            Ok(false) => Err(OpenStoreError::KeyMismatch { database: database.to_owned(), origin }),
            Err(cause) => Err(OpenStoreError::Content { database: database.to_owned(), cause }),
        }
    }
}
