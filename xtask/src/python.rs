//! Python packages at the versions of a lock file, in virtual environments below `.cache`, never system-wide. There is one
//! environment for each major version of the Python SDK, since both cannot be installed together, and one for tools.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command;

/// The major versions of the SDK.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sdk {
    One,
    Two,
}

impl Sdk {
    /// The name of its environment and of its lock files.
    fn word(self) -> &'static str {
        match self {
            Sdk::One => "sdk-1",
            Sdk::Two => "sdk-2",
        }
    }
}

pub struct Python {
    folder: PathBuf,
}

impl Python {
    /// Installs the packages of `tests/clients/<sdk>.txt`; does nothing if they are installed already.
    pub fn install(root: &Path, sdk: Sdk) -> Result<Python> {
        Python::install_as(root, sdk.word(), &root.join("tests/clients").join(format!("{}.txt", sdk.word())))
    }

    /// Installs the packages of a lock file into the environment with this name; does nothing if they are installed already.
    pub fn install_as(root: &Path, name: &str, lock: &Path) -> Result<Python> {
        let folder = root.join(".cache/python").join(name);
        let (wanted, stamp) = (fs::read(lock)?, folder.join("installed.txt"));
        if !is_done(&stamp, &wanted) {
            println!("  installing Python packages into {} ...", folder.display());
            command::show(root, &["python3", "-m", "venv", "--clear", text(&folder)?])?;
            let pip = folder.join("bin/pip");
            let line = [text(&pip)?, "install", "--quiet", "--no-deps", "--requirement", text(lock)?];
            command::show(root, &line)?;
            fs::write(stamp, wanted)?;
        }
        Ok(Python { folder })
    }

    /// The path of a program of the environment.
    pub fn program(&self, name: &str) -> Result<String> {
        Ok(text(&self.folder.join("bin").join(name))?.to_owned())
    }

    /// Unpacks the SDK's source package, whose version and hash are in `tests/conformance/python/<sdk>.txt`: it has the
    /// conformance server, which the installed package has not. Returns the folder of that server.
    pub fn reference(&self, root: &Path, sdk: Sdk) -> Result<String> {
        let folder = self.folder.join("source");
        let lock = root.join("tests/conformance/python").join(format!("{}.txt", sdk.word()));
        let (wanted, stamp) = (fs::read(&lock)?, folder.join("unpacked.txt"));
        if !is_done(&stamp, &wanted) {
            println!("  unpacking the source of the Python SDK into {} ...", folder.display());
            if folder.exists() {
                fs::remove_dir_all(&folder)?;
            }
            let pip = self.program("pip")?;
            let options = ["download", "--quiet", "--no-deps", "--no-binary", "mcp", "--require-hashes"];
            let places = ["--dest", text(&folder)?, "--requirement", text(&lock)?];
            command::show(root, &[&[pip.as_str()], options.as_slice(), &places].concat())?;
            let archive = only(&folder)?;
            command::show(root, &["tar", "-xzf", text(&archive)?, "-C", text(&folder)?])?;
            fs::remove_file(archive)?;
            fs::rename(only(&folder)?, folder.join("mcp"))?;
            fs::write(stamp, wanted)?;
        }
        Ok(text(&folder.join("mcp/examples/servers/everything-server"))?.to_owned())
    }
}

fn is_done(stamp: &Path, wanted: &[u8]) -> bool {
    fs::read(stamp).is_ok_and(|done| done == wanted)
}

/// The one entry of a folder.
fn only(folder: &Path) -> Result<PathBuf> {
    let entry = fs::read_dir(folder)?.next().with_context(|| format!("{} is empty", folder.display()))?;
    Ok(entry?.path())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("the path {} is not text", path.display()))
}
