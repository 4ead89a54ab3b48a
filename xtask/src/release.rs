//! `cargo xtask release`: builds the archive of a release, with the program, completions for shells, manual pages, licences and
//! checksums. Also checks that `cargo install` works.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::command;
use crate::run::Run;

/// Shells, and the file names that they look for.
const COMPLETIONS: [(&str, &str); 4] = [
    ("bash", "toolgate.bash"),
    ("zsh", "_toolgate"),
    ("fish", "toolgate.fish"),
    ("powershell", "toolgate.ps1"),
];
const PAGES: [&str; 4] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md"];

pub fn run(words: &[&str]) -> ExitCode {
    let root = Run::new(None).root;
    let done = match words {
        [] => build(&root).and_then(|program| pack(&root, &program, &root.join("target/release-archive"))),
        ["--toolgate", program] => pack(&root, Path::new(program), &root.join("target/release-archive")),
        ["--toolgate", program, "--into", folder] => pack(&root, Path::new(program), Path::new(folder)),
        _ => Err(anyhow::anyhow!("usage: cargo xtask release [--toolgate FILE [--into FOLDER]]")),
    };
    match done {
        Ok(archive) => {
            println!("{}", archive.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Installs the program as the README says, and makes an archive of it.
pub fn check(run: &mut Run) -> Result<()> {
    let folder = run.root.join("target/installation");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let place = text(&folder)?;
    let line = ["cargo", "install", "--path", ".", "--locked", "--quiet", "--no-track", "--root", place];
    command::show(&run.root, &line)?;
    let program = folder.join("bin/toolgate");
    let archive = pack(&run.root, &program, &folder.join("archive"))?;
    let unpacked = folder.join("unpacked");
    fs::create_dir_all(&unpacked)?;
    command::show(&unpacked, &["tar", "xzf", text(&archive)?, "--strip-components=1"])?;
    command::show(&unpacked, &["sha256sum", "--check", "--quiet", "SHA256SUMS"])?;
    command::show(
        archive.parent().context("an archive without a folder")?,
        &["sha256sum", "--check", "--quiet", &format!("{}.sha256", name_of(&archive)?)],
    )?;
    for file in ["toolgate", "completions/_toolgate", "man/toolgate.1", "man/toolgate-start.1", "LICENSE-MIT"]
    {
        if fs::metadata(unpacked.join(file)).map_or(0, |file| file.len()) == 0 {
            bail!("the archive has no {file}");
        }
    }
    Ok(())
}

fn build(root: &Path) -> Result<PathBuf> {
    command::show(root, &["cargo", "build", "--release", "--locked", "-p", "toolgate", "--bin", "toolgate"])?;
    Ok(root.join("target/release/toolgate"))
}

/// Makes the archive and its checksum in `folder`; returns the path of the archive.
fn pack(root: &Path, program: &Path, folder: &Path) -> Result<PathBuf> {
    let version = command::read(root, &[text(program)?, "--version"])?;
    let version = version.trim().rsplit(' ').next().context("the program has no version")?.to_owned();
    let name = format!("toolgate-{version}-{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    let content = folder.join(&name);
    if content.exists() {
        fs::remove_dir_all(&content)?;
    }
    fs::create_dir_all(content.join("completions"))?;
    fs::create_dir_all(content.join("man"))?;
    fs::copy(program, content.join("toolgate")).context("the program was not built")?;
    for page in PAGES {
        fs::copy(root.join(page), content.join(page))?;
    }
    for (shell, file) in COMPLETIONS {
        let script = command::read(root, &[text(program)?, "completions", shell])?;
        fs::write(content.join("completions").join(file), script)?;
    }
    command::show(root, &[text(program)?, "man-pages", text(&content.join("man"))?])?;
    let files = command::read(&content, &["find", ".", "-type", "f", "-printf", "%P\\n"])?;
    let mut files: Vec<&str> = files.lines().collect();
    files.sort_unstable();
    let sums = command::read(&content, &[&["sha256sum"], files.as_slice()].concat())?;
    fs::write(content.join("SHA256SUMS"), sums)?;
    let archive = format!("{name}.tar.gz");
    // The same content gives the same archive.
    let stable = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"];
    let line = [&["tar", "czf", archive.as_str()], stable.as_slice(), &[name.as_str()]].concat();
    command::show(folder, &line)?;
    let sum = command::read(folder, &["sha256sum", &archive])?;
    fs::write(folder.join(format!("{archive}.sha256")), sum)?;
    Ok(folder.join(archive))
}

fn name_of(path: &Path) -> Result<&str> {
    path.file_name().and_then(|name| name.to_str()).context("a path without a name")
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is not text")
}
