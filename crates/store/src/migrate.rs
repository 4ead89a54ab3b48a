//! Migrates the tables of a database to this version. A migration that has been released never changes again: its
//! checksum is in every database that ran it.

use sqlx::SqlSafeStr;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};

use super::address::DatabaseAddress;
use super::admission;
use super::db::{Database, Tx, on};
use super::open_error::{KeyOrigin, OpenStoreError};
use super::tx_mode::TxMode;
use seal::Seal;

/// Version, name and SQL of a migration.
type MigrationText = (i64, &'static str, &'static str);

pub(super) const MIGRATIONS: [MigrationText; 19] = [
    (1, "servers", include_str!("../../../migrations/0001_servers.sql")),
    (2, "groups", include_str!("../../../migrations/0002_groups.sql")),
    (3, "users", include_str!("../../../migrations/0003_users.sql")),
    (4, "oauth", include_str!("../../../migrations/0004_oauth.sql")),
    (5, "principals", include_str!("../../../migrations/0005_principals.sql")),
    (6, "authorizations", include_str!("../../../migrations/0006_authorizations.sql")),
    (7, "retired tokens", include_str!("../../../migrations/0007_retired_tokens.sql")),
    (8, "rate limits", include_str!("../../../migrations/0008_rate_limits.sql")),
    (9, "meta", include_str!("../../../migrations/0009_meta.sql")),
    (10, "changes", include_str!("../../../migrations/0010_changes.sql")),
    (11, "renewals", include_str!("../../../migrations/0011_renewals.sql")),
    (12, "replicas", include_str!("../../../migrations/0012_replicas.sql")),
    (13, "leases", include_str!("../../../migrations/0013_leases.sql")),
    (14, "quotas", include_str!("../../../migrations/0014_quotas.sql")),
    (15, "keys", include_str!("../../../migrations/0015_keys.sql")),
    (16, "homes", include_str!("../../../migrations/0016_homes.sql")),
    (18, "audit", include_str!("../../../migrations/0018_audit.sql")),
    (19, "identity", include_str!("../../../migrations/0019_identity.sql")),
    (20, "oauth", include_str!("../../../migrations/0020_oauth.sql")),
];

/// The tables of records. On a server they are beside all others; on SQLite they have a file of their own.
pub(super) const RECORDS: [MigrationText; 2] = [
    (17, "calls", include_str!("../../../migrations/0017_calls.sql")),
    (21, "owners of calls", include_str!("../../../migrations/0021_owners_of_calls.sql")),
];

/// Taken by whoever migrates a database on a server, so that many gateways can start at once.
const LOCK: i64 = 0x746f_6f6c_6761_7465;
const TAKE_LOCK: &str = "SELECT pg_advisory_xact_lock($1)";

/// Migrates a database that may be used. On a server that is checked again, within the lock: another gateway may have migrated
/// it meanwhile.
pub(super) async fn run(
    store: &Database,
    address: &DatabaseAddress,
    seal: &Seal,
    origin: &KeyOrigin,
) -> Result<(), OpenStoreError> {
    let Database::Sqlite(sqlite) = store else {
        let begun = store.begin(TxMode::Write).await;
        let mut tx = begun.map_err(|cause| OpenStoreError::from_sqlx(address, cause))?;
        return match run_locked(&mut tx, address, seal, origin).await {
            Ok(()) => {
                let committed = tx.commit().await;
                committed.map_err(|cause| OpenStoreError::Content { database: address.to_string(), cause })
            }
            Err(error) => {
                tx.roll_back().await;
                Err(error)
            }
        };
    };
    let migrator = migrator(&MIGRATIONS);
    let run = sqlite.with_connection(async |connection| migrator.run_direct(None, connection, false).await);
    let ran = run.await.unwrap_or_else(|error| Err(MigrateError::Execute(error)));
    ran.map_err(|error| failed(address, error))
}

/// Runs all migrations in one transaction. The lock ends with it, also behind a pooler that shares connections.
async fn run_locked(
    tx: &mut Tx,
    address: &DatabaseAddress,
    seal: &Seal,
    origin: &KeyOrigin,
) -> Result<(), OpenStoreError> {
    // The table of migrations is usually there, which Postgres remarks.
    const QUIET: &str = "SET LOCAL client_min_messages = warning";
    let quieted = on!(tx, |db| sqlx::raw_sql(QUIET).execute(db).await.map(|_| ()));
    quieted.map_err(|cause| OpenStoreError::from_sqlx(address, cause))?;
    take_lock(tx, address).await?;
    admission::check(tx, address, seal, origin).await?;
    let mut migrator = migrator_within(tx);
    // A newer gateway may have run further ones: each keeps the version before it working.
    migrator.set_ignore_missing(true);
    run_in(tx, &migrator, address).await
}

/// Runs the migrations as a part of a transaction. On a server, gateways that start meanwhile wait for its end.
pub(super) async fn run_within(tx: &mut Tx, address: &DatabaseAddress) -> Result<(), OpenStoreError> {
    if matches!(tx, Tx::Postgres(_)) {
        admission::check_version(tx, address).await?;
        take_lock(tx, address).await?;
    }
    run_in(tx, &migrator_within(tx), address).await
}

async fn take_lock(tx: &mut Tx, address: &DatabaseAddress) -> Result<(), OpenStoreError> {
    let taken = on!(tx, |db| sqlx::query(TAKE_LOCK).bind(LOCK).execute(db).await.map(|_| ()));
    taken.map_err(|cause| OpenStoreError::from_sqlx(address, cause))
}

async fn run_in(tx: &mut Tx, migrator: &Migrator, address: &DatabaseAddress) -> Result<(), OpenStoreError> {
    let ran = match tx {
        Tx::Sqlite(tx) => migrator.run_direct(None, tx.connection(), false).await,
        Tx::Postgres(tx) => migrator.run_direct(None, tx.connection(), false).await,
    };
    ran.map_err(|error| failed(address, error))
}

fn failed(address: &DatabaseAddress, error: MigrateError) -> OpenStoreError {
    match error {
        MigrateError::VersionMissing(_) => OpenStoreError::Newer { database: address.to_string() },
        MigrateError::Execute(cause) => OpenStoreError::from_sqlx(address, cause),
        // The enum is not ours and may grow; a retry does not help with any other error.
        other => OpenStoreError::Database {
            database: address.to_string(),
            cause: sqlx::Error::Migrate(other.into()),
        },
    }
}

/// Migrations that are a part of a transaction.
fn migrator_within(tx: &Tx) -> Migrator {
    let mut migrator = match tx {
        Tx::Sqlite(_) => migrator(&MIGRATIONS),
        Tx::Postgres(_) => migrator(&[&MIGRATIONS[..], &RECORDS].concat()),
    };
    for migration in migrator.migrations.to_mut() {
        migration.no_tx = true;
    }
    migrator.set_locking(false);
    migrator
}

pub(super) fn migrator(texts: &[MigrationText]) -> Migrator {
    let migration = |&(version, name, sql): &MigrationText| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    };
    Migrator::with_migrations(texts.iter().map(migration).collect())
}
