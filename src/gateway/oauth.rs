//! Authorizing servers that want OAuth: what a registration needs beyond connecting, and the sessions in which a person
//! agrees to it. Talking to authorization servers is done in `upstream::oauth`.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::record::ServerRecord;
use super::servers::{Keeps, Unconnected};
use super::{Error, Gateway, now_ms};
use crate::model::{Registration, Secret, ServerName, Status, time};
use crate::store::{SessionKey, SessionStatus, StoredSession};
use crate::upstream::Denial;
use crate::upstream::oauth::{Flow, Grant, Provider, Unfinished};

const CLEANING: Duration = Duration::from_secs(60);

/// How a registration, a change or a reauthorization went.
pub enum Outcome {
    Stored(Box<ServerRecord>),
    AuthorizationRequired(Pending),
}

impl Outcome {
    pub(super) fn stored(record: ServerRecord) -> Self {
        Outcome::Stored(Box::new(record))
    }
}

/// An authorization that waits for a person.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = PendingAuthorization)]
pub struct Pending {
    pub session_id: String,
    pub authorization_url: String,
    pub expires_at: String,
}

/// What the person brought back.
pub struct Response {
    pub code: Result<Secret, Refused>,
    pub issuer: Option<String>,
}

/// The authorization server said no.
pub struct Refused {
    pub error: String,
    pub description: Option<String>,
}

/// A session as whoever waits for it sees it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SessionRecord {
    pub session_id: String,
    /// `pending`, `completed`, `failed` or `expired`.
    pub status: &'static str,
    pub server_name: String,
    pub expires_at: String,
    pub error: String,
}

/// What is wanted of a grant once it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Purpose {
    /// A new server; its name must be free.
    Register,
    /// A server in the place of another, or changed.
    Replace,
    /// The same server as before.
    Reauthorize,
}

/// What finishing a session takes; sealed while it waits.
#[derive(Serialize, Deserialize)]
struct Content {
    purpose: Purpose,
    registration: Map<String, Value>,
    keeps: Keeps,
    flow: Flow,
    /// Kept before it is used for the first time.
    grant: Option<Grant>,
}

impl Gateway {
    /// The server refused to talk to us: finds out what it wants, and gets it where no person is needed.
    pub(super) async fn authorize(
        self: &Arc<Self>,
        registration: Registration,
        denial: Denial,
        purpose: Purpose,
        keeps: Keeps,
    ) -> Result<Outcome, Error> {
        let unusable = |reason: &str| match reason.is_empty() {
            true => Error::upstream(&denial.text),
            false => {
                Error::upstream(format!("{}; what it says about OAuth is of no use: {reason}", denial.text))
            }
        };
        let Some(endpoint) = registration.config.endpoint().filter(|endpoint| !endpoint.has_credentials())
        else {
            return Err(unusable(""));
        };
        let found = Provider::find(endpoint, denial.challenge.as_deref(), &self.upstream_options).await;
        let mut provider = found.map_err(|reason| unusable(&reason))?.ok_or_else(|| unusable(""))?;
        let settings = &endpoint.oauth;
        if let Some(redirect_uri) = settings.redirect_uri.clone() {
            let pending = self.begin(provider, registration, &redirect_uri, purpose, keeps).await?;
            return Ok(Outcome::AuthorizationRequired(pending));
        }
        match (&settings.client_id, &settings.client_secret) {
            (Some(id), Some(secret)) if provider.grants_to_machines() => {
                let grant = provider.enter(id, secret, &settings.scopes).await.map_err(Error::upstream)?;
                let record = self.adopt(registration, grant, keeps).await?;
                Ok(Outcome::stored(record))
            }
            _ => Err(Error::oauth_required(registration.config.name.as_str())),
        }
    }

    /// Asks for a new grant for a server that is registered.
    pub async fn reauthorize(
        self: &Arc<Self>,
        name: &str,
        redirect_uri: Option<String>,
    ) -> Result<Pending, Error> {
        let entry = self.catalog().require(name)?.clone();
        let mut registration = (*entry.registration).clone();
        let without = || Error::invalid(format!("server {name:?} does not use OAuth"));
        let endpoint = registration.config.endpoint().filter(|endpoint| !endpoint.has_credentials());
        let redirect_uri = match endpoint {
            Some(endpoint) => redirect_uri.or_else(|| endpoint.oauth.redirect_uri.clone()),
            None => return Err(without()),
        };
        let known = self.tokens_for(&mut registration).await?.and_then(|tokens| tokens.grant());
        let serves = entry.upstream.as_ref().is_some_and(|upstream| match upstream.state().status {
            Status::Connected | Status::Degraded => true,
            Status::Connecting | Status::Failed | Status::Disabled => false,
        });
        // It does well without.
        if known.is_none() && serves {
            return Err(without());
        }
        let challenge = known.as_ref().and_then(|grant| grant.challenge.as_deref());
        let endpoint = registration.config.endpoint().ok_or_else(without)?;
        let found = Provider::find(endpoint, challenge, &self.upstream_options).await;
        let provider = found.map_err(Error::upstream)?.ok_or_else(without)?;
        let redirect_uri = redirect_uri.ok_or_else(|| Error::oauth_required(name))?;
        self.begin(provider, registration, &redirect_uri, Purpose::Reauthorize, Keeps::ALL).await
    }

    async fn begin(
        &self,
        provider: Provider,
        mut registration: Registration,
        redirect_uri: &str,
        purpose: Purpose,
        keeps: Keeps,
    ) -> Result<Pending, Error> {
        let tokens = self.tokens_for(&mut registration).await?;
        let (known, lacking) = match &tokens {
            Some(tokens) => (tokens.grant(), tokens.lacking()),
            None => (None, vec![]),
        };
        let name = registration.config.name.clone();
        let endpoint = registration.config.endpoint().ok_or_else(|| Error::oauth_required(name.as_str()))?;
        let begun = provider.begin(endpoint, redirect_uri, known.as_ref(), &lacking).await;
        let begun = begun.map_err(Error::upstream)?;
        let now = now_ms();
        let content =
            Content { purpose, registration: registration.to_json(), keeps, flow: begun.flow, grant: None };
        let id = random_id();
        let expires_at = now + i64::try_from(self.oauth_session_life.as_millis()).unwrap_or(i64::MAX);
        self.clean_sessions().await?;
        self.store.insert_session(&id, &name, &begun.state, &content.to_secret(), expires_at, now).await?;
        tracing::info!(server = %name, "waits for a person's authorization");
        Ok(Pending {
            session_id: id,
            authorization_url: begun.authorization_url,
            expires_at: time::rfc3339(expires_at),
        })
    }

    pub async fn oauth_session(&self, id: &str) -> Result<SessionRecord, Error> {
        self.clean_sessions().await?;
        let session = self.store.session(SessionKey::Id(id)).await?;
        let session = session.ok_or_else(unknown_session)?;
        let is_expired = session.expires_at_ms <= now_ms();
        let status = match session.status {
            SessionStatus::Pending if is_expired => "expired",
            SessionStatus::Pending | SessionStatus::Finishing => "pending",
            SessionStatus::Completed => "completed",
            SessionStatus::Failed => "failed",
        };
        let error = match status {
            "expired" => "nobody authorized the server in time; register it again".to_owned(),
            _ => session.error,
        };
        Ok(SessionRecord {
            session_id: session.id,
            status,
            server_name: session.server,
            expires_at: time::rfc3339(session.expires_at_ms),
            error,
        })
    }

    /// Finishes a session by its id; `state` proves that the answer belongs to it.
    pub async fn complete_oauth_session(
        self: &Arc<Self>,
        id: &str,
        state: &Secret,
        response: Response,
    ) -> Result<ServerRecord, Error> {
        self.clean_sessions().await?;
        let session = self.store.session(SessionKey::Id(id)).await?.ok_or_else(unknown_session)?;
        check_open(&session)?;
        if !self.store.session_has_state(id, state).await? {
            return Err(Error::invalid("state: does not belong to this session"));
        }
        self.finish(session, response).await
    }

    /// Finishes the session that a person comes back to.
    pub async fn complete_oauth_callback(
        self: &Arc<Self>,
        state: &Secret,
        response: Response,
    ) -> Result<ServerRecord, Error> {
        self.clean_sessions().await?;
        let session = self.store.session(SessionKey::State(state)).await?.ok_or_else(unknown_session)?;
        check_open(&session)?;
        self.finish(session, response).await
    }

    async fn finish(
        self: &Arc<Self>,
        session: StoredSession,
        response: Response,
    ) -> Result<ServerRecord, Error> {
        self.to_the_end(async move |gateway: Arc<Self>| {
            let name = ServerName::parse(&session.server)
                .map_err(|problem| Error::internal(format!("an OAuth session of a server that {problem}")))?;
            // Before anything is used up, so that whoever waits can try again.
            let _change = gateway.begin_change(&name)?;
            if !gateway.store.claim_session(&session.id, now_ms()).await? {
                return Err(Error::invalid("this authorization session is not waiting any more"));
            }
            let finished = gateway.finish_claimed(&session, response).await;
            let reason = finished.as_ref().err().map(ToString::to_string);
            gateway.store.settle_session(&session.id, reason.as_deref(), now_ms()).await?;
            finished
        })
        .await
    }

    async fn finish_claimed(
        self: &Arc<Self>,
        session: &StoredSession,
        response: Response,
    ) -> Result<ServerRecord, Error> {
        let damaged = || Error::internal("an OAuth session cannot be read");
        let content = session.content.as_ref().ok_or_else(damaged)?;
        let mut content: Content = serde_json::from_str(content.expose()).map_err(|_| damaged())?;
        let code = response.code.map_err(|refused| {
            let description = refused.description.map(|text| format!(": {text}")).unwrap_or_default();
            Error::invalid(format!("the authorization server refused: {}{description}", refused.error))
        })?;
        let registration = self.registration_of(&session.server, &content)?;
        let endpoint = registration.config.endpoint().ok_or_else(damaged)?;
        let challenge = content.flow.challenge.as_deref();
        let found = Provider::find(endpoint, challenge, &self.upstream_options).await;
        let gone = || Error::upstream("the server no longer says anything about OAuth");
        let provider = found.map_err(Error::upstream)?.ok_or_else(gone)?;
        let finished = provider.finish(content.flow.clone(), &code, response.issuer.as_deref()).await;
        let grant = finished.map_err(|error| match error {
            Unfinished::Issuer(reason) => Error::invalid(format!("iss: {reason}")),
            Unfinished::Refused(reason) => Error::upstream(reason.replace(code.expose(), "***")),
        })?;
        content.grant = Some(grant.clone());
        self.store.update_session(&session.id, &content.to_secret()).await?;
        self.adopt(registration, grant, content.keeps).await
    }

    /// The registration that a session is about, as it is now.
    fn registration_of(&self, name: &str, content: &Content) -> Result<Registration, Error> {
        let catalog = self.catalog();
        match (content.purpose, catalog.get(name)) {
            (Purpose::Reauthorize, Some(entry)) => return Ok((*entry.registration).clone()),
            (Purpose::Reauthorize, None) => return Err(Error::unknown_server(name)),
            (Purpose::Register, Some(_)) => return Err(Error::already_registered(name)),
            (Purpose::Register, None) | (Purpose::Replace, _) => {}
        }
        Ok(Registration::parse(content.registration.clone())?)
    }

    /// Connects with a grant that is new, and stores both together.
    async fn adopt(
        self: &Arc<Self>,
        mut registration: Registration,
        grant: Grant,
        keeps: Keeps,
    ) -> Result<ServerRecord, Error> {
        if let Some(endpoint) = registration.config.endpoint_mut() {
            endpoint.oauth.issued = Default::default();
        }
        let tokens = self.new_tokens(&registration, Some(grant), false);
        match self.connect_with(&registration, tokens).await {
            Ok(connected) => self.commit(registration, connected, keeps).await,
            Err(Unconnected::Denied(denial)) => Err(Error::upstream(denial.text)),
            Err(Unconnected::Failed(error)) => Err(error),
        }
    }

    /// Sessions that nobody asks for any more go, too.
    pub(super) async fn keep_sessions_clean(self: Arc<Self>) {
        loop {
            if let Err(error) = self.clean_sessions().await {
                tracing::warn!(%error, "old authorization sessions stay for now");
            }
            tokio::time::sleep(CLEANING).await;
        }
    }

    async fn clean_sessions(&self) -> Result<(), Error> {
        let retention = i64::try_from(self.oauth_session_life.as_millis()).unwrap_or(i64::MAX);
        Ok(self.store.clean_sessions(now_ms(), retention).await?)
    }
}

impl Content {
    fn to_secret(&self) -> Secret {
        Secret::new(serde_json::to_string(self).expect("a session is made of strings"))
    }
}

fn check_open(session: &StoredSession) -> Result<(), Error> {
    let reason = match session.status {
        SessionStatus::Pending if session.expires_at_ms <= now_ms() => {
            "has expired; register the server again"
        }
        SessionStatus::Pending => return Ok(()),
        SessionStatus::Finishing => "is being finished already",
        SessionStatus::Completed => "is completed already",
        SessionStatus::Failed => "has failed; register the server again",
    };
    Err(Error::invalid(format!("this authorization session {reason}")))
}

fn unknown_session() -> Error {
    Error::not_found("there is no such authorization session; it may be over for a while")
}

/// 32 random bytes in hex.
fn random_id() -> String {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).expect("the operating system always has random bytes");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
