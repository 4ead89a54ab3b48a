//! What is recorded of calls: not data that the gateway needs, so a failure here fails nothing else. On SQLite the records are
//! in a file of their own, which is opened when it is first needed, and again after a failure.

mod calls;
mod counts;
mod retention;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;

use super::db::{Database, Tx};
use super::failure::describe;
use super::health::HealthSender;
use super::migrate::{RECORDS, migrator};
use super::sqlite::Sqlite;
use super::tx_mode::TxMode;
use super::{Store, StoreError, lock};
use seal::PurposeSeal;

pub use calls::{CallFilter, CallRow, KeptCall};
pub use counts::{CallCount, CountedKind, SPANS};
pub use retention::{Kept, Retention};

/// The purpose of the seal of arguments and results.
const CONTENTS: &str = "contents of calls";

/// The records of calls.
pub struct Records {
    place: Place,
    seal: PurposeSeal,
}

enum Place {
    /// A file beside the database, once it is open.
    File { path: PathBuf, open: Mutex<Option<Arc<RecordsFile>>> },
    /// Tables of the database on a server. Failures do not count as failures of its changes.
    Server(Database),
}

/// Two connections, so that a search does not hold up what is written.
struct RecordsFile {
    writer: Database,
    reader: Database,
}

impl Store {
    /// The records that belong to this database.
    pub fn records(&self) -> Records {
        let place = match &self.database {
            Database::Sqlite(sqlite) => {
                Place::File { path: path_beside(sqlite.path()), open: Mutex::default() }
            }
            Database::Postgres(postgres) => Place::Server(Database::Postgres(postgres.apart())),
        };
        Records { place, seal: self.seal.for_purpose(CONTENTS) }
    }
}

impl Records {
    /// Whether other gateways write here too.
    fn is_shared(&self) -> bool {
        matches!(self.place, Place::Server(_))
    }

    async fn read(&self) -> Result<Tx, StoreError> {
        self.begin(TxMode::Read).await
    }

    async fn write(&self) -> Result<Tx, StoreError> {
        self.begin(TxMode::Write).await
    }

    async fn begin(&self, mode: TxMode) -> Result<Tx, StoreError> {
        let (path, open) = match &self.place {
            Place::File { path, open } => (path, open),
            Place::Server(database) => return Ok(database.begin(mode).await?),
        };
        let file = {
            let mut open = open.lock().await;
            match &*open {
                Some(file) => file.clone(),
                None => open.insert(Arc::new(RecordsFile::open(path).await?)).clone(),
            }
        };
        let database = match mode {
            TxMode::Read => &file.reader,
            TxMode::Write => &file.writer,
        };
        Ok(database.begin(mode).await?)
    }

    /// Closes the file, if it is one.
    pub async fn close(&self) {
        let Place::File { open, .. } = &self.place else { return };
        if let Some(file) = open.lock().await.take() {
            file.reader.close().await;
            file.writer.close().await;
        }
    }
}

impl RecordsFile {
    async fn open(path: &Path) -> Result<Self, StoreError> {
        let unusable = |error: &dyn std::fmt::Display| StoreError::Unsure(error.to_string());
        lock::prepare(path).map_err(|error| unusable(&error))?;
        let writer = Sqlite::open_records(path, HealthSender::quiet()).await?;
        let migrator = migrator(&RECORDS);
        let run = writer.with_connection(async |db| migrator.run_direct(None, db, false).await).await?;
        run.map_err(|error| unusable(&describe(&sqlx::Error::Migrate(error.into()))))?;
        let reader = Sqlite::open_records(path, HealthSender::quiet()).await?;
        Ok(Self { writer: Database::Sqlite(writer), reader: Database::Sqlite(reader) })
    }
}

/// `toolgate.db` has its records in `toolgate.records.db`.
fn path_beside(database: &Path) -> PathBuf {
    let mut name = database.file_stem().unwrap_or_default().to_owned();
    name.push(".records");
    if let Some(extension) = database.extension() {
        name.push(".");
        name.push(extension);
    }
    database.with_file_name(name)
}

/// Splits rows into parts of few different sizes, so that few statements have to be prepared.
fn parts<T>(mut rows: &[T]) -> impl Iterator<Item = &[T]> {
    const SIZES: [usize; 4] = [100, 25, 5, 1];
    std::iter::from_fn(move || {
        let size = SIZES.into_iter().find(|size| *size <= rows.len())?;
        let (part, rest) = rows.split_at(size);
        rows = rest;
        Some(part)
    })
}

/// The placeholders of so many rows, each followed by an expression if there is one: `($1, $2, 0), ($3, $4, 0)`. For SQLite
/// they are `?`: it would take a number for a name, and go through all names to find one.
fn placeholders(rows: usize, columns: usize, last: &str, is_shared: bool) -> String {
    let place = |number: usize| if is_shared { format!("${number}") } else { "?".to_owned() };
    let row = |row: usize| {
        let mut places: Vec<_> = (1..=columns).map(|column| place(row * columns + column)).collect();
        places.extend((!last.is_empty()).then(|| last.to_owned()));
        format!("({})", places.join(", "))
    };
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}
