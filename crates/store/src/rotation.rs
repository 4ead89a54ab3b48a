//! `toolgate rotate-key`: replaces the secret key, while gateways go on using a database on a server.
//!
//! Both keys are stored, each sealed under the other one, so that every gateway that has one of them opens what is sealed
//! under either; it seals under its own. Once all running gateways know both, everything is sealed again under the new key.
//! Once all of them were started with the new key, the pair is removed. Each step can be repeated, so that a rotation that
//! was interrupted is finished by running it again.

use std::time::Duration;

use tokio::time::Instant;

use super::address::DatabaseAddress;
use super::db::Tx;
use super::open_error::{KeyOrigin, OpenStoreError};
use super::settings::{self, KeyPair};
use super::tables::{RowSeal, TABLES, Table};
use super::{OpenOptions, Store, StoreError, audit, key};
use model::{AuditNote, By, Secret};
use seal::Seal;

/// The pause between two looks whether all gateways know both keys.
const LOOK: Duration = Duration::from_millis(250);
/// How long gateways have to learn both keys. They do so at once, and say so with their next sign of life.
const LEARNING: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct RotationOptions {
    pub database: DatabaseAddress,
    /// The value of TOOLGATE_SECRET_KEY.
    pub secret_key: Option<Secret>,
    /// The value of `--new-key`.
    pub new_key: Secret,
    /// Whether to finish although no gateway runs with the new key yet.
    pub finish: bool,
    pub now_ms: i64,
}

impl RotationOptions {
    fn note(&self, action: &str) -> AuditNote {
        AuditNote::new(&By::command_line(), action, "", self.now_ms)
    }
}

/// The result of a rotation.
#[derive(Debug)]
pub struct Rotated {
    /// The number of rows that were sealed again.
    pub rows: usize,
    /// Rows that neither key opens.
    pub unreadable: Vec<String>,
    /// The addresses of the gateways that were started with the old key.
    pub waiting_for: Vec<String>,
    /// Whether the old key opens nothing any more.
    pub is_finished: bool,
    /// Where the new key is, if that is a file.
    pub key_file: Option<std::path::PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    #[error(
        "the key of {0} is being replaced by a different key than the one in --new-key; finish that first"
    )]
    AnotherRotation(String),
    #[error(
        "{} did not learn the new key in time; run the command again, or stop what is too old for it",
        .0.join(", ")
    )]
    NotLearned(Vec<String>),
    #[error("gateways with the old key still run: {}; restart them with the new key first", .0.join(", "))]
    StillRunning(Vec<String>),
    #[error("cannot write the new key to its file: {0}")]
    KeyFile(std::io::Error),
    #[error(transparent)]
    Open(#[from] OpenStoreError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Whether the key is being replaced, and the store was opened with the old one.
    pub async fn has_previous_key(&self) -> Result<bool, StoreError> {
        let mut tx = self.read().await?;
        let pair = settings::key_pair(&mut tx, &self.seal).await?;
        tx.commit().await?;
        Ok(pair.is_some_and(|pair| &pair.previous == self.seal.key()))
    }
}

/// Replaces the key of a database as far as the running gateways allow it.
pub async fn rotate(options: &RotationOptions) -> Result<Rotated, RotationError> {
    if let Some(path) = options.database.file().filter(|path| !path.exists()) {
        return Err(OpenStoreError::Missing { path: path.to_owned() }.into());
    }
    let (new_key, _) = key::given(options.new_key.expose(), KeyOrigin::Argument("--new-key"))?;
    let open = OpenOptions { database: options.database.clone(), secret_key: options.secret_key.clone() };
    let store = Store::open(open).await?;
    let rotated = match begin(&store, options, &Seal::new(&new_key)).await {
        Ok(Some(pair)) => go_on(&store, options, &pair).await,
        Ok(None) => Ok(Rotated {
            rows: 0,
            unreadable: Vec::new(),
            waiting_for: Vec::new(),
            is_finished: true,
            key_file: None,
        }),
        Err(error) => Err(error),
    };
    store.close().await;
    rotated
}

/// Stores both keys, unless an earlier run did. `None` if the new key is the only one already.
pub(super) async fn begin(
    store: &Store,
    options: &RotationOptions,
    new: &Seal,
) -> Result<Option<KeyPair>, RotationError> {
    let another = || RotationError::AnotherRotation(options.database.to_string());
    let mut tx = store.own_change().await?;
    if settings::has_key_pair(&mut tx).await.map_err(StoreError::from)? {
        let pair = settings::key_pair(&mut tx, &store.seal).await?;
        tx.commit().await?;
        return pair.filter(|pair| &pair.next == new.key()).map(Some).ok_or_else(another);
    }
    if store.seal.key() == new.key() {
        tx.commit().await?;
        return Ok(None);
    }
    let pair = KeyPair { previous: store.seal.key().clone(), next: new.key().clone() };
    audit::append(&mut tx, &store.seal, &[options.note("key.rotate")]).await?;
    settings::put_key_pair(&mut tx, &pair).await.map_err(StoreError::from)?;
    tx.commit().await?;
    // The key of the audit is sealed again, too, and is needed at the end.
    store.seal.also_open(new.key());
    Ok(Some(pair))
}

async fn go_on(store: &Store, options: &RotationOptions, pair: &KeyPair) -> Result<Rotated, RotationError> {
    let (old, new) = (RowSeal::new(Seal::new(&pair.previous)), RowSeal::new(Seal::new(&pair.next)));
    let fingerprint = new.seal.fingerprint();
    wait_until_known(store, &fingerprint).await?;
    let mut rows = reseal_in_parts(store, &old, &new).await?;
    let mut tx = store.write().await?;
    settings::replace_key_check(&mut tx, &new.seal).await.map_err(StoreError::from)?;
    tx.commit().await?;
    let key_file = options.database.file().filter(|_| options.secret_key.is_none());
    let key_file = key_file.map(|path| key::replace(path, &pair.next)).transpose();
    let key_file = key_file.map_err(RotationError::KeyFile)?;

    let replicas = store.keys_of_replicas().await?;
    let has_replicas = !replicas.is_empty();
    let runs_with_old = |(_, keys): &(String, Vec<String>)| keys.first() != Some(&fingerprint);
    let waiting_for: Vec<String> =
        replicas.into_iter().filter(runs_with_old).map(|(address, _)| address).collect();
    if options.finish && !waiting_for.is_empty() {
        return Err(RotationError::StillRunning(waiting_for));
    }
    let is_finished = waiting_for.is_empty() && (has_replicas || options.finish || !store.is_shared());
    let mut unreadable = Vec::new();
    if is_finished {
        let _turn = store.shared_turn().await?;
        let mut tx = store.change(&options.note("key.retire")).await?;
        // What gateways with the old key sealed in the meantime.
        for table in TABLES.iter().filter(|table| table.is_sealed()) {
            let mut offset = 0;
            loop {
                let page = reseal_page(&mut tx, table, offset, &old, &new).await?;
                if page.read == 0 {
                    break;
                }
                offset += page.read;
                rows += page.resealed;
                unreadable.extend(page.unreadable);
            }
        }
        settings::remove_key_pair(&mut tx).await.map_err(StoreError::from)?;
        tx.commit().await?;
    }
    Ok(Rotated { rows, unreadable, waiting_for, is_finished, key_file })
}

/// Waits until every running gateway knows a key.
async fn wait_until_known(store: &Store, fingerprint: &str) -> Result<(), RotationError> {
    let deadline = Instant::now() + LEARNING;
    loop {
        let replicas = store.keys_of_replicas().await?;
        let unaware = replicas.into_iter().filter(|(_, keys)| !keys.iter().any(|known| known == fingerprint));
        let unaware: Vec<String> = unaware.map(|(address, _)| address).collect();
        match unaware.is_empty() {
            true => return Ok(()),
            false if Instant::now() > deadline => return Err(RotationError::NotLearned(unaware)),
            false => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Seals everything again that is sealed under the old key, in short transactions. Returns the number of rows.
pub(super) async fn reseal_in_parts(
    store: &Store,
    old: &RowSeal,
    new: &RowSeal,
) -> Result<usize, StoreError> {
    let mut rows = 0;
    for table in TABLES.iter().filter(|table| table.is_sealed()) {
        let mut offset = 0;
        loop {
            // No gateway changes several rows meanwhile.
            let turn = store.shared_turn().await?;
            let mut tx = store.write().await?;
            let page = reseal_page(&mut tx, table, offset, old, new).await?;
            tx.commit().await?;
            drop(turn);
            if page.read == 0 {
                break;
            }
            offset += page.read;
            rows += page.resealed;
        }
    }
    Ok(rows)
}

/// What was done with some rows of a table.
struct ResealedPage {
    read: usize,
    resealed: usize,
    /// The rows that neither key opens.
    unreadable: Vec<String>,
}

async fn reseal_page(
    tx: &mut Tx,
    table: &Table,
    offset: usize,
    old: &RowSeal,
    new: &RowSeal,
) -> Result<ResealedPage, StoreError> {
    let rows = table.page(tx, offset).await?;
    let mut page = ResealedPage { read: rows.len(), resealed: 0, unreadable: Vec::new() };
    for row in rows {
        match old.open(table, row.clone()) {
            // Nothing is sealed in it any more.
            Ok(plain) if plain == row => {}
            Ok(plain) => {
                let again = new.seal(table, plain);
                page.resealed += usize::from(table.reseal(tx, &row, &again).await?);
            }
            Err(_) if new.open(table, row.clone()).is_ok() => {}
            Err(problem) => page.unreadable.push(problem),
        }
    }
    Ok(page)
}
