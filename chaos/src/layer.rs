//! The fault layer that is loaded into the program under test: where its library is, and what both sides agree on.

use std::path::PathBuf;

use anyhow::{Result, bail};

#[path = "../faults/src/control.rs"]
pub mod control;

/// The library, which is beside the harness.
pub fn library() -> Result<PathBuf> {
    let library = std::env::current_exe()?.with_file_name("libtoolgate_faults.so");
    if !library.exists() {
        bail!("there is no {}; build it with `cargo build -p toolgate-faults`", library.display());
    }
    Ok(library)
}
