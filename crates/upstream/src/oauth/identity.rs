//! The gateway's OAuth client at an authorization server, and the scopes that it requests.

use std::collections::HashSet;

use rmcp::transport::auth::OAuthClientConfig;
use serde_json::Value;
use url::Url;

use super::grant::{Grant, OAuthClient};
use super::provider::{Provider, say};
use crate::CLIENT;
use model::Endpoint;

/// Requested in addition where it is offered: it makes a grant last.
const OFFLINE_ACCESS: &str = "offline_access";

impl Provider {
    /// The scopes to request: the registered ones, else those that the server asked for or lists. When some are
    /// lacking, those granted before are requested again with them.
    pub(super) async fn scopes(
        &self,
        registered: &[String],
        known: Option<&Grant>,
        lacking: &[String],
    ) -> Vec<String> {
        let mut scopes = match registered {
            [] => self.manager.select_initial_scopes(&[]).await,
            registered => registered.to_vec(),
        };
        let before = known.filter(|_| !lacking.is_empty()).map(Grant::scopes).unwrap_or_default();
        scopes.extend(before.iter().chain(lacking).cloned());
        let offered = self.metadata.scopes_supported.iter().flatten().any(|scope| scope == OFFLINE_ACCESS);
        if offered && !scopes.is_empty() {
            scopes.push(OFFLINE_ACCESS.to_owned());
        }
        let mut seen = HashSet::new();
        scopes.retain(|scope| seen.insert(scope.clone()));
        scopes
    }

    /// The OAuth client to use: registered by hand, the one used before, our metadata document, or newly registered.
    pub(super) async fn client(
        &mut self,
        endpoint: &Endpoint,
        redirect_uri: &str,
        known: Option<&Grant>,
        scopes: &[&str],
    ) -> Result<OAuthClient, String> {
        if let Some(id) = &endpoint.oauth.client_id {
            let secret = endpoint.oauth.client_secret.as_ref().map(|secret| secret.expose().to_owned());
            return Ok(OAuthClient { id: id.clone(), secret, redirect_uri: redirect_uri.to_owned() });
        }
        let same_issuer = known.filter(|grant| grant.issuer().is_some() && grant.issuer() == self.issuer());
        if let Some(grant) = same_issuer.filter(|grant| grant.client.redirect_uri == redirect_uri) {
            return Ok(grant.client.clone());
        }
        let document = self.client_metadata_url.as_ref().filter(|url| {
            let base = url.rsplit_once('/').map_or("", |(base, _)| base);
            // The document lists our own callback only, and must come over TLS.
            url.starts_with("https://")
                && redirect_uri.starts_with(base)
                && self.metadata.additional_fields.get("client_id_metadata_document_supported")
                    == Some(&Value::Bool(true))
        });
        if let Some(url) = document {
            return Ok(OAuthClient { id: url.clone(), secret: None, redirect_uri: redirect_uri.to_owned() });
        }
        if self.metadata.registration_endpoint.is_none() {
            return Err(format!(
                "the authorization server {} does not support dynamic client registration; register toolgate \
                 there and give oauth_client_id and, if there is one, oauth_client_secret",
                self.issuer().unwrap_or("of this server")
            ));
        }
        // This also tells rmcp what kind of application to register.
        let unnamed = OAuthClientConfig::new("unregistered", redirect_uri);
        let unnamed = unnamed.with_application_type(application_type(redirect_uri));
        self.manager.configure_client(unnamed).map_err(|error| say(&error))?;
        let registered = self.manager.register_client(CLIENT.name, redirect_uri, scopes).await;
        let registered = registered.map_err(|error| say(&error))?;
        Ok(OAuthClient {
            id: registered.client_id,
            secret: registered.client_secret,
            redirect_uri: redirect_uri.to_owned(),
        })
    }
}

/// `native` for a redirect back to this machine: native applications may use loopback addresses.
fn application_type(redirect_uri: &str) -> &'static str {
    let url = Url::parse(redirect_uri).ok();
    match url.as_ref().filter(|url| url.scheme() == "https") {
        Some(_) => "web",
        None => "native",
    }
}
