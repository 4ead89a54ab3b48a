//! npm packages at the versions of a lock file, installed into a folder that git ignores.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command;

pub struct Packages {
    folder: PathBuf,
}

impl Packages {
    /// Installs what `source` wants into `folder`; nothing is done where that is there already.
    pub fn install(source: &Path, folder: &Path) -> Result<Packages> {
        let wanted = fs::read(source.join("package-lock.json"))?;
        let stamp = folder.join("node_modules/installed-package-lock.json");
        if !fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
            println!("  installing npm packages into {} ...", folder.display());
            fs::create_dir_all(folder)?;
            if source != folder {
                for name in ["package.json", "package-lock.json"] {
                    fs::copy(source.join(name), folder.join(name))?;
                }
            }
            // Not `npm ci`: it insists on the optional packages of all platforms, which not every registry has.
            let npm = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error"];
            command::show(folder, &npm)?;
            fs::write(stamp, wanted)?;
        }
        Ok(Packages { folder: folder.to_owned() })
    }

    /// Runs one of the scripts of `package.json`.
    pub fn script(&self, name: &str) -> Result<()> {
        command::show(&self.folder, &["npm", "run", "--silent", name])
    }

    /// Runs a script with the Node that is among the packages.
    pub fn run(&self, script: &str, arguments: &[&str]) -> Result<()> {
        self.run_with(script, arguments, &[])
    }

    pub fn run_with(&self, script: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Result<()> {
        let node = self.folder.join("node_modules/.bin/node");
        let node = node.to_str().context("the path of Node is not text")?;
        let line = [&[node, script], arguments].concat();
        command::show_with(&self.folder, &line, variables)
    }
}
