//! Joins the credentials of upstreams with the store that keeps them, and finds the credentials for a registration.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Error, Gateway, now_ms};
use model::{Registration, Secret, ServerName};
use store::Store;
use upstream::credentials::{Credentials, KeepGrants};
use upstream::oauth::Grant;

/// The store, as upstreams use it to keep grants.
pub struct Keeper(pub Arc<Store>);

#[async_trait]
impl KeepGrants for Keeper {
    async fn keep(&self, server: &ServerName, lineage: &str, grant: &Secret) -> Result<bool, String> {
        self.0.renew_grant(server, lineage, grant, now_ms()).await.map_err(|error| error.to_string())
    }

    fn is_shared(&self) -> bool {
        self.0.is_shared()
    }

    async fn claim(
        &self,
        server: &ServerName,
        lineage: &str,
        time: Duration,
    ) -> Result<(bool, Option<Secret>), String> {
        let now = now_ms();
        let until = now.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
        self.0.claim_renewal(server, lineage, until, now).await.map_err(|error| error.to_string())
    }

    async fn release(&self, server: &ServerName) {
        if let Err(error) = self.0.release_renewal(server).await {
            tracing::debug!(%server, %error, "the renewal of a grant stays reserved for a while");
        }
    }
}

impl Gateway {
    /// The credentials for a registration: those in use if they fit its endpoint, otherwise new ones with the stored
    /// grant.
    pub(super) async fn credentials_for(
        &self,
        registration: &mut Registration,
    ) -> Result<Option<Arc<Credentials>>, Error> {
        let config = &mut registration.config;
        let Some(endpoint) = config.endpoint().filter(|endpoint| !endpoint.has_credentials()) else {
            return Ok(None);
        };
        let catalog = self.catalog();
        let entry = catalog.get(config.name.as_str());
        let in_use = entry.and_then(|entry| entry.upstream.as_ref()?.credentials().cloned());
        let credentials = match in_use.filter(|credentials| credentials.fits(endpoint)) {
            Some(credentials) => Some(credentials),
            None => {
                let stored = self.store.load_grants().await?.remove(config.name.as_str());
                let grant = stored.and_then(|text| read(&config.name, &text));
                self.new_credentials(registration, grant, entry.is_some())
            }
        };
        if let (Some(credentials), Some(endpoint)) = (&credentials, registration.config.endpoint_mut()) {
            endpoint.oauth.issued = credentials.issued().clone();
        }
        Ok(credentials)
    }

    pub(super) fn new_credentials(
        &self,
        registration: &Registration,
        grant: Option<Grant>,
        is_kept: bool,
    ) -> Option<Arc<Credentials>> {
        Credentials::new(&registration.config, &self.upstream_options, self.keeper.clone(), grant, is_kept)
    }
}

/// Parses a stored grant. One that cannot be read counts as missing: somebody must authorize again.
pub fn read(server: &ServerName, text: &Secret) -> Option<Grant> {
    let grant = Grant::parse(text);
    if let Err(reason) = &grant {
        tracing::warn!(%server, reason, "the stored grant of a server is unusable");
    }
    grant.ok()
}
