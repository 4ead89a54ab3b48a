//! Classifies the errors of databases: damage, a failing disk, a failed commit that may have left residue, a server that
//! cannot be reached now.

use sqlx::postgres::PgDatabaseError;
use sqlx::sqlite::SqliteError;

/// The extended result code of SQLite, if the error comes from SQLite.
fn extended_code(error: &sqlx::Error) -> Option<u32> {
    let sqlx::Error::Database(error) = error else { return None };
    error.try_downcast_ref::<SqliteError>()?;
    error.code()?.parse().ok()
}

/// The primary result code of SQLite, if the error comes from SQLite.
fn result_code(error: &sqlx::Error) -> Option<u32> {
    extended_code(error).map(|code| code & 0xff)
}

/// Whether a COMMIT that failed with this error may have written all its pages. The page that makes them valid is
/// written last: it is missing if a write failed, and present if only the sync after it failed.
pub(super) fn may_leave_residue(error: &sqlx::Error) -> bool {
    const SQLITE_FULL: u32 = 13;
    const SQLITE_IOERR_WRITE: u32 = 10 | (3 << 8);
    !matches!(extended_code(error), Some(SQLITE_FULL | SQLITE_IOERR_WRITE))
}

/// Whether the file contains data that SQLite did not write.
pub(super) fn is_damage(error: &sqlx::Error) -> bool {
    const SQLITE_CORRUPT: u32 = 11;
    const SQLITE_NOTADB: u32 = 26;
    matches!(result_code(error), Some(SQLITE_CORRUPT | SQLITE_NOTADB))
}

/// Whether the disk is full, or reading or writing failed.
pub(super) fn is_disk_failure(error: &sqlx::Error) -> bool {
    const SQLITE_IOERR: u32 = 10;
    const SQLITE_FULL: u32 = 13;
    const SQLITE_CANTOPEN: u32 = 14;
    matches!(result_code(error), Some(SQLITE_IOERR | SQLITE_FULL | SQLITE_CANTOPEN))
}

/// The code of an error of Postgres.
pub(super) fn sql_state(error: &sqlx::Error) -> Option<String> {
    let sqlx::Error::Database(error) = error else { return None };
    error.try_downcast_ref::<PgDatabaseError>()?;
    error.code().map(|code| code.into_owned())
}

/// Whether a database server cannot be reached now, and may be later.
pub(super) fn is_passing(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => true,
        // A proxy that has no server to connect to closes the connection in the handshake.
        sqlx::Error::Protocol(_) => true,
        // Connection failures, too many connections, and a server that starts or stops.
        other => sql_state(other).is_some_and(|state| {
            state.starts_with("08") || ["53300", "57P01", "57P02", "57P03"].contains(&&*state)
        }),
    }
}

/// The error message, without the text that sqlx adds around it.
pub fn describe(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => error.message().to_owned(),
        sqlx::Error::Io(error) => error.to_string(),
        sqlx::Error::Tls(error) => error.to_string(),
        sqlx::Error::Protocol(_) => "it does not answer as Postgres does".into(),
        other => other.to_string(),
    }
}
