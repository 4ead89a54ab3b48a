//! Opens and closes a database: the lock first, then the key, then SQLite, and only then its tables.
//! Everything that can be wrong with the place or the key is found here, before the gateway starts.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::db::Database;
use super::failure;
use super::health::HealthSender;
use super::key::{self, KeyOrigin};
use super::sqlite::Sqlite;
use super::tokens::TokenColumns;
use super::{Store, StoreError, lock, migrate};
use model::Secret;
use seal::Seal;

#[derive(Debug)]
pub struct OpenOptions {
    pub path: PathBuf,
    /// The value of TOOLGATE_SECRET_KEY; without it the key is in a file beside the database.
    pub secret_key: Option<Secret>,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    #[error("database {} is in use by another toolgate process", database.display())]
    InUse { database: PathBuf },
    #[error(
        "directory {} of database {} does not exist; create it first",
        directory.display(), database.display()
    )]
    NoDirectory { directory: PathBuf, database: PathBuf },
    #[error("there is no database {}; name it with --sqlite-db-path or SQLITE_DB_PATH", path.display())]
    Missing { path: PathBuf },
    #[error("cannot use {}: {cause}", path.display())]
    Unusable { path: PathBuf, cause: io::Error },
    #[error("{} is not a SQLite database", path.display())]
    NotADatabase { path: PathBuf },
    #[error("database {} was written by a newer version of toolgate; start that version", database.display())]
    Newer { database: PathBuf },
    #[error(
        "database {} holds data, but its key file {} is {problem}; restore the file or set TOOLGATE_SECRET_KEY",
        database.display(), key_file.display()
    )]
    KeyMissing { database: PathBuf, key_file: PathBuf, problem: &'static str },
    #[error("the secret key in {origin} must be 64 hexadecimal characters")]
    KeyMalformed { origin: KeyOrigin },
    #[error(
        "the secret key does not fit this database: {} was sealed with another one than that in {origin}",
        database.display()
    )]
    KeyMismatch { database: PathBuf, origin: KeyOrigin },
    #[error(
        "database {} is damaged ({cause}); `toolgate check` says more, and a copy made by `toolgate backup` \
         can take its place",
        database.display()
    )]
    Damaged { database: PathBuf, cause: String },
    #[error("cannot open database {}: {}", database.display(), failure::describe(cause))]
    Database { database: PathBuf, cause: sqlx::Error },
    #[error("cannot read database {}: {cause}", database.display())]
    Content { database: PathBuf, cause: StoreError },
}

impl OpenStoreError {
    pub(super) fn from_sqlx(database: &Path, cause: sqlx::Error) -> Self {
        let database = database.to_owned();
        match failure::is_damage(&cause) {
            true => OpenStoreError::Damaged { database, cause: failure::describe(&cause) },
            false => OpenStoreError::Database { database, cause },
        }
    }
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

    /// Writes everything back into the one database file and lets another gateway have it.
    /// Whatever is asked of the store afterwards fails.
    pub async fn close(&self) {
        self.database.close().await;
        if let Some(Err(error)) = self.lock.as_ref().map(File::unlock) {
            tracing::warn!(%error, "the lock of the database stays until the process ends");
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
