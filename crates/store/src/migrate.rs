//! Brings the tables of a database to the shape this version knows. A text that has been released never
//! changes again: its checksum is in every database that ran it.

use std::path::Path;

use sqlx::SqlSafeStr;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};

use super::OpenError;
use super::db::Database;

const MIGRATIONS: [(i64, &str, &str); 5] = [
    (1, "servers", include_str!("../../../migrations/0001_servers.sql")),
    (2, "groups", include_str!("../../../migrations/0002_groups.sql")),
    (3, "users", include_str!("../../../migrations/0003_users.sql")),
    (4, "oauth", include_str!("../../../migrations/0004_oauth.sql")),
    (5, "principals", include_str!("../../../migrations/0005_principals.sql")),
];

pub(super) async fn run(store: &Database, database: &Path) -> Result<(), OpenError> {
    let migrations = MIGRATIONS.map(|(version, name, sql)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    });
    let migrator = Migrator::with_migrations(migrations.into());
    let ran = match store {
        Database::Sqlite(sqlite) => {
            let run =
                sqlite.with_connection(async |connection| migrator.run_direct(None, connection, false).await);
            run.await.unwrap_or_else(|error| Err(MigrateError::Execute(error)))
        }
    };
    ran.map_err(|error| match error {
        MigrateError::VersionMissing(_) => OpenError::Newer { database: database.to_owned() },
        MigrateError::Execute(cause) => OpenError::from_sqlx(database, cause),
        // The enum is not ours and may grow; all the rest cannot be mended by trying again.
        other => {
            OpenError::Database { database: database.to_owned(), cause: sqlx::Error::Migrate(other.into()) }
        }
    })
}
