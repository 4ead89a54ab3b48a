//! Tests the dashboard in a real browser. The scripts under `tests/browser` start the gateways and servers they need.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};

use super::text;
use crate::command;
use crate::packages::Packages;
use crate::run::Run;

pub fn browse(run: &mut Run) -> Result<()> {
    let root = &run.root;
    // Builds the whole workspace, like the tests, so that nothing is built twice with different features.
    let build =
        ["cargo", "build", "--workspace", "--bins", "--example", "fake_upstream", "--locked", "--quiet"];
    command::show(root, &build)?;
    let (source, folder) = (root.join("tests/browser"), root.join(".cache/browser"));
    let packages = Packages::install(root, &source, &folder)?;
    let tests = copy_scripts(&source, &folder)?;
    let pictures = folder.join("screenshots");
    fs::create_dir_all(&pictures)?;
    let variables = [
        ("TOOLGATE", command::program("toolgate")?),
        ("FAKE_UPSTREAM", command::program("examples/fake_upstream")?),
        ("SCREENSHOTS", text(&pictures)?.to_owned()),
    ];
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let wanted = |name: &&String| run.filter.as_deref().is_none_or(|part| name.contains(part));
    let tests: Vec<_> = tests.iter().filter(wanted).map(String::as_str).collect();
    let Some((first, more)) = tests.split_first() else {
        println!("  no script matches the filter");
        return Ok(());
    };
    // One after the other: each has its own browser and gateway, and the machine may be small.
    let arguments = [&["--test-concurrency=1", "--test-reporter=spec", *first], more].concat();
    if packages.run_with("--test", &arguments, &variables).is_err() {
        bail!("the dashboard failed in the browser; screenshots are in {}", pictures.display());
    }
    println!("  screenshots of every page are in {}", pictures.display());
    Ok(())
}

/// Copies the scripts beside the packages, where Node looks for packages, and returns the names of the tests.
fn copy_scripts(source: &Path, folder: &Path) -> Result<Vec<String>> {
    let mut tests = Vec::new();
    for entry in fs::read_dir(source)? {
        let script = entry?.path();
        let Some(name) = script.file_name().and_then(|name| name.to_str()) else { continue };
        if name.ends_with(".mjs") {
            fs::copy(&script, folder.join(name))?;
        }
        if name.ends_with(".test.mjs") {
            tests.push(name.to_owned());
        }
    }
    tests.sort();
    Ok(tests)
}
