//! `toolgate doctor`: checks everything that commands and agents need, and says what to do about what is missing.

use std::os::unix::fs::PermissionsExt;

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};

use super::invocation::Invocation;
use super::output::{self, Format};
use super::record::text;
use super::remote::{ApiRequest, RemoteError};
use super::{settings, status};
use crate::config;

const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
/// Programs with which MCP servers are usually started.
const LAUNCHERS: [&str; 3] = ["npx", "uvx", "docker"];

/// Check the connection to the gateway, the token, the database and every server
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate doctor
  toolgate doctor --registry https://gate.example.com

The exit code is 1 if a check fails.")]
pub struct Doctor {}

/// The result of one check.
struct Diagnosis {
    what: String,
    /// What is wrong and what to do; `None` if nothing is.
    trouble: Option<String>,
    /// Whether the trouble is only worth a look.
    is_hint: bool,
}

impl Diagnosis {
    fn ok(what: impl Into<String>) -> Self {
        Self { what: what.into(), trouble: None, is_hint: false }
    }

    fn failed(what: impl Into<String>, trouble: impl Into<String>) -> Self {
        Self { what: what.into(), trouble: Some(trouble.into()), is_hint: false }
    }

    fn hint(what: impl Into<String>, trouble: impl Into<String>) -> Self {
        Self { is_hint: true, ..Self::failed(what, trouble) }
    }

    fn word(&self) -> &'static str {
        match (&self.trouble, self.is_hint) {
            (None, _) => "ok",
            (Some(_), true) => "hint",
            (Some(_), false) => "failed",
        }
    }
}

pub async fn run(invocation: &Invocation) -> anyhow::Result<()> {
    let mut checks = vec![settings_file()];
    checks.extend(gateway(invocation).await);
    let failed = checks.iter().filter(|check| check.word() == "failed").count();
    match invocation.format {
        Format::Json => {
            let list = checks.iter().map(
                |check| json!({ "check": check.what, "result": check.word(), "trouble": check.trouble }),
            );
            output::json(&Value::from_iter(list).to_string())?;
        }
        Format::Table => {
            for check in &checks {
                output::page(&line(check))?;
            }
        }
    }
    match failed {
        0 => Ok(()),
        1 => bail!("1 check failed"),
        _ => bail!("{failed} checks failed"),
    }
}

fn line(check: &Diagnosis) -> String {
    let mark = match check.word() {
        "ok" => "✓",
        "hint" => "!",
        _ => "✗",
    };
    let trouble = check.trouble.as_deref().map(|trouble| output::printable(trouble).replace('\n', "\n    "));
    let trouble = trouble.map(|trouble| format!("\n    {trouble}")).unwrap_or_default();
    format!("{mark} {}{trouble}\n", output::printable(&check.what))
}

/// Other people must not read the file, which has a token.
fn settings_file() -> Diagnosis {
    let Some(path) = settings::path() else {
        return Diagnosis::hint("settings", "there is no home directory; set HOME to keep a token");
    };
    let shown = path.display();
    match std::fs::metadata(&path) {
        Err(_) => Diagnosis::ok(format!("settings: no {shown}, so the defaults are used")),
        Ok(found) if found.permissions().mode() & 0o077 != 0 => Diagnosis::failed(
            format!("settings: {shown}"),
            format!("others can read the token in it: chmod 600 {shown}"),
        ),
        Ok(_) => Diagnosis::ok(format!("settings: {shown}")),
    }
}

async fn gateway(invocation: &Invocation) -> Vec<Diagnosis> {
    let (remote, registry) = (&invocation.remote, invocation.remote.registry());
    let metadata = remote.ask_system(ApiRequest::get(&["metadata"])).await.and_then(|answer| answer.json());
    let version = match metadata {
        Ok(metadata) => text(&metadata, "version"),
        Err(error) => return vec![Diagnosis::failed(format!("gateway: {registry}"), error.to_string())],
    };
    let mut checks = vec![match version == VERSION {
        true => Diagnosis::ok(format!("gateway: {registry} answers ({version})")),
        false => Diagnosis::hint(
            format!("gateway: {registry} answers ({version})"),
            format!("this program is {VERSION}; use the same version of both"),
        ),
    }];
    checks.push(match status::database(invocation).await {
        Ok(Ok(())) => Diagnosis::ok("database: can be written"),
        Ok(Err(reason)) => Diagnosis::failed("database: cannot be written", reason),
        Err(error) => Diagnosis::failed("database", error.to_string()),
    });
    let (token, has_users) = token(invocation).await;
    checks.push(token);
    if has_users {
        checks.extend(sign_in(invocation).await);
    }
    match remote.ask(ApiRequest::get(&["servers"])).await.and_then(|answer| answer.json()) {
        Ok(servers) => {
            checks.extend(servers.as_array().into_iter().flatten().map(|server| one(invocation, server)))
        }
        Err(error) => checks.push(Diagnosis::failed("servers", error.to_string())),
    }
    if remote.is_on_this_machine() {
        checks.extend(LAUNCHERS.iter().filter(|program| !is_installed(program)).map(|program| {
            Diagnosis::hint(
                format!("programs: {program} is not installed"),
                format!("only servers that are started with {program} need it"),
            )
        }));
    }
    checks
}

/// Checks the token. Also tells whether the gateway has users: in development mode there are none.
async fn token(invocation: &Invocation) -> (Diagnosis, bool) {
    match invocation.remote.ask(ApiRequest::get(&["users", "whoami"])).await.and_then(|answer| answer.json())
    {
        Ok(user) => {
            let found = format!("token: {} with the role {}", text(&user, "username"), text(&user, "role"));
            (Diagnosis::ok(found), true)
        }
        Err(RemoteError::Refused { status: 403, sentence, .. })
            if sentence.contains("only allowed in enterprise") =>
        {
            (Diagnosis::ok("token: none is needed in development mode"), false)
        }
        Err(error) => (Diagnosis::failed("token", error.to_string()), true),
    }
}

/// The steps of signing in, which the gateway tries itself. None for people who may not ask.
async fn sign_in(invocation: &Invocation) -> Vec<Diagnosis> {
    let request = ApiRequest::get(&["sign-in", "check"]);
    let steps = match invocation.remote.ask(request).await.and_then(|answer| answer.json()) {
        Ok(steps) => steps.as_array().cloned().unwrap_or_default(),
        Err(RemoteError::Refused { status: 404, .. }) => {
            let trouble = "for that, start the gateway with PUBLIC_URL, and without OAUTH=off";
            return vec![Diagnosis::hint("sign-in: people cannot sign in in a browser", trouble)];
        }
        Err(RemoteError::Refused { status: 401 | 403, .. }) => return Vec::new(),
        Err(error) => return vec![Diagnosis::failed("sign-in", error.to_string())],
    };
    let diagnose = |step: &Value| {
        let (name, found) = (text(step, "step"), text(step, "text"));
        match step["ok"] == true {
            true => Diagnosis::ok(format!("sign-in, {name}: {found}")),
            false => Diagnosis::failed(format!("sign-in, {name}"), found),
        }
    };
    steps.iter().map(diagnose).collect()
}

fn one(invocation: &Invocation, server: &Value) -> Diagnosis {
    let (name, status) = (text(server, "name"), text(server, "status"));
    let what = format!("server {name}: {status}");
    let more = format!("\n{}", invocation.command(&format!("get server {name}")));
    let trouble = format!("{}{more}", text(server, "status_reason"));
    match status.as_str() {
        "failed" => Diagnosis::failed(what, trouble),
        "degraded" | "connecting" => Diagnosis::hint(what, trouble.trim_start()),
        _ => Diagnosis::ok(what),
    }
}

fn is_installed(program: &str) -> bool {
    let path = config::variable("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
