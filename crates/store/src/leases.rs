//! The table `leases`: which gateway reads the lists of which server. A lease lasts for as long as its gateway tells the others
//! that it is alive (table `replicas`).

use super::db::Database;
use super::epoch::ANNOUNCE;
use super::postgres::in_time;
use super::replicas::{GONE_MS, Membership, now_ms};
use super::shared::LEASES;
use super::{Store, StoreError};

/// A lease, and what its gateway last found the state of the server to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub server: String,
    pub instance: String,
    pub status: String,
    pub reason: String,
}

/// Which leases a gateway takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// Those that no living gateway has.
    Free,
    Any,
}

impl Store {
    pub async fn leases(&self) -> Result<Vec<Lease>, StoreError> {
        const SQL: &str = "SELECT server, instance, status, reason FROM leases ORDER BY server";
        let Database::Postgres(postgres) = &self.database else { return Ok(Vec::new()) };
        let mut lent = postgres.lend().await?;
        let rows: Vec<(String, String, String, String)> =
            in_time(sqlx::query_as(SQL).fetch_all(lent.connection())).await?;
        lent.give_back();
        let lease = |(server, instance, status, reason)| Lease { server, instance, status, reason };
        Ok(rows.into_iter().map(lease).collect())
    }

    /// Takes leases, or renews what is known of their servers, and tells the other gateways.
    pub async fn take_leases(&self, wanted: &[Lease], taking: Taking) -> Result<(), StoreError> {
        const SQL: &str = concat!(
            "INSERT INTO leases (server, instance, status, reason)
            SELECT * FROM UNNEST(CAST($1 AS TEXT[]), CAST($2 AS TEXT[]), CAST($3 AS TEXT[]), CAST($4 AS TEXT[]))
            ON CONFLICT (server) DO UPDATE
            SET instance = excluded.instance, status = excluded.status, reason = excluded.reason
            WHERE $5 OR leases.instance = excluded.instance OR NOT EXISTS (SELECT 1 FROM replicas
            WHERE replicas.instance = leases.instance AND replicas.seen_at > ",
            now_ms!(),
            " - $6)"
        );
        let Database::Postgres(postgres) = &self.database else { return Ok(()) };
        // All gateways take them in the same order, so that they do not wait for each other.
        let mut wanted: Vec<&Lease> = wanted.iter().collect();
        wanted.sort_by(|one, other| one.server.cmp(&other.server));
        let column =
            |part: fn(&Lease) -> &str| -> Vec<&str> { wanted.iter().map(|lease| part(lease)).collect() };
        let mut lent = postgres.lend().await?;
        let query = sqlx::query(SQL)
            .bind(column(|lease| &lease.server))
            .bind(column(|lease| &lease.instance))
            .bind(column(|lease| &lease.status))
            .bind(column(|lease| &lease.reason))
            .bind(taking == Taking::Any)
            .bind(GONE_MS);
        in_time(query.execute(lent.connection())).await?;
        in_time(sqlx::query(ANNOUNCE).bind(LEASES).execute(lent.connection())).await?;
        lent.give_back();
        Ok(())
    }

    /// Gives all leases of a gateway back, and tells the others. Callers whose home it was find another one.
    pub async fn release_leases(&self, member: &Membership) -> Result<(), StoreError> {
        const SQL: &str = "DELETE FROM leases WHERE instance = $1";
        const HOMES: &str = "DELETE FROM homes WHERE instance = $1";
        let Database::Postgres(postgres) = &self.database else { return Ok(()) };
        let mut lent = postgres.lend().await?;
        in_time(sqlx::query(HOMES).bind(&member.instance).execute(lent.connection())).await?;
        in_time(sqlx::query(SQL).bind(&member.instance).execute(lent.connection())).await?;
        in_time(sqlx::query(ANNOUNCE).bind(LEASES).execute(lent.connection())).await?;
        lent.give_back();
        Ok(())
    }
}
