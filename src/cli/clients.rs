//! MCP clients: agents with a token and a list of the servers they may use. Only in enterprise mode.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use super::error::UsageError;
use super::files;
use super::flags::{RateLimitFlags, names};
use super::invocation::Invocation;
use super::output::{self, Table};
use super::record::{allowed, rate_limit, text};
use super::remote::ApiRequest;
use super::suggestion::{ListedNoun, explain, names_of, nearest};
use super::wording::Source;
use model::{Rule, RuleSubject};

/// List clients (enterprise mode)
#[derive(Args)]
#[command(after_help = "Example:
  toolgate list mcp-clients")]
pub struct ListClients {}

/// Create a client and show its token (enterprise mode)
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate create mcp-client cursor --allow \"github, files\"
  toolgate create mcp-client ci --allow \"*\" --access-token \"$CI_TOKEN\"
  toolgate create mcp-client careful --allow \"github, !github__delete_*\"
  toolgate create mcp-client bot --allow \"files\" --rate-limit 60 --rate-limit-burst 10
  toolgate create mcp-client --conf cursor.json

A rule is a server, \"*\" for all, <server>__<pattern>, *__<pattern> or group:<tool group>; with \"!\" before it, it
denies. A file has `name`, `description`, `allowed_servers`, `rate_limit` with `calls_per_minute` and `burst`, and
`access_token` or `access_token_ref` with `env` or `file`.")]
pub struct CreateClient {
    /// Name of the client; with --conf the file names it
    name: Option<String>,
    #[command(flatten)]
    flags: ClientFlags,
}

/// Change a client; settings that are not given stay the same (enterprise mode)
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate update mcp-client cursor --allow \"github\"
  toolgate update mcp-client cursor --access-token \"$NEW_TOKEN\"
  toolgate update mcp-client --conf cursor.json")]
pub struct UpdateClient {
    /// Name of the client; with --conf the file may name it
    name: Option<String>,
    #[command(flatten)]
    flags: ClientFlags,
}

/// Delete a client; its token stops working at once (enterprise mode)
#[derive(Args)]
#[command(after_help = "Example:
  toolgate delete mcp-client cursor")]
pub struct DeleteClient {
    /// Name of the client
    name: String,
}

#[derive(Args)]
struct ClientFlags {
    /// File that describes the client, JSON or YAML; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// Rules for what it may use, separated by commas; "*" for everything
    #[arg(long, value_name = "RULES")]
    allow: Option<String>,
    /// Description of the client
    #[arg(long)]
    description: Option<String>,
    /// A token of your choice, at least 8 characters [default: a generated one]
    #[arg(long, allow_hyphen_values = true, value_name = "TOKEN")]
    access_token: Option<String>,
    #[command(flatten)]
    limit: RateLimitFlags,
}

impl ClientFlags {
    /// Returns the fields for the REST API, from the file or the flags; with the name, if the file has one.
    async fn to_object(&self, invocation: &Invocation) -> anyhow::Result<Map<String, Value>> {
        let mut given = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                given.insert(key.to_owned(), value);
            }
        };
        put("allow_list", self.allow.as_deref().map(|list| names(list).into()));
        put("description", self.description.clone().map(Value::from));
        put("access_token", self.access_token.clone().map(Value::from));
        put("rate_limit", self.limit.to_value());
        let Some(conf) = &self.conf else { return Ok(given) };
        files::warn_about_flags(given.is_empty());
        let mut object = files::object(invocation, conf).await?;
        files::resolve_token(&mut object).await?;
        if let Some(allowed) = object.remove("allowed_servers") {
            object.insert("allow_list".into(), allowed);
        }
        Ok(object)
    }
}

pub async fn list(invocation: &Invocation) -> anyhow::Result<()> {
    let answer = invocation.remote.ask(ApiRequest::get(&["clients"])).await?;
    invocation.show(&answer, |clients| {
        let clients = clients.as_array().map(Vec::as_slice).unwrap_or_default();
        if clients.is_empty() {
            let command = invocation.command("create mcp-client");
            output::message(&format!("There are no clients; add one with `{command}`."));
            return String::new();
        }
        let mut table = Table::new(["NAME", "MAY USE", "DESCRIPTION"]);
        for client in clients {
            table.row([
                text(client, "name").into(),
                allowed(client).into(),
                text(client, "description").into(),
            ]);
        }
        table.render(output::width())
    })
}

pub async fn create(invocation: &Invocation, create: CreateClient) -> anyhow::Result<()> {
    let mut client = create.flags.to_object(invocation).await?;
    if create.flags.conf.is_none() {
        let Some(name) = create.name else {
            let sentence = "specify the name of the client, or a file that describes it with --conf";
            return Err(UsageError(sentence.into()).into());
        };
        client.insert("name".into(), name.into());
    }
    let source = Source::of(&create.flags.conf);
    let answer = invocation.remote.ask(ApiRequest::post(&["clients"]).object(&client).source(source)).await?;
    let created = answer.json()?;
    output::message(&format!("Created client {:?}.", text(&created, "name")));
    if allowed(&created).is_empty() {
        let command = format!("update mcp-client {} --allow SERVERS", text(&created, "name"));
        let command = invocation.command(&command);
        output::message(&format!("It may not use any server yet; allow some with `{command}`."));
    }
    warn_about_unknown(invocation, &created).await;
    invocation.show(&answer, |client| format!("{}\n{}", page(client), snippets(invocation, client)))
}

pub async fn update(invocation: &Invocation, update: UpdateClient) -> anyhow::Result<()> {
    let mut changes = update.flags.to_object(invocation).await?;
    let named = changes.remove("name").and_then(|name| name.as_str().map(str::to_owned));
    let Some(name) = update.name.or(named) else {
        let command = invocation.command("update mcp-client NAME");
        return Err(UsageError(format!("specify the name of the client: `{command}`")).into());
    };
    if changes.is_empty() {
        return Err(UsageError("specify at least one setting to change; see --help".into()).into());
    }
    // The route replaces all fields, so unchanged ones must be sent, too.
    let clients = invocation.remote.ask(ApiRequest::get(&["clients"])).await?.json()?;
    let current = clients.as_array().into_iter().flatten().find(|client| client["name"] == name.as_str());
    for key in ["description", "allow_list", "rate_limit", "jwt_subject"] {
        if let Some(value) = current.and_then(|client| client.get(key)) {
            changes.entry(key).or_insert_with(|| value.clone());
        }
    }
    let request =
        ApiRequest::put(&["clients", &name]).object(&changes).source(Source::of(&update.flags.conf));
    let answer = invocation.remote.ask(request).await;
    let answer = explain(invocation, ListedNoun::Client, &name, answer).await?;
    output::message(&format!("Changed client {name:?}."));
    warn_about_unknown(invocation, &answer.json()?).await;
    invocation.show(&answer, page)
}

pub async fn delete(invocation: &Invocation, delete: DeleteClient) -> anyhow::Result<()> {
    let answer = invocation.remote.ask(ApiRequest::delete(&["clients", &delete.name])).await;
    explain(invocation, ListedNoun::Client, &delete.name, answer).await?;
    output::message(&format!("Deleted client {:?}.", delete.name));
    Ok(())
}

/// Names the servers of an allow list that do not exist: allowed, but mostly typos.
async fn warn_about_unknown(invocation: &Invocation, client: &Value) {
    let known = names_of(invocation, ListedNoun::Server).await;
    let given = client["allow_list"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let named = given.filter_map(|entry| match Rule::parse(entry).ok()?.subject {
        RuleSubject::Server(server) | RuleSubject::Names { server: Some(server), .. } => Some(server),
        RuleSubject::Everything | RuleSubject::Names { server: None, .. } | RuleSubject::Group(_) => None,
    });
    for server in named.filter(|server| !known.contains(server)) {
        let suggestion = nearest(&server, known.iter().map(String::as_str));
        let suggestion = suggestion.map_or(String::new(), |name| format!(" Did you mean {name:?}?"));
        output::message(&format!(
            "Warning: there is no server {server:?}; the client may use it once it is registered.{suggestion}"
        ));
    }
}

/// How the client connects: the address and the header, ready to be copied.
fn snippets(invocation: &Invocation, client: &Value) -> String {
    let (url, token) = (format!("{}/mcp", invocation.remote.registry()), text(client, "access_token"));
    let header = format!("Bearer {token}");
    let file =
        json!({ "mcpServers": { "toolgate": { "url": url, "headers": { "Authorization": header } } } });
    format!(
        "The client connects to {url} with the header `Authorization: {header}`.\n\n\
         In a file with \"mcpServers\" (Cursor and others):\n{}\n\n\
         Claude Code:\nclaude mcp add --transport http toolgate {url} --header \"Authorization: {header}\"\n",
        output::indented(&file.to_string()).trim_end()
    )
}

fn page(client: &Value) -> String {
    output::card(&[
        ("Name", text(client, "name")),
        ("Description", text(client, "description")),
        ("May use", allowed(client)),
        ("Rate limit", rate_limit(&client["rate_limit"])),
        ("Access token", text(client, "access_token")),
    ])
}
