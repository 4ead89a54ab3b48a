//! Tool groups: subsets of the tools, each with MCP endpoints of its own.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value};

use super::error::UsageError;
use super::files;
use super::flags::names;
use super::invocation::Invocation;
use super::output::{self, Table};
use super::record::text;
use super::remote::ApiRequest;
use super::suggestion::{ListedNoun, explain};
use super::wording::Source;

/// The fields of a group besides its name.
const KEYS: [&str; 6] = [
    "description",
    "included_tools",
    "included_servers",
    "excluded_tools",
    "included_prompts",
    "included_resources",
];

/// List groups
#[derive(Args)]
#[command(after_help = "Example:
  toolgate list groups")]
pub struct ListGroups {}

/// Show the configuration and the endpoints of a group
#[derive(Args)]
#[command(after_help = "Example:
  toolgate get group dev")]
pub struct GetGroup {
    /// Name of the group
    name: String,
}

/// Create a group
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate create group dev --included-servers \"github, files\" --excluded-tools github__delete_repo
  toolgate create group --conf dev.json")]
pub struct CreateGroup {
    /// Name of the group; with --conf the file names it
    name: Option<String>,
    /// File that describes the group, JSON or YAML; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    conf: Option<PathBuf>,
    #[command(flatten)]
    flags: GroupFlags,
}

/// Change a group: a file replaces its whole configuration, flags only the given parts
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate update group dev --included-servers \"github\"
  toolgate update group --conf dev.json")]
pub struct UpdateGroup {
    /// Name of the group; with --conf the file may name it
    name: Option<String>,
    /// File that describes the group, JSON or YAML; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    conf: Option<PathBuf>,
    #[command(flatten)]
    flags: GroupFlags,
}

/// Delete a group; its tools are not affected
#[derive(Args)]
#[command(after_help = "Example:
  toolgate delete group dev")]
pub struct DeleteGroup {
    /// Name of the group
    name: String,
}

#[derive(Args)]
struct GroupFlags {
    /// Description of the group
    #[arg(long)]
    description: Option<String>,
    /// Full names of tools, separated by commas
    #[arg(long, value_name = "TOOLS")]
    included_tools: Option<String>,
    /// Names of servers, separated by commas: all their tools
    #[arg(long, value_name = "SERVERS")]
    included_servers: Option<String>,
    /// Full names of tools to leave out, separated by commas
    #[arg(long, value_name = "TOOLS")]
    excluded_tools: Option<String>,
    /// Full names of prompts, or "*" for those of the servers
    #[arg(long, value_name = "PROMPTS")]
    included_prompts: Option<String>,
    /// URIs of resources, or "*" for those of the servers
    #[arg(long, value_name = "URIS")]
    included_resources: Option<String>,
}

impl GroupFlags {
    fn to_object(&self) -> Map<String, Value> {
        let description = self.description.clone().map(Value::from);
        let lists = [
            &self.included_tools,
            &self.included_servers,
            &self.excluded_tools,
            &self.included_prompts,
            &self.included_resources,
        ];
        let lists = lists.into_iter().map(|list| list.as_deref().map(|list| names(list).into()));
        let values = std::iter::once(description).chain(lists);
        KEYS.iter()
            .zip(values)
            .filter_map(|(key, value)| value.map(|value| ((*key).to_owned(), value)))
            .collect()
    }
}

pub async fn list(invocation: &Invocation) -> anyhow::Result<()> {
    let answer = invocation.remote.ask(ApiRequest::get(&["tool-groups"])).await?;
    invocation.show(&answer, |groups| {
        let groups = groups.as_array().map(Vec::as_slice).unwrap_or_default();
        if groups.is_empty() {
            let command = invocation.command("create group");
            output::message(&format!("There are no groups; add one with `{command}`."));
            return String::new();
        }
        let mut table = Table::new(["NAME", "SERVERS", "TOOLS", "WITHOUT", "DESCRIPTION"]);
        for group in groups {
            table.row([
                text(group, "name").into(),
                joined(group, "included_servers", ", ").into(),
                joined(group, "included_tools", ", ").into(),
                joined(group, "excluded_tools", ", ").into(),
                text(group, "description").into(),
            ]);
        }
        table.render(output::width())
    })
}

pub async fn get(invocation: &Invocation, get: GetGroup) -> anyhow::Result<()> {
    let answer = invocation.remote.ask(ApiRequest::get(&["tool-groups", &get.name])).await;
    let answer = explain(invocation, ListedNoun::Group, &get.name, answer).await?;
    invocation.show(&answer, page)
}

pub async fn create(invocation: &Invocation, create: CreateGroup) -> anyhow::Result<()> {
    let group = match &create.conf {
        Some(conf) => {
            files::warn_about_flags(create.name.is_none() && create.flags.to_object().is_empty());
            files::object(invocation, conf).await?
        }
        None => {
            let Some(name) = create.name else {
                let sentence = "specify the name of the group, or a file that describes it with --conf";
                return Err(UsageError(sentence.into()).into());
            };
            let mut group = create.flags.to_object();
            group.insert("name".into(), name.into());
            group
        }
    };
    let request = ApiRequest::post(&["tool-groups"]).object(&group).source(Source::of(&create.conf));
    let answer = invocation.remote.ask(request).await?;
    output::message(&format!("Created group {:?}.", text(&answer.json()?, "name")));
    invocation.show(&answer, page)
}

pub async fn update(invocation: &Invocation, update: UpdateGroup) -> anyhow::Result<()> {
    let changes = update.flags.to_object();
    let mut group = match &update.conf {
        Some(conf) => {
            files::warn_about_flags(changes.is_empty());
            files::object(invocation, conf).await?
        }
        None => Map::new(),
    };
    let named = group.remove("name").and_then(|name| name.as_str().map(str::to_owned));
    let Some(name) = update.name.or(named) else {
        let command = invocation.command("update group NAME");
        return Err(UsageError(format!("specify the name of the group: `{command}`")).into());
    };
    if update.conf.is_none() {
        if changes.is_empty() {
            return Err(UsageError("specify at least one setting to change; see --help".into()).into());
        }
        let current = invocation.remote.ask(ApiRequest::get(&["tool-groups", &name])).await;
        let current = explain(invocation, ListedNoun::Group, &name, current).await?.json()?;
        let kept =
            KEYS.iter().filter_map(|key| current.get(*key).map(|value| ((*key).to_owned(), value.clone())));
        group = kept.chain(changes).collect();
    }
    let request = ApiRequest::put(&["tool-groups", &name]).object(&group).source(Source::of(&update.conf));
    let answer = invocation.remote.ask(request).await;
    let answer = explain(invocation, ListedNoun::Group, &name, answer).await?;
    invocation.show(&answer, |answer| changes_page(answer, &name))
}

pub async fn delete(invocation: &Invocation, delete: DeleteGroup) -> anyhow::Result<()> {
    let answer = invocation.remote.ask(ApiRequest::delete(&["tool-groups", &delete.name])).await;
    explain(invocation, ListedNoun::Group, &delete.name, answer).await?;
    output::message(&format!("Deleted group {:?}.", delete.name));
    Ok(())
}

fn page(group: &Value) -> String {
    output::card(&[
        ("Name", text(group, "name")),
        ("Description", text(group, "description")),
        ("Included tools", joined(group, "included_tools", "\n")),
        ("Included servers", joined(group, "included_servers", "\n")),
        ("Excluded tools", joined(group, "excluded_tools", "\n")),
        ("Included prompts", joined(group, "included_prompts", "\n")),
        ("Included resources", joined(group, "included_resources", "\n")),
        ("Streamable HTTP", text(group, "streamable_http_endpoint")),
        ("SSE", text(group, "sse_endpoint")),
        ("SSE messages", text(group, "sse_message_endpoint")),
    ])
}

/// Lists the changes, one per line: `+` for added, `-` for removed.
fn changes_page(answer: &Value, name: &str) -> String {
    let (old, new) = (&answer["old"], &answer["new"]);
    let mut page = String::new();
    for key in KEYS.iter().filter(|key| old[**key] != new[**key]) {
        page.push_str(&format!("{key}:\n"));
        for (mark, from, other) in [('-', old, new), ('+', new, old)] {
            for member in members(&from[*key]).iter().filter(|member| !members(&other[*key]).contains(member))
            {
                page.push_str(&format!("  {mark} {member}\n"));
            }
        }
    }
    output::message(&match page.is_empty() {
        true => format!("Group {name:?} is unchanged."),
        false => format!("Changed group {name:?}."),
    });
    output::printable(&page)
}

fn members(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) if !text.is_empty() => vec![text.clone()],
        Value::Array(items) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

fn joined(group: &Value, key: &str, separator: &str) -> String {
    members(&group[key]).join(separator)
}
