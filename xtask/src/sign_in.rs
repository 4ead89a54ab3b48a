//! Real clients sign in at the gateway, in a real browser and at a real identity provider. The scripts under `tests/sign-in`
//! start the gateways, clients and browsers they need. The packages are those of `tests/clients` and `tests/browser`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::clients;
use crate::command;
use crate::packages::Packages;
use crate::python::{Python, Sdk};
use crate::run::Run;

pub fn run(run: &mut Run) -> Result<()> {
    let source = run.root.join("tests/sign-in");
    let mut scripts = names(&source)?;
    scripts.retain(|name| name.ends_with(".test.mjs") && run.wants(name));
    if scripts.is_empty() {
        println!("  no script matches the filter");
        return Ok(());
    }
    let browsing = Browsing::prepare(run)?;
    let scripts: Vec<_> = scripts.iter().map(String::as_str).collect();
    if browsing.test(&scripts, &[]).is_err() {
        bail!("a client or a page failed; screenshots are in {}", browsing.pictures.display());
    }
    println!("  screenshots of every page are in {}", browsing.pictures.display());
    Ok(())
}

/// The scripts and what they need.
pub struct Browsing {
    clients: Packages,
    browser: Packages,
    python: Python,
    root: PathBuf,
    pictures: PathBuf,
}

impl Browsing {
    pub fn prepare(run: &Run) -> Result<Browsing> {
        let root = run.root.clone();
        // Builds the whole workspace, like the tests, so that nothing is built twice with different features.
        command::show(&root, &["cargo", "build", "--workspace", "--bins", "--locked", "--quiet"])?;
        let clients = clients::install(&root)?;
        let browser = Packages::install(&root, &root.join("tests/browser"), &root.join(".cache/browser"))?;
        let python = Python::install(&root, Sdk::Two)?;
        // Below the packages, because Node looks for packages in the folders above.
        let (source, folder) = (root.join("tests/sign-in"), clients.folder.join("sign-in"));
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        let pictures = folder.join("screenshots");
        fs::create_dir_all(&pictures)?;
        for name in names(&source)? {
            fs::copy(source.join(&name), folder.join(&name))?;
        }
        Ok(Browsing { clients, browser, python, root, pictures })
    }

    /// Runs scripts as tests of Node, one after the other: the machine may be small.
    pub fn test(&self, scripts: &[&str], variables: &[(&str, &str)]) -> Result<()> {
        let keys = self.root.join("tests/it/support/tls");
        let certificate = text(&keys.join("first.cert.pem"))?;
        let own = [
            ("TOOLGATE", command::program("toolgate")?),
            ("FIXTURE", command::program("conformance-fixture")?),
            ("PYTHON", self.python.program("python")?),
            ("BROWSER_PACKAGES", text(&self.browser.folder)?),
            ("SCREENSHOTS", text(&self.pictures)?),
            ("KEY", text(&keys.join("first.key.pem"))?),
            ("CERTIFICATE", certificate.clone()),
            // The clients trust the certificate, too.
            ("NODE_EXTRA_CA_CERTS", certificate),
        ];
        let own: Vec<_> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut arguments = vec!["--test-concurrency=1".to_owned(), "--test-reporter=spec".to_owned()];
        arguments.extend(scripts.iter().map(|name| format!("sign-in/{name}")));
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        self.clients.run_with("--test", &arguments, &[&own, variables].concat())
    }
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().into_string().ok().context("the name of a script is not text")?);
    }
    names.sort();
    Ok(names)
}

fn text(path: &Path) -> Result<String> {
    Ok(path.to_str().with_context(|| format!("{} is not text", path.display()))?.to_owned())
}
