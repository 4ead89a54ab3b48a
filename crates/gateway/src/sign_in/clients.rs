//! Software that admins registered, so that it need not register itself.

use std::sync::Arc;

use serde_json::json;

use super::super::{Error, Gateway, random_id};
use model::{AuditNote, By, Secret};
use store::{ConsentOfGrant, OAuthClient, OpaqueKind};

/// How many there may be.
const MOST: usize = 1000;

/// A registration that was checked.
pub struct NewOAuthClient {
    pub client_id: String,
    pub name: String,
    /// What is known about the software. It means nothing here.
    pub software: Secret,
}

impl Gateway {
    /// A client id that nobody has.
    pub fn generate_client_id(&self) -> String {
        self.opaque_tokens.generate(OpaqueKind::Client).secret.expose().to_owned()
    }

    /// The software that an admin registered under a client id.
    pub async fn oauth_client(&self, client_id: &str) -> Result<Option<String>, Error> {
        // Anybody may ask, so most wrong ids cost no look-up.
        if self.opaque_tokens.digest(OpaqueKind::Client, client_id).is_none() {
            return Ok(None);
        }
        let found = self.store.oauth_client(client_id).await?;
        Ok(found.map(|client| client.software.expose().to_owned()))
    }

    /// All registered software, the newest first.
    pub async fn oauth_clients(&self) -> Result<Vec<OAuthClient>, Error> {
        self.require_enterprise()?;
        Ok(self.store.oauth_clients().await?)
    }

    pub async fn register_oauth_client(
        self: &Arc<Self>,
        new: NewOAuthClient,
        by: &By,
    ) -> Result<OAuthClient, Error> {
        self.require_enterprise()?;
        let by = by.clone();
        self.to_the_end(async move |gateway: Arc<Self>| {
            if gateway.store.oauth_clients().await?.len() >= MOST {
                let sentence = format!("there are {MOST} OAuth clients already; delete one first");
                return Err(Error::conflict(sentence));
            }
            let now = gateway.clock.now_ms();
            let NewOAuthClient { client_id, name, software } = new;
            let client = OAuthClient { id: random_id(), client_id, name, software, created_at_ms: now };
            let mut note = AuditNote::new(&by, "oauth_client.create", client.id.as_str(), now);
            note.after = Some(shown(&client));
            gateway.store.insert_oauth_client(&client, &note).await?;
            tracing::info!(client = client.name, "registered an OAuth client");
            Ok(client)
        })
        .await
    }

    /// Deletes registered software, and ends its grants.
    pub async fn delete_oauth_client(self: &Arc<Self>, id: &str, by: &By) -> Result<(), Error> {
        self.require_enterprise()?;
        let unknown = || Error::not_found(format!("OAuth client {id:?} does not exist"));
        let clients = self.store.oauth_clients().await?;
        let client = clients.into_iter().find(|client| client.id == id).ok_or_else(unknown)?;
        let by = by.clone();
        self.to_the_end(async move |gateway: Arc<Self>| {
            let mut note =
                AuditNote::new(&by, "oauth_client.delete", client.id.as_str(), gateway.clock.now_ms());
            note.before = Some(shown(&client));
            gateway.store.delete_oauth_client(&client.id, &note).await?;
            for grant in gateway.store.grants_of_client(&client.client_id).await? {
                gateway
                    .end_stored(grant, ConsentOfGrant::Forget, Some("its client was deleted"), &by)
                    .await?;
            }
            tracing::info!(client = client.name, "deleted an OAuth client");
            Ok(())
        })
        .await
    }
}

fn shown(client: &OAuthClient) -> serde_json::Value {
    json!({ "client_id": client.client_id, "client_name": client.name })
}
