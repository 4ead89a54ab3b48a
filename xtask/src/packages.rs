//! npm packages at the versions of a lock file, installed into a folder that git ignores. They are installed and run
//! with the npm and the Node of `xtask/node`: the machine's Node may be too old, and npm then leaves out the native
//! parts of packages.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command;

/// Not `npm ci`: it requires the optional packages of all platforms, which some registries do not have.
const INSTALL: &[&str] = &["npm", "install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error"];

pub struct Packages {
    pub folder: PathBuf,
    node: Node,
}

impl Packages {
    /// Installs the packages of `source` into `folder`; does nothing if they are installed already.
    pub fn install(root: &Path, source: &Path, folder: &Path) -> Result<Packages> {
        let node = Node::install(root)?;
        // Node's lock file is included, because native parts work only with the Node that installed them.
        let wanted = [fs::read(source.join(LOCK))?, node.lock.clone()].concat();
        install(source, folder, &wanted, || node.show(folder, INSTALL, &[]))?;
        Ok(Packages { folder: folder.to_owned(), node })
    }

    /// Runs one of the scripts of `package.json`.
    pub fn script(&self, name: &str) -> Result<()> {
        self.node.show(&self.folder, &["npm", "run", "--silent", name], &[])
    }

    /// Runs a file with Node.
    pub fn run(&self, file: &str, arguments: &[&str]) -> Result<()> {
        self.run_with(file, arguments, &[])
    }

    pub fn run_with(&self, file: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Result<()> {
        self.node.show(&self.folder, &[&[self.node()?, file], arguments].concat(), variables)
    }

    /// The path of Node, for callers that start it themselves.
    pub fn node(&self) -> Result<&str> {
        self.node.program.to_str().context("the path of Node is not text")
    }

    /// The path of a file in the folder.
    pub fn path(&self, inner: &str) -> Result<String> {
        let path = self.folder.join(inner);
        Ok(path.to_str().context("the path of the packages is not text")?.to_owned())
    }
}

/// The npm and the Node of `xtask/node`.
struct Node {
    program: PathBuf,
    /// A `PATH` that finds them first.
    path: String,
    lock: Vec<u8>,
}

impl Node {
    /// Installs both with the npm of the machine, which is not used for anything else.
    fn install(root: &Path) -> Result<Node> {
        let (source, folder) = (root.join("xtask/node"), root.join(".cache/node"));
        let lock = fs::read(source.join(LOCK))?;
        install(&source, &folder, &lock, || command::show(&folder, INSTALL))?;
        // Not the link in `.bin`: npm 9 removes it, because the packages of other platforms have the same program.
        let node = folder.join(format!("node_modules/node-{}/bin", platform()));
        let program = node.join("node");
        if !program.exists() {
            bail!("xtask/node/package.json has no Node for {}", platform());
        }
        let others = env::var_os("PATH").unwrap_or_default();
        let ours = [node, folder.join("node_modules/.bin")];
        let path = env::join_paths(ours.into_iter().chain(env::split_paths(&others)))?;
        Ok(Node { program, path: path.into_string().ok().context("PATH is not text")?, lock })
    }

    fn show(&self, folder: &Path, line: &[&str], variables: &[(&str, &str)]) -> Result<()> {
        command::show_with(folder, line, &[&[("PATH", self.path.as_str())], variables].concat())
    }
}

/// This system and processor, as Node names them.
fn platform() -> String {
    let system = match env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    let processor = match env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{system}-{processor}")
}

const LOCK: &str = "package-lock.json";

/// Copies the package files of `source` into `folder` and installs there, unless that was done for the same `wanted`.
fn install(source: &Path, folder: &Path, wanted: &[u8], work: impl FnOnce() -> Result<()>) -> Result<()> {
    let stamp = folder.join("node_modules/installed-package-lock.json");
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    println!("  installing npm packages into {} ...", folder.display());
    fs::create_dir_all(folder)?;
    if source != folder {
        for name in ["package.json", LOCK] {
            fs::copy(source.join(name), folder.join(name))?;
        }
    }
    work()?;
    Ok(fs::write(stamp, wanted)?)
}
