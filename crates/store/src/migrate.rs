//! Migrates the tables of a database to this version. A migration that has been released never changes again: its
//! checksum is in every database that ran it.

use std::path::Path;

use sqlx::SqlSafeStr;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};

use super::db::Database;
use super::open_error::OpenStoreError;

/// Version, name and SQL of a migration.
type MigrationText = (i64, &'static str, &'static str);

pub(super) const MIGRATIONS: [MigrationText; 9] = [
    (1, "servers", include_str!("../../../migrations/0001_servers.sql")),
    (2, "groups", include_str!("../../../migrations/0002_groups.sql")),
    (3, "users", include_str!("../../../migrations/0003_users.sql")),
    (4, "oauth", include_str!("../../../migrations/0004_oauth.sql")),
    (5, "principals", include_str!("../../../migrations/0005_principals.sql")),
    (6, "authorizations", include_str!("../../../migrations/0006_authorizations.sql")),
    (7, "retired tokens", include_str!("../../../migrations/0007_retired_tokens.sql")),
    (8, "rate limits", include_str!("../../../migrations/0008_rate_limits.sql")),
    (9, "meta", include_str!("../../../migrations/0009_meta.sql")),
];

pub(super) async fn run(store: &Database, database: &Path) -> Result<(), OpenStoreError> {
    let migrator = migrator(&MIGRATIONS);
    let ran = match store {
        Database::Sqlite(sqlite) => {
            let run =
                sqlite.with_connection(async |connection| migrator.run_direct(None, connection, false).await);
            run.await.unwrap_or_else(|error| Err(MigrateError::Execute(error)))
        }
    };
    ran.map_err(|error| match error {
        MigrateError::VersionMissing(_) => OpenStoreError::Newer { database: database.to_owned() },
        MigrateError::Execute(cause) => OpenStoreError::from_sqlx(database, cause),
        // The enum is not ours and may grow; a retry does not help with any other error.
        other => OpenStoreError::Database {
            database: database.to_owned(),
            cause: sqlx::Error::Migrate(other.into()),
        },
    })
}

pub(super) fn migrator(texts: &[MigrationText]) -> Migrator {
    let migration = |&(version, name, sql): &MigrationText| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    };
    Migrator::with_migrations(texts.iter().map(migration).collect())
}
