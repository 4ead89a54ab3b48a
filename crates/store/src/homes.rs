//! The table `homes`: which gateway has the links to stateful servers of a caller without a session. A home lasts for as long
//! as its gateway tells the others that it is alive (table `replicas`).

use super::db::Database;
use super::postgres::in_time;
use super::replicas::{GONE_MS, Membership, SILENCE_MS, now_ms};
use super::{Store, StoreError};

/// The gateway that has the links of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeGateway {
    pub slot: u16,
    pub instance: String,
}

impl Store {
    /// The home of a caller. If it has none, or one that is gone, this gateway becomes its home. Right after the database could
    /// not be used, nobody is gone.
    pub async fn home_of(&self, owner: &str, member: &Membership) -> Result<HomeGateway, StoreError> {
        const SQL: &str = concat!(
            "WITH home AS (INSERT INTO homes (owner, instance) VALUES ($1, $2)
            ON CONFLICT (owner) DO UPDATE SET instance = CASE WHEN EXISTS (SELECT 1 FROM replicas
            WHERE replicas.instance = homes.instance AND replicas.seen_at > LEAST(",
            now_ms!(),
            ", (SELECT MAX(seen_at) FROM replicas) + $4) - $3) THEN homes.instance ELSE excluded.instance END RETURNING instance)
            SELECT home.instance, replicas.slot FROM home LEFT JOIN replicas USING (instance)"
        );
        let own = HomeGateway { slot: member.slot, instance: member.instance.clone() };
        let Database::Postgres(postgres) = &self.database else { return Ok(own) };
        let mut lent = postgres.lend().await?;
        let query = sqlx::query_as(SQL).bind(owner).bind(&member.instance).bind(GONE_MS).bind(SILENCE_MS);
        let (instance, slot): (String, Option<i64>) = in_time(query.fetch_one(lent.connection())).await?;
        lent.give_back();
        // A home that left in this moment has no slot: the next look finds another one.
        let slot = slot.and_then(|slot| u16::try_from(slot).ok());
        Ok(slot.map_or(own, |slot| HomeGateway { slot, instance }))
    }
}
