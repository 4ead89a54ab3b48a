//! The configuration file of an MCP client: read, and replaced as a whole, with a copy of the old one beside it.

use std::ffi::OsString;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The mode of a new file, which may hold a token.
const OWNER_ONLY: u32 = 0o600;

pub struct ClientFile {
    pub path: PathBuf,
    /// Empty if there is no file.
    pub text: String,
    permissions: Option<Permissions>,
}

impl ClientFile {
    pub fn open(path: PathBuf) -> anyhow::Result<Self> {
        let (text, permissions) = match fs::read(&path) {
            Ok(bytes) => {
                let text = String::from_utf8(bytes).ok();
                let text = text.with_context(|| format!("{} is not text in UTF-8", path.display()))?;
                (text, Some(fs::metadata(&path)?.permissions()))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => (String::new(), None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        Ok(Self { path, text, permissions })
    }

    /// Names the file in the error of a change that is not possible.
    pub fn explain<T>(&self, changed: anyhow::Result<T>) -> anyhow::Result<T> {
        changed.with_context(|| format!("{} was not changed", self.path.display()))
    }

    /// Writes the file atomically. Returns the path of the copy of the old one; `None` if there was none.
    pub fn write(&self, text: &str) -> anyhow::Result<Option<PathBuf>> {
        // Replaces the target of a symbolic link, not the link.
        let target = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let backup = match &self.permissions {
            Some(permissions) => Some(self.back_up(&target, permissions)?),
            None => None,
        };
        let draft = beside(&target, &format!(".toolgate-{}", std::process::id()));
        let permissions = self.permissions.clone().unwrap_or_else(|| Permissions::from_mode(OWNER_ONLY));
        let written = write_new(&draft, text, permissions).map_err(anyhow::Error::from).and_then(|()| {
            // The client may have written its file while the user was asked.
            if Self::open(self.path.clone())?.text != self.text {
                bail!("it was changed by another program meanwhile; run the command again");
            }
            Ok(fs::rename(&draft, &target)?)
        });
        if written.is_err() {
            let _ = fs::remove_file(&draft);
        }
        self.explain(written)?;
        Ok(backup)
    }

    /// Copies the old text to the first free name.
    fn back_up(&self, target: &Path, permissions: &Permissions) -> anyhow::Result<PathBuf> {
        for number in 0u32.. {
            let number = if number == 0 { String::new() } else { format!("-{number}") };
            let backup = beside(target, &format!(".before-toolgate{number}"));
            match write_new(&backup, &self.text, permissions.clone()) {
                Ok(()) => return Ok(backup),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot write {}", backup.display()));
                }
            }
        }
        bail!("there is no free name for a copy of {}", target.display())
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

fn write_new(path: &Path, text: &str, permissions: Permissions) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(path)?;
    file.set_permissions(permissions)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
