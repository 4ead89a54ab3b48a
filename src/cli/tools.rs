//! Tools: listing, enabling and disabling them. Calling them is in `invoke`, their description in `usage`.

use clap::Args;
use serde_json::Value;
use serde_json::value::RawValue;

use super::invocation::Invocation;
use super::output::{self, Format, Table};
use super::record::{enabled, text};
use super::remote::{ApiRequest, RemoteError};
use super::suggestion::{ListedNoun, explain};
use super::switch::{Switch, switch_entity};

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
    /// Include those of disabled servers
    #[arg(long)]
    all: bool,
}

/// Enable or disable one tool, or all tools of a server
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate disable tool github__delete_repo
  toolgate enable tool github")]
pub struct SwitchTool {
    /// Full name of a tool, or the name of a server
    pub name: String,
}

pub async fn list(invocation: &Invocation, list: ListTools) -> anyhow::Result<()> {
    let mut request = ApiRequest::get(&["tools"]);
    if let Some(server) = &list.server {
        request = request.query("server", server);
    }
    if list.all {
        request = request.query("all", "true");
    }
    let answer = invocation.remote.ask(request).await;
    let answer = match &list.server {
        Some(server) => explain(invocation, ListedNoun::Server, server, answer).await?,
        None => answer?,
    };
    let Some(group) = &list.group else {
        return invocation
            .show(&answer, |tools| page(tools.as_array().map(Vec::as_slice).unwrap_or_default()));
    };
    let shown = effective(invocation, group).await?;
    // Raw JSON, so that the records are printed unchanged.
    let records: Vec<&RawValue> = serde_json::from_str(&answer.text)?;
    let tools = answer.json()?.as_array().cloned().unwrap_or_default();
    let both = tools.into_iter().zip(records).filter(|(tool, _)| shown.contains(&text(tool, "name")));
    let (tools, records): (Vec<Value>, Vec<&RawValue>) = both.unzip();
    match invocation.format {
        Format::Json => output::json(&serde_json::to_string(&records)?),
        Format::Table => output::page(&page(&tools)),
    }
}

/// Returns the full names of the tools that a group shows.
pub async fn effective(invocation: &Invocation, group: &str) -> Result<Vec<String>, RemoteError> {
    let answer = invocation.remote.ask(ApiRequest::get(&["tool-groups", group, "effective-tools"])).await;
    let answer = explain(invocation, ListedNoun::Group, group, answer).await?.json()?;
    let names = answer["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

pub async fn switch(invocation: &Invocation, switch: Switch, tool: SwitchTool) -> anyhow::Result<()> {
    switch_entity(invocation, switch, ListedNoun::Tool, "tools", &tool.name).await
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
