//! The configuration file of an MCP client: read, and replaced as a whole, with a copy of the old one beside it.

use std::ffi::OsString;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The mode of a new file, which may hold a token.
const OWNER_ONLY: u32 = 0o600;

/// What happens to the file.
pub enum FileChange {
    /// It gets this text, and a copy of the old one is kept beside it.
    Edited(String),
    /// It gets back the text that it had before `connect` added the entry.
    Restored(String),
    /// It did not exist before `connect`, and does not after this.
    Deleted,
}

impl FileChange {
    /// The text of the file afterwards.
    pub fn text(&self) -> &str {
        match self {
            Self::Edited(text) | Self::Restored(text) => text,
            Self::Deleted => "",
        }
    }
}

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

    /// Finds what the file was before `connect`. `becomes_this` tells whether adding the entry to a text makes the current
    /// one: then nothing else was changed since.
    pub fn before_connect(&self, becomes_this: impl Fn(&str) -> bool) -> Option<FileChange> {
        let copies = (0u32..).map(|number| fs::read_to_string(copy_path(&self.target(), number)));
        let copies: Vec<String> = copies.map_while(Result::ok).collect();
        match copies.into_iter().rev().find(|copy| becomes_this(copy)) {
            Some(copy) => Some(FileChange::Restored(copy)),
            None => becomes_this("").then_some(FileChange::Deleted),
        }
    }

    /// The file itself, if the path is a symbolic link to it.
    fn target(&self) -> PathBuf {
        fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone())
    }

    /// Changes the file. Returns the path of the copy of the old one, if one was made.
    pub fn apply(&self, change: &FileChange) -> anyhow::Result<Option<PathBuf>> {
        match change {
            FileChange::Edited(text) => self.write(text, self.permissions.as_ref()),
            FileChange::Restored(text) => self.write(text, None),
            FileChange::Deleted => {
                self.explain(self.check_unchanged().and_then(|()| Ok(fs::remove_file(&self.path)?)))?;
                Ok(None)
            }
        }
    }

    /// Writes the file atomically, and before that a copy of the old one, if its permissions are given.
    fn write(&self, text: &str, copied: Option<&Permissions>) -> anyhow::Result<Option<PathBuf>> {
        let target = self.target();
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let backup = copied.map(|permissions| self.back_up(&target, permissions)).transpose()?;
        let draft = beside(&target, &format!(".toolgate-{}", std::process::id()));
        let permissions = self.permissions.clone().unwrap_or_else(|| Permissions::from_mode(OWNER_ONLY));
        let written = write_new(&draft, text, permissions).map_err(anyhow::Error::from).and_then(|()| {
            self.check_unchanged()?;
            Ok(fs::rename(&draft, &target)?)
        });
        if written.is_err() {
            let _ = fs::remove_file(&draft);
        }
        self.explain(written)?;
        Ok(backup)
    }

    /// The client may have written its file while the user was asked.
    fn check_unchanged(&self) -> anyhow::Result<()> {
        if Self::open(self.path.clone())?.text != self.text {
            bail!("another program has changed it in the meantime; run the command again");
        }
        Ok(())
    }

    /// Copies the old text to the first free name.
    fn back_up(&self, target: &Path, permissions: &Permissions) -> anyhow::Result<PathBuf> {
        for number in 0u32.. {
            let backup = copy_path(target, number);
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

/// The path of a copy of the file; the copies are numbered from 0.
fn copy_path(path: &Path, number: u32) -> PathBuf {
    match number {
        0 => beside(path, ".before-toolgate"),
        number => beside(path, &format!(".before-toolgate-{number}")),
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
