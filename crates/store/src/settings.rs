//! The table `settings`: single values about the whole gateway, as text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::db::{Tx, on};
use super::epoch::BUMP_EPOCH;
use super::{Store, StoreError};

const MODE: &str = "mode";
const KEY_CHECK: &str = "key_check";

/// The text that is sealed to check later whether the key is still the same.
const KEY_CHECK_PLAIN: &[u8] = b"toolgate";

impl Store {
    /// The mode this database was initialized in, if it was.
    pub async fn mode(&self) -> Result<Option<String>, StoreError> {
        let mut tx = self.read().await?;
        let mode = get(&mut tx, MODE).await?;
        tx.commit().await?;
        Ok(mode)
    }

    pub async fn set_mode(&self, mode: &str) -> Result<(), StoreError> {
        let mut tx = self.write().await?;
        set_mode(&mut tx, mode).await?;
        tx.commit().await
    }

    /// Makes the database uninitialized again.
    pub async fn forget_mode(&self) -> Result<(), StoreError> {
        const SQL: &str = "DELETE FROM settings WHERE key = $1";
        let mut tx = self.write().await?;
        on!(&mut tx, |db| sqlx::query(SQL).bind(MODE).execute(db).await.map(|_| ()))?;
        tx.commit().await
    }

    /// Whether the key opens the check value of the database; `None` if there is no such value.
    pub(super) async fn key_opens(&self) -> Result<Option<bool>, StoreError> {
        let mut tx = self.read().await?;
        let check = get(&mut tx, KEY_CHECK).await?;
        tx.commit().await?;
        let Some(check) = check else { return Ok(None) };
        let sealed = STANDARD.decode(check);
        let sealed =
            sealed.map_err(|_| StoreError::Corrupt("the setting \"key_check\" is not Base64".into()))?;
        Ok(Some(self.seal.open(KEY_CHECK, &sealed).is_ok_and(|plain| *plain == KEY_CHECK_PLAIN)))
    }

    /// Whether the key fits the database. A database without a check value is new: the current key becomes its key.
    pub(super) async fn key_fits(&self) -> Result<bool, StoreError> {
        if let Some(opens) = self.key_opens().await? {
            return Ok(opens);
        }
        let check = STANDARD.encode(self.seal.seal(KEY_CHECK, KEY_CHECK_PLAIN));
        let mut tx = self.write().await?;
        set(&mut tx, KEY_CHECK, &check).await?;
        tx.commit().await?;
        Ok(true)
    }
}

pub(super) async fn set_mode(tx: &mut Tx, mode: &str) -> Result<(), sqlx::Error> {
    set(tx, MODE, mode).await
}

pub(super) async fn bump_epoch(tx: &mut Tx) -> Result<(), sqlx::Error> {
    on!(tx, |db| sqlx::query(BUMP_EPOCH).execute(db).await.map(|_| ()))
}

async fn get(tx: &mut Tx, key: &str) -> Result<Option<String>, sqlx::Error> {
    const SQL: &str = "SELECT value FROM settings WHERE key = $1";
    on!(tx, |db| sqlx::query_scalar(SQL).bind(key).fetch_optional(db).await)
}

async fn set(tx: &mut Tx, key: &str, value: &str) -> Result<(), sqlx::Error> {
    const SQL: &str = "INSERT INTO settings (key, value) VALUES ($1, $2)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    on!(tx, |db| sqlx::query(SQL).bind(key).bind(value).execute(db).await.map(|_| ()))
}
