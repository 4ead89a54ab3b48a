//! The databases the store can speak to. A query is written once and expanded for each of them by `on!`;
//! another database joins with one more variant here and one more arm in the macro.

use sqlx::{Sqlite, SqlitePool, Transaction};

#[derive(Debug)]
pub(super) enum Pool {
    Sqlite(SqlitePool),
}

/// All reading and writing happens in a transaction; one that is dropped is rolled back.
pub(super) enum Tx {
    Sqlite(Transaction<'static, Sqlite>),
}

impl Pool {
    pub(super) async fn begin(&self) -> Result<Tx, sqlx::Error> {
        match self {
            Pool::Sqlite(pool) => pool.begin().await.map(Tx::Sqlite),
        }
    }
}

impl Tx {
    pub(super) async fn commit(self) -> Result<(), sqlx::Error> {
        match self {
            Tx::Sqlite(tx) => tx.commit().await,
        }
    }
}

/// Runs the body with `$db` as the connection of the transaction, whichever database it belongs to.
macro_rules! on {
    ($tx:expr, |$db:ident| $body:expr) => {
        match $tx {
            $crate::store::db::Tx::Sqlite(tx) => {
                let $db = &mut **tx;
                $body
            }
        }
    };
}

pub(super) use on;
