//! Finds the secret key of a database: a value given by the operator, or the file next to the database. A key is made
//! only for a database that is still empty; data sealed under a lost key cannot be recovered.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::lock::{Contents, PRIVATE};
use super::open_error::{KeyOrigin, OpenStoreError};
use seal::SecretKey;

const FILE_NAME: &str = "toolgate.key";

/// The limit for reading a key file, longer than any valid one.
const MAX_FILE_LENGTH: u64 = 256;

/// Finds the key of a database that must have one.
pub(super) fn find(given: Option<&str>, database: &Path) -> Result<(SecretKey, KeyOrigin), OpenStoreError> {
    load(given, database, Contents::Data)
}

/// Reads a key that the operator set.
pub(super) fn given(text: &str, origin: KeyOrigin) -> Result<(SecretKey, KeyOrigin), OpenStoreError> {
    match SecretKey::from_hex(text.trim()) {
        Ok(key) => Ok((key, origin)),
        Err(_) => Err(OpenStoreError::KeyMalformed { origin }),
    }
}

/// Finds the key of a database, or makes a new one if the database is empty and has none.
pub(super) fn load(
    given: Option<&str>,
    database: &Path,
    contents: Contents,
) -> Result<(SecretKey, KeyOrigin), OpenStoreError> {
    if let Some(text) = given {
        return self::given(text, KeyOrigin::Environment);
    }
    let path = database.with_file_name(FILE_NAME);
    let key = match (read(&path)?, contents) {
        (Found::Key(key), Contents::Empty | Contents::Data) => key,
        (Found::Nothing(existing), Contents::Empty) => create(&path, existing)?,
        (Found::Nothing(existing), Contents::Data) => {
            let problem = match existing {
                ExistingKeyFile::None => "missing",
                ExistingKeyFile::Empty => "empty",
            };
            return Err(OpenStoreError::KeyMissing {
                database: database.to_owned(),
                key_file: path,
                problem,
            });
        }
    };
    Ok((key, KeyOrigin::File(path)))
}

/// Replaces the key file next to a database, and returns its path. The old file stays, under another name: another database in
/// the same folder may need it.
pub(super) fn replace(database: &Path, key: &SecretKey) -> io::Result<PathBuf> {
    let path = database.canonicalize()?.with_file_name(FILE_NAME);
    if matches!(read(&path), Ok(Found::Key(current)) if &current == key) {
        return Ok(path);
    }
    let (draft, old) = (path.with_extension("key.new"), path.with_extension("key.old"));
    write(&draft, key)?;
    if path.exists() {
        let _ = fs::remove_file(&old);
        fs::hard_link(&path, &old).or_else(|_| fs::copy(&path, &old).map(|_| ()))?;
    }
    place(&draft, &path, ExistingKeyFile::Empty)?;
    Ok(path)
}

/// What was found at the path of the key file.
enum Found {
    Key(SecretKey),
    Nothing(ExistingKeyFile),
}

/// A key file without a key: a missing one, or one that a power cut left empty.
#[derive(Clone, Copy)]
enum ExistingKeyFile {
    None,
    Empty,
}

fn read(path: &Path) -> Result<Found, OpenStoreError> {
    let unusable = |cause| OpenStoreError::Unusable { path: path.to_owned(), cause };
    let malformed = || OpenStoreError::KeyMalformed { origin: KeyOrigin::File(path.to_owned()) };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(Found::Nothing(ExistingKeyFile::None));
        }
        Err(error) => return Err(unusable(error)),
    };
    let mode = file.metadata().map_err(unusable)?.permissions().mode();
    if mode & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "other users may read the key file; run chmod 600 on it");
    }
    let mut text = Zeroizing::new(String::with_capacity(MAX_FILE_LENGTH as usize));
    match file.take(MAX_FILE_LENGTH).read_to_string(&mut text) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::InvalidData => return Err(malformed()),
        Err(error) => return Err(unusable(error)),
    }
    if text.trim().is_empty() {
        return Ok(Found::Nothing(ExistingKeyFile::Empty));
    }
    SecretKey::from_hex(text.trim()).map(Found::Key).map_err(|_| malformed())
}

/// Makes a key file. It is complete and on disk before it gets its name; otherwise a power cut could leave a file
/// without a key, or data without its key.
fn create(path: &Path, existing: ExistingKeyFile) -> Result<SecretKey, OpenStoreError> {
    let key = SecretKey::random();
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(name);
    let placed = write(&draft, &key).and_then(|()| place(&draft, path, existing));
    // After a failure the draft may contain half a key; the next start makes a new one.
    let _ = fs::remove_file(&draft);
    placed.map_err(|cause| OpenStoreError::Unusable { path: path.to_owned(), cause })?;
    Ok(key)
}

fn write(draft: &Path, key: &SecretKey) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(true).mode(PRIVATE).open(draft)?;
    file.write_all(key.to_hex().as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()
}

fn place(draft: &Path, path: &Path, existing: ExistingKeyFile) -> io::Result<()> {
    match existing {
        // A link, unlike a rename, fails if another gateway with a database in this directory was first.
        ExistingKeyFile::None => match fs::hard_link(draft, path) {
            // Some file systems do not support links.
            Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) => {
                fs::rename(draft, path)?
            }
            linked => linked?,
        },
        ExistingKeyFile::Empty => fs::rename(draft, path)?,
    }
    File::open(path.parent().unwrap_or(path))?.sync_all()
}
