//! Tools: listing and switching them. Their use has files of its own, `usage` and `invoke`.

use clap::Args;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Session;
use super::output::{self, Cell, Format, Table, Tone};
use super::remote::{RemoteError, Request};
use super::servers::text;
use super::suggestion::{Kind, explain};
use super::verbs::Switch;

/// List tools, all or those of a server or a group
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate list tools
  toolgate list tools --server github
  toolgate list tools --group dev")]
pub struct ListTools {
    /// Only those of this server
    #[arg(long)]
    server: Option<String>,
    /// Only those that this group shows now
    #[arg(long, conflicts_with = "server")]
    group: Option<String>,
    /// Also those of disabled servers
    #[arg(long)]
    all: bool,
}

/// Switch one tool, or all tools of a server
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate disable tool github__delete_repo
  toolgate enable tool github")]
pub struct SwitchTool {
    /// Full name of a tool, or the name of a server
    pub name: String,
}

pub async fn list(session: &Session, list: ListTools) -> anyhow::Result<()> {
    let mut request = Request::get(&["tools"]);
    if let Some(server) = &list.server {
        request = request.query("server", server);
    }
    if list.all {
        request = request.query("all", "true");
    }
    let answer = session.remote.ask(request).await;
    let answer = match &list.server {
        Some(server) => explain(session, Kind::Server, server, answer).await?,
        None => answer?,
    };
    let Some(group) = &list.group else {
        return session.show(&answer, |tools| page(tools.as_array().map(Vec::as_slice).unwrap_or_default()));
    };
    let shown = effective(session, group).await?;
    // As written, for those who want the records as they are.
    let records: Vec<&RawValue> = serde_json::from_str(&answer.text)?;
    let tools = answer.json()?.as_array().cloned().unwrap_or_default();
    let both = tools.into_iter().zip(records).filter(|(tool, _)| shown.contains(&text(tool, "name")));
    let (tools, records): (Vec<Value>, Vec<&RawValue>) = both.unzip();
    match session.format {
        Format::Json => output::json(&serde_json::to_string(&records)?),
        Format::Table => output::page(&page(&tools)),
    }
}

/// The full names of the tools that a group shows now.
pub async fn effective(session: &Session, group: &str) -> Result<Vec<String>, RemoteError> {
    let answer = session.remote.ask(Request::get(&["tool-groups", group, "effective-tools"])).await;
    let answer = explain(session, Kind::Group, group, answer).await?.json()?;
    let names = answer["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

pub async fn switch(session: &Session, switch: Switch, tool: SwitchTool) -> anyhow::Result<()> {
    switch_entity(session, switch, Kind::Tool, "tools", &tool.name).await
}

/// Tools and prompts are switched alike; `route` is the first part of the path, and the noun in messages.
pub async fn switch_entity(
    session: &Session,
    switch: Switch,
    kind: Kind,
    route: &str,
    name: &str,
) -> anyhow::Result<()> {
    let request = Request::post(&[route, switch.route()]).query("entity", name);
    let answer = session.remote.ask(request).await;
    // A name without `__` was meant to be a server.
    let kind = if name.contains("__") { kind } else { Kind::Server };
    let answer = explain(session, kind, name, answer).await?;
    session.show(&answer, |names| {
        let names: Vec<&str> = names.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        output::message(&match names.len() {
            0 => format!("Nothing changed: all {route} of it were {} already.", switch.done()),
            1 => format!("Now {}:", switch.done()),
            count => format!("{count} {route} are now {}:", switch.done()),
        });
        names.join("\n")
    })
}

fn page(tools: &[Value]) -> String {
    if tools.is_empty() {
        output::message("There are no tools.");
        return String::new();
    }
    let mut table = Table::new(["NAME", "ENABLED", "DESCRIPTION"]);
    for tool in tools {
        table.row([text(tool, "name").into(), enabled(tool), text(tool, "description").into()]);
    }
    table.render(output::width())
}

pub fn enabled(record: &Value) -> Cell {
    match record["enabled"].as_bool() {
        Some(false) => Cell::new("no", Tone::Faint),
        Some(true) | None => "yes".into(),
    }
}
