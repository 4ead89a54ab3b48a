//! `cargo xtask fuzz`: builds the fuzzing program and hands the words over to it.

use std::path::Path;

use anyhow::Result;

use crate::command;

pub fn run(root: &Path, words: &[&str]) -> Result<()> {
    // The same features as in the other steps, so that nothing is built twice.
    command::show(root, &["cargo", "build", "--workspace", "--bins", "--locked", "--quiet"])?;
    command::show(root, &[&["target/debug/fuzz"], words].concat())
}
