//! What an authorization server granted for one registered server, and as which client. It is kept as one text, which
//! whoever stores it must seal.

use rmcp::transport::auth::{OAuthClientConfig, StoredCredentials};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use model::{Issued, Secret};

#[derive(Clone, Serialize, Deserialize)]
pub struct Grant {
    /// The same through all renewals: a grant that was replaced must not come back by one.
    pub lineage: String,
    /// The URL of the server that it is for.
    pub url: String,
    pub client: OAuthClient,
    pub kind: GrantType,
    /// The server's words when it asked for authorization, where discovery begins.
    pub challenge: Option<String>,
    /// When its tokens were given, in milliseconds since 1970; the OAuth client knows only seconds.
    pub received_at_ms: u64,
    pub(super) credentials: StoredCredentials,
}

/// How the gateway is known to an authorization server.
#[derive(Clone, Serialize, Deserialize)]
pub struct OAuthClient {
    pub id: String,
    pub secret: Option<String>,
    pub redirect_uri: String,
}

/// Who agreed to the grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrantType {
    /// A person, in a browser; it lives on by refresh tokens.
    Person,
    /// The client itself, by its secret; it can be had again at any time.
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
    /// Everything in one text; it is full of secrets.
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

    /// How many seconds the access token is good for; `None` where nobody said.
    pub fn lifetime(&self) -> Option<u64> {
        self.token_response().expires_in
    }

    pub fn is_renewable(&self) -> bool {
        match self.kind {
            GrantType::Machine => true,
            GrantType::Person => self.token_response().refresh_token.is_some(),
        }
    }

    /// Makes its secrets known to whoever shows text of this server.
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
