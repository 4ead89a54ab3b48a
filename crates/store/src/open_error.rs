//! Why a database cannot be opened: errors about its path, its key and its content.

use std::path::PathBuf;
use std::{fmt, io};

use super::address::{DatabaseAddress, PostgresAddress};
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
    #[error("database {database} was written by a newer version of toolgate; start that version")]
    Newer { database: String },
    #[error(
        "database {database} was written by an older version of toolgate; start the gateway once, which updates it"
    )]
    Older { database: String },
    #[error("database {database} needs toolgate {needed} or newer, and this is {}; install a newer version", env!("CARGO_PKG_VERSION"))]
    Unsupported { database: String, needed: String },
    #[error(
        "database {database} needs a secret key that all gateways on it share: set TOOLGATE_SECRET_KEY to 64 hexadecimal \
         characters, such as `openssl rand -hex 32` prints"
    )]
    KeyRequired { database: String },
    #[error(
        "database {database} cannot be reached: {}; check that Postgres runs there",
        failure::describe(cause)
    )]
    Unreachable { database: String, cause: sqlx::Error },
    #[error(
        "Postgres refused the user or the password of {database}: {}; check DATABASE_URL or POSTGRES_*",
        failure::describe(cause)
    )]
    Refused { database: String, cause: sqlx::Error },
    #[error(
        "there is no TLS connection to {database}: {}; check sslmode and sslrootcert in DATABASE_URL",
        failure::describe(cause)
    )]
    NoTls { database: String, cause: sqlx::Error },
    #[error(
        "the user of {database} may not use it: {}; make that user the owner of the database",
        failure::describe(cause)
    )]
    NotAllowed { database: String, cause: sqlx::Error },
    #[error("there is no database {database}; create it first, such as with `createdb`")]
    NoDatabase { database: String },
    #[error("{database} is on Postgres {version}; version 13 or newer is needed")]
    OldServer { database: String, version: i32 },
    #[error(
        "database {} holds data, but its key file {} is {problem}; restore the file or set TOOLGATE_SECRET_KEY",
        database.display(), key_file.display()
    )]
    KeyMissing { database: PathBuf, key_file: PathBuf, problem: &'static str },
    #[error("the secret key in {origin} must be 64 hexadecimal characters")]
    KeyMalformed { origin: KeyOrigin },
    #[error(
        "the secret key does not match this database: {database} was encrypted with a different key than the one in {origin}; \
         {}", .origin.advice()
    )]
    KeyMismatch { database: String, origin: KeyOrigin },
    #[error(
        "database {database} is damaged ({cause}); `toolgate check` lists the problems; a copy made by \
         `toolgate backup` can replace it"
    )]
    Damaged { database: String, cause: String },
    #[error("cannot open database {database}: {}", failure::describe(cause))]
    Database { database: String, cause: sqlx::Error },
    #[error("cannot read database {database}: {cause}")]
    Content { database: String, cause: StoreError },
}

impl OpenStoreError {
    pub(super) fn from_sqlx(database: &DatabaseAddress, cause: sqlx::Error) -> Self {
        let database = database.to_string();
        match failure::sql_state(&cause).as_deref() {
            Some("42501") => OpenStoreError::NotAllowed { database, cause },
            _ if failure::is_damage(&cause) => {
                OpenStoreError::Damaged { database, cause: failure::describe(&cause) }
            }
            _ => OpenStoreError::Database { database, cause },
        }
    }

    /// Why a server does not let us use a database.
    pub(super) fn of_server(address: &PostgresAddress, cause: sqlx::Error) -> Self {
        let database = address.to_string();
        match failure::sql_state(&cause).as_deref() {
            Some("28000" | "28P01") => OpenStoreError::Refused { database, cause },
            Some("3D000") => OpenStoreError::NoDatabase { database },
            Some("42501") => OpenStoreError::NotAllowed { database, cause },
            _ if matches!(cause, sqlx::Error::Tls(_)) => OpenStoreError::NoTls { database, cause },
            _ if failure::is_passing(&cause) => OpenStoreError::Unreachable { database, cause },
            _ => OpenStoreError::Database { database, cause },
        }
    }
}

/// Where a key came from, for error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOrigin {
    Environment,
    /// A flag of the command line.
    Argument(&'static str),
    File(PathBuf),
}

impl KeyOrigin {
    /// How to give another key.
    fn advice(&self) -> String {
        match self {
            KeyOrigin::Environment | KeyOrigin::File(_) => "set TOOLGATE_SECRET_KEY to that key".to_owned(),
            KeyOrigin::Argument(flag) => format!("give that key with {flag}"),
        }
    }
}

impl fmt::Display for KeyOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyOrigin::Environment => f.write_str("TOOLGATE_SECRET_KEY"),
            KeyOrigin::Argument(flag) => f.write_str(flag),
            KeyOrigin::File(path) => write!(f, "key file {}", path.display()),
        }
    }
}
