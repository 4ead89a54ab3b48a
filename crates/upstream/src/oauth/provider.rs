//! The authorization server of one registered server: discovered from that server's metadata, then asked for grants.
//! rmcp implements the protocol; this module decides which client we are, where requests may go and what is stored.

use std::time::{SystemTime, UNIX_EPOCH};

use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, ClientCredentialsConfig,
    StoredAuthorizationState, StoredCredentials,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use super::address::AddressPolicy;
use super::challenge::Challenge;
use super::grant::{Grant, GrantType, OAuthClient};
use super::memory::Memory;
use crate::error::seconds;
use crate::{Boxed, Options};
use model::{Endpoint, Issued, Secret};

pub struct Provider {
    pub(super) manager: AuthorizationManager,
    pub(super) metadata: AuthorizationMetadata,
    /// The URL of the server, without parts that may be secret.
    url: Url,
    challenge: Challenge,
    pub(super) client_metadata_url: Option<String>,
}

/// An authorization that a person must agree to.
pub struct Begun {
    pub authorization_url: String,
    /// Comes back with the redirect, and proves that it belongs to this authorization.
    pub state: Secret,
    pub flow: Flow,
}

/// The data that must be kept until the person has agreed. Contains secrets.
#[derive(Clone, Serialize, Deserialize)]
pub struct Flow {
    #[serde(flatten)]
    pub challenge: Challenge,
    issuer: Option<String>,
    client: OAuthClient,
    state: StoredAuthorizationState,
}

impl Flow {
    /// Registers its secrets, so that they are redacted in text about this server.
    pub fn announce(&self, issued: &Issued) {
        let secrets = [Some(self.state.pkce_verifier.clone()), self.client.secret.clone()];
        secrets.into_iter().flatten().for_each(|secret| issued.add(Secret::new(secret)));
    }
}

/// Why a finished authorization gave no grant.
pub enum Unfinished {
    /// The redirect names another authorization server than the one that was asked, or names none.
    Issuer(String),
    Refused(String),
}

/// Why a grant was not renewed.
pub enum Unrenewed {
    /// The grant has ended: a person must authorize the server again.
    Over(String),
    /// Another attempt may work.
    NotNow(String),
}

impl Provider {
    /// Discovers the authorization server; `None` when the server publishes nothing about OAuth.
    pub fn find<'a>(
        endpoint: &'a Endpoint,
        challenge: &'a Challenge,
        options: &'a Options,
    ) -> Boxed<'a, Result<Option<Self>, String>> {
        Box::pin(async move {
            let limit = options.init_timeout;
            let late =
                |_| format!("discovery of its authorization server timed out after {}", seconds(limit));
            tokio::time::timeout(limit, Self::discover(endpoint, challenge, options)).await.map_err(late)?
        })
    }

    async fn discover(
        endpoint: &Endpoint,
        challenge: &Challenge,
        options: &Options,
    ) -> Result<Option<Self>, String> {
        let url = bare(&endpoint.url);
        let policy = AddressPolicy::around(challenge.peer, options.oauth.allow_private);
        // rmcp builds HTTP clients of its own, which are then not used but need this provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let manager = match policy.reaches_private() {
            true => AuthorizationManager::new_allowing_private_addresses(url.clone()).await,
            false => AuthorizationManager::new(url.clone()).await,
        };
        let mut manager = manager.map_err(|error| say(&error))?;
        let client = policy.client(&options.tls, options.init_timeout)?;
        manager.with_client(client).map_err(|error| say(&error))?;
        let found = manager.resolve_metadata_from_challenge(challenge.header.as_deref()).await;
        let found = found.map_err(|error| say(&error))?;
        // If nothing is published, rmcp invents endpoints.
        if !found.source.is_discovered() {
            return Ok(None);
        }
        let metadata = found.metadata;
        policy.check(&metadata.token_endpoint)?;
        metadata.registration_endpoint.as_deref().map_or(Ok(()), |url| policy.check(url))?;
        // Only a browser opens it, so any address is allowed, but it must be a web page.
        if !metadata.authorization_endpoint.starts_with("https://")
            && !metadata.authorization_endpoint.starts_with("http://")
        {
            return Err(format!("{} is not an http or https URL", metadata.authorization_endpoint));
        }
        manager.set_metadata(metadata.clone());
        let client_metadata_url = options.oauth.client_metadata_url.clone();
        Ok(Some(Self { manager, metadata, url, challenge: challenge.clone(), client_metadata_url }))
    }

    pub fn issuer(&self) -> Option<&str> {
        self.metadata.issuer.as_deref()
    }

    pub fn grants_to_machines(&self) -> bool {
        self.lists("grant_types_supported", "client_credentials")
    }

    /// Prepares an authorization for a person to agree to. `known` is the grant so far, `lacking` the scopes that it
    /// lacks.
    pub fn begin<'a>(
        self,
        endpoint: &'a Endpoint,
        redirect_uri: &'a str,
        known: Option<&'a Grant>,
        lacking: &'a [String],
    ) -> Boxed<'a, Result<Begun, String>> {
        Box::pin(self.begin_now(endpoint, redirect_uri, known, lacking))
    }

    async fn begin_now(
        mut self,
        endpoint: &Endpoint,
        redirect_uri: &str,
        known: Option<&Grant>,
        lacking: &[String],
    ) -> Result<Begun, String> {
        let scopes = self.scopes(&endpoint.oauth.scopes, known, lacking).await;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let client = self.client(endpoint, redirect_uri, known, &scopes).await?;
        self.manager.configure_client(client.config()).map_err(|error| say(&error))?;
        let memory = Memory::<StoredAuthorizationState>::of(None);
        self.manager.set_state_store(memory.clone());
        let authorization_url =
            self.manager.get_authorization_url(&scopes).await.map_err(|error| say(&error))?;
        let state = memory.content().ok_or("the authorization was not prepared")?;
        Ok(Begun {
            authorization_url,
            state: Secret::new(&state.csrf_token),
            flow: Flow { challenge: self.challenge, issuer: self.metadata.issuer.clone(), client, state },
        })
    }

    /// Exchanges the code, with which the person came back, for a grant.
    pub fn finish<'a>(
        self,
        flow: Flow,
        code: &'a Secret,
        issuer: Option<&'a str>,
    ) -> Boxed<'a, Result<Grant, Unfinished>> {
        Box::pin(self.finish_now(flow, code, issuer))
    }

    async fn finish_now(
        mut self,
        flow: Flow,
        code: &Secret,
        issuer: Option<&str>,
    ) -> Result<Grant, Unfinished> {
        if self.metadata.issuer != flow.issuer {
            return Err(Unfinished::Refused("the server now names another authorization server".into()));
        }
        let refused = |error: AuthError| Unfinished::Refused(say(&error));
        self.manager.configure_client(flow.client.config()).map_err(refused)?;
        let credentials = Memory::<StoredCredentials>::of(None);
        self.manager.set_credential_store(credentials.clone());
        self.manager.set_state_store(Memory::of(Some(flow.state.clone())));
        let exchange =
            self.manager.exchange_code_for_token_with_issuer(code.expose(), &flow.state.csrf_token, issuer);
        match exchange.await {
            Ok(_) => {}
            Err(
                error @ (AuthError::AuthorizationServerMismatch { .. }
                | AuthError::AuthorizationServerMissingIssuer { .. }),
            ) => return Err(Unfinished::Issuer(say(&error))),
            // No issuer was recorded, so one that comes back cannot be right.
            Err(error @ AuthError::AuthorizationFailed(_)) => return Err(Unfinished::Issuer(say(&error))),
            Err(error) => return Err(refused(error)),
        }
        let credentials = credentials.content();
        let credentials = credentials
            .ok_or_else(|| Unfinished::Refused("the authorization server returned no token".into()))?;
        Ok(self.grant(flow.client, GrantType::Person, credentials))
    }

    /// Requests a grant that no person has to agree to (client credentials).
    pub fn enter<'a>(
        &'a mut self,
        client_id: &'a str,
        secret: &'a Secret,
        scopes: &'a [String],
    ) -> Boxed<'a, Result<Grant, String>> {
        Box::pin(self.enter_now(client_id, secret, scopes))
    }

    async fn enter_now(
        &mut self,
        client_id: &str,
        secret: &Secret,
        scopes: &[String],
    ) -> Result<Grant, String> {
        let client = OAuthClient {
            id: client_id.to_owned(),
            secret: Some(secret.expose().to_owned()),
            redirect_uri: self.url.to_string(),
        };
        let scopes = self.scopes(scopes, None, &[]).await;
        let credentials = self.enter_as(&client, scopes).await.map_err(|error| say(&error))?;
        Ok(self.grant(client, GrantType::Machine, credentials))
    }

    /// Requests a new access token for the same grant.
    pub fn renew<'a>(&'a mut self, grant: &'a Grant) -> Boxed<'a, Result<Grant, Unrenewed>> {
        Box::pin(self.renew_now(grant))
    }

    async fn renew_now(&mut self, grant: &Grant) -> Result<Grant, Unrenewed> {
        if self.issuer() != grant.issuer() {
            return Err(Unrenewed::Over("the server now names another authorization server".into()));
        }
        let credentials = match grant.kind {
            GrantType::Machine => self.enter_as(&grant.client, grant.scopes().to_vec()).await,
            GrantType::Person => self.refresh(grant).await,
        };
        match credentials {
            Ok(credentials) => Ok(Grant { credentials, received_at_ms: now_ms(), ..grant.clone() }),
            Err(error @ (AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_))) => {
                Err(Unrenewed::Over(say(&error)))
            }
            // rmcp distinguishes these from temporary failures only in its message.
            Err(error)
                if ["invalid_client", "unauthorized_client"].iter().any(|it| say(&error).contains(it)) =>
            {
                Err(Unrenewed::Over(say(&error)))
            }
            Err(error) => Err(Unrenewed::NotNow(say(&error))),
        }
    }

    async fn refresh(&mut self, grant: &Grant) -> Result<StoredCredentials, AuthError> {
        // rmcp would request `offline_access` wherever it is offered, even if it was not granted, and then get fewer
        // scopes or an error.
        let mut metadata = self.metadata.clone();
        metadata.scopes_supported = None;
        self.manager.set_metadata(metadata);
        self.manager.configure_client(grant.client.config())?;
        let mut credentials = grant.credentials.clone();
        // rmcp reads an empty `scope` in a response as one scope without a name.
        credentials.granted_scopes.retain(|scope| !scope.is_empty());
        let memory = Memory::of(Some(credentials));
        self.manager.set_credential_store(memory.clone());
        self.manager.refresh_token().await?;
        memory.content().ok_or(AuthError::AuthorizationRequired)
    }

    async fn enter_as(
        &mut self,
        client: &OAuthClient,
        scopes: Vec<String>,
    ) -> Result<StoredCredentials, AuthError> {
        let config = ClientCredentialsConfig::ClientSecret {
            client_id: client.id.clone(),
            client_secret: client.secret.clone().unwrap_or_default(),
            scopes,
            resource: Some(self.resource(client).await),
        };
        self.manager.validate_client_credentials_metadata(&config)?;
        self.manager.configure_client_credentials(&config)?;
        let memory = Memory::<StoredCredentials>::of(None);
        self.manager.set_credential_store(memory.clone());
        self.manager.exchange_client_credentials(&config).await?;
        memory.content().ok_or(AuthError::AuthorizationRequired)
    }

    /// The resource exactly as the server announced it. rmcp exposes it only as a part of an authorization URL.
    async fn resource(&mut self, client: &OAuthClient) -> String {
        let announced = async {
            self.manager.configure_client(client.config()).ok()?;
            let url = self.manager.get_authorization_url(&[]).await.ok()?;
            let url = Url::parse(&url).ok()?;
            url.query_pairs().find(|(name, _)| name == "resource").map(|(_, value)| value.into_owned())
        };
        announced.await.unwrap_or_else(|| self.url.to_string())
    }

    fn grant(&self, client: OAuthClient, kind: GrantType, credentials: StoredCredentials) -> Grant {
        let mut lineage = [0; 16];
        getrandom::fill(&mut lineage).expect("the operating system always has random bytes");
        let lineage = lineage.iter().map(|byte| format!("{byte:02x}")).collect();
        Grant {
            lineage,
            url: self.url.to_string(),
            client,
            kind,
            challenge: self.challenge.clone(),
            received_at_ms: now_ms(),
            credentials,
        }
    }

    fn lists(&self, member: &str, value: &str) -> bool {
        let list = self.metadata.additional_fields.get(member).and_then(Value::as_array);
        list.is_some_and(|list| list.iter().any(|item| item == value))
    }
}

/// A URL without user info, query and fragment, which may contain credentials.
pub fn bare(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // These fail only for URLs that cannot have user info; http and https URLs can.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The text of an error in one line.
pub(super) fn say(error: &AuthError) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
