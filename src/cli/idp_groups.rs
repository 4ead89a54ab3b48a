//! Groups of the identity provider: what their members may use. Only in enterprise mode.

use clap::Args;
use serde_json::{Map, Value};

use super::error::UsageError;
use super::flags::{RateLimitFlags, names};
use super::invocation::Invocation;
use super::output::{self, Table};
use super::record::{allowed, rate_limit, text};
use super::remote::ApiRequest;
use super::suggestion::{ListedNoun, explain};

/// List the groups of the identity provider that have rules (enterprise mode)
#[derive(Args)]
#[command(after_help = "Example:
  toolgate list idp-groups")]
pub struct ListIdpGroups {}

/// Change what members of a group of the identity provider may use (enterprise mode)
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate update idp-group engineering --allow \"github, !github__delete_*\"
  toolgate update idp-group platform --role admin
  toolgate update idp-group \"*\" --allow \"docs\"

Settings that are not given stay the same. The group \"*\" is everybody of the identity provider.")]
pub struct UpdateIdpGroup {
    /// Name of the group, as the identity provider writes it
    name: String,
    /// Role of its members
    #[arg(long, value_parser = ["admin", "user"])]
    role: Option<String>,
    /// Rules for what its members may use, separated by commas; "*" for everything
    #[arg(long, value_name = "RULES")]
    allow: Option<String>,
    #[command(flatten)]
    limit: RateLimitFlags,
}

/// Delete the rules of a group of the identity provider (enterprise mode)
#[derive(Args)]
#[command(after_help = "Example:
  toolgate delete idp-group engineering")]
pub struct DeleteIdpGroup {
    /// Name of the group
    name: String,
}

pub async fn list(invocation: &Invocation) -> anyhow::Result<()> {
    let answer = invocation.remote.ask(ApiRequest::get(&["idp-groups"])).await?;
    invocation.show(&answer, |groups| {
        let mut table = Table::new(["NAME", "ROLE", "MAY USE", "RATE LIMIT"]);
        for group in groups.as_array().into_iter().flatten() {
            table.row([
                text(group, "name").into(),
                text(group, "role").into(),
                allowed(group).into(),
                rate_limit(&group["rate_limit"]).into(),
            ]);
        }
        table.render(output::width())
    })
}

pub async fn update(invocation: &Invocation, update: UpdateIdpGroup) -> anyhow::Result<()> {
    let UpdateIdpGroup { name, role, allow, limit } = update;
    let mut changes = Map::new();
    changes.extend(role.map(|role| ("role".to_owned(), role.into())));
    changes.extend(allow.map(|rules| ("allow_list".to_owned(), names(&rules).into())));
    changes.extend(limit.to_value().map(|limit| ("rate_limit".to_owned(), limit)));
    if changes.is_empty() {
        return Err(UsageError("specify at least one setting to change; see --help".into()).into());
    }
    // The route replaces the whole group.
    let groups = invocation.remote.ask(ApiRequest::get(&["idp-groups"])).await?.json()?;
    let known = groups.as_array().into_iter().flatten().find(|group| group["name"] == name.as_str());
    for key in ["role", "allow_list", "rate_limit"] {
        if let Some(value) = known.and_then(|group| group.get(key)).filter(|value| !value.is_null()) {
            changes.entry(key).or_insert_with(|| value.clone());
        }
    }
    let answer = invocation.remote.ask(ApiRequest::put(&["idp-groups", &name]).object(&changes)).await?;
    output::message(&format!("Changed group {name:?} of the identity provider."));
    invocation.show(&answer, page)
}

pub async fn delete(invocation: &Invocation, delete: DeleteIdpGroup) -> anyhow::Result<()> {
    let answer = invocation.remote.ask(ApiRequest::delete(&["idp-groups", &delete.name])).await;
    explain(invocation, ListedNoun::IdpGroup, &delete.name, answer).await?;
    output::message(&format!("Deleted the rules of group {:?} of the identity provider.", delete.name));
    Ok(())
}

fn page(group: &Value) -> String {
    output::card(&[
        ("Name", text(group, "name")),
        ("Role", text(group, "role")),
        ("May use", allowed(group)),
        ("Rate limit", rate_limit(&group["rate_limit"])),
    ])
}
