//! The connections to a Postgres database: a pool of them, of which none is used again after a failure.
//!
//! Every change begins by incrementing the epoch, and so waits for the one before it: changes happen one after the other,
//! as on SQLite, whichever gateway makes them.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::Connection;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use tokio_util::task::TaskTracker;

use super::StoreError;
use super::address::PostgresAddress;
use super::epoch::BUMP_EPOCH;
use super::failure::{describe, is_passing};
use super::health::HealthSender;
use super::open_error::OpenStoreError;
use super::tx_mode::TxMode;

/// How long a transaction waits for a connection.
pub(super) const ACQUIRING: Duration = Duration::from_secs(5);
/// How long a connection that was not in use may take to show that it works. Shorter, so that there is time for a new one.
const TESTING: Duration = Duration::from_secs(2);
/// How long a statement may take. A server that disappears without closing its connections never answers. Longer than a
/// change waits for its turn.
const STATEMENT: Duration = Duration::from_secs(25);
/// How long closing waits for transactions that have not ended.
const CLOSING: Duration = Duration::from_secs(5);
/// The least time that a server has to accept a connection at the start.
const LEAST: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(250);

/// A gateway that is cut off must not keep its locks.
const BEGIN: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '15s'";
/// Several statements see the same state. Nothing is locked.
const BEGIN_READING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// The oldest version of Postgres that is supported, as `server_version_num` tells it.
const OLDEST: i32 = 13_00_00;

#[derive(Clone, Debug)]
pub(super) struct Postgres {
    pool: PgPool,
    address: Arc<PostgresAddress>,
    health: HealthSender,
    /// What is still done when a connection was given back.
    tasks: TaskTracker,
}

impl Postgres {
    /// Connects to the database. Waits for a server that is not there yet.
    pub(super) async fn open(
        address: &PostgresAddress,
        health: HealthSender,
    ) -> Result<Self, OpenStoreError> {
        let version = reach(address).await.map_err(|cause| OpenStoreError::of_server(address, cause))?;
        if version < OLDEST {
            let version = version / 10_000;
            return Err(OpenStoreError::OldServer { database: address.to_string(), version });
        }
        let pool = PgPoolOptions::new()
            .max_connections(address.connections)
            .acquire_timeout(ACQUIRING)
            .test_before_acquire(false)
            .before_acquire(|connection, _| {
                Box::pin(async { within(TESTING, connection.ping()).await.map(|()| true) })
            })
            .connect_lazy_with(address.options.clone());
        Ok(Self { pool, address: Arc::new(address.clone()), health, tasks: TaskTracker::new() })
    }

    pub(super) async fn begin(&self, mode: TxMode) -> Result<PostgresTx, sqlx::Error> {
        let begun = self.begin_on_connection(mode).await;
        if let (TxMode::Write, Err(error)) = (mode, &begun) {
            self.health.fail(error);
        }
        begun
    }

    async fn begin_on_connection(&self, mode: TxMode) -> Result<PostgresTx, sqlx::Error> {
        let begun = Instant::now();
        let connection = self.pool.acquire().await?;
        let health = self.health.clone();
        let mut tx = PostgresTx { connection: Some(connection), health, mode, begun, state: TxState::Open };
        let begin = match mode {
            TxMode::Read => BEGIN_READING,
            TxMode::Write => BEGIN,
        };
        match in_time(sqlx::raw_sql(begin).execute(tx.connection())).await {
            Ok(_) => Ok(tx),
            Err(error) => {
                tx.state = TxState::NotBegun;
                Err(error)
            }
        }
    }

    /// Checks that the database can be written to, with a commit that only increments the epoch.
    pub(super) async fn heal(&self) -> Result<(), sqlx::Error> {
        let mut lent = self.lend().await?;
        for sql in [BEGIN, BUMP_EPOCH, "COMMIT"] {
            in_time(sqlx::raw_sql(sql).execute(lent.connection())).await?;
        }
        lent.give_back();
        Ok(())
    }

    /// The same connections, for what is not a change.
    pub(super) fn apart(&self) -> Self {
        Self { health: HealthSender::quiet(), ..self.clone() }
    }

    /// A connection for what is done outside of the transactions of the store.
    pub(super) async fn lend(&self) -> Result<Lent, sqlx::Error> {
        Ok(Lent(Some(self.pool.acquire().await?)))
    }

    pub(super) fn address(&self) -> &PostgresAddress {
        &self.address
    }

    pub(super) fn tasks(&self) -> TaskTracker {
        self.tasks.clone()
    }

    pub(super) async fn close(&self) {
        self.tasks.close();
        let closing = async {
            self.tasks.wait().await;
            self.pool.close().await;
        };
        if tokio::time::timeout(CLOSING, closing).await.is_err() {
            tracing::warn!("stopped waiting for connections to the database");
        }
    }
}

/// Returns the version of a server, and waits for one that is not there yet. Not through the pool: its error would be that it
/// has no connection, instead of the reason for that.
async fn reach(address: &PostgresAddress) -> Result<i32, sqlx::Error> {
    let begun = Instant::now();
    let mut reported = String::new();
    loop {
        let left = address.reaching.saturating_sub(begun.elapsed());
        let limit = ACQUIRING.min(left).max(LEAST);
        match within(limit, version(address)).await {
            Err(error) if is_passing(&error) && begun.elapsed() < address.reaching => {
                let reason = describe(&error);
                if reason != reported {
                    tracing::info!(database = %address, reason, "waiting for the database");
                    reported = reason;
                }
                tokio::time::sleep(PAUSE).await;
            }
            version => return version,
        }
    }
}

async fn version(address: &PostgresAddress) -> Result<i32, sqlx::Error> {
    const SQL: &str = "SELECT CAST(current_setting('server_version_num') AS INTEGER)";
    let mut connection = PgConnection::connect_with(&address.options).await?;
    let version = sqlx::query_scalar(SQL).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(version)
}

/// Waits for the response to a statement, which fails if there is none for too long.
pub(super) async fn in_time<T>(
    statement: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    within(STATEMENT, statement).await
}

pub(super) async fn within<T>(
    limit: Duration,
    statement: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let answered = tokio::time::timeout(limit, statement).await;
    answered.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
}

/// A connection of the pool, which is closed unless it is given back.
pub(super) struct Lent(Option<PoolConnection<sqlx::Postgres>>);

impl Lent {
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        self.0.as_mut().expect("it has a connection until it is given back")
    }

    pub(super) fn give_back(mut self) {
        self.0 = None;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // The pool would wait for what it has not answered.
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}

/// A transaction; dropping it without a commit rolls it back.
pub(super) struct PostgresTx {
    /// `None` once it is over.
    connection: Option<PoolConnection<sqlx::Postgres>>,
    health: HealthSender,
    mode: TxMode,
    begun: Instant,
    state: TxState,
}

#[derive(Debug)]
enum TxState {
    NotBegun,
    Open,
    /// A statement failed, for this reason.
    Failed(String),
    Committing,
    Over,
}

impl PostgresTx {
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        self.connection.as_mut().expect("a transaction has a connection until it is over")
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
        let committed = in_time(sqlx::raw_sql("COMMIT").execute(self.connection())).await;
        self.state = TxState::Over;
        if self.mode == TxMode::Write {
            self.health.wrote(self.begun.elapsed());
        }
        let Err(error) = committed else {
            // Back into the pool.
            self.connection = None;
            return Ok(());
        };
        if self.mode == TxMode::Read {
            return Err(error.into());
        }
        self.health.fail(&error);
        match error {
            // The server says that it did not commit.
            error @ sqlx::Error::Database(_) => Err(error.into()),
            error => Err(StoreError::Unsure(describe(&error))),
        }
    }

    pub(super) async fn roll_back(mut self) {
        self.state = TxState::Over;
        if in_time(sqlx::raw_sql("ROLLBACK").execute(self.connection())).await.is_ok() {
            // Back into the pool.
            self.connection = None;
        }
    }
}

impl Drop for PostgresTx {
    fn drop(&mut self) {
        // Closed instead of given back: the server then rolls back what was not committed.
        if let Some(connection) = self.connection.take() {
            drop(connection.detach());
        }
        let reason = match &self.state {
            TxState::Over | TxState::NotBegun => return,
            TxState::Failed(reason) => reason.as_str(),
            TxState::Open | TxState::Committing => "a change was abandoned before its commit finished",
        };
        if self.mode == TxMode::Write {
            self.health.fail_because(reason);
        }
    }
}
