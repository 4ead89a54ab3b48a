//! The access token of one server: sent with every request, renewed ahead of its end and when the server refuses it,
//! once however many requests wait. A renewed grant is kept before it is used.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use hyper::header::HeaderValue;
use tokio::time::Instant;

use super::Options;
use super::error::{CallError, Denial};
use super::oauth::{Grant, Provider, Unrenewed, bare, now_ms};
use model::{Endpoint, Issued, Secret, ServerConfig, ServerName};

/// Renewed this long before the end, or after four fifths of a short life.
const AHEAD_MS: u64 = 60_000;
/// How often a renewed grant is tried to be kept, and the first pause between; it doubles.
const SAVING_ATTEMPTS: u32 = 5;
const SAVING_PAUSE: Duration = Duration::from_millis(100);
/// Those who waited for a renewal that did not work get its reason instead of trying again, each of them.
const SETTLING: Duration = Duration::from_secs(5);
const SHARED_FAILURE: Duration = Duration::from_secs(1);

/// Keeps grants, sealed, for the time after this process.
#[async_trait]
pub trait KeepGrants: Send + Sync {
    /// Whether it was still the grant of this server that was renewed. Err says why it could not be kept.
    async fn keep(&self, server: &ServerName, lineage: &str, grant: &Secret) -> Result<bool, String>;
}

pub struct Credentials {
    server: ServerName,
    endpoint: Endpoint,
    options: Options,
    keeper: Arc<dyn KeepGrants>,
    issued: Issued,
    live: ArcSwapOption<LiveGrant>,
    renewal: tokio::sync::Mutex<Renewal>,
    over: Mutex<Option<String>>,
    /// Scopes that the server wants beside those that were granted.
    lacking: Mutex<Vec<String>>,
}

struct LiveGrant {
    grant: Grant,
    header: HeaderValue,
    /// In milliseconds since 1970; none where nobody said how long it lives, or it cannot be renewed.
    renew_at: Option<u64>,
    ends_at: Option<u64>,
}

/// What whoever renews knows.
#[derive(Default)]
struct Renewal {
    provider: Option<Provider>,
    /// Whether the server is stored, and with it the grant.
    is_kept: bool,
    /// Renewed, but not kept yet, so not to be used.
    unsaved: Option<Grant>,
    failed: Option<(Instant, String)>,
}

/// Holds off renewals while the grant is being stored with its server.
pub struct HeldGrant<'a> {
    renewal: tokio::sync::MutexGuard<'a, Renewal>,
    pub grant: Option<Grant>,
}

impl HeldGrant<'_> {
    /// From now on renewals are kept, too.
    pub fn stored(mut self) {
        self.renewal.is_kept = true;
    }
}

impl Credentials {
    /// For a server that can have a grant: over HTTP, and without credentials of its own.
    pub fn new(
        config: &ServerConfig,
        options: &Options,
        keeper: Arc<dyn KeepGrants>,
        grant: Option<Grant>,
        is_kept: bool,
    ) -> Option<Arc<Self>> {
        let endpoint = config.endpoint().filter(|endpoint| !endpoint.has_credentials())?;
        let issued = endpoint.oauth.issued.clone();
        let credentials = Self {
            server: config.name.clone(),
            endpoint: endpoint.clone(),
            options: options.clone(),
            keeper,
            issued,
            live: ArcSwapOption::empty(),
            renewal: tokio::sync::Mutex::new(Renewal { is_kept, ..Renewal::default() }),
            over: Mutex::default(),
            lacking: Mutex::default(),
        };
        let fitting = grant.filter(|grant| grant.url == bare(&endpoint.url).as_str());
        if let Some(grant) = fitting {
            credentials.show(grant);
        }
        Some(Arc::new(credentials))
    }

    /// Whether this is the way to the same place.
    pub fn fits(&self, endpoint: &Endpoint) -> bool {
        bare(&self.endpoint.url) == bare(&endpoint.url)
    }

    pub fn issued(&self) -> &Issued {
        &self.issued
    }

    pub fn has_grant(&self) -> bool {
        self.live.load().is_some()
    }

    pub fn grant(&self) -> Option<Grant> {
        self.live.load().as_ref().map(|live| live.grant.clone())
    }

    /// Waits, not for long, until a renewal under way is through.
    pub async fn settle(&self) {
        let _ = tokio::time::timeout(SETTLING, self.renewal.lock()).await;
    }

    pub async fn hold(&self) -> HeldGrant<'_> {
        let renewal = self.renewal.lock().await;
        let grant = renewal.unsaved.clone().or_else(|| self.grant());
        HeldGrant { renewal, grant }
    }

    /// What to send as `Authorization`; none where nothing was granted.
    pub async fn header(self: &Arc<Self>) -> Result<Option<HeaderValue>, CallError> {
        let Some(live) = self.live.load_full() else { return Ok(None) };
        self.still_good()?;
        let now = now_ms();
        if live.renew_at.is_none_or(|renew_at| now < renew_at) {
            return Ok(Some(live.header.clone()));
        }
        match self.renew(&live.header, Cause::Age).await {
            Err(error @ CallError::NotSent(_)) if live.ends_at.is_some_and(|end| now < end) => {
                tracing::warn!(server = %self.server, %error, "an access token is used to its end");
                Ok(Some(live.header.clone()))
            }
            renewed => renewed.map(Some),
        }
    }

    /// Another token than the one that is refused or old. Many may ask; one renewal serves them all. It goes on when
    /// those who asked go away: the authorization server may have taken back the old refresh token already.
    pub async fn renew(self: &Arc<Self>, old: &HeaderValue, cause: Cause) -> Result<HeaderValue, CallError> {
        let (credentials, old) = (self.clone(), old.clone());
        let renewing = self.options.tasks.spawn(async move { credentials.renew_in_turn(&old, cause).await });
        let interrupted =
            |error| CallError::NotSent(format!("renewing the access token was interrupted: {error}"));
        renewing.await.map_err(interrupted)?
    }

    async fn renew_in_turn(&self, old: &HeaderValue, cause: Cause) -> Result<HeaderValue, CallError> {
        let mut renewal = self.renewal.lock().await;
        self.still_good()?;
        let Some(live) = self.live.load_full() else { return Err(self.required("nothing was granted")) };
        if live.header != *old {
            return Ok(live.header.clone());
        }
        if let Some((when, reason)) = &renewal.failed
            && when.elapsed() < SHARED_FAILURE
        {
            return Err(CallError::NotSent(reason.clone()));
        }
        match self.renew_once(&mut renewal, &live.grant, cause).await {
            Ok(()) => match self.live.load().as_ref() {
                Some(live) => Ok(live.header.clone()),
                None => Err(self.required("nothing was granted")),
            },
            Err(Unrenewed::Over(reason)) => {
                let reason = self.redact(&reason);
                *self.over.lock().expect("no code panics while it holds the reason") = Some(reason.clone());
                tracing::warn!(server = %self.server, reason, "a grant is over; the server must be authorized again");
                Err(self.required(&reason))
            }
            Err(Unrenewed::NotNow(reason)) => {
                let reason = self.redact(&format!("the access token could not be renewed: {reason}"));
                renewal.failed = Some((Instant::now(), reason.clone()));
                Err(CallError::NotSent(reason))
            }
        }
    }

    async fn renew_once(&self, renewal: &mut Renewal, grant: &Grant, cause: Cause) -> Result<(), Unrenewed> {
        if !grant.is_renewable() {
            return Err(Unrenewed::Over("the access token ended, and there is no refresh token".into()));
        }
        let renewed = match renewal.unsaved.take() {
            Some(unsaved) => unsaved,
            None => self.ask(renewal, grant, cause).await?,
        };
        renewed.announce(&self.issued);
        if renewal.is_kept {
            match self.keep(&renewed).await {
                Ok(true) => {}
                Ok(false) => return Err(Unrenewed::Over("the server was registered anew or removed".into())),
                Err(reason) => {
                    renewal.unsaved = Some(renewed);
                    return Err(Unrenewed::NotNow(format!("the new one could not be stored: {reason}")));
                }
            }
        }
        self.show(renewed);
        renewal.failed = None;
        tracing::info!(server = %self.server, "renewed an access token");
        Ok(())
    }

    async fn ask(&self, renewal: &mut Renewal, grant: &Grant, cause: Cause) -> Result<Grant, Unrenewed> {
        // A server that refuses a token may have moved to another authorization server.
        let known = renewal.provider.take().filter(|_| cause == Cause::Age);
        let mut provider = match known {
            Some(provider) => provider,
            None => {
                let found = Provider::find(&self.endpoint, grant.challenge.as_deref(), &self.options).await;
                let found = found.map_err(Unrenewed::NotNow)?;
                let gone =
                    || Unrenewed::NotNow("the server does not name its authorization server now".into());
                found.ok_or_else(gone)?
            }
        };
        let renewed = provider.renew(grant).await?;
        renewal.provider = Some(provider);
        Ok(renewed)
    }

    async fn keep(&self, grant: &Grant) -> Result<bool, String> {
        let text = grant.to_secret();
        let mut pause = SAVING_PAUSE;
        for _ in 1..SAVING_ATTEMPTS {
            match self.keeper.keep(&self.server, &grant.lineage, &text).await {
                Ok(kept) => return Ok(kept),
                Err(reason) => tracing::warn!(server = %self.server, reason, "a grant is stored once more"),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.keeper.keep(&self.server, &grant.lineage, &text).await
    }

    fn show(&self, grant: Grant) {
        grant.announce(&self.issued);
        let text = format!("Bearer {}", grant.access_token().expose());
        let Ok(mut header) = HeaderValue::from_str(&text) else {
            tracing::warn!(server = %self.server, "an access token cannot be sent: it is no header value");
            return;
        };
        header.set_sensitive(true);
        let life = grant.lifetime().map(|seconds| seconds.saturating_mul(1000));
        let ends_at = life.map(|life| grant.received_at_ms.saturating_add(life));
        let ahead = life.map(|life| AHEAD_MS.min(life / 5)).filter(|_| grant.is_renewable());
        let renew_at = ends_at.zip(ahead).map(|(end, ahead)| end - ahead);
        self.live.store(Some(Arc::new(LiveGrant { grant, header, renew_at, ends_at })));
    }

    /// The server wants these for something that was asked of it.
    pub fn lack(&self, scopes: impl Iterator<Item = String>) {
        let mut lacking = self.lacking.lock().expect("no code panics while it holds the scopes");
        for scope in scopes {
            if !lacking.contains(&scope) {
                lacking.push(scope);
            }
        }
    }

    pub fn lacking(&self) -> Vec<String> {
        self.lacking.lock().expect("no code panics while it holds the scopes").clone()
    }

    /// Whether the grant is of no more use.
    pub fn is_over(&self) -> bool {
        self.over.lock().expect("no code panics while it holds the reason").is_some()
    }

    fn still_good(&self) -> Result<(), CallError> {
        let over = self.over.lock().expect("no code panics while it holds the reason").clone();
        over.map_or(Ok(()), |reason| Err(self.required(&reason)))
    }

    fn required(&self, reason: &str) -> CallError {
        CallError::Unauthorized(self.denial(reason))
    }

    /// What was granted does not do, for this reason.
    pub fn denial(&self, reason: &str) -> Denial {
        Denial::of_grant(&self.server, reason)
    }

    fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.issued.secrets() {
            text = text.replace(secret.expose(), model::redact::MASK);
        }
        text
    }
}

/// Why a token is to be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Age,
    /// The server does not accept it.
    Refusal,
}
