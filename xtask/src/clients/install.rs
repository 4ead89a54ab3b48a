//! The clients and the server that others wrote: installed from the lock files into `.cache`, never into the machine.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command;

pub struct Installed {
    pub folder: PathBuf,
}

impl Installed {
    /// Installs what is not there yet from the same lock files. The scripts are put beside the packages, where Node
    /// looks for those.
    pub fn prepare(root: &Path) -> Result<Installed> {
        let (folder, source) = (root.join(".cache/clients"), root.join("tests/clients"));
        fs::create_dir_all(&folder)?;
        // Not `npm ci`: it insists on the optional packages of all platforms, which not every registry has.
        let npm = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error"];
        install(&folder, &source, "package-lock.json", "npm packages", || {
            fs::copy(source.join("package.json"), folder.join("package.json"))?;
            command::show(&folder, &npm)
        })?;
        install(&folder, &source, "requirements.txt", "Python packages", || {
            command::show(&folder, &["python3", "-m", "venv", "--clear", "python"])?;
            let pip =
                ["python/bin/pip", "install", "--quiet", "--no-deps", "--requirement", "requirements.txt"];
            command::show(&folder, &pip)
        })?;
        for entry in fs::read_dir(&source)? {
            let script = entry?.path();
            let ending = script.extension().and_then(|ending| ending.to_str());
            if let (Some("mjs" | "py"), Some(name)) = (ending, script.file_name()) {
                fs::copy(&script, folder.join(name))?;
            }
        }
        Ok(Installed { folder })
    }

    pub fn path(&self, inner: &str) -> Result<String> {
        let path = self.folder.join(inner);
        Ok(path.to_str().context("the path of the clients is not text")?.to_owned())
    }
}

/// Does nothing when what is there comes from the same lock file.
fn install(
    folder: &Path,
    source: &Path,
    lock: &str,
    what: &str,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let (wanted, stamp) = (fs::read(source.join(lock))?, folder.join(format!("installed-{lock}")));
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    println!("  installing {what} into {} ...", folder.display());
    fs::write(folder.join(lock), &wanted)?;
    work()?;
    Ok(fs::write(stamp, wanted)?)
}
