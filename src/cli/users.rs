//! Users: people with a token and a role. Only in enterprise mode.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value};

use super::error::UsageError;
use super::files;

use super::flags::{RateLimitFlags, names};
use super::invocation::Invocation;
use super::output::{self, Table};
use super::record::{allowed, rate_limit, text};
use super::remote::ApiRequest;
use super::suggestion::{ListedNoun, explain};
use super::wording::Source;

/// List users (enterprise mode)
#[derive(Args)]
#[command(after_help = "Example:
  toolgate list users")]
pub struct ListUsers {}

/// Create a user and show the token (enterprise mode)
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate create user alice
  toolgate create user bob --role admin
  toolgate create user carol --rate-limit 60
  toolgate create user dan --allow \"github, !github__delete_*\"
  toolgate create user --conf alice.json

A rule is a server, \"*\" for all, <server>__<pattern>, *__<pattern> or group:<tool group>; with \"!\" before it, it
denies. A file has `name`, `role`, `allow_list`, `rate_limit` with `calls_per_minute` and `burst`, and `access_token` or
`access_token_ref` with `env` or `file`.")]
pub struct CreateUser {
    /// Name of the user; with --conf the file names it
    username: Option<String>,
    #[command(flatten)]
    flags: UserFlags,
}

/// Change a user; settings that are not given stay the same (enterprise mode)
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate update user alice --role admin
  toolgate update user alice --username alicia
  toolgate update user alice --disabled true
  toolgate update user alice --access-token \"$NEW_TOKEN\"")]
pub struct UpdateUser {
    /// Name of the user; with --conf the file may name it
    #[arg(value_name = "USERNAME")]
    current: Option<String>,
    /// A new name
    #[arg(long, value_name = "NAME")]
    username: Option<String>,
    /// Whether the user is kept out
    #[arg(long, value_name = "BOOL")]
    disabled: Option<bool>,
    #[command(flatten)]
    flags: UserFlags,
}

/// Delete a user; the token stops working at once (enterprise mode)
#[derive(Args)]
#[command(after_help = "Example:
  toolgate delete user alice")]
pub struct DeleteUser {
    /// Name of the user
    username: String,
}

#[derive(Args)]
struct UserFlags {
    /// File that describes the user, JSON or YAML; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// Role; user may only read and call tools
    #[arg(long, value_parser = ["admin", "user"])]
    role: Option<String>,
    /// A token of your choice, at least 8 characters [default: a generated one]
    #[arg(long, allow_hyphen_values = true, value_name = "TOKEN")]
    access_token: Option<String>,
    /// Rules for what they may use, separated by commas; "*" for everything
    #[arg(long, value_name = "RULES")]
    allow: Option<String>,
    #[command(flatten)]
    limit: RateLimitFlags,
}

impl UserFlags {
    /// Returns the fields for the REST API, from the file or the flags, and the name in the file.
    async fn to_object(
        &self,
        invocation: &Invocation,
    ) -> anyhow::Result<(Map<String, Value>, Option<Value>)> {
        let given = [("role", &self.role), ("access_token", &self.access_token)];
        let mut given: Map<String, Value> = given
            .into_iter()
            .filter_map(|(key, value)| value.clone().map(|value| (key.to_owned(), value.into())))
            .collect();
        given.extend(self.allow.as_deref().map(|list| ("allow_list".to_owned(), names(list).into())));
        given.extend(self.limit.to_value().map(|limit| ("rate_limit".to_owned(), limit)));
        let Some(conf) = &self.conf else { return Ok((given, None)) };
        files::warn_about_flags(given.is_empty());
        let mut object = files::object(invocation, conf).await?;
        files::resolve_token(&mut object).await?;
        let name = object.remove("name").or_else(|| object.remove("username"));
        Ok((object, name))
    }
}

pub async fn list(invocation: &Invocation) -> anyhow::Result<()> {
    let answer = invocation.remote.ask(ApiRequest::get(&["users"])).await?;
    invocation.show(&answer, |users| {
        let mut table = Table::new(["USERNAME", "ROLE", "SOURCE", "STATE", "LAST SEEN", "MAY USE"]);
        for user in users.as_array().into_iter().flatten() {
            let state = if user["disabled"] == true { "disabled" } else { "enabled" };
            table.row([
                text(user, "username").into(),
                text(user, "role").into(),
                text(user, "source").into(),
                state.into(),
                text(user, "last_seen_at").into(),
                allowed(user).into(),
            ]);
        }
        table.render(output::width())
    })
}

pub async fn create(invocation: &Invocation, create: CreateUser) -> anyhow::Result<()> {
    let (mut user, named) = create.flags.to_object(invocation).await?;
    let source = Source::of(&create.flags.conf);
    match (named, create.username, create.flags.conf) {
        (Some(name), _, _) => user.insert("username".into(), name),
        (None, Some(name), None) => user.insert("username".into(), name.into()),
        (None, _, Some(_)) => None,
        (None, None, None) => {
            let sentence = "specify the name of the user, or a file that describes them with --conf";
            return Err(UsageError(sentence.into()).into());
        }
    };
    let answer = invocation.remote.ask(ApiRequest::post(&["users"]).object(&user).source(source)).await?;
    output::message(&format!(
        "Created user {:?}. They log in with `{}`.",
        text(&answer.json()?, "username"),
        invocation.command("login <token>")
    ));
    invocation.show(&answer, page)
}

pub async fn update(invocation: &Invocation, update: UpdateUser) -> anyhow::Result<()> {
    let (mut changes, named) = update.flags.to_object(invocation).await?;
    let named = named.and_then(|name| name.as_str().map(str::to_owned));
    let Some(current) = update.current.or(named) else {
        let command = invocation.command("update user USERNAME");
        return Err(UsageError(format!("specify the name of the user: `{command}`")).into());
    };
    if let Some(username) = update.username {
        changes.insert("username".into(), username.into());
    }
    if let Some(disabled) = update.disabled {
        changes.insert("disabled".into(), disabled.into());
    }
    if changes.is_empty() {
        return Err(UsageError("specify at least one setting to change; see --help".into()).into());
    }
    // The route removes a limit that is not sent.
    let users = invocation.remote.ask(ApiRequest::get(&["users"])).await?.json()?;
    let user = users.as_array().into_iter().flatten().find(|user| user["username"] == current.as_str());
    if let Some(limit) = user.and_then(|user| user.get("rate_limit")) {
        changes.entry("rate_limit").or_insert_with(|| limit.clone());
    }
    let request =
        ApiRequest::put(&["users", &current]).object(&changes).source(Source::of(&update.flags.conf));
    let answer = invocation.remote.ask(request).await;
    let answer = explain(invocation, ListedNoun::User, &current, answer).await?;
    output::message(&format!("Changed user {current:?}."));
    invocation.show(&answer, page)
}

pub async fn delete(invocation: &Invocation, delete: DeleteUser) -> anyhow::Result<()> {
    let answer = invocation.remote.ask(ApiRequest::delete(&["users", &delete.username])).await;
    explain(invocation, ListedNoun::User, &delete.username, answer).await?;
    output::message(&format!("Deleted user {:?}.", delete.username));
    Ok(())
}

/// Formats one user; with the token, if the gateway returned it.
pub fn page(user: &Value) -> String {
    output::card(&[
        ("Username", text(user, "username")),
        ("Role", text(user, "role")),
        ("May use", allowed(user)),
        ("Rate limit", rate_limit(&user["rate_limit"])),
        ("Access token", text(user, "access_token")),
    ])
}
