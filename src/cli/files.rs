//! Configuration files given with `--conf`: JSON or YAML, from a path or from standard input. `${NAME}` is replaced
//! by the environment variable.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use super::invocation::Invocation;
use super::output;
use crate::config::variable;
use model::import;

/// Reads a file; `-` is standard input. Runs on a thread of its own, so that Ctrl-C still works.
pub async fn text(path: &Path) -> anyhow::Result<String> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || {
        if path == Path::new("-") {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            return Ok(text);
        }
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    })
    .await?
}

/// Reads the object in a file and expands its variables.
pub async fn object(invocation: &Invocation, path: &Path) -> anyhow::Result<Map<String, Value>> {
    let value = import::read(&text(path).await?).with_context(|| format!("cannot use {}", path.display()))?;
    if value.get("mcpServers").is_some() || value.get("servers").is_some() {
        let command = invocation.command(&format!("import {}", path.display()));
        bail!("{} is a file with several servers; use `{command}`", path.display());
    }
    match import::expand(value, &variable) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => bail!("{} must contain one object", path.display()),
        Err(problem) => bail!("cannot use {}: {problem}", path.display()),
    }
}

/// Warns that flags given beside `--conf` are ignored, unless `alone`: there are none.
pub fn warn_about_flags(alone: bool) {
    if !alone {
        output::message("Using the file; the other flags are ignored.");
    }
}

/// Replaces the `access_token_ref` of a file by the token that it refers to.
pub async fn resolve_token(object: &mut Map<String, Value>) -> anyhow::Result<()> {
    let Some(reference) = object.remove("access_token_ref").filter(|reference| !reference.is_null()) else {
        return Ok(());
    };
    if object.get("access_token").and_then(Value::as_str).is_some_and(|token| !token.is_empty()) {
        return Ok(());
    }
    let field = |name: &str| reference.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let (env, file) = (field("env"), field("file"));
    let from_env =
        env.and_then(variable).map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
    let token = match (from_env, file) {
        (Some(token), _) => token,
        (None, Some(file)) => text(Path::new(file)).await?.trim().to_owned(),
        (None, None) => match env {
            Some(env) => bail!("field \"access_token_ref\" names the variable {env}, which is not set"),
            None => {
                bail!("field \"access_token_ref\" must name a variable with \"env\" or a file with \"file\"")
            }
        },
    };
    if token.is_empty() {
        bail!("the file that \"access_token_ref\" names is empty");
    }
    object.insert("access_token".into(), token.into());
    Ok(())
}
