//! What several gateways on one database need from each other: one changes it at a time, and all learn of changes. Only a
//! database on a server can be shared.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::db::Database;
use super::epoch::{self, ANNOUNCE, CHANNEL};
use super::postgres::{ACQUIRING, Lent, Postgres, in_time, within};
use super::{Store, StoreError};
use model::ServerName;

/// How often a gateway looks for changes without being told of one.
const LOOK: Duration = Duration::from_secs(2);

/// The right to change a shared database, which one gateway has at a time. Dropping it gives it to the next one.
pub struct SharedTurn {
    /// Holds the lock in an open transaction, so that it is free again whatever happens to this gateway.
    lent: Option<Lent>,
    /// Where the end of a turn runs.
    tasks: TaskTracker,
    /// The epoch of the database when the turn began.
    pub epoch: i64,
}

impl Drop for SharedTurn {
    fn drop(&mut self) {
        let Some(mut lent) = self.lent.take() else { return };
        self.tasks.spawn(async move {
            if in_time(sqlx::raw_sql("COMMIT").execute(lent.connection())).await.is_ok() {
                lent.give_back();
            }
        });
    }
}

/// The notice that leases were taken or given back.
pub(super) const LEASES: &str = "leases";
/// The beginning of the notice that the lists of a server may have changed.
const LISTS: &str = "lists ";

/// What a gateway learns of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The epoch of the database.
    Epoch(i64),
    /// Leases were taken or given back, or the state of a server changed.
    Leases,
    /// The lists of a server may have changed.
    Lists(String),
}

impl Notice {
    fn parse(text: &str) -> Option<Self> {
        match text {
            LEASES => Some(Notice::Leases),
            text => match text.strip_prefix(LISTS) {
                Some(server) => Some(Notice::Lists(server.to_owned())),
                None => epoch::parse(text).map(Notice::Epoch),
            },
        }
    }
}

impl Store {
    /// Tells the gateway that reads the lists of a server that they may have changed.
    pub async fn doubt_lists(&self, server: &ServerName) -> Result<(), StoreError> {
        let Database::Postgres(postgres) = &self.database else { return Ok(()) };
        let notice = format!("{LISTS}{server}");
        let mut lent = postgres.lend().await?;
        in_time(sqlx::query(ANNOUNCE).bind(notice).execute(lent.connection())).await?;
        lent.give_back();
        Ok(())
    }

    /// Whether other gateways may use the same database.
    pub fn is_shared(&self) -> bool {
        match self.database {
            Database::Sqlite(_) => false,
            Database::Postgres(_) => true,
        }
    }

    /// Waits until no other gateway changes the database. `None` if it is not shared.
    pub async fn shared_turn(&self) -> Result<Option<SharedTurn>, StoreError> {
        // A gateway that is cut off while it has the turn must not keep it.
        const TAKE: &str =
            "BEGIN; SET LOCAL lock_timeout = '20s'; SET LOCAL idle_in_transaction_session_timeout = '15s';
            SELECT pg_advisory_xact_lock(8389754641962468452)";
        let Database::Postgres(postgres) = &self.database else { return Ok(None) };
        let mut lent = postgres.lend().await?;
        in_time(sqlx::raw_sql(TAKE).execute(lent.connection())).await?;
        let text: Option<String> =
            in_time(sqlx::query_scalar(EPOCH).fetch_optional(lent.connection())).await?;
        let epoch = text.as_deref().and_then(epoch::parse).unwrap_or_default();
        Ok(Some(SharedTurn { lent: Some(lent), tasks: postgres.tasks(), epoch }))
    }

    /// Follows the changes of a shared database. `None` if it is not shared.
    pub fn watch_changes(&self) -> Option<ChangeWatch> {
        match &self.database {
            Database::Sqlite(_) => None,
            Database::Postgres(postgres) => Some(ChangeWatch::new(postgres)),
        }
    }
}

const EPOCH: &str = "SELECT value FROM settings WHERE key = 'epoch'";

/// Learns of changes of a shared database from notices, and by looking from time to time: a notice may get lost.
pub struct ChangeWatch {
    postgres: Postgres,
    /// The address of the one connection that listens.
    listening: PgConnectOptions,
    listener: Option<PgListener>,
    next_look: Instant,
}

impl ChangeWatch {
    fn new(postgres: &Postgres) -> Self {
        let listening = postgres.address().listening.clone();
        Self { postgres: postgres.clone(), listening, listener: None, next_look: Instant::now() }
    }

    /// Waits for the next notice or the next look.
    pub async fn next(&mut self) -> Result<Notice, StoreError> {
        if self.listener.is_none() && self.listen().await {
            // What was announced before is looked for.
            self.next_look = Instant::now();
        }
        let told = match &mut self.listener {
            Some(listener) => tokio::time::timeout_at(self.next_look, listener.try_recv()).await,
            None => {
                tokio::time::sleep_until(self.next_look).await;
                Ok(Ok(None))
            }
        };
        match told {
            Ok(Ok(Some(notice))) => {
                if let Some(notice) = Notice::parse(notice.payload()) {
                    return Ok(notice);
                }
            }
            // The connection was lost.
            Ok(Ok(None) | Err(_)) => self.listener = None,
            Err(_) => {}
        }
        self.next_look = Instant::now() + LOOK;
        let text = self.look().await?;
        Ok(Notice::Epoch(text.as_deref().and_then(epoch::parse).unwrap_or_default()))
    }

    /// Reads the epoch, on the connection that listens: one that is lost without being closed is noticed only so.
    async fn look(&mut self) -> Result<Option<String>, StoreError> {
        let epoch = sqlx::query_scalar(EPOCH);
        if let Some(listener) = &mut self.listener {
            let looked = within(ACQUIRING, epoch.fetch_optional(listener)).await;
            if looked.is_err() {
                self.listener = None;
            }
            return Ok(looked?);
        }
        let mut lent = self.postgres.lend().await?;
        let text = in_time(epoch.fetch_optional(lent.connection())).await?;
        lent.give_back();
        Ok(text)
    }

    async fn listen(&mut self) -> bool {
        let listening = async {
            // Each time a pool of its own: the connection before may never come back to its pool.
            let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(LOOK);
            let pool = pool.connect_lazy_with(self.listening.clone());
            let mut listener = PgListener::connect_with(&pool).await?;
            listener.ignore_pool_close_event(true);
            listener.listen(CHANNEL).await?;
            Ok::<_, sqlx::Error>(listener)
        };
        match tokio::time::timeout_at(Instant::now() + LOOK, listening).await {
            Ok(Ok(listener)) => self.listener = Some(listener),
            Ok(Err(error)) => tracing::debug!(%error, "cannot listen for changes of the database"),
            Err(_) => tracing::debug!("cannot listen for changes of the database in time"),
        }
        self.listener.is_some()
    }
}
