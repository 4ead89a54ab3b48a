//! `toolgate why`: says why an agent cannot see a tool or a server, and which command changes that.

use clap::Args;
use serde_json::Value;

use super::invocation::Invocation;
use super::output;
use super::record::text;
use super::remote::ApiRequest;
use super::suggestion::{ListedNoun, nearest_of};

/// Explain why an agent cannot see a tool or a server
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate why github__search
  toolgate why github__search --group dev
  toolgate why github --client my-agent")]
pub struct Why {
    /// Full name of a tool, or the name of a server
    name: String,
    /// At the endpoint of this group
    #[arg(long)]
    group: Option<String>,
    /// At the endpoint of this server
    #[arg(long, conflicts_with = "group")]
    server: Option<String>,
    /// For this MCP client (enterprise mode)
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
}

pub async fn run(invocation: &Invocation, why: Why) -> anyhow::Result<()> {
    let mut request = ApiRequest::get(&["tools", "why"]).query("name", &why.name);
    for (key, value) in [("group", &why.group), ("server", &why.server), ("client", &why.client)] {
        if let Some(value) = value {
            request = request.query(key, value);
        }
    }
    let answer = invocation.remote.ask(request).await?;
    let record = answer.json()?;
    let mut lines = vec![headline(&record, &why)];
    for (key, mark) in [("reasons", "✗"), ("warnings", "!")] {
        for remark in record[key].as_array().into_iter().flatten() {
            let message = output::printable(&text(remark, "message")).replace('\n', "\n    ");
            lines.push(format!("{mark} {message}"));
            lines.extend(
                remedy(invocation, &text(remark, "code"), &why).await.map(|line| format!("    {line}")),
            );
        }
    }
    lines.extend(tools(&record));
    invocation.show(&answer, |_| lines.join("\n"))
}

/// The tools of a server: how many are visible, and, unless the whole server is hidden, why the others are not.
fn tools(record: &Value) -> Vec<String> {
    let tools = &record["tools"];
    let (Some(total), Some(visible)) = (tools["total"].as_u64(), tools["visible"].as_u64()) else {
        return Vec::new();
    };
    let mut lines = vec![format!("Visible tools: {visible} of {total}.")];
    if record["visible"] == true {
        for hidden in tools["hidden"].as_array().into_iter().flatten() {
            let reasons = hidden["reasons"].as_array().into_iter().flatten();
            let reasons: Vec<_> = reasons.map(|reason| output::printable(&text(reason, "message"))).collect();
            lines.push(format!("✗ {}: {}", text(hidden, "name"), reasons.join("; ")));
        }
    }
    lines
}

fn headline(record: &Value, why: &Why) -> String {
    let is = if record["visible"] == true { "is visible" } else { "is not visible" };
    let caller = why.client.as_ref().map_or("agents".to_owned(), |client| format!("the client {client:?}"));
    let place = match (&why.group, &why.server) {
        (Some(group), _) => format!(" in the group {group:?}"),
        (None, Some(server)) => format!(" at the endpoint of the server {server:?}"),
        (None, None) => String::new(),
    };
    format!("{:?} {is} to {caller}{place}.", why.name)
}

/// What to do about a cause: mostly a command to run.
async fn remedy(invocation: &Invocation, code: &str, why: &Why) -> Option<String> {
    let name = &why.name;
    let server = name.split_once("__").map_or(name.as_str(), |(server, _)| server);
    let (group, client) =
        (why.group.as_deref().unwrap_or_default(), why.client.as_deref().unwrap_or_default());
    Some(match code {
        "unknown_server" | "unknown_tool" => {
            let noun = if name.contains("__") { ListedNoun::Tool } else { ListedNoun::Server };
            match nearest_of(invocation, noun, name).await {
                Some(nearest) => format!("did you mean {nearest:?}?"),
                None if code == "unknown_tool" => {
                    invocation.command(&format!("list tools --server {server}"))
                }
                None => invocation.command("list servers"),
            }
        }
        "server_disabled" => invocation.command(&format!("enable server {server}")),
        "tool_disabled" => invocation.command(&format!("enable tool {name}")),
        "not_allowed" => {
            let clients = invocation.remote.ask(ApiRequest::get(&["clients"])).await.ok()?.json().ok()?;
            let found = clients.as_array()?.iter().find(|record| record["name"] == client)?.clone();
            invocation.command(&format!(
                "update mcp-client {client} --allow \"{}\"",
                with(&found["allow_list"], server)
            ))
        }
        "not_in_group" => {
            let found =
                invocation.remote.ask(ApiRequest::get(&["tool-groups", group])).await.ok()?.json().ok()?;
            let (flag, key) = match name.contains("__") {
                true => ("--included-tools", "included_tools"),
                false => ("--included-servers", "included_servers"),
            };
            invocation.command(&format!("update group {group} {flag} \"{}\"", with(&found[key], name)))
        }
        "excluded_from_group" => invocation.command(&format!("get group {group}")),
        "server_failed" | "server_connecting" | "server_degraded" => {
            invocation.command(&format!("get server {server}"))
        }
        _ => return None,
    })
}

/// A list of names with one more, separated by commas.
fn with(names: &Value, name: &str) -> String {
    let names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
    names.chain([name]).collect::<Vec<_>>().join(", ")
}
