//! A grant of an authorization server for one registered server, and the OAuth client that has it. It is stored as one
//! text, which must be sealed.

use rmcp::transport::auth::{OAuthClientConfig, StoredCredentials};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::challenge::Challenge;
use model::{Issued, Secret};

#[derive(Clone, Serialize, Deserialize)]
pub struct Grant {
    /// Stays the same through all renewals, so that a late renewal cannot bring back a grant that was replaced.
    pub lineage: String,
    /// The URL of the server that the grant is for.
    pub url: String,
    pub client: OAuthClient,
    pub kind: GrantType,
    #[serde(flatten)]
    pub challenge: Challenge,
    /// When its tokens were received, in milliseconds since 1970; rmcp records only seconds.
    pub received_at_ms: u64,
    pub(super) credentials: StoredCredentials,
}

/// The gateway's client registration at an authorization server.
#[derive(Clone, Serialize, Deserialize)]
pub struct OAuthClient {
    pub id: String,
    pub secret: Option<String>,
    pub redirect_uri: String,
}

/// Who agreed to the grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrantType {
    /// A person, in a browser; it is renewed with refresh tokens.
    Person,
    /// The client itself, with its secret; it can be requested again at any time.
    Machine,
}

/// The parts of a token response that the gateway uses.
#[derive(Default, Deserialize)]
struct TokenResponse {
    access_token: String,
    refresh_token: Option<String>,
    expires_in: Option<u64>,
}

impl Grant {
    /// The whole grant as one text, including its secrets.
    pub fn to_secret(&self) -> Secret {
        Secret::new(serde_json::to_string(self).expect("a grant is made of strings"))
    }

    pub fn parse(text: &Secret) -> Result<Self, String> {
        serde_json::from_str(text.expose()).map_err(|error| format!("a stored grant cannot be read: {error}"))
    }

    pub fn issuer(&self) -> Option<&str> {
        self.credentials.issuer.as_deref()
    }

    pub fn scopes(&self) -> &[String] {
        &self.credentials.granted_scopes
    }

    pub fn access_token(&self) -> Secret {
        Secret::new(self.token_response().access_token)
    }

    /// The lifetime of the access token in seconds; `None` if unknown.
    pub fn lifetime(&self) -> Option<u64> {
        self.token_response().expires_in
    }

    pub fn is_renewable(&self) -> bool {
        match self.kind {
            GrantType::Machine => true,
            GrantType::Person => self.token_response().refresh_token.is_some(),
        }
    }

    /// Registers its secrets, so that they are redacted in text about this server.
    pub fn announce(&self, issued: &Issued) {
        let tokens = self.token_response();
        let secrets = [Some(tokens.access_token), tokens.refresh_token, self.client.secret.clone()];
        secrets.into_iter().flatten().for_each(|secret| issued.add(Secret::new(secret)));
    }

    fn token_response(&self) -> TokenResponse {
        let response = serde_json::to_value(&self.credentials.token_response).unwrap_or(Value::Null);
        serde_json::from_value(response).unwrap_or_default()
    }
}

impl OAuthClient {
    pub(super) fn config(&self) -> OAuthClientConfig {
        let config = OAuthClientConfig::new(&self.id, &self.redirect_uri);
        match &self.secret {
            Some(secret) => config.with_client_secret(secret),
            None => config,
        }
    }
}
