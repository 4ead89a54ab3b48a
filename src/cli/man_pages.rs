//! `toolgate man-pages`: manual pages of all commands, for the archive of a release.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

/// Write manual pages
#[derive(Args)]
#[command(after_help = "Example:
  toolgate man-pages /usr/local/share/man/man1")]
pub struct ManPages {
    /// Folder to write to; it is created if it does not exist
    folder: PathBuf,
}

/// Writes one page for the program and one for each command that its help shows.
pub fn run(man_pages: ManPages, command: clap::Command) -> anyhow::Result<()> {
    let folder = man_pages.folder;
    let written = fs::create_dir_all(&folder).and_then(|()| clap_mangen::generate_to(command, &folder));
    written.with_context(|| format!("cannot write to {}", folder.display()))
}
