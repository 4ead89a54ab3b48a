//! The table `settings`: single values about the whole gateway, as text.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::db::{Tx, on};
use super::epoch;
use super::{Store, StoreError};
use model::AuditNote;
use seal::{Seal, SecretKey};

const MODE: &str = "mode";
const KEY_CHECK: &str = "key_check";
const EPOCH: &str = "epoch";
/// The oldest version of toolgate that may use the database.
const MIN_VERSION: &str = "min_version";
/// The key that replaces the current one, sealed under that one.
const NEXT_KEY: &str = "next_key";
/// The key that is being replaced, sealed under the new one.
const PREVIOUS_KEY: &str = "previous_key";

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

    /// Gives a new database its mode. One that has a mode keeps that.
    pub async fn claim_mode(&self, mode: &str) -> Result<(), StoreError> {
        let mut tx = self.own_change().await?;
        match claim_mode(&mut tx, mode).await? {
            true => tx.commit().await,
            false => {
                tx.roll_back().await;
                Ok(())
            }
        }
    }

    /// Makes the database uninitialized again.
    pub async fn forget_mode(&self, note: &AuditNote) -> Result<(), StoreError> {
        const SQL: &str = "DELETE FROM settings WHERE key = $1";
        let mut tx = self.change(note).await?;
        on!(&mut tx, |db| sqlx::query(SQL).bind(MODE).execute(db).await.map(|_| ()))?;
        tx.commit().await
    }

    /// Whether the key opens the check value of the database; `None` if there is no such value. If the key is being replaced,
    /// the other one is learned.
    pub(super) async fn key_opens(&self) -> Result<Option<bool>, StoreError> {
        let mut tx = self.read().await?;
        learn_other_key(&mut tx, &self.seal).await?;
        let opens = key_opens(&mut tx, &self.seal).await?;
        tx.commit().await?;
        Ok(opens)
    }

    /// Whether the key fits the database. A database without a check value is new: the current key becomes its key.
    pub(super) async fn key_fits(&self) -> Result<bool, StoreError> {
        if let Some(opens) = self.key_opens().await? {
            return Ok(opens);
        }
        let mut tx = self.write().await?;
        put_key_check(&mut tx, &self.seal).await?;
        tx.commit().await?;
        // Another gateway may have been first, perhaps with another key.
        Ok(self.key_opens().await? == Some(true))
    }
}

/// Whether a key opens the check value of the database; `None` if there is no such value.
pub(super) async fn key_opens(tx: &mut Tx, seal: &Seal) -> Result<Option<bool>, StoreError> {
    let Some(check) = get(tx, KEY_CHECK).await? else { return Ok(None) };
    let sealed = STANDARD.decode(check);
    let sealed = sealed.map_err(|_| StoreError::Corrupt("the setting \"key_check\" is not Base64".into()))?;
    Ok(Some(seal.open(KEY_CHECK, &sealed).is_ok_and(|plain| *plain == KEY_CHECK_PLAIN)))
}

/// The two keys of a database whose key is being replaced.
#[derive(Clone)]
pub(super) struct KeyPair {
    pub previous: SecretKey,
    pub next: SecretKey,
}

/// Reads the two keys, if the key is being replaced and that of the seal is one of them.
pub(super) async fn key_pair(tx: &mut Tx, seal: &Seal) -> Result<Option<KeyPair>, StoreError> {
    const SQL: &str = "SELECT key, value FROM settings WHERE key IN ($1, $2)";
    let mut stored: HashMap<String, String> =
        on!(tx, |db| sqlx::query_as(SQL).bind(NEXT_KEY).bind(PREVIOUS_KEY).fetch_all(db).await)?
            .into_iter()
            .collect();
    // Only the key of the seal itself counts here, not another one that it also opens.
    let (own, seal) = (seal.key().clone(), Seal::new(seal.key()));
    let mut open = |name: &str| {
        let opened = seal.open(name, &STANDARD.decode(stored.remove(name)?).ok()?).ok()?;
        SecretKey::from_hex(std::str::from_utf8(&opened).ok()?).ok()
    };
    if let Some(next) = open(NEXT_KEY) {
        return Ok(Some(KeyPair { previous: own, next }));
    }
    Ok(open(PREVIOUS_KEY).map(|previous| KeyPair { previous, next: own }))
}

/// Stores two keys, each sealed under the other one: who has one of them learns the other.
pub(super) async fn put_key_pair(tx: &mut Tx, pair: &KeyPair) -> Result<(), sqlx::Error> {
    for (name, key, value) in
        [(NEXT_KEY, &pair.previous, &pair.next), (PREVIOUS_KEY, &pair.next, &pair.previous)]
    {
        let sealed = Seal::new(key).seal(name, value.to_hex().as_bytes());
        set(tx, name, &STANDARD.encode(sealed)).await?;
    }
    Ok(())
}

/// Whether the key is being replaced, perhaps by keys that are not known here.
pub(super) async fn has_key_pair(tx: &mut Tx) -> Result<bool, sqlx::Error> {
    Ok(get(tx, NEXT_KEY).await?.is_some())
}

/// Ends the replacement of a key: the previous one opens nothing any more.
pub(super) async fn remove_key_pair(tx: &mut Tx) -> Result<(), sqlx::Error> {
    const SQL: &str = "DELETE FROM settings WHERE key IN ($1, $2)";
    on!(tx, |db| sqlx::query(SQL).bind(NEXT_KEY).bind(PREVIOUS_KEY).execute(db).await.map(|_| ()))
}

/// Lets a seal open what is sealed under the other key, if the key is being replaced.
pub(super) async fn learn_other_key(tx: &mut Tx, seal: &Seal) -> Result<(), StoreError> {
    if let Some(pair) = key_pair(tx, seal).await? {
        seal.also_open(if &pair.next == seal.key() { &pair.previous } else { &pair.next });
    }
    Ok(())
}

/// Makes a key the key of the database, instead of the one before it.
pub(super) async fn replace_key_check(tx: &mut Tx, seal: &Seal) -> Result<(), sqlx::Error> {
    set(tx, KEY_CHECK, &STANDARD.encode(seal.seal(KEY_CHECK, KEY_CHECK_PLAIN))).await
}

/// Makes a key the key of a database that has none yet.
pub(super) async fn put_key_check(tx: &mut Tx, seal: &Seal) -> Result<(), sqlx::Error> {
    let check = STANDARD.encode(seal.seal(KEY_CHECK, KEY_CHECK_PLAIN));
    set_first(tx, KEY_CHECK, &check).await.map(|_| ())
}

/// Gives a database its mode, unless it has one. Returns whether it had none.
pub(super) async fn claim_mode(tx: &mut Tx, mode: &str) -> Result<bool, sqlx::Error> {
    set_first(tx, MODE, mode).await
}

pub(super) async fn mode(tx: &mut Tx) -> Result<Option<String>, sqlx::Error> {
    get(tx, MODE).await
}

pub(super) async fn min_version(tx: &mut Tx) -> Result<Option<String>, sqlx::Error> {
    get(tx, MIN_VERSION).await
}

/// The epoch of the last change; 0 before the first one.
pub(super) async fn epoch(tx: &mut Tx) -> Result<i64, StoreError> {
    match get(tx, EPOCH).await? {
        None => Ok(0),
        Some(text) => epoch::parse(&text)
            .ok_or_else(|| StoreError::Corrupt("the setting \"epoch\" is not a number".into())),
    }
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

/// Sets a value that is set once. Returns whether it was not set before.
async fn set_first(tx: &mut Tx, key: &str, value: &str) -> Result<bool, sqlx::Error> {
    const SQL: &str = "INSERT INTO settings (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING";
    let set = on!(tx, |db| sqlx::query(SQL)
        .bind(key)
        .bind(value)
        .execute(db)
        .await
        .map(|set| set.rows_affected()))?;
    Ok(set > 0)
}
