//! The dashboard: checks and tests its sources, checks that the committed build is up to date, and tests it in a real
//! browser. The scripts under `tests/` are formatted and linted with its tools.

mod browser;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command;
use crate::conformance::gateway::Gateway;
use crate::packages::Packages;
use crate::run::Run;

pub use browser::browse;

const TYPES: &str = "src/api/schema.ts";

/// The scripts of `web/package.json` that must succeed.
const CHECKS: &[&str] = &["format:check", "lint", "check", "test"];

/// Runs the checks of the sources, and checks that `web/dist` and the generated types match them.
pub fn check(run: &mut Run) -> Result<()> {
    let (web, cache) = places(&run.root)?;
    let packages = Packages::install(&run.root, &web, &web)?;
    for check in CHECKS {
        packages.script(check)?;
    }
    let types = cache.join("schema.ts");
    generate(run, &packages, &types)?;
    if fs::read(&types)? != fs::read(web.join(TYPES))? {
        bail!("web/{TYPES} does not match the OpenAPI document; run `cargo xtask web`");
    }
    let built = cache.join("dist");
    build(&packages, &built)?;
    let stale = differing(&built, &web.join("dist"))?;
    if !stale.is_empty() {
        bail!("web/dist is out of date ({}); run `cargo xtask web`", stale.join(", "));
    }
    Ok(())
}

/// Generates the types and builds `web/dist`.
pub fn update(run: &mut Run) -> Result<()> {
    let (web, _) = places(&run.root)?;
    let packages = Packages::install(&run.root, &web, &web)?;
    generate(run, &packages, &web.join(TYPES))?;
    build(&packages, &web.join("dist"))
}

fn places(root: &Path) -> Result<(PathBuf, PathBuf)> {
    let cache = root.join(".cache/web");
    fs::create_dir_all(&cache)?;
    Ok((root.join("web"), cache))
}

/// Gets the OpenAPI document from a gateway and generates TypeScript from it.
fn generate(run: &Run, packages: &Packages, types: &Path) -> Result<()> {
    command::show(&run.root, &["cargo", "build", "--workspace", "--bins", "--locked", "--quiet"])?;
    let folder = run.root.join(".cache/web/gateway");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let document = run.root.join(".cache/web/openapi.json");
    fs::write(
        &document,
        Gateway::start(&folder, &command::program("toolgate")?)?.get("/api/v0/openapi.json")?,
    )?;
    packages.run("node_modules/openapi-typescript/bin/cli.js", &[text(&document)?, "--output", text(types)?])
}

fn build(packages: &Packages, folder: &Path) -> Result<()> {
    let line = ["build", "--outDir", text(folder)?, "--emptyOutDir", "--logLevel", "warn"];
    packages.run("node_modules/vite/bin/vite.js", &line)
}

/// Returns the files that differ between two folders. Compressed files are left out, since they may differ between
/// versions of zlib; a unit test reads them.
fn differing(one: &Path, other: &Path) -> Result<Vec<String>> {
    let mut names: Vec<_> = [files(one, one)?, files(other, other)?].concat();
    names.sort();
    names.dedup();
    names.retain(|name| {
        !name.ends_with(".gz") && fs::read(one.join(name)).ok() != fs::read(other.join(name)).ok()
    });
    Ok(names)
}

fn files(root: &Path, folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            names.extend(files(root, &path)?);
        } else {
            names.push(text(path.strip_prefix(root)?)?.to_owned());
        }
    }
    Ok(names)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not text", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_missing_or_other_is_named_and_compressed_ones_are_not() {
        let root = std::env::temp_dir().join(format!("toolgate-xtask-{}", std::process::id()));
        let (one, other) = (root.join("one"), root.join("other"));
        for folder in [&one, &other] {
            fs::create_dir_all(folder.join("assets")).unwrap();
            fs::write(folder.join("same"), "x").unwrap();
        }
        fs::write(one.join("assets/a.js"), "1").unwrap();
        fs::write(other.join("assets/a.js"), "2").unwrap();
        fs::write(one.join("assets/a.js.gz"), "1").unwrap();
        fs::write(other.join("more"), "").unwrap();
        assert_eq!(differing(&one, &other).unwrap(), ["assets/a.js", "more"]);
        fs::remove_dir_all(root).unwrap();
    }
}
