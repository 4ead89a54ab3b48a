//! Grants: software that acts for a user, who agreed to it. Only in enterprise mode.

use clap::Args;

use super::invocation::Invocation;
use super::output::{self, Table};
use super::record::text;
use super::remote::ApiRequest;
use super::suggestion::{ListedNoun, explain};

/// List the software that acts for users, or for you (enterprise mode)
#[derive(Args)]
#[command(after_help = "Example:
  toolgate list grants")]
pub struct ListGrants {}

/// End a grant: the tokens of that software stop working at once (enterprise mode)
#[derive(Args)]
#[command(after_help = "Example:
  toolgate delete grant 0f5c3d1e9a8b7c6d5e4f3a2b1c0d9e8f")]
pub struct DeleteGrant {
    /// Id of the grant, from `list grants`
    id: String,
}

pub async fn list(invocation: &Invocation) -> anyhow::Result<()> {
    let answer = invocation.remote.ask(ApiRequest::get(&["grants"])).await?;
    invocation.show(&answer, |grants| {
        let grants = grants.as_array().map(Vec::as_slice).unwrap_or_default();
        if grants.is_empty() {
            output::message("No software acts for anybody.");
            return String::new();
        }
        let mut table = Table::new(["ID", "USER", "SOFTWARE", "FOR", "LAST USED"]);
        for grant in grants {
            table.row([
                text(grant, "id").into(),
                text(grant, "username").into(),
                text(grant, "client_name").into(),
                text(grant, "resource").into(),
                text(grant, "last_used_at").into(),
            ]);
        }
        table.render(output::width())
    })
}

pub async fn delete(invocation: &Invocation, delete: DeleteGrant) -> anyhow::Result<()> {
    let answer = invocation.remote.ask(ApiRequest::delete(&["grants", &delete.id])).await;
    explain(invocation, ListedNoun::Grant, &delete.id, answer).await?;
    output::message(&format!("Ended grant {:?}.", delete.id));
    Ok(())
}
