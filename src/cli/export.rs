//! `toolgate export`: writes one file for each server and group, which `toolgate import` can read. Secrets are
//! replaced by variables unless `--with-secrets` is given.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::{Map, Value, json};
use url::Url;

use super::invocation::Invocation;
use super::output::{self, Format, indented};
use super::record::text;
use super::remote::ApiRequest;
use model::import::escape;

const OWNER_ONLY: u32 = 0o600;

/// Export servers and groups to files
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate export
  toolgate export --dir backup --with-secrets

Files go to servers/NAME.json and groups/NAME.json. Users, clients and OAuth grants are not exported. Without
--with-secrets a variable such as ${GITHUB_BEARER_TOKEN} stands for each secret; set them before `toolgate import`.")]
pub struct Export {
    /// Folder to write to; it must be empty or not exist yet
    #[arg(short, long, default_value = ".toolgate")]
    dir: PathBuf,
    /// Write secrets as they are: tokens, headers, variables, URLs with credentials
    #[arg(long)]
    with_secrets: bool,
}

pub async fn run(invocation: &Invocation, export: Export) -> anyhow::Result<()> {
    let servers = invocation.remote.ask(ApiRequest::get(&["server_configs"])).await?.json()?;
    let groups = invocation.remote.ask(ApiRequest::get(&["tool-groups"])).await?.json()?;
    let mut variables = SecretVariables::default();
    let mut files = Vec::new();
    for server in servers.as_array().into_iter().flatten() {
        let server = if export.with_secrets { escaped(server) } else { variables.without_secrets(server) };
        files.push(("servers", server));
    }
    files.extend(groups.as_array().into_iter().flatten().map(|group| ("groups", escaped(group))));
    let written = write(&export.dir, &files)?;
    output::message(&format!("Exported to {}.", export.dir.display()));
    if !variables.names.is_empty() {
        let names = variables.names.iter().cloned().collect::<Vec<_>>().join(", ");
        output::message(&format!("Set these variables before importing: {names}"));
    }
    match invocation.format {
        Format::Json => {
            let page = json!({ "files": written, "variables": variables.names });
            output::json(&page.to_string())
        }
        Format::Table => output::page(&written.join("\n")),
    }
}

/// Names of the variables that replace secrets.
#[derive(Default)]
struct SecretVariables {
    names: BTreeSet<String>,
}

impl SecretVariables {
    /// Returns the server with each secret replaced by a variable.
    fn without_secrets(&mut self, server: &Value) -> Value {
        let mut hidden = escaped(server);
        let name = text(server, "name");
        for key in ["bearer_token", "oauth_client_secret"] {
            self.hide(&mut hidden[key], &name, key);
        }
        if server["url"].as_str().is_some_and(has_credentials) {
            self.hide(&mut hidden["url"], &name, "url");
        }
        for map in ["env", "headers"] {
            for (key, value) in hidden[map].as_object_mut().into_iter().flatten() {
                self.hide(value, &name, key);
            }
        }
        // Indexing with a missing key inserts `null`; removes those entries again.
        if let Some(object) = hidden.as_object_mut() {
            object.retain(|key, value| !value.is_null() || server.get(key).is_some());
        }
        hidden
    }

    fn hide(&mut self, value: &mut Value, server: &str, key: &str) {
        if value.as_str().is_none_or(str::is_empty) {
            return;
        }
        let wanted = variable_name(server, key);
        let mut names =
            std::iter::once(wanted.clone()).chain((2..).map(|number| format!("{wanted}_{number}")));
        if let Some(name) = names.find(|name| !self.names.contains(name)) {
            *value = format!("${{{name}}}").into();
            self.names.insert(name);
        }
    }
}

fn variable_name(server: &str, key: &str) -> String {
    let name = format!("{server}_{key}");
    let name: String = name
        .chars()
        .map(|next| if next.is_ascii_alphanumeric() { next.to_ascii_uppercase() } else { '_' })
        .collect();
    if name.starts_with(|first: char| first.is_ascii_digit()) { format!("_{name}") } else { name }
}

fn has_credentials(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return true };
    !url.username().is_empty() || url.password().is_some() || url.query().is_some()
}

/// Escapes all strings in a value, so that an import does not expand them.
fn escaped(value: &Value) -> Value {
    match value {
        Value::String(text) => escape(text).into(),
        Value::Array(items) => items.iter().map(escaped).collect(),
        Value::Object(entries) => {
            entries.iter().map(|(key, value)| (key.clone(), escaped(value))).collect::<Map<_, _>>().into()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Writes all files and returns their paths.
fn write(folder: &Path, files: &[(&str, Value)]) -> anyhow::Result<Vec<String>> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    let mut entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    if entries.next().is_some() {
        bail!("the folder {} is not empty; name another with --dir", folder.display());
    }
    for part in ["servers", "groups"] {
        fs::create_dir(folder.join(part)).with_context(|| format!("cannot write to {}", folder.display()))?;
    }
    let mut written = Vec::new();
    for (part, value) in files {
        let path = folder.join(part).join(format!("{}.json", text(value, "name")));
        let open = OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(&path);
        let page = format!("{}\n", indented(&value.to_string()));
        open.and_then(|mut file| file.write_all(page.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))?;
        written.push(path.display().to_string());
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_stands_for_each_secret() {
        let mut variables = SecretVariables::default();
        let server = json!({"name": "a-b", "url": "https://h/?k=SECRET", "bearer_token": "SECRET",
            "headers": {"X-Key": "SECRET", "Empty": ""}, "env": {}, "description": "${x}"});
        let hidden = variables.without_secrets(&server);
        let expected = json!({"name": "a-b", "url": "${A_B_URL}", "bearer_token": "${A_B_BEARER_TOKEN}",
            "headers": {"X-Key": "${A_B_X_KEY}", "Empty": ""}, "env": {}, "description": "$${x}"});
        assert_eq!(hidden, expected);
        let other =
            variables.without_secrets(&json!({"name": "a_b", "env": {"url": "SECRET"}, "url": "http://h/"}));
        assert_eq!(other, json!({"name": "a_b", "env": {"url": "${A_B_URL_2}"}, "url": "http://h/"}));
        assert_eq!(variable_name("1st", "k"), "_1ST_K");
    }
}
