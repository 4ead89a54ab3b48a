//! `toolgate migrate-store`: moves all data to another database, in one transaction there, and compares both afterwards.
//! No gateway may use either of them meanwhile.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::address::DatabaseAddress;
use super::db::{Database, Tx, on};
use super::health::HealthSender;
use super::lock::{self, Contents};
use super::open_error::{KeyOrigin, OpenStoreError};
use super::postgres::Postgres;
use super::sqlite::Sqlite;
use super::tables::{RETIRED_TOKENS, RowSeal, TABLES, Table};
use super::tx_mode::TxMode;
use super::{StoreError, key, migrate, replicas, settings};
use model::Secret;
use seal::{Seal, SecretKey};

/// The pause between two looks whether gateways use a database.
const LOOK: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub struct TransferOptions {
    pub from: DatabaseAddress,
    pub to: DatabaseAddress,
    /// The value of `--from-key`.
    pub from_key: Option<Secret>,
    /// The value of `--to-key`.
    pub to_key: Option<Secret>,
    /// The value of TOOLGATE_SECRET_KEY.
    pub secret_key: Option<Secret>,
}

/// The result of a move.
#[derive(Debug)]
pub struct Transferred {
    /// The number of rows of each table.
    pub tables: Vec<(&'static str, usize)>,
    /// The number of hashes of retired tokens that were not moved, because they belong to the old key.
    pub left_tokens: usize,
    /// Where the key of the new database is.
    pub key: KeyOrigin,
    pub has_another_key: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error("there is no database {}", .0.display())]
    Missing(PathBuf),
    #[error("{0} is both the source and the target; move to another database")]
    Same(String),
    #[error("there is nothing to move: no gateway has used database {0}")]
    Unused(String),
    #[error("a gateway uses database {0}; stop it first")]
    InUse(String),
    #[error("database {0} is not empty; move to a new one")]
    NotEmpty(String),
    #[error("{0}; nothing was moved; `toolgate check` lists all problems of a database")]
    Unreadable(String),
    #[error("the copy differs from the original in {0}; nothing was moved")]
    Different(String),
    #[error(transparent)]
    Open(#[from] OpenStoreError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for TransferError {
    fn from(error: sqlx::Error) -> Self {
        TransferError::Store(error.into())
    }
}

/// Moves all data from one database to another one, which must be empty. The first one stays as it is.
pub async fn transfer(options: &TransferOptions) -> Result<Transferred, TransferError> {
    if let Some(path) = options.from.file().filter(|path| !path.exists()) {
        return Err(TransferError::Missing(path.to_owned()));
    }
    if is_same(&options.from, &options.to) {
        return Err(TransferError::Same(options.from.to_string()));
    }
    let source = Side::open(&options.from).await?;
    let moved = match source.begin().await {
        Ok(mut tx) => {
            let moved = from(&source, &mut tx, options).await;
            // It may have been migrated for the move.
            tx.roll_back().await;
            moved
        }
        Err(error) => Err(error),
    };
    source.database.close().await;
    moved
}

fn is_same(from: &DatabaseAddress, to: &DatabaseAddress) -> bool {
    match (from.file(), to.file()) {
        (Some(from), Some(to)) => {
            matches!((from.canonicalize(), to.canonicalize()), (Ok(from), Ok(to)) if from == to)
        }
        (None, None) => from.to_string() == to.to_string(),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

async fn from(source: &Side, tx: &mut Tx, options: &TransferOptions) -> Result<Transferred, TransferError> {
    migrate::run_within(tx, &source.address).await?;
    let seal = source_seal(source, tx, options).await?;
    let target = Side::open(&options.to).await?;
    let moved = match target.begin().await {
        Ok(mut target_tx) => match into(&target, &mut target_tx, tx, &seal, options).await {
            Ok(moved) => target_tx.commit().await.map(|()| moved).map_err(TransferError::from),
            Err(error) => {
                target_tx.roll_back().await;
                Err(error)
            }
        },
        Err(error) => Err(error),
    };
    target.database.close().await;
    if moved.is_err() {
        target.remove_new_file();
    }
    moved
}

/// Fills the target and compares it with the source.
async fn into(
    target: &Side,
    tx: &mut Tx,
    source: &mut Tx,
    source_seal: &Seal,
    options: &TransferOptions,
) -> Result<Transferred, TransferError> {
    const FORGET_EPOCH: &str = "DELETE FROM settings WHERE key = 'epoch'";
    migrate::run_within(tx, &target.address).await?;
    on!(&mut *tx, |db| sqlx::query(FORGET_EPOCH).execute(db).await.map(|_| ()))?;
    for table in TABLES.iter().chain([&RETIRED_TOKENS]) {
        if table.count(tx).await? > 0 {
            return Err(TransferError::NotEmpty(target.address.to_string()));
        }
    }
    let (target_key, origin) = target_key(target, options)?;
    let (old, new) = (RowSeal::new(source_seal.clone()), RowSeal::new(Seal::new(&target_key)));
    match settings::key_opens(tx, &new.seal).await? {
        Some(true) => {}
        Some(false) => return Err(mismatch(target, origin)),
        None => settings::put_key_check(tx, &new.seal).await?,
    }
    let has_another_key = source_seal.key() != &target_key;
    let mut moved = Transferred { tables: Vec::new(), left_tokens: 0, key: origin, has_another_key };
    for table in &TABLES {
        moved.tables.push((table.name, copy(table, source, &old, tx, &new).await?));
        compare(table, source, &old, tx, &new).await?;
    }
    match has_another_key {
        true => moved.left_tokens = usize::try_from(RETIRED_TOKENS.count(source).await?).unwrap_or_default(),
        false => {
            let count = copy(&RETIRED_TOKENS, source, &old, tx, &new).await?;
            compare(&RETIRED_TOKENS, source, &old, tx, &new).await?;
            moved.tables.push((RETIRED_TOKENS.name, count));
        }
    }
    Ok(moved)
}

async fn copy(
    table: &Table,
    source: &mut Tx,
    old: &RowSeal,
    target: &mut Tx,
    new: &RowSeal,
) -> Result<usize, TransferError> {
    let mut count = 0;
    loop {
        let rows = table.page(source, count).await?;
        if rows.is_empty() {
            return Ok(count);
        }
        count += rows.len();
        for row in rows {
            let plain = old.open(table, row).map_err(TransferError::Unreadable)?;
            table.insert(target, new.seal(table, plain)).await?;
        }
    }
}

/// Reads a table of both databases, and compares the opened rows.
async fn compare(
    table: &Table,
    source: &mut Tx,
    old: &RowSeal,
    target: &mut Tx,
    new: &RowSeal,
) -> Result<(), TransferError> {
    let mut count = 0;
    loop {
        let (left, right) = (table.page(source, count).await?, table.page(target, count).await?);
        if left.len() != right.len() {
            return Err(TransferError::Different(format!("the number of rows of table {}", table.name)));
        }
        if left.is_empty() {
            return Ok(());
        }
        count += left.len();
        for (left, right) in left.into_iter().zip(right) {
            let name = table.name_of(&left);
            let left = old.open(table, left).map_err(TransferError::Unreadable)?;
            match new.open(table, right) {
                Ok(right) if left == right => {}
                Ok(_) | Err(_) => return Err(TransferError::Different(name)),
            }
        }
    }
}

/// One of the two databases.
struct Side {
    database: Database,
    address: DatabaseAddress,
    contents: Contents,
    /// Keeps gateways away from a file.
    _lock: Option<File>,
    is_new_file: bool,
}

impl Side {
    async fn open(address: &DatabaseAddress) -> Result<Self, TransferError> {
        match address {
            DatabaseAddress::File(path) => Self::open_file(path).await,
            DatabaseAddress::Postgres(server) => {
                let postgres = Postgres::open(server, HealthSender::default()).await?;
                let side = Self {
                    database: Database::Postgres(postgres),
                    address: address.clone(),
                    contents: Contents::Data,
                    _lock: None,
                    is_new_file: false,
                };
                match side.is_in_use().await {
                    Ok(false) => Ok(side),
                    in_use => {
                        side.database.close().await;
                        in_use?;
                        Err(TransferError::InUse(address.to_string()))
                    }
                }
            }
        }
    }

    async fn open_file(path: &Path) -> Result<Self, TransferError> {
        let path = lock::locate(path)?;
        let lock = lock::take(&path).map_err(|error| match error {
            OpenStoreError::InUse { database } => TransferError::InUse(database.display().to_string()),
            other => other.into(),
        })?;
        let is_new_file = !path.exists();
        let contents = lock::prepare(&path)?;
        let sqlite = Sqlite::open(&path, HealthSender::default()).await;
        let address = DatabaseAddress::File(path);
        let sqlite = sqlite.map_err(|cause| OpenStoreError::from_sqlx(&address, cause))?;
        Ok(Self { database: Database::Sqlite(sqlite), address, contents, _lock: Some(lock), is_new_file })
    }

    /// Begins the only transaction. On a server it sees one state, and gateways that start now wait for its end.
    async fn begin(&self) -> Result<Tx, TransferError> {
        const SNAPSHOT: &str =
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET LOCAL lock_timeout = '10s';
            SET LOCAL client_min_messages = warning";
        let mut tx = self.database.begin(TxMode::Write).await?;
        if let Tx::Postgres(_) = tx {
            on!(&mut tx, |db| sqlx::raw_sql(SNAPSHOT).execute(db).await.map(|_| ()))?;
        }
        Ok(tx)
    }

    /// Whether a gateway uses a database on a server. One that was killed looks like one for a while, but is not heard of
    /// again.
    async fn is_in_use(&self) -> Result<bool, TransferError> {
        let Database::Postgres(postgres) = &self.database else { return Ok(false) };
        let first = replicas::last_beats(postgres).await?;
        let mut beats = first.clone();
        while !beats.is_empty() {
            if beats.iter().any(|beat| !first.contains(beat)) {
                return Ok(true);
            }
            tokio::time::sleep(LOOK).await;
            beats = replicas::last_beats(postgres).await?;
        }
        Ok(false)
    }

    /// Removes the file of a target that was created for a move that failed. Its key may be in use by another database in
    /// the same folder.
    fn remove_new_file(&self) {
        let Some(path) = self.address.file().filter(|_| self.is_new_file) else { return };
        for suffix in ["", "-wal", "-shm"] {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            let _ = fs::remove_file(PathBuf::from(name));
        }
    }
}

/// Finds the key that opens the source. While it is being replaced, either of the two does.
async fn source_seal(source: &Side, tx: &mut Tx, options: &TransferOptions) -> Result<Seal, TransferError> {
    let environment = options.secret_key.as_ref().map(|key| (key, KeyOrigin::Environment));
    let mut found = Vec::new();
    if let Some(given) = &options.from_key {
        found.push(key::given(given.expose(), KeyOrigin::Argument("--from-key"))?);
    } else {
        let beside = source.address.file().map(|path| key::find(None, path));
        match beside {
            Some(Err(OpenStoreError::KeyMissing { .. })) if environment.is_some() => {}
            Some(beside) => found.push(beside?),
            None => {}
        }
        if let Some((given, origin)) = environment {
            found.push(key::given(given.expose(), origin)?);
        }
    }
    let required = || OpenStoreError::KeyRequired { database: source.address.to_string() };
    let (_, origin) = found.first().ok_or_else(required)?;
    let origin = origin.clone();
    for (key, _) in found {
        let seal = Seal::new(&key);
        settings::learn_other_key(tx, &seal).await?;
        match settings::key_opens(tx, &seal).await? {
            Some(true) => return Ok(seal),
            Some(false) => {}
            None => return Err(TransferError::Unused(source.address.to_string())),
        }
    }
    Err(mismatch(source, origin))
}

fn target_key(target: &Side, options: &TransferOptions) -> Result<(SecretKey, KeyOrigin), OpenStoreError> {
    let flag = options.to_key.as_ref().map(|key| (key, KeyOrigin::Argument("--to-key")));
    let environment = options.secret_key.as_ref().map(|key| (key, KeyOrigin::Environment));
    match (flag.or(environment), target.address.file()) {
        (Some((given, origin)), _) => key::given(given.expose(), origin),
        (None, Some(path)) => key::load(None, path, target.contents),
        (None, None) => Err(OpenStoreError::KeyRequired { database: target.address.to_string() }),
    }
}

fn mismatch(side: &Side, origin: KeyOrigin) -> TransferError {
    OpenStoreError::KeyMismatch { database: side.address.to_string(), origin }.into()
}
