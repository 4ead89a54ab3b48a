//! Installs the third-party clients and servers from the lock files into `.cache`, never system-wide.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::packages::Packages;

/// Installs the npm packages, unless they were installed from the same lock file. The scripts are copied beside the
/// packages, because Node looks for packages there.
pub fn install(root: &Path) -> Result<Packages> {
    let (folder, source) = (root.join(".cache/clients"), root.join("tests/clients"));
    let packages = Packages::install(root, &source, &folder)?;
    for entry in fs::read_dir(&source)? {
        let script = entry?.path();
        let ending = script.extension().and_then(|ending| ending.to_str());
        if let (Some("mjs" | "py"), Some(name)) = (ending, script.file_name()) {
            fs::copy(&script, folder.join(name))?;
        }
    }
    Ok(packages)
}
