//! `cargo xtask fuzz`: builds the fuzzing program and passes the arguments to it.

use std::path::Path;

use anyhow::{Context, Result};

use crate::command;

pub fn run(root: &Path, words: &[&str]) -> Result<()> {
    // The same features as in the other steps, so that nothing is built twice.
    command::show(root, &["cargo", "build", "--workspace", "--bins", "--locked", "--quiet"])?;
    let program = std::env::current_exe()?.with_file_name("fuzz");
    let program = program.to_str().context("the path of the program is not UTF-8")?;
    command::show(root, &[&[program], words].concat())
}
