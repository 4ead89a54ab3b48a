//! Creating, replacing and deleting MCP clients. What a client sees is decided in `view`.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::audit::client_note;
use super::principals::Principals;
use super::{Error, Gateway, now_ms};
use model::{By, Client};

impl Gateway {
    /// All clients, sorted by name.
    pub fn clients(&self) -> Result<Vec<Client>, Error> {
        self.require_enterprise()?;
        Ok(self.catalog().principals().clients().cloned().collect())
    }

    pub fn client(&self, name: &str) -> Result<Client, Error> {
        self.require_enterprise()?;
        find(self.catalog().principals(), name).cloned()
    }

    pub async fn create_client(
        self: &Arc<Self>,
        input: Map<String, Value>,
        by: &By,
    ) -> Result<Client, Error> {
        self.require_enterprise()?;
        let (client, by) = (Client::parse(input)?, by.clone());
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _turn = gateway.turn().await?;
            let catalog = gateway.catalog();
            let principals = catalog.principals();
            if principals.client(client.name.as_str()).is_some() {
                return Err(Error::conflict(format!("client {:?} already exists", client.name.as_str())));
            }
            gateway.check_token_is_free(principals, &client.token)?;
            check_subject_is_free(principals, &client)?;
            let note = client_note(&by, "client.create", None, Some(&client));
            gateway.store.put_client(&client, now_ms(), &note).await?;
            gateway.swap_principals(&catalog, principals.with_client(&gateway.store, client.clone()));
            tracing::info!(client = %client.name, "created a client");
            Ok(client)
        })
        .await
    }

    pub async fn replace_client(
        self: &Arc<Self>,
        name: &str,
        input: Map<String, Value>,
        by: &By,
    ) -> Result<Client, Error> {
        let (name, by) = (self.client(name)?.name, by.clone());
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _turn = gateway.turn().await?;
            let catalog = gateway.catalog();
            let principals = catalog.principals();
            let before = find(principals, name.as_str())?;
            let client = before.replaced(input)?;
            if client.token.id() != before.token.id() {
                gateway.check_token_is_free(principals, &client.token)?;
            }
            check_subject_is_free(principals, &client)?;
            let note = client_note(&by, "client.update", Some(before), Some(&client));
            gateway.store.put_client(&client, now_ms(), &note).await?;
            gateway.swap_principals(&catalog, principals.with_client(&gateway.store, client.clone()));
            tracing::info!(client = %name, "changed a client");
            Ok(client)
        })
        .await
    }

    pub async fn delete_client(self: &Arc<Self>, name: &str, by: &By) -> Result<(), Error> {
        let (name, by) = (self.client(name)?.name, by.clone());
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _turn = gateway.turn().await?;
            let catalog = gateway.catalog();
            let before = find(catalog.principals(), name.as_str())?;
            let note = client_note(&by, "client.delete", Some(before), None);
            gateway.store.delete_client(&name, now_ms(), &note).await?;
            gateway.swap_principals(&catalog, catalog.principals().without_client(&name));
            tracing::info!(client = %name, "deleted a client");
            Ok(())
        })
        .await
    }
}

/// A token of another issuer must be that of one client.
fn check_subject_is_free(principals: &Principals, client: &Client) -> Result<(), Error> {
    let is_same = |other: &&Client| other.id != client.id && other.jwt_subject == client.jwt_subject;
    match principals.clients().find(is_same).filter(|_| client.jwt_subject.is_some()) {
        Some(other) => {
            Err(Error::conflict(format!("client {:?} already has this jwt_subject", other.name.as_str())))
        }
        None => Ok(()),
    }
}

fn find<'a>(principals: &'a Principals, name: &str) -> Result<&'a Client, Error> {
    principals.client(name).ok_or_else(|| Error::not_found(format!("client {name:?} does not exist")))
}
