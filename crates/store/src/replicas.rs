//! The table `replicas`: the gateways that use a shared database at the moment. Times are those of the database server, so
//! that the clocks of the gateways do not matter.

use super::db::{Database, Tx, on};
use super::epoch::ANNOUNCE;
use super::postgres::{Postgres, in_time};
use super::shared::LEASES;
use super::{Store, StoreError, settings};

/// A gateway that was not heard of for this long is gone.
pub(super) const GONE_MS: i64 = 15_000;
/// If no gateway at all was heard of for this long, which is more than one beat, the database could not be used.
pub(super) const SILENCE_MS: i64 = 7500;
/// After this time the slot of a gateway that is gone can be taken by another one.
const FORGOTTEN_MS: i64 = 600_000;
/// The largest number of a slot.
pub const MOST_SLOTS: i64 = 4095;

/// A gateway on the same database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    pub slot: u16,
    pub instance: String,
    /// Where other gateways reach it.
    pub address: String,
    pub version: String,
}

/// How this gateway is known to the others.
#[derive(Clone, Debug)]
pub struct Membership {
    pub slot: u16,
    pub instance: String,
    pub address: String,
    pub version: String,
}

/// The time of the database server in SQL.
macro_rules! now_ms {
    () => {
        "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
    };
}

pub(super) use now_ms;

impl Store {
    /// Counts the gateways at an address as gone, and tells the others, who then take their leases. One that is alive after
    /// all corrects that with its next beat. Their slots are not free yet: sessions name them.
    pub async fn end_predecessors(&self, address: &str) -> Result<(), StoreError> {
        const SQL: &str = concat!(
            "UPDATE replicas SET seen_at = ",
            now_ms!(),
            " - 2 * $2 WHERE address = $1 AND seen_at > ",
            now_ms!(),
            " - $2"
        );
        let Database::Postgres(postgres) = &self.database else { return Ok(()) };
        let mut lent = postgres.lend().await?;
        let ended = in_time(sqlx::query(SQL).bind(address).bind(GONE_MS).execute(lent.connection())).await?;
        if ended.rows_affected() > 0 {
            in_time(sqlx::query(ANNOUNCE).bind(LEASES).execute(lent.connection())).await?;
        }
        lent.give_back();
        Ok(())
    }

    /// Takes a slot for this gateway. `None` if the database is not shared, or has no slot left.
    pub async fn join(
        &self,
        instance: &str,
        address: &str,
        version: &str,
    ) -> Result<Option<Membership>, StoreError> {
        const LOCK: &str = "LOCK TABLE replicas IN EXCLUSIVE MODE";
        const FORGET: &str = concat!("DELETE FROM replicas WHERE seen_at < ", now_ms!(), " - $1");
        const FORGET_HOMES: &str = "DELETE FROM homes WHERE instance NOT IN (SELECT instance FROM replicas)";
        const INSERT: &str = concat!(
            "INSERT INTO replicas (slot, instance, address, version, keys, seen_at)
            SELECT MIN(free), $2, $3, $4, $5, ",
            now_ms!(),
            " FROM generate_series(CAST(1 AS BIGINT), $1) AS free
            WHERE free NOT IN (SELECT slot FROM replicas) HAVING MIN(free) IS NOT NULL RETURNING slot"
        );
        let Database::Postgres(_) = &self.database else { return Ok(None) };
        let mut tx = self.write().await?;
        on!(&mut tx, |db| sqlx::query(LOCK).execute(db).await.map(|_| ()))?;
        on!(&mut tx, |db| sqlx::query(FORGET).bind(FORGOTTEN_MS).execute(db).await.map(|_| ()))?;
        on!(&mut tx, |db| sqlx::query(FORGET_HOMES).execute(db).await.map(|_| ()))?;
        // Within the lock: a rotation that does not see this gateway yet has not replaced anything yet either.
        settings::learn_other_key(&mut tx, &self.seal).await?;
        let slot: Option<i64> = on!(&mut tx, |db| {
            let query = sqlx::query_scalar(INSERT).bind(MOST_SLOTS).bind(instance).bind(address);
            query.bind(version).bind(self.known_keys()).fetch_optional(db).await
        })?;
        tx.commit().await?;
        let slot = slot.and_then(|slot| u16::try_from(slot).ok());
        Ok(slot.map(|slot| Membership {
            slot,
            instance: instance.to_owned(),
            address: address.to_owned(),
            version: version.to_owned(),
        }))
    }

    /// Tells the others that this gateway is alive. Returns all that are, or `None` if it was silent for so long that it lost
    /// its slot. The time in which the database could not be used counts for nobody: whoever was alive before still is.
    pub async fn beat(&self, member: &Membership) -> Result<Option<Vec<Replica>>, StoreError> {
        const AFTER_SILENCE: &str = concat!(
            "UPDATE replicas SET seen_at = ",
            now_ms!(),
            " FROM (SELECT MAX(seen_at) AS at FROM replicas) AS last
            WHERE last.at < ",
            now_ms!(),
            " - $1 AND seen_at > last.at - $2"
        );
        const BEAT: &str = concat!(
            "UPDATE replicas SET keys = $3, address = $4, seen_at = ",
            now_ms!(),
            " WHERE slot = $1 AND instance = $2"
        );
        const ALIVE: &str = concat!(
            "SELECT slot, instance, address, version FROM replicas WHERE seen_at > ",
            now_ms!(),
            " - $1"
        );
        let Database::Postgres(postgres) = &self.database else { return Ok(Some(Vec::new())) };
        let mut lent = postgres.lend().await?;
        let after_silence = sqlx::query(AFTER_SILENCE).bind(SILENCE_MS).bind(GONE_MS);
        in_time(after_silence.execute(lent.connection())).await?;
        let beat = sqlx::query(BEAT).bind(i64::from(member.slot)).bind(&member.instance);
        let beat = beat.bind(self.known_keys()).bind(&member.address);
        let is_known = in_time(beat.execute(lent.connection())).await?.rows_affected() > 0;
        let rows: Vec<(i64, String, String, String)> =
            in_time(sqlx::query_as(ALIVE).bind(GONE_MS).fetch_all(lent.connection())).await?;
        lent.give_back();
        if !is_known {
            return Ok(None);
        }
        let replica = |(slot, instance, address, version): (i64, String, String, String)| {
            Some(Replica { slot: u16::try_from(slot).ok()?, instance, address, version })
        };
        Ok(Some(rows.into_iter().filter_map(replica).collect()))
    }

    /// Names the keys that this gateway knows, its own one first.
    fn known_keys(&self) -> String {
        let other = self.seal.other().map(|other| other.fingerprint());
        [Some(self.seal.fingerprint()), other].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    /// The addresses of the gateways that are alive, each with the names of the keys that it knows, its own one first.
    /// Gateways that join at this moment are waited for.
    pub(super) async fn keys_of_replicas(&self) -> Result<Vec<(String, Vec<String>)>, StoreError> {
        const LOCK: &str = "LOCK TABLE replicas IN SHARE MODE";
        const SQL: &str = concat!(
            "SELECT address, keys FROM replicas WHERE seen_at > ",
            now_ms!(),
            " - $1 ORDER BY address"
        );
        let Database::Postgres(_) = &self.database else { return Ok(Vec::new()) };
        let mut tx = self.write().await?;
        on!(&mut tx, |db| sqlx::query(LOCK).execute(db).await.map(|_| ()))?;
        let rows: Vec<(String, String)> =
            on!(&mut tx, |db| sqlx::query_as(SQL).bind(GONE_MS).fetch_all(db).await)?;
        tx.commit().await?;
        let split = |keys: String| keys.split(' ').map(str::to_owned).collect();
        Ok(rows.into_iter().map(|(address, keys)| (address, split(keys))).collect())
    }

    /// Gives the slot back.
    pub async fn leave(&self, member: &Membership) -> Result<(), StoreError> {
        const SQL: &str = "DELETE FROM replicas WHERE slot = $1 AND instance = $2";
        let Database::Postgres(postgres) = &self.database else { return Ok(()) };
        let mut lent = postgres.lend().await?;
        let leaving = sqlx::query(SQL).bind(i64::from(member.slot)).bind(&member.instance);
        in_time(leaving.execute(lent.connection())).await?;
        lent.give_back();
        Ok(())
    }
}

/// The versions of the gateways that use a shared database at the moment.
pub(super) async fn versions(tx: &mut Tx) -> Result<Vec<String>, sqlx::Error> {
    const SQL: &str = concat!("SELECT version FROM replicas WHERE seen_at > ", now_ms!(), " - $1");
    on!(tx, |db| sqlx::query_scalar(SQL).bind(GONE_MS).fetch_all(db).await)
}

/// The gateways that were heard of lately, each with the time of that. None if the table does not exist yet.
pub(super) async fn last_beats(postgres: &Postgres) -> Result<Vec<(String, i64)>, sqlx::Error> {
    const EXISTS: &str = "SELECT to_regclass('replicas') IS NOT NULL";
    const SQL: &str = concat!("SELECT instance, seen_at FROM replicas WHERE seen_at > ", now_ms!(), " - $1");
    let mut lent = postgres.lend().await?;
    let exists: bool = in_time(sqlx::query_scalar(EXISTS).fetch_one(lent.connection())).await?;
    let beats = match exists {
        true => in_time(sqlx::query_as(SQL).bind(GONE_MS).fetch_all(lent.connection())).await?,
        false => Vec::new(),
    };
    lent.give_back();
    Ok(beats)
}
