//! The databases that the store supports. A query is written once, and `on!` expands it for each of them. Another
//! database needs a variant here, an arm in the macro, and its own version of what is bound to SQLite: the list is in
//! CONTRIBUTING.md, "Adding a database".

use super::StoreError;
use super::postgres::{Postgres, PostgresTx};
use super::sqlite::{Sqlite, SqliteTx};
use super::tx_mode::TxMode;

#[derive(Debug)]
pub(super) enum Database {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

/// A transaction, in which all reads and writes happen; dropping it rolls it back.
pub(super) enum Tx {
    Sqlite(SqliteTx),
    Postgres(PostgresTx),
}

impl Database {
    pub(super) async fn begin(&self, mode: TxMode) -> Result<Tx, sqlx::Error> {
        match self {
            Database::Sqlite(database) => database.begin(mode).await.map(Tx::Sqlite),
            Database::Postgres(database) => database.begin(mode).await.map(Tx::Postgres),
        }
    }

    /// Checks whether the database can be written to.
    pub(super) async fn heal(&self) -> Result<(), sqlx::Error> {
        match self {
            Database::Sqlite(database) => database.heal().await,
            Database::Postgres(database) => database.heal().await,
        }
    }

    pub(super) async fn close(&self) {
        match self {
            Database::Sqlite(database) => database.close().await,
            Database::Postgres(database) => database.close().await,
        }
    }
}

impl Tx {
    pub(super) async fn commit(self) -> Result<(), StoreError> {
        match self {
            Tx::Sqlite(tx) => tx.commit().await,
            Tx::Postgres(tx) => tx.commit().await,
        }
    }

    /// Takes everything back, on purpose: dropping a transaction that writes counts as a failure.
    pub(super) async fn roll_back(self) {
        match self {
            Tx::Sqlite(tx) => tx.roll_back().await,
            Tx::Postgres(tx) => tx.roll_back().await,
        }
    }
}

/// Runs the body with `$db` as the connection of the transaction, whichever database it belongs to.
macro_rules! on {
    ($tx:expr, |$db:ident| $body:expr) => {{
        let tx: &mut $crate::db::Tx = $tx;
        match tx {
            $crate::db::Tx::Sqlite(tx) => {
                let result = {
                    let $db = tx.connection();
                    $body
                };
                tx.note(result)
            }
            $crate::db::Tx::Postgres(tx) => {
                let result = {
                    let $db = tx.connection();
                    $crate::postgres::in_time(async { $body }).await
                };
                tx.note(result)
            }
        }
    }};
}

pub(super) use on;
