//! Why a database cannot be opened: errors about its path, its key and its content.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use super::{StoreError, failure};

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
        "the secret key does not match this database: {} was encrypted with a different key than the one in {origin}",
        database.display()
    )]
    KeyMismatch { database: PathBuf, origin: KeyOrigin },
    #[error(
        "database {} is damaged ({cause}); `toolgate check` lists the problems; a copy made by \
         `toolgate backup` can replace it",
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

/// Where a key came from, for error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOrigin {
    Environment,
    File(PathBuf),
}

impl fmt::Display for KeyOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyOrigin::Environment => f.write_str("TOOLGATE_SECRET_KEY"),
            KeyOrigin::File(path) => write!(f, "key file {}", path.display()),
        }
    }
}
