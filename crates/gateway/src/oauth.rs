//! Starts the authorization of servers that require OAuth: gets a grant at once, or asks for a person's consent.
//! `upstream::oauth` talks to authorization servers; `authorizations` completes what a person agreed to.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::record::ServerRecord;
use super::server_change::{Expected, Keeps, Terms, Unconnected};
use super::{Error, Gateway, now_ms};
use model::{AuditNote, By, Redactor, Registration, Secret, Status, time};
use upstream::Denial;
use upstream::oauth::{Challenge, Flow, Grant, Provider};

/// The outcome of a registration, a change or a reauthorization.
pub enum RegistrationOutcome {
    Stored(Box<ServerRecord>),
    AuthorizationRequired(PendingAuthorization),
}

impl RegistrationOutcome {
    pub(super) fn stored(record: ServerRecord) -> Self {
        RegistrationOutcome::Stored(Box::new(record))
    }
}

/// An authorization that waits for a person.
#[derive(Clone, Debug)]
pub struct PendingAuthorization {
    pub session_id: String,
    pub authorization_url: String,
    pub expires_at: String,
}

/// What happens with the grant once it is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum AuthorizationPurpose {
    /// A new server; its name must be free.
    Register,
    /// A server that replaces another, or is changed.
    Replace,
    /// A registered server, which otherwise stays as it is.
    Reauthorize,
}

/// What is needed to complete an authorization; stored sealed.
#[derive(Serialize, Deserialize)]
pub(super) struct Content {
    pub purpose: AuthorizationPurpose,
    pub registration: Map<String, Value>,
    pub keeps: Keeps,
    /// Who asked for it; missing in those of earlier versions.
    #[serde(default)]
    pub by: Option<By>,
    pub flow: Flow,
    /// Stored before it is used for the first time.
    pub grant: Option<Grant>,
}

impl Gateway {
    /// Authorizes a server that refused the connection: gets a grant at once if no person is needed, otherwise starts
    /// an authorization.
    pub(super) async fn authorize(
        self: &Arc<Self>,
        registration: Registration,
        denial: Denial,
        purpose: AuthorizationPurpose,
        terms: Terms,
    ) -> Result<RegistrationOutcome, Error> {
        let redactor = Redactor::of(&registration.config);
        let unusable = |reason: &str| match reason.is_empty() {
            true => Error::upstream(&denial.text),
            false => {
                let reason = redactor.redact(reason);
                Error::upstream(format!("{}; its OAuth metadata is unusable: {reason}", denial.text))
            }
        };
        let Some(endpoint) = registration.config.endpoint().filter(|endpoint| !endpoint.has_credentials())
        else {
            return Err(unusable(""));
        };
        let found = Provider::find(endpoint, &denial.challenge, &self.upstream_options).await;
        let mut provider = found.map_err(|reason| unusable(&reason))?.ok_or_else(|| unusable(""))?;
        let settings = &endpoint.oauth;
        if let Some(redirect_uri) = settings.redirect_uri.clone() {
            let pending = self.begin(provider, registration, &redirect_uri, purpose, &terms).await?;
            return Ok(RegistrationOutcome::AuthorizationRequired(pending));
        }
        match (&settings.client_id, &settings.client_secret) {
            (Some(id), Some(secret)) if provider.grants_to_machines() => {
                let entered = provider.enter(id, secret, &settings.scopes).await;
                let grant = entered.map_err(|reason| Error::upstream(redactor.redact(&reason)))?;
                let record = self.adopt(registration, grant, terms).await?;
                Ok(RegistrationOutcome::stored(record))
            }
            _ => Err(Error::oauth_required(registration.config.name.as_str())),
        }
    }

    /// Starts an authorization that gets a new grant for a registered server.
    pub async fn reauthorize(
        self: &Arc<Self>,
        name: &str,
        redirect_uri: Option<String>,
        by: &By,
    ) -> Result<PendingAuthorization, Error> {
        let entry = self.catalog().require(name)?.clone();
        let mut registration = (*entry.registration).clone();
        let without = || Error::invalid(format!("server {name:?} does not use OAuth"));
        let endpoint = registration.config.endpoint().filter(|endpoint| !endpoint.has_credentials());
        let redirect_uri = match (endpoint, redirect_uri) {
            (None, _) => return Err(without()),
            (Some(endpoint), None) => endpoint.oauth.redirect_uri.clone(),
            (Some(_), Some(uri)) => {
                // Only to validate it; the registration stays as it is.
                let change = ("oauth_redirect_uri".to_owned(), uri.as_str().into());
                registration.amended(Map::from_iter([change]))?;
                Some(uri)
            }
        };
        let known =
            self.credentials_for(&mut registration).await?.and_then(|credentials| credentials.grant());
        let serves = entry.upstream.as_ref().is_some_and(|upstream| match upstream.state().status {
            Status::Connected | Status::Degraded => true,
            Status::Connecting | Status::Failed | Status::Disabled => false,
        });
        // The server needs no grant.
        if known.is_none() && serves {
            return Err(without());
        }
        let known_challenge = known.as_ref().map(|grant| grant.challenge.clone()).unwrap_or_default();
        let live = entry.upstream.as_ref().and_then(|upstream| upstream.credentials()?.peer());
        let challenge = Challenge { peer: live.or(known_challenge.peer), ..known_challenge };
        let endpoint = registration.config.endpoint().ok_or_else(without)?;
        let found = Provider::find(endpoint, &challenge, &self.upstream_options).await;
        let provider = found.map_err(Error::upstream)?.ok_or_else(without)?;
        let redirect_uri = redirect_uri.ok_or_else(|| Error::oauth_required(name))?;
        let purpose = AuthorizationPurpose::Reauthorize;
        let terms = purpose.terms(Keeps::ALL, by.clone());
        self.begin(provider, registration, &redirect_uri, purpose, &terms).await
    }

    async fn begin(
        &self,
        provider: Provider,
        mut registration: Registration,
        redirect_uri: &str,
        purpose: AuthorizationPurpose,
        terms: &Terms,
    ) -> Result<PendingAuthorization, Error> {
        let credentials = self.credentials_for(&mut registration).await?;
        let (known, lacking) = match &credentials {
            // An ended grant is not used: the authorization server may no longer know its client.
            Some(credentials) => {
                (credentials.grant().filter(|_| !credentials.is_over()), credentials.lacking())
            }
            None => (None, vec![]),
        };
        let name = registration.config.name.clone();
        let endpoint = registration.config.endpoint().ok_or_else(|| Error::oauth_required(name.as_str()))?;
        let begun = provider.begin(endpoint, redirect_uri, known.as_ref(), &lacking).await;
        let redactor = Redactor::of(&registration.config);
        let begun = begun.map_err(|reason| Error::upstream(redactor.redact(&reason)))?;
        let now = now_ms();
        let content = Content {
            purpose,
            registration: registration.to_json(),
            keeps: terms.keeps,
            by: Some(terms.by.clone()),
            flow: begun.flow,
            grant: None,
        };
        let id = super::random_id();
        let note = AuditNote::new(&terms.by, "authorization.begin", name.as_str(), now);
        let note = note.after(registration.masked_json());
        let expires_at = now.saturating_add(self.authorization_life_ms());
        self.store
            .insert_authorization(&id, &name, &begun.state, &content.to_secret(), expires_at, &note)
            .await?;
        tracing::info!(server = %name, "a server waits for a person's authorization");
        Ok(PendingAuthorization {
            session_id: id,
            authorization_url: begun.authorization_url,
            expires_at: time::rfc3339(expires_at),
        })
    }

    /// Connects a server with a new grant, and stores the two together.
    pub(super) async fn adopt(
        self: &Arc<Self>,
        mut registration: Registration,
        grant: Grant,
        terms: Terms,
    ) -> Result<ServerRecord, Error> {
        if let Some(endpoint) = registration.config.endpoint_mut() {
            endpoint.oauth.issued = Default::default();
        }
        let credentials = self.new_credentials(&registration, Some(grant), false);
        let journal = self.journal_of(&registration.config.name);
        match self.connect_with(&registration, credentials, journal).await {
            Ok(connected) => self.commit(registration, connected, terms).await,
            Err(Unconnected::Denied(denial)) => Err(Error::upstream(denial.text)),
            Err(Unconnected::Failed(error)) => Err(error),
        }
    }
}

impl AuthorizationPurpose {
    /// What is expected to be registered when the grant was issued. What people changed while another person authorized
    /// is replaced, as with a registration that replaces a server.
    fn expected(self) -> Expected {
        match self {
            AuthorizationPurpose::Register => Expected::Nothing,
            AuthorizationPurpose::Replace | AuthorizationPurpose::Reauthorize => Expected::Anything,
        }
    }

    /// The terms on which the server is stored with its grant.
    pub fn terms(self, keeps: Keeps, by: By) -> Terms {
        let action = match self {
            AuthorizationPurpose::Register | AuthorizationPurpose::Replace => "server.update",
            AuthorizationPurpose::Reauthorize => "server.reauthorize",
        };
        Terms { keeps, expected: self.expected(), by, action }
    }
}

impl Content {
    pub fn to_secret(&self) -> Secret {
        Secret::new(serde_json::to_string(self).expect("an authorization can always be written as JSON"))
    }
}
