//! `toolgate status`: the gateway, its servers, and what is wrong with them.

use clap::Args;
use serde_json::{Value, json};

use super::invocation::Invocation;
use super::output::{self, Format};
use super::record::text;
use super::remote::{ApiRequest, RemoteError};

/// Show whether the gateway and its servers work
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate status
  toolgate status --output json | jq -r .version")]
pub struct StatusArgs {}

pub async fn run(invocation: &Invocation) -> anyhow::Result<()> {
    let remote = &invocation.remote;
    let metadata = remote.ask_system(ApiRequest::get(&["metadata"])).await?.json()?;
    let database = database(invocation).await?;
    let servers = remote.ask(ApiRequest::get(&["servers"])).await?.json()?;
    let servers = servers.as_array().cloned().unwrap_or_default();
    if invocation.format == Format::Json {
        let status = json!({ "registry": remote.registry(), "version": metadata["version"],
            "database": database.as_ref().err().map_or("ok", String::as_str), "servers": servers });
        return output::json(&status.to_string());
    }
    let dashboard = remote.ask_system(ApiRequest::get(&[])).await.is_ok();
    let dashboard = if dashboard { format!("{}/", remote.registry()) } else { String::new() };
    let mut page = output::card(&[
        ("Gateway", format!("{} ({})", remote.registry(), text(&metadata, "version"))),
        ("MCP endpoint", format!("{}/mcp", remote.registry())),
        ("Dashboard", dashboard),
        ("Database", database.as_ref().err().cloned().unwrap_or("ok".to_owned())),
        ("Servers", counts(invocation, &servers)),
    ]);
    for server in &servers {
        page.push_str(&problem(invocation, server).unwrap_or_default());
    }
    output::page(&page)
}

/// Whether the database can be written; the error is the reason why not.
pub async fn database(invocation: &Invocation) -> Result<Result<(), String>, RemoteError> {
    match invocation.remote.ask_system(ApiRequest::get(&["ready"])).await {
        Ok(answer) if answer.json()?["status"] == "ok" => Ok(Ok(())),
        Ok(_) => {
            Ok(Err("changes cannot be stored: the disk may be full; the log of the gateway has the reason"
                .into()))
        }
        Err(RemoteError::Foreign { found, .. }) if found.ends_with("503") => {
            Ok(Err("the gateway is stopping".into()))
        }
        Err(error) => Err(error),
    }
}

/// How many servers have each status: `5: 3 connected, 1 failed, 1 disabled`.
fn counts(invocation: &Invocation, servers: &[Value]) -> String {
    let count = |status: &str| servers.iter().filter(|server| server["status"] == status).count();
    let statuses = ["connected", "degraded", "connecting", "failed", "disabled"];
    let counts = statuses.map(|status| (status, count(status))).into_iter().filter(|(_, count)| *count > 0);
    let counts: Vec<_> = counts.map(|(status, count)| format!("{count} {status}")).collect();
    match servers.len() {
        0 => format!("none; add one with `{}`", invocation.command("register")),
        all => format!("{all}: {}", counts.join(", ")),
    }
}

/// What is wrong with a server, and the command that tells more; `None` if it works or is disabled.
pub fn problem(invocation: &Invocation, server: &Value) -> Option<String> {
    let (name, status) = (text(server, "name"), text(server, "status"));
    let mark = match status.as_str() {
        "failed" => "✗",
        "degraded" | "connecting" => "!",
        _ => return None,
    };
    let reason = output::printable(&text(server, "status_reason")).replace('\n', "\n    ");
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let command = invocation.command(&format!("get server {name}"));
    Some(format!("{mark} {name} {}{reason}\n    {command}\n", is(&status)))
}

fn is(status: &str) -> &str {
    match status {
        "failed" => "failed",
        "degraded" => "is degraded",
        _ => "is connecting",
    }
}
