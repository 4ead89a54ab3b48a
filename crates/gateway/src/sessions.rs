//! The sessions in which people authorize servers: how they are finished, how they went, and when they are forgotten.
//! Beginning one is done in `oauth`.

use std::sync::Arc;
use std::time::Duration;

use super::oauth::{Content, Purpose};
use super::record::ServerRecord;
use super::{Error, Gateway, now_ms};
use model::{Redactor, Registration, Secret, ServerName, time};
use store::{SessionKey, SessionStatus, StoreError, StoredSession};
use upstream::oauth::{Provider, Unfinished};

const CLEANING: Duration = Duration::from_secs(60);
const SAVING_PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1500)];

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
#[derive(Clone, Debug)]
pub struct SessionRecord {
    pub session_id: String,
    /// `pending`, `completed`, `failed` or `expired`.
    pub status: &'static str,
    pub server_name: String,
    pub expires_at: String,
    pub error: String,
}

impl Gateway {
    pub async fn oauth_session(&self, id: &str) -> Result<SessionRecord, Error> {
        let session = self.find_session(SessionKey::Id(id)).await?;
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
        let session = self.find_session(SessionKey::Id(id)).await?;
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
        let session = self.find_session(SessionKey::State(state)).await?;
        check_open(&session)?;
        self.finish(session, response).await
    }

    /// One that is over for too long is as good as removed.
    async fn find_session(&self, key: SessionKey<'_>) -> Result<StoredSession, Error> {
        let unknown =
            || Error::not_found("there is no such authorization session; it may be over for a while");
        let session = self.store.session(key).await?.ok_or_else(unknown)?;
        let over_since = session.finished_at_ms.unwrap_or(session.expires_at_ms);
        if over_since.saturating_add(self.oauth_session_life_ms()) <= now_ms() {
            Err(unknown())
        } else {
            Ok(session)
        }
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
            // A code works once, so it is not taken to a database that cannot store what it gives.
            drop(gateway.turn().await?);
            if !gateway.store.claim_session(&session.id, now_ms()).await? {
                return Err(Error::invalid("this authorization session is not waiting any more"));
            }
            let finished = gateway.finish_claimed(&session, response).await;
            let reason = finished.as_ref().err().map(ToString::to_string);
            gateway.settle(session.id, reason).await;
            finished
        })
        .await
    }

    /// Notes how a session ended. What it was about is done or not done by now, whatever the disk says to this.
    async fn settle(&self, session: String, error: Option<String>) {
        if let Err(failure) = self.store.settle_session(&session, error.as_deref(), now_ms()).await {
            tracing::warn!(error = %failure, "the end of an authorization is noted later");
            let mut unsettled = self.unsettled.lock().expect("no code panics while it holds the sessions");
            unsettled.push((session, error));
        }
    }

    /// Notes the ends that could not be noted before.
    pub(super) async fn settle_late(&self) -> Result<(), StoreError> {
        let waiting =
            || self.unsettled.lock().expect("no code panics while it holds the sessions").first().cloned();
        while let Some((session, error)) = waiting() {
            self.store.settle_session(&session, error.as_deref(), now_ms()).await?;
            let mut unsettled = self.unsettled.lock().expect("no code panics while it holds the sessions");
            unsettled.retain(|(settled, _)| *settled != session);
        }
        Ok(())
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
        content.flow.announce(&endpoint.oauth.issued);
        endpoint.oauth.issued.add(code.clone());
        let redactor = Redactor::of(&registration.config);
        let challenge = content.flow.challenge.as_deref();
        let found = Provider::find(endpoint, challenge, &self.upstream_options).await;
        let gone = || Error::upstream("the server no longer says anything about OAuth");
        let provider = found.map_err(|reason| Error::upstream(redactor.redact(&reason)))?.ok_or_else(gone)?;
        let finished = provider.finish(content.flow.clone(), &code, response.issuer.as_deref()).await;
        let grant = finished.map_err(|error| match error {
            Unfinished::Issuer(reason) => Error::invalid(format!("iss: {}", redactor.redact(&reason))),
            Unfinished::Refused(reason) => Error::upstream(redactor.redact(&reason)),
        })?;
        content.grant = Some(grant.clone());
        self.keep_grant(&session.id, &content.to_secret()).await?;
        self.adopt(registration, grant, content.keeps).await
    }

    /// A grant is stored before it is used. Its code is used up, so storing it is worth several attempts.
    async fn keep_grant(&self, session: &str, content: &Secret) -> Result<(), Error> {
        for pause in SAVING_PAUSES {
            match self.store.update_session(session, content).await {
                Ok(()) => return Ok(()),
                Err(error) => tracing::warn!(%error, "a grant is stored once more"),
            }
            tokio::time::sleep(pause).await;
        }
        Ok(self.store.update_session(session, content).await?)
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
        Ok(self.store.clean_sessions(now_ms(), self.oauth_session_life_ms()).await?)
    }

    pub(super) fn oauth_session_life_ms(&self) -> i64 {
        i64::try_from(self.oauth_session_life.as_millis()).unwrap_or(i64::MAX)
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
