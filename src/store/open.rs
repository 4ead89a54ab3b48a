//! Opens and closes a database: the lock first, then the key, then SQLite, and only then its tables.
//! Everything that can be wrong with the place or the key is found here, before the gateway starts.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use super::db::Pool;
use super::key::{self, KeyOrigin};
use super::tokens::Tokens;
use super::{Store, StoreError, lock, migrate};
use crate::model::Secret;
use crate::seal::Seal;

/// SQLite's result code for a file that something else wrote.
const SQLITE_NOTADB: &str = "26";

#[derive(Debug)]
pub struct OpenOptions {
    pub path: PathBuf,
    /// The value of TOOLGATE_SECRET_KEY; without it the key is in a file beside the database.
    pub secret_key: Option<Secret>,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("database {} is in use by another toolgate process", database.display())]
    InUse { database: PathBuf },
    #[error(
        "directory {} of database {} does not exist; create it first",
        directory.display(), database.display()
    )]
    NoDirectory { directory: PathBuf, database: PathBuf },
    #[error("cannot use {}: {cause}", path.display())]
    Unusable { path: PathBuf, cause: io::Error },
    #[error("{} is not a SQLite database", path.display())]
    NotADatabase { path: PathBuf },
    #[error("database {} was written by a newer version of toolgate; start that version", database.display())]
    Newer { database: PathBuf },
    #[error(
        "database {} holds data, but its key file {} is missing; restore the file or set TOOLGATE_SECRET_KEY",
        database.display(), key_file.display()
    )]
    KeyMissing { database: PathBuf, key_file: PathBuf },
    #[error("the secret key in {origin} must be 64 hexadecimal characters")]
    KeyMalformed { origin: KeyOrigin },
    #[error(
        "the secret key does not fit this database: {} was sealed with another one than that in {origin}",
        database.display()
    )]
    KeyMismatch { database: PathBuf, origin: KeyOrigin },
    #[error("cannot open database {}: {cause}", database.display())]
    Database { database: PathBuf, cause: sqlx::Error },
    #[error("cannot read database {}: {cause}", database.display())]
    Content { database: PathBuf, cause: StoreError },
}

impl OpenError {
    pub(super) fn from_sqlx(database: &Path, cause: sqlx::Error) -> Self {
        match &cause {
            sqlx::Error::Database(error) if error.code().as_deref() == Some(SQLITE_NOTADB) => {
                OpenError::NotADatabase { path: database.to_owned() }
            }
            _ => OpenError::Database { database: database.to_owned(), cause },
        }
    }
}

impl Store {
    pub async fn open(options: OpenOptions) -> Result<Store, OpenError> {
        let database = lock::locate(&options.path)?;
        let lock = lock::take(&database)?;
        let contents = lock::prepare(&database)?;
        let given = options.secret_key.as_ref().map(Secret::expose);
        let (key, origin) = key::load(given, &database, contents)?;
        let pool = connect(&database).await.map_err(|cause| OpenError::from_sqlx(&database, cause))?;
        let seal = Seal::new(&key);
        let store = Store { pool, tokens: Tokens::new(&seal), seal, lock };
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
        match &self.pool {
            // The last connection to close moves the log into the database and removes it.
            Pool::Sqlite(pool) => pool.close().await,
        }
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, "the lock of the database stays until the process ends");
        }
    }

    async fn make_ready(&self, database: &Path, origin: KeyOrigin) -> Result<(), OpenError> {
        migrate::run(&self.pool, database).await?;
        match self.key_fits().await {
            Ok(true) => Ok(()),
            Ok(false) => Err(OpenError::KeyMismatch { database: database.to_owned(), origin }),
            Err(cause) => Err(OpenError::Content { database: database.to_owned(), cause }),
        }
    }
}

/// One connection: SQLite has one writer at a time anyway, and reads are rare and short.
async fn connect(database: &Path) -> Result<Pool, sqlx::Error> {
    let options = SqliteConnectOptions::new()
        .filename(database)
        .journal_mode(SqliteJournalMode::Wal)
        // An answered write must survive a power cut.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(5));
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .connect_with(options);
    pool.await.map(Pool::Sqlite)
}
