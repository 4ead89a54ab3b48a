//! Where the database of a gateway is. By default that depends on the working directory, so a gateway that is started
//! elsewhere makes a new one; this finds the other.

use std::path::{Path, PathBuf};

use crate::config;

const FILE: &str = "toolgate.db";
/// Folders for the data of a program, below the home folder.
const IN_HOME: [&str; 3] = ["", ".toolgate", ".local/share/toolgate"];
const OF_SYSTEM: &str = "/var/lib/toolgate";

pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns a database in another usual place: a folder around the working directory, the home folder, or that of a
/// service. `None` if the path of the database does not depend on the working directory.
pub fn other_database(path: &Path) -> Option<PathBuf> {
    if path.is_absolute() {
        return None;
    }
    let own = absolute(path);
    let around = own.parent()?.ancestors().skip(1).map(Path::to_owned);
    let home = config::variable("HOME").map(PathBuf::from);
    let in_home = home.iter().flat_map(|home| IN_HOME.map(|folder| home.join(folder)));
    let folders = around.chain(in_home).chain([PathBuf::from(OF_SYSTEM)]);
    folders.map(|folder| folder.join(FILE)).find(|other| *other != own && other.is_file())
}
