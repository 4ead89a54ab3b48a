//! Where the secret key of a database comes from: a value given by the operator, or the file beside it.
//! A key is made only for a database that is still empty; what was sealed under a lost key stays lost.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::OpenError;
use super::lock::{Contents, PRIVATE};
use crate::seal::SecretKey;

const FILE_NAME: &str = "toolgate.key";

/// More than any well-formed key file has; what is longer is no key.
const MAX_FILE_LENGTH: u64 = 256;

/// Names the place a key came from, for sentences about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOrigin {
    Environment,
    File(PathBuf),
}

impl fmt::Display for KeyOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyOrigin::Environment => f.write_str("TOOLGATE_SECRET_KEY"),
            KeyOrigin::File(path) => write!(f, "key file {}", path.display()),
        }
    }
}

pub(super) fn load(
    given: Option<&str>,
    database: &Path,
    contents: Contents,
) -> Result<(SecretKey, KeyOrigin), OpenError> {
    if let Some(text) = given {
        let key = SecretKey::from_hex(text.trim());
        let key = key.map_err(|_| OpenError::KeyMalformed { origin: KeyOrigin::Environment })?;
        return Ok((key, KeyOrigin::Environment));
    }
    let path = database.with_file_name(FILE_NAME);
    let key = match (read(&path)?, contents) {
        (Some(key), Contents::Empty | Contents::Data) => key,
        (None, Contents::Empty) => create(&path)?,
        (None, Contents::Data) => {
            return Err(OpenError::KeyMissing { database: database.to_owned(), key_file: path });
        }
    };
    Ok((key, KeyOrigin::File(path)))
}

fn read(path: &Path) -> Result<Option<SecretKey>, OpenError> {
    let unusable = |cause| OpenError::Unusable { path: path.to_owned(), cause };
    let malformed = || OpenError::KeyMalformed { origin: KeyOrigin::File(path.to_owned()) };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
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
    SecretKey::from_hex(text.trim()).map(Some).map_err(|_| malformed())
}

/// On disk before anything is sealed under it, or a power cut could leave data without its key.
fn create(path: &Path) -> Result<SecretKey, OpenError> {
    let unusable = |cause| OpenError::Unusable { path: path.to_owned(), cause };
    // `create_new` decides between two gateways whose databases share this directory and thus this file.
    let file = File::options().write(true).create_new(true).mode(PRIVATE).open(path).map_err(unusable)?;
    let key = SecretKey::random();
    if let Err(error) = write(file, &key, path) {
        // Half a key would stop the next start; without the file it makes a whole one.
        let _ = fs::remove_file(path);
        return Err(unusable(error));
    }
    Ok(key)
}

fn write(mut file: File, key: &SecretKey, path: &Path) -> io::Result<()> {
    file.write_all(key.to_hex().as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    File::open(path.parent().unwrap_or(path))?.sync_all()
}
