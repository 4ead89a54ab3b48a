//! The connection to a SQLite database: one at a time, and not used again after any failure.
//!
//! SQLite may roll a transaction back by itself, so after a failure the state of a connection is unknown. A transaction
//! that does not end with a successful COMMIT therefore retires its connection. The failed connection stays open until
//! its replacement is attached: the first connection to a database reads the log from the beginning, and would then
//! find what a failed COMMIT wrote.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteLockingMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::address::DatabaseAddress;
use super::epoch::BUMP_EPOCH;
use super::failure::{describe, is_disk_failure, may_leave_residue};
use super::health::HealthSender;
use super::open_error::OpenStoreError;
use super::tx_mode::TxMode;
use super::{StoreError, lock};

/// How long a statement waits for a lock that another process holds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The pauses between attempts to overwrite the residue of a failed commit.
const TAKING_BACK: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(200), Duration::from_millis(750)];

/// A database and its current connection.
#[derive(Clone, Debug)]
pub(super) struct Sqlite {
    options: Arc<SqliteConnectOptions>,
    slot: Arc<Mutex<ConnectionSlot>>,
    health: HealthSender,
}

#[derive(Debug, Default)]
struct ConnectionSlot {
    live: Option<SqliteConnection>,
    /// `live` was opened on a disk without room for the shared-memory file of the log. It can read, not write.
    is_restricted: bool,
    /// A failed connection, kept until another one is attached.
    retired: Option<SqliteConnection>,
    /// A COMMIT failed, and what it wrote may still be in the log. Another commit overwrites it.
    has_residue: bool,
    is_closed: bool,
}

impl Sqlite {
    /// Opens the database. If the disk has no room for that, a connection that only reads is enough.
    pub(super) async fn open(database: &Path, health: HealthSender) -> Result<Self, sqlx::Error> {
        // A confirmed write must survive a power cut.
        Self::open_with(database, SqliteSynchronous::Full, health).await
    }

    /// The same for records: what was written last may be lost in a power cut, but not if this process is killed.
    pub(super) async fn open_records(file: &Path, health: HealthSender) -> Result<Self, sqlx::Error> {
        Self::open_with(file, SqliteSynchronous::Normal, health).await
    }

    async fn open_with(
        file: &Path,
        synchronous: SqliteSynchronous,
        health: HealthSender,
    ) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(synchronous)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT);
        let mut slot = ConnectionSlot::default();
        match attach(&options).await {
            Ok(connection) => slot.live = Some(connection),
            Err(error) if is_disk_failure(&error) => {
                slot.open_restricted(&options).await.map_err(|_| error)?;
            }
            Err(error) => return Err(error),
        }
        Ok(Self { options: Arc::new(options), slot: Arc::new(Mutex::new(slot)), health })
    }

    /// Opens an existing database only to read it, and returns its real path too. A gateway may have it open.
    pub(super) async fn open_to_read(path: &Path) -> Result<(PathBuf, Self), OpenStoreError> {
        if !path.exists() {
            return Err(OpenStoreError::Missing { path: path.to_owned() });
        }
        let database = lock::locate(path)?;
        let options = SqliteConnectOptions::new()
            .filename(&database)
            .read_only(true)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT);
        let attached = match attach(&options).await {
            // Nothing can be written in the directory, so no other process writes to the database either.
            Err(error) if is_disk_failure(&error) => attach(&options.clone().immutable(true)).await,
            attached => attached,
        };
        let failed = |cause| OpenStoreError::from_sqlx(&DatabaseAddress::File(database.clone()), cause);
        let connection = attached.map_err(failed)?;
        let slot = ConnectionSlot { live: Some(connection), ..ConnectionSlot::default() };
        let health = HealthSender::default();
        Ok((database, Self { options: Arc::new(options), slot: Arc::new(Mutex::new(slot)), health }))
    }

    pub(super) fn path(&self) -> &Path {
        self.options.get_filename()
    }

    /// The first column of the rows that a statement returns.
    pub(super) async fn rows(&self, sql: &'static str) -> Result<Vec<String>, sqlx::Error> {
        let rows = self.with_connection(async |db| sqlx::query_scalar(sql).fetch_all(db).await);
        rows.await?
    }

    /// Writes a consistent copy into an empty file.
    pub(super) async fn copy_to(&self, file: &str) -> Result<(), sqlx::Error> {
        let copy =
            async |db: &mut SqliteConnection| sqlx::query("VACUUM INTO $1").bind(file).execute(db).await;
        self.with_connection(copy).await?.map(|_| ())
    }

    pub(super) async fn begin(&self, mode: TxMode) -> Result<SqliteTx, sqlx::Error> {
        let begun = Instant::now();
        let mut slot = self.slot.clone().lock_owned().await;
        if let Err(error) = slot.prepare(&self.options, mode).await {
            if mode == TxMode::Write {
                self.health.fail(&error);
            }
            return Err(error);
        }
        let mut tx = SqliteTx { database: self.clone(), slot, mode, begun, state: TxState::Open };
        let begin = match mode {
            TxMode::Read => "BEGIN",
            // Takes the write lock at once, so that no other process writes between our reads and writes.
            TxMode::Write => "BEGIN IMMEDIATE",
        };
        let result = sqlx::raw_sql(begin).execute(tx.connection()).await;
        tx.note(result)?;
        Ok(tx)
    }

    /// Checks that the database can be written to, with a commit that only increments the epoch.
    pub(super) async fn heal(&self) -> Result<(), sqlx::Error> {
        let mut slot = self.slot.clone().lock_owned().await;
        slot.prepare(&self.options, TxMode::Write).await?;
        slot.overwrite_residue().await
    }

    /// Runs a function on the connection, outside of a transaction.
    pub(super) async fn with_connection<T>(
        &self,
        run: impl AsyncFnOnce(&mut SqliteConnection) -> T,
    ) -> Result<T, sqlx::Error> {
        let mut slot = self.slot.lock().await;
        slot.prepare(&self.options, TxMode::Read).await?;
        Ok(run(slot.live()).await)
    }

    /// Closes all connections. The last one moves the log into the database and removes it.
    pub(super) async fn close(&self) {
        let mut slot = self.slot.lock().await;
        slot.is_closed = true;
        for connection in [slot.retired.take(), slot.live.take()].into_iter().flatten() {
            if let Err(error) = connection.close().await {
                tracing::warn!(%error, "the database could not be closed; its log is read at the next start");
            }
        }
    }
}

impl ConnectionSlot {
    /// Makes sure that there is a connection that allows the mode, and that no residue is left before a write.
    async fn prepare(&mut self, options: &SqliteConnectOptions, mode: TxMode) -> Result<(), sqlx::Error> {
        if self.is_closed {
            return Err(sqlx::Error::PoolClosed);
        }
        match (&self.live, mode) {
            (Some(_), TxMode::Write) if self.is_restricted => self.lift_restriction(options).await?,
            (Some(_), _) => {}
            (None, _) => {
                let connection = attach(options).await?;
                // It may hold the write lock, so it is closed, but only now: it must not be the last connection.
                if let Some(retired) = self.retired.take() {
                    let _ = retired.close().await;
                }
                self.live = Some(connection);
            }
        }
        if mode == TxMode::Write && self.has_residue {
            self.overwrite_residue().await?;
        }
        Ok(())
    }

    /// Replaces a connection that can only read with an ordinary one.
    async fn lift_restriction(&mut self, options: &SqliteConnectOptions) -> Result<(), sqlx::Error> {
        // It holds an exclusive lock, so it must be closed first.
        if let Some(restricted) = self.live.take() {
            let _ = restricted.close().await;
        }
        match attach(options).await {
            Ok(connection) => {
                self.live = Some(connection);
                self.is_restricted = false;
                Ok(())
            }
            Err(error) => {
                self.open_restricted(options).await?;
                Err(error)
            }
        }
    }

    /// Opens a connection that can only read. With an exclusive lock, SQLite keeps the index of the log in memory and
    /// needs no room on the disk for it.
    async fn open_restricted(&mut self, options: &SqliteConnectOptions) -> Result<(), sqlx::Error> {
        let options = options.clone().locking_mode(SqliteLockingMode::Exclusive);
        self.live = Some(attach(&options).await?);
        self.is_restricted = true;
        Ok(())
    }

    /// Commits a change without meaning. It overwrites the part of the log where a failed commit may have left its
    /// pages, which a restart would otherwise treat as committed.
    async fn overwrite_residue(&mut self) -> Result<(), sqlx::Error> {
        let connection = self.live();
        let mut done = Ok(());
        for sql in ["BEGIN IMMEDIATE", BUMP_EPOCH, "COMMIT"] {
            done = sqlx::raw_sql(sql).execute(&mut *connection).await.map(|_| ());
            if done.is_err() {
                break;
            }
        }
        match done {
            Ok(()) => self.has_residue = false,
            Err(_) => self.retire(),
        }
        done
    }

    /// Retries for a while to overwrite the residue of a failed commit, and returns whether it succeeded. If not, the
    /// next write begins with another attempt.
    async fn take_back(&mut self, options: &SqliteConnectOptions) -> bool {
        for pause in TAKING_BACK {
            if self.prepare(options, TxMode::Write).await.is_ok() {
                return true;
            }
            tokio::time::sleep(pause).await;
        }
        self.prepare(options, TxMode::Write).await.is_ok()
    }

    fn retire(&mut self) {
        let failed = self.live.take();
        // One connection is enough to stay attached to the log.
        if self.retired.is_none() {
            self.retired = failed;
        }
    }

    fn live(&mut self) -> &mut SqliteConnection {
        self.live.as_mut().expect("a slot is prepared before its connection is used")
    }
}

/// A transaction; dropping it without a commit rolls it back.
pub(super) struct SqliteTx {
    database: Sqlite,
    slot: OwnedMutexGuard<ConnectionSlot>,
    mode: TxMode,
    begun: Instant,
    state: TxState,
}

#[derive(Debug)]
enum TxState {
    Open,
    /// A statement failed, for this reason.
    Failed(String),
    Committing,
    Over,
}

impl SqliteTx {
    pub(super) fn connection(&mut self) -> &mut SqliteConnection {
        self.slot.live()
    }

    /// Records the failure of a statement.
    pub(super) fn note<T>(&mut self, result: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        if let Err(error) = &result {
            self.state = TxState::Failed(describe(error));
        }
        result
    }

    pub(super) async fn commit(mut self) -> Result<(), StoreError> {
        self.state = TxState::Committing;
        let committed = sqlx::raw_sql("COMMIT").execute(self.connection()).await;
        if self.mode == TxMode::Write {
            self.database.health.wrote(self.begun.elapsed());
        }
        let Err(error) = committed else {
            self.state = TxState::Over;
            return Ok(());
        };
        self.state = TxState::Over;
        self.slot.retire();
        if self.mode == TxMode::Write {
            self.slot.has_residue |= may_leave_residue(&error);
            self.database.health.fail(&error);
            // Done before the failure is reported: a write that was reported as failed must not reappear.
            if self.slot.has_residue && !self.slot.take_back(&self.database.options).await {
                return Err(StoreError::Unsure(describe(&error)));
            }
        }
        Err(error.into())
    }

    pub(super) async fn roll_back(mut self) {
        self.state = TxState::Over;
        if sqlx::raw_sql("ROLLBACK").execute(self.connection()).await.is_err() {
            self.slot.retire();
        }
    }
}

impl Drop for SqliteTx {
    fn drop(&mut self) {
        let reason = match &self.state {
            TxState::Over => return,
            TxState::Failed(reason) => reason.as_str(),
            TxState::Open | TxState::Committing => "a change was abandoned before its commit finished",
        };
        if self.mode == TxMode::Write {
            self.database.health.fail_because(reason);
        }
        // The outcome of a commit that was not awaited to its end is unknown.
        self.slot.has_residue |= matches!(self.state, TxState::Committing) && self.mode == TxMode::Write;
        self.slot.retire();
    }
}

/// Opens a connection and attaches it to the log by reading something.
async fn attach(options: &SqliteConnectOptions) -> Result<SqliteConnection, sqlx::Error> {
    let mut connection = options.connect().await?;
    match sqlx::raw_sql("SELECT COUNT(*) FROM sqlite_schema").execute(&mut connection).await {
        Ok(_) => Ok(connection),
        Err(error) => {
            let _ = connection.close().await;
            Err(error)
        }
    }
}
