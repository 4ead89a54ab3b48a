//! OAuth clients: software that admins registered, so that it need not register itself. Only in enterprise mode.

use clap::Args;
use serde_json::Value;

use super::invocation::Invocation;
use super::output::{self, Table};
use super::record::text;
use super::remote::ApiRequest;
use super::suggestion::{ListedNoun, explain};

/// List the software that admins registered for signing in (enterprise mode)
#[derive(Args)]
#[command(after_help = "Example:
  toolgate list oauth-clients")]
pub struct ListOauthClients {}

/// Delete software that an admin registered; its grants end at once (enterprise mode)
#[derive(Args)]
#[command(after_help = "Example:
  toolgate delete oauth-client 5d0b1f2c9e8a7b6d4c3e2f1a0b9c8d7e")]
pub struct DeleteOauthClient {
    /// Id of the registration, from `list oauth-clients`
    id: String,
}

pub async fn list(invocation: &Invocation) -> anyhow::Result<()> {
    let answer = invocation.remote.ask(ApiRequest::get(&["oauth-clients"])).await?;
    invocation.show(&answer, |clients| {
        let clients = clients.as_array().map(Vec::as_slice).unwrap_or_default();
        if clients.is_empty() {
            output::message("No admin has registered software.");
            return String::new();
        }
        let mut table = Table::new(["ID", "NAME", "CLIENT ID", "ANSWERS GO TO"]);
        for client in clients {
            let uris = client["redirect_uris"].as_array().into_iter().flatten().filter_map(Value::as_str);
            table.row([
                text(client, "id").into(),
                text(client, "client_name").into(),
                text(client, "client_id").into(),
                uris.collect::<Vec<_>>().join(", ").into(),
            ]);
        }
        table.render(output::width())
    })
}

pub async fn delete(invocation: &Invocation, delete: DeleteOauthClient) -> anyhow::Result<()> {
    let answer = invocation.remote.ask(ApiRequest::delete(&["oauth-clients", &delete.id])).await;
    explain(invocation, ListedNoun::OauthClient, &delete.id, answer).await?;
    output::message(&format!("Deleted OAuth client {:?}.", delete.id));
    Ok(())
}
