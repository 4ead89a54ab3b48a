//! The table `quotas`: how much of the rate limits is used, over all gateways on a shared database. Gateways reserve calls in
//! portions, so that not every call needs the database. Times are those of the database server.

use std::time::Duration;

use super::db::{Database, Tx, on};
use super::postgres::in_time;
use super::{Store, StoreError};
use model::ServerName;

const MINUTE_US: i64 = 60_000_000;
/// A row that has not been used for this long is deleted.
const KEPT_US: i64 = 24 * 60 * MINUTE_US;

/// What could be reserved of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    Calls(u32),
    /// Nothing; some after this time.
    NothingFor(Duration),
}

macro_rules! now_us {
    () => {
        "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"
    };
}

impl Store {
    /// Reserves up to so many calls of a limit.
    pub async fn reserve_calls(
        &self,
        name: &str,
        (calls_per_minute, burst): (u32, u32),
        calls: u32,
    ) -> Result<Reserved, StoreError> {
        const CREATE: &str = "INSERT INTO quotas (name, paid_off) VALUES ($1, 0) ON CONFLICT DO NOTHING";
        // $2: the share of one call, $3: the shares of a burst, $4: the calls that are wanted.
        const RESERVE: &str = concat!(
            "UPDATE quotas SET paid_off = taken.now + taken.unpaid + taken.calls * $2
            FROM (SELECT now, unpaid, LEAST($4, GREATEST(0, ($3 - unpaid) / $2)) AS calls
            FROM (SELECT clock.now, LEAST($3, GREATEST(0, locked.paid_off - clock.now)) AS unpaid
            FROM (SELECT paid_off FROM quotas WHERE name = $1 FOR UPDATE) AS locked,
            (SELECT ",
            now_us!(),
            " AS now) AS clock) AS state) AS taken
            WHERE name = $1 RETURNING taken.calls, taken.unpaid"
        );
        let Database::Postgres(postgres) = &self.database else { return Ok(Reserved::Calls(calls)) };
        let share = MINUTE_US / i64::from(calls_per_minute.max(1));
        let share = share.max(1);
        let ahead = share.saturating_mul(burst.max(1).into());
        let mut lent = postgres.lend().await?;
        let mut row: Option<(i64, i64)> = None;
        for is_created in [true, false] {
            let query = sqlx::query_as(RESERVE).bind(name).bind(share).bind(ahead).bind(i64::from(calls));
            row = in_time(query.fetch_optional(lent.connection())).await?;
            if row.is_some() || !is_created {
                break;
            }
            in_time(sqlx::query(CREATE).bind(name).execute(lent.connection())).await?;
        }
        lent.give_back();
        let (reserved, unpaid) = row.unwrap_or((0, ahead));
        Ok(match u32::try_from(reserved) {
            Ok(reserved @ 1..) => Reserved::Calls(reserved),
            Ok(0) | Err(_) => {
                let wait = (unpaid + share - ahead).max(1);
                Reserved::NothingFor(Duration::from_micros(wait.unsigned_abs()))
            }
        })
    }

    /// Forgets what has not been used for long, or everything.
    pub async fn forget_quotas(&self, forgetting: Forgetting) -> Result<(), StoreError> {
        const SQL: &str = concat!("DELETE FROM quotas WHERE $1 OR paid_off < ", now_us!(), " - $2");
        let Database::Postgres(postgres) = &self.database else { return Ok(()) };
        let query = sqlx::query(SQL).bind(forgetting == Forgetting::Everything).bind(KEPT_US);
        let mut lent = postgres.lend().await?;
        in_time(query.execute(lent.connection())).await?;
        lent.give_back();
        Ok(())
    }
}

/// What is forgotten of the use of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgetting {
    Old,
    Everything,
}

/// The name of the use of a server's limit.
pub fn quota_of_server(server: &ServerName) -> String {
    format!("server {server}")
}

/// The name of the use of the limit of a tool.
pub fn quota_of_tool(server: &ServerName, tool: &str) -> String {
    format!("tool {server} {tool}")
}

/// Forgets what is used of the limits of a server and its tools.
pub(super) async fn forget_server(tx: &mut Tx, server: &ServerName) -> Result<(), sqlx::Error> {
    const SQL: &str = "DELETE FROM quotas WHERE name = $1 OR SUBSTR(name, 1, LENGTH($2)) = $2";
    on!(tx, |db| {
        let query = sqlx::query(SQL).bind(quota_of_server(server)).bind(quota_of_tool(server, ""));
        query.execute(db).await.map(|_| ())
    })
}
