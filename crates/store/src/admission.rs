//! Whether a program may use a database, decided before anything in it is changed: its tables may be those of an older version,
//! or there are none yet.

use super::address::DatabaseAddress;
use super::db::{Tx, on};
use super::open_error::{KeyOrigin, OpenStoreError};
use super::{Store, StoreError, replicas, settings};
use seal::Seal;

/// How a database is used at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CurrentUse {
    /// The mode that it was initialized in, if it was.
    pub mode: Option<String>,
    /// The versions of the gateways that run on it, if it is shared.
    pub versions: Vec<String>,
}

impl Store {
    pub async fn current_use(&self) -> Result<CurrentUse, StoreError> {
        let mut tx = self.read().await?;
        let mut used = CurrentUse::default();
        // Without settings, tables of that name are not ours.
        if has_table(&mut tx, "settings").await? {
            used.mode = settings::mode(&mut tx).await?;
            if self.is_shared() && has_table(&mut tx, "replicas").await? {
                used.versions = replicas::versions(&mut tx).await?;
            }
        }
        tx.commit().await?;
        Ok(used)
    }
}

/// Refuses a database that needs a newer version of toolgate, or another key.
pub(super) async fn check(
    tx: &mut Tx,
    address: &DatabaseAddress,
    seal: &Seal,
    origin: &KeyOrigin,
) -> Result<(), OpenStoreError> {
    if !check_version(tx, address).await? {
        return Ok(());
    }
    let opens = async {
        settings::learn_other_key(tx, seal).await?;
        settings::key_opens(tx, seal).await
    };
    let database = address.to_string();
    match opens.await {
        Ok(Some(false)) => Err(OpenStoreError::KeyMismatch { database, origin: origin.clone() }),
        // Without a check value, the key becomes that of the database.
        Ok(Some(true) | None) => Ok(()),
        Err(cause) => Err(OpenStoreError::Content { database, cause }),
    }
}

/// Refuses a database that declares a newer version of toolgate as the oldest one that may use it. Returns whether there are
/// settings at all.
pub(super) async fn check_version(tx: &mut Tx, address: &DatabaseAddress) -> Result<bool, OpenStoreError> {
    let failed = |cause| OpenStoreError::from_sqlx(address, cause);
    if !has_table(tx, "settings").await.map_err(failed)? {
        return Ok(false);
    }
    match settings::min_version(tx).await.map_err(failed)? {
        Some(needed) if !is_reached(&needed, env!("CARGO_PKG_VERSION")) => {
            Err(OpenStoreError::Unsupported { database: address.to_string(), needed })
        }
        Some(_) | None => Ok(true),
    }
}

async fn has_table(tx: &mut Tx, name: &str) -> Result<bool, sqlx::Error> {
    let sql = match tx {
        Tx::Sqlite(_) => "SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name = $1",
        Tx::Postgres(_) => "SELECT COUNT(to_regclass($1))",
    };
    let count: i64 = on!(tx, |db| sqlx::query_scalar(sql).bind(name).fetch_one(db).await)?;
    Ok(count > 0)
}

/// Whether a version is at least the needed one. A needed version that cannot be read is not reached.
fn is_reached(needed: &str, version: &str) -> bool {
    let numbers = |text: &str| -> Option<Vec<u64>> {
        let release = text.trim().split(['-', '+']).next()?;
        release.split('.').map(|number| number.parse().ok()).collect()
    };
    matches!((numbers(needed), numbers(version)), (Some(needed), Some(version)) if version >= needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(is_reached("0.9.0", "0.10.0") && is_reached("1.2.3", "1.2.3") && is_reached("1.2", "1.2.0"));
        assert!(is_reached("1.2.3", "1.2.3-rc1"));
        assert!(
            !is_reached("0.10.0", "0.9.9") && !is_reached("2.0.0", "1.99.99") && !is_reached("new", "1.0.0")
        );
    }
}
