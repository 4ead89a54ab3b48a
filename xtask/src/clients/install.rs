//! Installs the third-party clients and their server from the lock files into `.cache`, never system-wide.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::command;
use crate::packages::Packages;

/// Installs the packages, unless they were installed from the same lock files. The scripts are copied beside the
/// packages, because Node looks for packages there.
pub fn install(root: &Path) -> Result<Packages> {
    let (folder, source) = (root.join(".cache/clients"), root.join("tests/clients"));
    let packages = Packages::install(root, &source, &folder)?;
    install_python(&source, &folder)?;
    for entry in fs::read_dir(&source)? {
        let script = entry?.path();
        let ending = script.extension().and_then(|ending| ending.to_str());
        if let (Some("mjs" | "py"), Some(name)) = (ending, script.file_name()) {
            fs::copy(&script, folder.join(name))?;
        }
    }
    Ok(packages)
}

fn install_python(source: &Path, folder: &Path) -> Result<()> {
    const LOCK: &str = "requirements.txt";
    let (wanted, stamp) = (fs::read(source.join(LOCK))?, folder.join("python/installed-requirements.txt"));
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    println!("  installing Python packages into {} ...", folder.display());
    fs::write(folder.join(LOCK), &wanted)?;
    command::show(folder, &["python3", "-m", "venv", "--clear", "python"])?;
    let pip = ["python/bin/pip", "install", "--quiet", "--no-deps", "--requirement", LOCK];
    command::show(folder, &pip)?;
    Ok(fs::write(stamp, wanted)?)
}
