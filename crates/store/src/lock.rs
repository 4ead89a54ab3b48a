//! Finds the database file and makes sure that this process is the only gateway that works on it.
//! SQLite itself would let two gateways share a file, and each would miss what the other changes.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::open_error::OpenStoreError;

/// The file mode for access by the owner only; SQLite gives its `-wal` and `-shm` files the mode of the database.
pub(super) const PRIVATE: u32 = 0o600;

const SQLITE_HEADER: &[u8; 16] = b"SQLite format 3\0";

/// Whether the database contains data, which a new key could not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    Empty,
    Data,
}

/// The canonical path of the database, so that links and relative paths lead to the same lock.
pub(super) fn locate(path: &Path) -> Result<PathBuf, OpenStoreError> {
    let unusable = |cause| OpenStoreError::Unusable { path: path.to_owned(), cause };
    match path.canonicalize() {
        Ok(real) => return Ok(real),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(unusable(error)),
        Err(_) if path.is_symlink() => {
            return Err(unusable(io::Error::other("it is a link to a missing file")));
        }
        Err(_) => {}
    }
    let name = path.file_name().ok_or_else(|| unusable(io::Error::other("it does not name a file")))?;
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    match directory.canonicalize() {
        Ok(real) => Ok(real.join(name)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(OpenStoreError::NoDirectory { directory: directory.to_owned(), database: path.to_owned() })
        }
        Err(error) => Err(unusable(error)),
    }
}

/// Takes the lock of a database. This comes before the database file is opened: opening and closing that file while
/// another thread of this process has it open would drop the locks that SQLite holds. The lock file is never removed,
/// since that would be a race.
pub(super) fn take(database: &Path) -> Result<File, OpenStoreError> {
    let mut name = OsString::from(database);
    name.push(".lock");
    let path = PathBuf::from(name);
    let unusable = |cause| OpenStoreError::Unusable { path: path.clone(), cause };
    let file = File::options().write(true).create(true).truncate(false).mode(PRIVATE).open(&path);
    let file = file.map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenStoreError::InUse { database: database.to_owned() }),
        Err(TryLockError::Error(cause)) => Err(unusable(cause)),
    }
}

/// Creates the database file if it is missing, with access for the owner only, and returns whether it has data.
pub(super) fn prepare(database: &Path) -> Result<Contents, OpenStoreError> {
    let unusable = |cause| OpenStoreError::Unusable { path: database.to_owned(), cause };
    let file =
        File::options().read(true).write(true).create(true).truncate(false).mode(PRIVATE).open(database);
    let file = file.map_err(unusable)?;
    if !file.metadata().map_err(unusable)?.is_file() {
        return Err(unusable(io::Error::other("it is not a regular file")));
    }
    let mut header = Vec::new();
    file.take(SQLITE_HEADER.len() as u64).read_to_end(&mut header).map_err(unusable)?;
    if header.is_empty() {
        return Ok(Contents::Empty);
    }
    if header != SQLITE_HEADER {
        return Err(OpenStoreError::NotADatabase { path: database.to_owned() });
    }
    Ok(Contents::Data)
}
