//! `toolgate backup`: a consistent copy of a database in one file, made by SQLite itself while a gateway may be running
//! on it. The copy is sealed with the same key, and a note in it identifies that key.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use super::failure::describe;
use super::key;
use super::lock::PRIVATE;
use super::open_error::KeyOrigin;
use super::sqlite::Sqlite;
use super::{OpenOptions, OpenStoreError};
use model::Secret;
use seal::Seal;

/// The result of a backup: the key that the copy needs, and its size.
#[derive(Debug)]
pub struct Copied {
    pub key: KeyOrigin,
    /// Identifies the key without revealing it.
    pub fingerprint: String,
    pub bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{} already exists; choose another file", .0.display())]
    Exists(PathBuf),
    #[error("cannot write {}: {cause}", path.display())]
    Target { path: PathBuf, cause: io::Error },
    #[error("{0} is a database on Postgres; copy it with `pg_dump`, and keep TOOLGATE_SECRET_KEY")]
    OnServer(String),
    #[error("the copy failed: {0}")]
    Copy(String),
    #[error(transparent)]
    Source(#[from] OpenStoreError),
}

/// Copies the database to a new file. The file gets its name only when it is complete.
pub async fn backup(options: &OpenOptions, target: &Path, now: &str) -> Result<Copied, BackupError> {
    let failed = |cause| BackupError::Target { path: target.to_owned(), cause };
    if target.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(target.to_owned()));
    }
    let source =
        options.database.file().ok_or_else(|| BackupError::OnServer(options.database.to_string()))?;
    let (path, sqlite) = Sqlite::open_to_read(source).await?;
    let (key, origin) = key::find(options.secret_key.as_ref().map(Secret::expose), &path)?;
    let fingerprint = Seal::new(&key).fingerprint();
    let mut name = target.as_os_str().to_owned();
    name.push(".partial");
    let partial = PathBuf::from(name);
    let made = File::options().write(true).create(true).truncate(true).mode(PRIVATE).open(&partial);
    made.map_err(failed)?;
    let note = format!("made {now} from {}, sealed with the key in {origin} ({fingerprint})", path.display());
    let copied = copy(&sqlite, &partial, &note).await;
    sqlite.close().await;
    let placed = copied.and_then(|()| place(&partial, target).map_err(failed));
    if let Err(error) = placed {
        let _ = fs::remove_file(&partial);
        return Err(error);
    }
    let bytes = fs::metadata(target).map_err(failed)?.len();
    Ok(Copied { key: origin, fingerprint, bytes })
}

async fn copy(sqlite: &Sqlite, partial: &Path, note: &str) -> Result<(), BackupError> {
    let failed = |error: sqlx::Error| BackupError::Copy(describe(&error));
    let name = partial.to_str().ok_or_else(|| BackupError::Copy("the file name is not UTF-8".into()))?;
    sqlite.copy_to(name).await.map_err(failed)?;
    const NOTE: &str = "INSERT INTO settings (key, value) VALUES ('backup', $1)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    let mut copy = SqliteConnectOptions::new().filename(partial).connect().await.map_err(failed)?;
    sqlx::query(NOTE).bind(note).execute(&mut copy).await.map_err(failed)?;
    let sound: String =
        sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut copy).await.map_err(failed)?;
    copy.close().await.map_err(failed)?;
    if sound == "ok" { Ok(()) } else { Err(BackupError::Copy(format!("the copy is damaged: {sound}"))) }
}

fn place(partial: &Path, target: &Path) -> io::Result<()> {
    File::open(partial)?.sync_all()?;
    fs::rename(partial, target)?;
    let directory = target.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}
