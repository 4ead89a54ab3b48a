//! Servers: listing, showing, changing, enabling, disabling, refreshing and removing them. Registering is in
//! `register`.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value};

use super::error::UsageError;
use super::files;
use super::flags::ServerFlags;
use super::invocation::Invocation;
use super::output::{self, Cell, Spinner, Table, Tone};
use super::record::{counted, rate_limit, text};
use super::remote::{ApiRequest, ApiResponse};
use super::suggestion::{ListedNoun, explain};
use super::switch::Switch;
use super::wording::Source;

/// List registered servers
#[derive(Args)]
#[command(after_help = "Example:
  toolgate list servers")]
pub struct ListServers {}

/// Show the configuration, the status and the number of tools of a server
#[derive(Args)]
#[command(after_help = "Example:
  toolgate get server github")]
pub struct GetServer {
    /// Name of the server
    name: String,
}

/// Change a server; settings that are not given stay the same
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate update server github --bearer-token \"$NEW_TOKEN\"
  toolgate update server files --env REGION=us --unset-env DEBUG
  toolgate update server files -- npx -y @modelcontextprotocol/server-filesystem /srv
  toolgate update server --conf github.yaml")]
pub struct UpdateServer {
    /// Name of the server; with --conf the file may name it
    name: Option<String>,
    /// File with the keys to change, JSON or YAML; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// Keep the change even if the server cannot be connected with it now
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    flags: ServerFlags,
    /// Header to remove; may be repeated
    #[arg(long, value_name = "NAME")]
    unset_header: Vec<String>,
    /// Variable of the server's process to remove; may be repeated
    #[arg(long, value_name = "NAME")]
    unset_env: Vec<String>,
}

/// Enable or disable a whole server
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate disable server github
  toolgate enable server github")]
pub struct SwitchServer {
    /// Name of the server
    name: String,
}

/// Refresh the lists of tools, prompts and resources of a server
#[derive(Args)]
#[command(after_help = "Example:
  toolgate refresh github")]
pub struct Refresh {
    /// Name of the server
    name: String,
}

/// Remove a server and everything it offers
#[derive(Args)]
#[command(after_help = "Example:
  toolgate deregister github")]
pub struct Deregister {
    /// Name of the server
    name: String,
}

pub async fn list(invocation: &Invocation) -> anyhow::Result<()> {
    let answer = invocation.remote.ask(ApiRequest::get(&["servers"])).await?;
    invocation.show(&answer, |servers| {
        let servers = servers.as_array().map(Vec::as_slice).unwrap_or_default();
        if servers.is_empty() {
            let command = invocation.command("register");
            output::message(&format!("There are no servers; add one with `{command}`."));
            return String::new();
        }
        let mut table = Table::new(["NAME", "STATUS", "TRANSPORT", "TOOLS", "PROMPTS", "RESOURCES", "NOTE"]);
        for server in servers {
            let reason = text(server, "status_reason");
            // What a process said is on the page of the server.
            let reason = reason.split("; last lines of stderr:").next().unwrap_or_default().to_owned();
            let note = if reason.is_empty() { text(server, "description") } else { reason };
            table.row([
                text(server, "name").into(),
                status(server),
                text(server, "transport").into(),
                count(server, "tool_count"),
                count(server, "prompt_count"),
                count(server, "resource_count"),
                note.into(),
            ]);
        }
        table.render(output::width())
    })
}

pub async fn get(invocation: &Invocation, get: GetServer) -> anyhow::Result<()> {
    let answer = invocation.remote.ask(ApiRequest::get(&["servers", &get.name])).await;
    let answer = explain(invocation, ListedNoun::Server, &get.name, answer).await?;
    invocation.show(&answer, page)
}

pub async fn update(invocation: &Invocation, update: UpdateServer) -> anyhow::Result<()> {
    let mut changes = match &update.conf {
        Some(conf) => {
            let unsets = update.unset_header.len() + update.unset_env.len();
            files::warn_about_flags(update.flags.is_empty() && unsets == 0);
            files::object(invocation, conf).await?
        }
        None => {
            let mut changes = update.flags.to_object()?;
            unset(&mut changes, "headers", &update.unset_header, str::eq_ignore_ascii_case)?;
            unset(&mut changes, "env", &update.unset_env, str::eq)?;
            changes
        }
    };
    let named = changes.remove("name").and_then(|name| name.as_str().map(str::to_owned));
    let Some(name) = update.name.or(named) else {
        let command = invocation.command("update server NAME");
        return Err(UsageError(format!("specify the name of the server: `{command}`")).into());
    };
    if changes.is_empty() {
        return Err(UsageError("specify at least one setting to change; see --help".into()).into());
    }
    if update.keep {
        changes.insert("keep_failed".into(), true.into());
    }
    let spinner = Spinner::start(&format!("changing {name}"));
    let request = ApiRequest::patch(&["servers", &name]).object(&changes).source(Source::of(&update.conf));
    let answer = invocation.remote.ask(request).await;
    drop(spinner);
    let answer = explain(invocation, ListedNoun::Server, &name, answer).await?;
    output::message(&format!("Changed server {name:?}."));
    warn_if_failed(invocation, &answer.json()?["server"]);
    invocation.show(&answer, |answer| page(&answer["server"]))
}

/// Adds the names to unset, with the value `null`, to the entries to set.
fn unset(
    changes: &mut Map<String, Value>,
    field: &str,
    names: &[String],
    is_same: fn(&str, &str) -> bool,
) -> Result<(), UsageError> {
    if names.is_empty() {
        return Ok(());
    }
    let entries = changes.entry(field).or_insert_with(|| Map::new().into());
    let entries = entries.as_object_mut().expect("flags give these fields as objects");
    if let Some(name) = names.iter().find(|name| entries.keys().any(|set| is_same(set, name))) {
        return Err(UsageError(format!("{name:?} cannot be set and unset at once")));
    }
    entries.extend(names.iter().map(|name| (name.clone(), Value::Null)));
    Ok(())
}

pub async fn switch(invocation: &Invocation, switch: Switch, server: SwitchServer) -> anyhow::Result<()> {
    let request = ApiRequest::post(&["servers", &server.name, switch.route()]);
    let answer = invocation.remote.ask(request).await;
    let answer = explain(invocation, ListedNoun::Server, &server.name, answer).await?;
    invocation.show(&answer, |answer| {
        let names: Vec<&str> = ["tools_affected", "prompts_affected"]
            .iter()
            .flat_map(|key| answer[*key].as_array().map(Vec::as_slice).unwrap_or_default())
            .filter_map(Value::as_str)
            .collect();
        output::message(&format!("Server {:?} is {}.", server.name, switch.done()));
        names.join("\n")
    })
}

pub async fn refresh(invocation: &Invocation, refresh: Refresh) -> anyhow::Result<()> {
    let spinner = Spinner::start(&format!("asking {}", refresh.name));
    let answer = invocation.remote.ask(ApiRequest::post(&["servers", &refresh.name, "refresh"])).await;
    drop(spinner);
    let answer = explain(invocation, ListedNoun::Server, &refresh.name, answer).await?;
    invocation.show(&answer, |answer| page(&answer["server"]))
}

pub async fn deregister(invocation: &Invocation, deregister: Deregister) -> anyhow::Result<()> {
    let answer = invocation.remote.ask(ApiRequest::delete(&["servers", &deregister.name])).await;
    explain(invocation, ListedNoun::Server, &deregister.name, answer).await?;
    output::message(&format!("Removed server {:?} and everything it offered.", deregister.name));
    Ok(())
}

/// Shows a server that was just registered.
pub fn show_registered(invocation: &Invocation, answer: &ApiResponse) -> anyhow::Result<()> {
    let server = &answer.json()?["server"];
    output::message(&format!("Registered server {:?}.", text(server, "name")));
    warn_if_failed(invocation, server);
    invocation.show(answer, |answer| page(&without_instructions(&answer["server"])))?;
    if server["status"] != "failed" {
        let command = invocation.command(&format!("list tools --server {}", text(server, "name")));
        let endpoint = format!("{}/mcp", invocation.remote.registry());
        output::message(&format!("Next: see its tools with `{command}`, and connect agents to {endpoint}."));
    }
    Ok(())
}

/// Leaves out the instructions, which may be long; `toolgate get server` shows them.
fn without_instructions(server: &Value) -> Value {
    let mut server = server.clone();
    server.as_object_mut().map(|members| members.remove("instructions"));
    server
}

/// Says what can be done about a server that was stored although it cannot be connected.
fn warn_if_failed(invocation: &Invocation, server: &Value) {
    if server["status"] == "failed" {
        let command = invocation.command(&format!("update server {}", text(server, "name")));
        output::message(&format!(
            "It cannot be connected now. The gateway keeps trying; change its settings with `{command}`."
        ));
    }
}

/// Formats one server.
pub fn page(server: &Value) -> String {
    let names = |key: &str| {
        let keys = server[key].as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
        keys.unwrap_or_default().join(", ")
    };
    let command = std::iter::once(text(server, "command"))
        .chain(server["args"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
    let command = command.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    let tool_limits = server["tool_limits"].as_object().into_iter().flatten();
    let tool_limits = tool_limits.map(|(tool, limit)| format!("{tool}: {}", rate_limit(limit)));
    let info = &server["server_info"];
    let implementation = [text(info, "name"), text(info, "version")].join(" ");
    let offers = [("tool_count", "tool"), ("prompt_count", "prompt"), ("resource_count", "resource")];
    let offers = offers.map(|(key, noun)| counted(&server[key], noun)).join(", ");
    output::card(&[
        ("Name", text(server, "name")),
        ("Description", text(server, "description")),
        ("Status", text(server, "status")),
        ("Reason", text(server, "status_reason")),
        ("Transport", text(server, "transport")),
        ("URL", text(server, "url")),
        ("Command", command),
        ("Variables", names("env")),
        ("Session mode", text(server, "session_mode")),
        ("Placement", text(server, "placement")),
        ("Rate limit", rate_limit(&server["rate_limit"])),
        ("Tool limits", tool_limits.collect::<Vec<_>>().join("\n")),
        ("Protocol", text(server, "protocol_version")),
        ("Server", implementation.trim().to_owned()),
        ("Offers", offers),
        ("Instructions", text(server, "instructions")),
    ])
}

fn status(server: &Value) -> Cell {
    let status = text(server, "status");
    let tone = match status.as_str() {
        "connected" => Tone::Good,
        "connecting" | "degraded" => Tone::Doubtful,
        "failed" => Tone::Bad,
        "disabled" => Tone::Faint,
        _ => Tone::Plain,
    };
    Cell::new(status, tone)
}

fn count(server: &Value, key: &str) -> Cell {
    server[key].to_string().into()
}
