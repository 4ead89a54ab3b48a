//! Authorizations that wait for a person: completing them, reporting their status, deleting old ones.
//! They are started in `oauth`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::oauth::{AuthorizationPurpose, Content};
use super::record::ServerRecord;
use super::{Error, Gateway, now_ms};
use model::{AuditNote, AuditOutcome, By, Redactor, Registration, Secret, ServerName, time};
use store::{AuthorizationKey, AuthorizationStatus, StoreError, StoredAuthorization};
use upstream::oauth::{Provider, Unfinished};

const CLEANING: Duration = Duration::from_secs(60);
const SAVING_PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1500)];

/// The authorization server's response, which a person's browser brought back.
pub struct AuthorizationResponse {
    pub code: Result<Secret, Refused>,
    pub issuer: Option<String>,
}

/// The error with which the authorization server refused.
pub struct Refused {
    pub error: String,
    pub description: Option<String>,
}

/// The status of an authorization, which the API calls a session.
#[derive(Clone, Debug)]
pub struct SessionRecord {
    pub session_id: String,
    /// `pending`, `completed`, `failed` or `expired`.
    pub status: &'static str,
    pub server_name: String,
    pub expires_at: String,
    pub error: String,
}

/// Why an authorization failed, and what is noted of that.
#[derive(Clone)]
pub(super) struct FailedAuthorization {
    reason: String,
    note: AuditNote,
}

impl FailedAuthorization {
    fn new(error: &Error, by: &By, server: &ServerName) -> Self {
        let reason = error.to_string();
        let note = AuditNote::new(by, "authorization.fail", server.as_str(), now_ms());
        let note = note.outcome(AuditOutcome::Failed).after(json!({ "error": reason }));
        Self { reason, note }
    }

    fn parts(&self) -> (&str, &AuditNote) {
        (&self.reason, &self.note)
    }
}

impl Gateway {
    pub async fn authorization(&self, id: &str) -> Result<SessionRecord, Error> {
        let authorization = self.find_authorization(AuthorizationKey::Id(id)).await?;
        let is_expired = authorization.expires_at_ms <= now_ms();
        let status = match authorization.status {
            AuthorizationStatus::Pending if is_expired => "expired",
            AuthorizationStatus::Pending | AuthorizationStatus::Finishing => "pending",
            AuthorizationStatus::Completed => "completed",
            AuthorizationStatus::Failed => "failed",
        };
        let error = match status {
            "expired" => "the authorization timed out; register the server again".to_owned(),
            _ => authorization.error,
        };
        Ok(SessionRecord {
            session_id: authorization.id,
            status,
            server_name: authorization.server,
            expires_at: time::rfc3339(authorization.expires_at_ms),
            error,
        })
    }

    /// Completes the authorization with this id; `state` proves that the response belongs to it.
    pub async fn complete_authorization(
        self: &Arc<Self>,
        id: &str,
        state: &Secret,
        response: AuthorizationResponse,
        by: &By,
    ) -> Result<ServerRecord, Error> {
        let authorization = self.find_authorization(AuthorizationKey::Id(id)).await?;
        check_open(&authorization)?;
        if !self.store.authorization_has_state(id, state).await? {
            return Err(Error::invalid("state: does not belong to this session"));
        }
        self.finish(authorization, response, by.clone()).await
    }

    /// Completes the authorization with this `state`, which a person's browser brought back.
    pub async fn complete_oauth_callback(
        self: &Arc<Self>,
        state: &Secret,
        response: AuthorizationResponse,
        by: &By,
    ) -> Result<ServerRecord, Error> {
        let authorization = self.find_authorization(AuthorizationKey::State(state)).await?;
        check_open(&authorization)?;
        self.finish(authorization, response, by.clone()).await
    }

    /// Finds an authorization. One that ended too long ago counts as deleted, even if it is still stored.
    async fn find_authorization(&self, key: AuthorizationKey<'_>) -> Result<StoredAuthorization, Error> {
        let unknown = || Error::not_found("there is no such authorization session; it may have expired");
        let authorization = self.store.authorization(key).await?.ok_or_else(unknown)?;
        let over_since = authorization.finished_at_ms.unwrap_or(authorization.expires_at_ms);
        if over_since.saturating_add(self.authorization_life_ms()) <= now_ms() {
            Err(unknown())
        } else {
            Ok(authorization)
        }
    }

    async fn finish(
        self: &Arc<Self>,
        authorization: StoredAuthorization,
        response: AuthorizationResponse,
        by: By,
    ) -> Result<ServerRecord, Error> {
        self.to_the_end(async move |gateway: Arc<Self>| {
            let name = ServerName::parse(&authorization.server).map_err(|problem| {
                Error::internal(format!("the server name of an authorization {problem}"))
            })?;
            // First, while nothing is used up: after a conflict the caller can try again.
            let _change = gateway.begin_change(&name)?;
            // A code works only once, so it is not exchanged while the database cannot store the grant.
            drop(gateway.turn().await?);
            if !gateway.store.claim_authorization(&authorization.id, now_ms()).await? {
                return Err(Error::invalid("this authorization session is no longer pending"));
            }
            let finished = gateway.finish_claimed(&authorization, response, &by).await;
            let failure = finished.as_ref().err().map(|error| FailedAuthorization::new(error, &by, &name));
            gateway.settle(authorization.id, failure).await;
            finished
        })
        .await
    }

    /// Stores how an authorization ended, now or later. Returns no error: its outcome is decided by now.
    async fn settle(&self, authorization: String, failure: Option<FailedAuthorization>) {
        let settled = failure.as_ref().map(FailedAuthorization::parts);
        if let Err(error) = self.store.settle_authorization(&authorization, settled, now_ms()).await {
            tracing::warn!(%error, "cannot store the outcome of an authorization; trying again later");
            let mut unsettled =
                self.unsettled.lock().expect("no code panics while it holds the authorizations");
            unsettled.push((authorization, failure));
        }
    }

    /// Stores how those authorizations ended for which this failed before.
    pub(super) async fn settle_late(&self) -> Result<(), StoreError> {
        let waiting = || {
            self.unsettled.lock().expect("no code panics while it holds the authorizations").first().cloned()
        };
        while let Some((authorization, failure)) = waiting() {
            let settled = failure.as_ref().map(FailedAuthorization::parts);
            self.store.settle_authorization(&authorization, settled, now_ms()).await?;
            let mut unsettled =
                self.unsettled.lock().expect("no code panics while it holds the authorizations");
            unsettled.retain(|(settled, _)| *settled != authorization);
        }
        Ok(())
    }

    async fn finish_claimed(
        self: &Arc<Self>,
        authorization: &StoredAuthorization,
        response: AuthorizationResponse,
        by: &By,
    ) -> Result<ServerRecord, Error> {
        let damaged = || Error::internal("a stored authorization cannot be read");
        let content = authorization.content.as_ref().ok_or_else(damaged)?;
        let mut content: Content = serde_json::from_str(content.expose()).map_err(|_| damaged())?;
        let code = response.code.map_err(|refused| {
            let description = refused.description.map(|text| format!(": {text}")).unwrap_or_default();
            Error::invalid(format!("the authorization server refused: {}{description}", refused.error))
        })?;
        let registration = self.registration_of(&authorization.server, &content)?;
        let endpoint = registration.config.endpoint().ok_or_else(damaged)?;
        content.flow.announce(&endpoint.oauth.issued);
        endpoint.oauth.issued.add(code.clone());
        let redactor = Redactor::of(&registration.config);
        let found = Provider::find(endpoint, &content.flow.challenge, &self.upstream_options).await;
        let gone = || Error::upstream("the server no longer publishes OAuth metadata");
        let provider = found.map_err(|reason| Error::upstream(redactor.redact(&reason)))?.ok_or_else(gone)?;
        let finished = provider.finish(content.flow.clone(), &code, response.issuer.as_deref()).await;
        let grant = finished.map_err(|error| match error {
            Unfinished::Issuer(reason) => Error::invalid(format!("iss: {}", redactor.redact(&reason))),
            Unfinished::Refused(reason) => Error::upstream(redactor.redact(&reason)),
        })?;
        content.grant = Some(grant.clone());
        self.keep_grant(&authorization.id, &content.to_secret()).await?;
        let by = content.by.unwrap_or_else(|| by.clone());
        let terms = content.purpose.terms(content.keeps, by);
        self.adopt(registration, grant, terms).await
    }

    /// Stores a grant before it is used. Retries a failed write, since the code is used up and gives no second grant.
    async fn keep_grant(&self, authorization: &str, content: &Secret) -> Result<(), Error> {
        for pause in SAVING_PAUSES {
            match self.store.update_authorization(authorization, content).await {
                Ok(()) => return Ok(()),
                Err(error) => tracing::warn!(%error, "cannot store a grant; trying again"),
            }
            tokio::time::sleep(pause).await;
        }
        Ok(self.store.update_authorization(authorization, content).await?)
    }

    /// The current registration of the server that an authorization is for.
    fn registration_of(&self, name: &str, content: &Content) -> Result<Registration, Error> {
        let catalog = self.catalog();
        match (content.purpose, catalog.get(name)) {
            (AuthorizationPurpose::Reauthorize, Some(entry)) => return Ok((*entry.registration).clone()),
            (AuthorizationPurpose::Reauthorize, None) => return Err(Error::unknown_server(name)),
            (AuthorizationPurpose::Register, Some(_)) => return Err(Error::already_registered(name)),
            (AuthorizationPurpose::Register, None) | (AuthorizationPurpose::Replace, _) => {}
        }
        Ok(Registration::parse(content.registration.clone())?)
    }

    /// Deletes old authorizations at intervals. Runs for as long as the gateway does.
    pub(super) async fn keep_authorizations_clean(self: Arc<Self>) {
        loop {
            if let Err(error) = self.clean_authorizations().await {
                tracing::warn!(%error, "cannot delete old authorizations; trying again later");
            }
            tokio::time::sleep(CLEANING).await;
        }
    }

    async fn clean_authorizations(&self) -> Result<(), Error> {
        Ok(self.store.clean_authorizations(now_ms(), self.authorization_life_ms()).await?)
    }

    pub(super) fn authorization_life_ms(&self) -> i64 {
        i64::try_from(self.authorization_life.as_millis()).unwrap_or(i64::MAX)
    }
}

fn check_open(authorization: &StoredAuthorization) -> Result<(), Error> {
    let reason = match authorization.status {
        AuthorizationStatus::Pending if authorization.expires_at_ms <= now_ms() => {
            "has expired; register the server again"
        }
        AuthorizationStatus::Pending => return Ok(()),
        AuthorizationStatus::Finishing => "is already being completed",
        AuthorizationStatus::Completed => "is already completed",
        AuthorizationStatus::Failed => "has failed; register the server again",
    };
    Err(Error::invalid(format!("this authorization session {reason}")))
}
