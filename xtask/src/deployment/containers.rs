//! The Dockerfile, its context and the compose files.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::tools::{Tools, text};
use crate::command;

const COMPOSE: &[&str] = &["deploy/compose.yaml", "deploy/compose.replicas.yaml"];
/// What the program is compiled from, besides what its manifests name.
const EMBEDDED: &[&str] = &["web/dist/index.html", "migrations", "Cargo.lock"];
/// What must never be part of an image.
const PRIVATE: &[&str] = &[".env", "toolgate.db", "toolgate.key", ".git/config", "deploy/secrets/secret_key"];

pub fn check(root: &Path, tools: &Tools) -> Result<()> {
    let config = ["--config-file", "tests/deploy/yamllint.yaml", "--strict"];
    let yaml = ["deploy/helm/toolgate/Chart.yaml", "deploy/helm/toolgate/values.yaml", "tests/deploy"];
    tools.lint("yamllint", &[config.as_slice(), COMPOSE, &yaml].concat())?;
    tools.lint("hadolint", &["--failure-threshold", "style", "deploy/Dockerfile"])?;
    let schema = ["--builtin-schema", "vendor.compose-spec"];
    tools.lint("check-jsonschema", &[schema.as_slice(), COMPOSE].concat())?;
    for file in COMPOSE {
        hardened(tools, file)?;
    }
    println!("  Dockerfile and compose files: no findings of hadolint, yamllint and the schema of Compose");
    context(root, &tools.folder.join("context"))?;
    println!("  the context of the images has what Cargo needs, and no secrets");
    Ok(())
}

/// Checks that gateways run with the least rights, and that each file that a compose file names exists.
fn hardened(tools: &Tools, file: &str) -> Result<()> {
    let path = tools.root.join(file);
    let documents = tools.documents(&path)?;
    let services = &documents.first().context("an empty file")?["services"];
    let gateway = &services["gateway"];
    let holds = gateway["read_only"] == true
        && gateway["cap_drop"][0] == "ALL"
        && gateway["security_opt"][0] == "no-new-privileges:true"
        && gateway["init"] == true;
    ensure!(holds, "{file}: the gateway does not run with the least rights");
    let folder = path.parent().context("a file is in a folder")?;
    let build = &gateway["build"];
    let context = folder.join(build["context"].as_str().unwrap_or_default());
    let dockerfile = fs::read_to_string(context.join(build["dockerfile"].as_str().unwrap_or_default()))?;
    let target = build["target"].as_str().unwrap_or_default();
    ensure!(dockerfile.contains(&format!(" AS {target}\n")), "{file}: there is no target \"{target}\"");
    for service in services.as_object().into_iter().flatten().map(|(_, service)| service) {
        for volume in service["volumes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let source = volume.split(':').next().unwrap_or_default();
            let exists = !source.starts_with('.') || folder.join(source).is_file();
            ensure!(exists, "{file}: there is no file {source}");
        }
    }
    Ok(())
}

/// Makes the context that `.dockerignore` leaves, and lets Cargo read it.
fn context(root: &Path, into: &Path) -> Result<()> {
    let ignored = Ignored::read(&fs::read_to_string(root.join(".dockerignore"))?);
    for name in PRIVATE {
        ensure!(ignored.has(name), ".dockerignore: {name} would be part of the image");
    }
    if into.exists() {
        fs::remove_dir_all(into)?;
    }
    copy(root, into, "", &ignored)?;
    for name in EMBEDDED {
        ensure!(into.join(name).exists(), ".dockerignore: {name} is not in the context, but needed");
    }
    let manifest = into.join("Cargo.toml");
    let line = ["cargo", "metadata", "--no-deps", "--locked", "--offline", "--format-version", "1"];
    command::read(into, &[line.as_slice(), &["--manifest-path", text(&manifest)?]].concat())
        .context("the context of the images is not a complete workspace")?;
    Ok(fs::remove_dir_all(into)?)
}

fn copy(from: &Path, into: &Path, inner: &str, ignored: &Ignored) -> Result<()> {
    fs::create_dir_all(into)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if inner.is_empty() { name.clone() } else { format!("{inner}/{name}") };
        if ignored.has(&path) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&entry.path(), &into.join(&name), &path, ignored)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), into.join(&name))?;
        }
    }
    Ok(())
}

/// The lines of `.dockerignore`, of the forms that ours has: a path, `**/NAME` and `*.ENDING`.
struct Ignored(Vec<String>);

impl Ignored {
    fn read(text: &str) -> Ignored {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Ignored(lines.map(str::to_owned).collect())
    }

    fn has(&self, path: &str) -> bool {
        self.0.iter().any(|line| match (line.strip_prefix("**/"), line.strip_prefix('*')) {
            (Some(name), _) => path.split('/').any(|part| part == name),
            (None, Some(ending)) => !path.contains('/') && path.ends_with(ending),
            (None, None) => path == line || path.starts_with(&format!("{line}/")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_ignored_as_docker_does() {
        let ignored = Ignored::read("# comment\ntarget\n**/node_modules\n*.db\n");
        for path in ["target", "target/debug/x", "web/node_modules/a", "node_modules", "toolgate.db"] {
            assert!(ignored.has(path), "{path}");
        }
        for path in ["targets", "src/target.rs", "tests/x.db", "web/src"] {
            assert!(!ignored.has(path), "{path}");
        }
    }
}
