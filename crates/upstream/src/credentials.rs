//! The access token of one server: sent with every request, renewed before it expires and when the server refuses it.
//! One renewal serves all waiting requests. A renewed grant is stored before it is used.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use http::header::HeaderValue;
use tokio::time::Instant;

use super::Options;
use super::error::{CallError, Denial};
use super::oauth::{Challenge, Grant, Provider, Unrenewed, bare, now_ms};
use model::{Endpoint, Issued, Secret, ServerConfig, ServerName};

/// A token is renewed this long before it expires, or after four fifths of a short lifetime.
const AHEAD_MS: u64 = 60_000;
/// How many times storing a renewed grant is tried, and the first pause between two attempts, which doubles.
const SAVING_ATTEMPTS: u32 = 5;
const SAVING_PAUSE: Duration = Duration::from_millis(100);
/// How long the renewal of a grant is reserved for one gateway, and the pause between two attempts to reserve it.
const CLAIMED: Duration = Duration::from_secs(40);
const CLAIM_PAUSE: Duration = Duration::from_millis(200);
/// How long [`Credentials::settle`] waits for a renewal.
const SETTLING: Duration = Duration::from_secs(5);
/// For this long after a failed renewal, all who waited for it get its error instead of trying again one by one.
const SHARED_FAILURE: Duration = Duration::from_secs(1);

/// Stores grants, sealed, so that they survive a restart.
#[async_trait]
pub trait KeepGrants: Send + Sync {
    /// Stores a renewed grant. False when the server no longer has a grant of this lineage; Err says why it could not
    /// be stored.
    async fn keep(&self, server: &ServerName, lineage: &str, grant: &Secret) -> Result<bool, String>;

    /// Whether other gateways use the same grants.
    fn is_shared(&self) -> bool;

    /// Reserves the renewal of a grant for this gateway, for this long at most. Returns whether it did, and the grant as it
    /// is stored; Err says why this is unknown.
    async fn claim(
        &self,
        server: &ServerName,
        lineage: &str,
        time: Duration,
    ) -> Result<(bool, Option<Secret>), String>;

    /// Lets another gateway renew the grant.
    async fn release(&self, server: &ServerName);
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
    /// Scopes that the server requires beyond those that were granted.
    lacking: Mutex<Vec<String>>,
    /// The address of the last connection to the server.
    peer: Mutex<Option<IpAddr>>,
}

struct LiveGrant {
    grant: Grant,
    header: HeaderValue,
    /// In milliseconds since 1970; `None` when the lifetime is unknown or the grant cannot be renewed.
    renew_at: Option<u64>,
    ends_at: Option<u64>,
}

/// The state of renewing, used by one task at a time.
#[derive(Default)]
struct Renewal {
    provider: Option<Provider>,
    /// Whether the server is stored, and the grant with it.
    is_kept: bool,
    /// A renewed grant that is not stored yet and therefore must not be used.
    unsaved: Option<Grant>,
    failed: Option<(Instant, String)>,
}

/// Blocks renewals while the grant is being stored with its server.
pub struct HeldGrant<'a> {
    renewal: tokio::sync::MutexGuard<'a, Renewal>,
    pub grant: Option<Grant>,
}

impl HeldGrant<'_> {
    /// Marks the grant as stored: from now on renewals are stored too.
    pub fn stored(mut self) {
        self.renewal.is_kept = true;
    }
}

impl Credentials {
    /// `None` for a server that cannot have a grant: one not reached over HTTP, or registered with credentials.
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
            peer: Mutex::default(),
        };
        let fitting = grant.filter(|grant| grant.url == bare(&endpoint.url).as_str());
        if let Some(grant) = fitting {
            credentials.show(grant);
        }
        Some(Arc::new(credentials))
    }

    /// Whether the endpoint has the same URL, apart from user info, query and fragment.
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

    /// Waits for a renewal in progress, with a timeout.
    pub async fn settle(&self) {
        let _ = tokio::time::timeout(SETTLING, self.renewal.lock()).await;
    }

    pub async fn hold(&self) -> HeldGrant<'_> {
        let renewal = self.renewal.lock().await;
        let grant = renewal.unsaved.clone().or_else(|| self.grant());
        HeldGrant { renewal, grant }
    }

    /// The value of the `Authorization` header; `None` without a grant.
    pub async fn header(self: &Arc<Self>) -> Result<Option<HeaderValue>, CallError> {
        let Some(live) = self.live.load_full() else { return Ok(None) };
        self.still_good()?;
        let now = now_ms();
        if live.renew_at.is_none_or(|renew_at| now < renew_at) {
            return Ok(Some(live.header.clone()));
        }
        match self.renew(&live.header, Cause::Age).await {
            Err(error @ CallError::NotSent(_)) if live.ends_at.is_some_and(|end| now < end) => {
                tracing::warn!(server = %self.server, %error, "cannot renew a token; using it until it expires");
                Ok(Some(live.header.clone()))
            }
            renewed => renewed.map(Some),
        }
    }

    /// Replaces a token that is refused or old. One renewal serves all concurrent callers, and it goes on when they go
    /// away: the authorization server may have revoked the old refresh token already.
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
        let Some(live) = self.live.load_full() else { return Err(self.required("there is no grant")) };
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
                None => Err(self.required("there is no grant")),
            },
            Err(Unrenewed::Over(reason)) => {
                let reason = self.redact(&reason);
                *self.over.lock().expect("no code panics while it holds the reason") = Some(reason.clone());
                let server = &self.server;
                tracing::warn!(%server, reason, "a grant is no longer valid; the server must be authorized again");
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
            return Err(Unrenewed::Over(
                "the access token is no longer valid, and there is no refresh token".into(),
            ));
        }
        let renewed = match renewal.unsaved.take() {
            Some(unsaved) => unsaved,
            None if renewal.is_kept && self.keeper.is_shared() => {
                if let Some(newer) = self.claim(grant).await? {
                    self.show(newer);
                    return Ok(());
                }
                let asked = self.ask(renewal, grant, cause).await;
                if asked.is_err() {
                    self.keeper.release(&self.server).await;
                }
                asked?
            }
            None => self.ask(renewal, grant, cause).await?,
        };
        renewed.announce(&self.issued);
        if renewal.is_kept {
            match self.keep(&renewed).await {
                Ok(true) => {}
                Ok(false) => {
                    return Err(Unrenewed::Over("the server was registered again or removed".into()));
                }
                Err(reason) => {
                    renewal.unsaved = Some(renewed);
                    return Err(Unrenewed::NotNow(format!("the new token could not be stored: {reason}")));
                }
            }
        }
        self.show(renewed);
        renewal.failed = None;
        tracing::info!(server = %self.server, "renewed an access token");
        Ok(())
    }

    /// Reserves the renewal for this gateway. Returns the grant of another gateway if that has renewed it.
    async fn claim(&self, grant: &Grant) -> Result<Option<Grant>, Unrenewed> {
        let deadline = Instant::now() + CLAIMED;
        loop {
            let claimed = self.keeper.claim(&self.server, &grant.lineage, CLAIMED).await;
            let (is_ours, stored) = claimed.map_err(Unrenewed::NotNow)?;
            let stored = stored.and_then(|text| Grant::parse(&text).ok());
            let is_newer = |stored: &Grant| stored.access_token().expose() != grant.access_token().expose();
            if let Some(newer) = stored.filter(is_newer) {
                if is_ours {
                    self.keeper.release(&self.server).await;
                }
                return Ok(Some(newer));
            }
            if is_ours {
                return Ok(None);
            }
            if Instant::now() > deadline {
                return Err(Unrenewed::NotNow("another gateway has been renewing it for too long".into()));
            }
            tokio::time::sleep(CLAIM_PAUSE).await;
        }
    }

    async fn ask(&self, renewal: &mut Renewal, grant: &Grant, cause: Cause) -> Result<Grant, Unrenewed> {
        // A server that refuses a token may have moved to another authorization server.
        let known = renewal.provider.take().filter(|_| cause == Cause::Age);
        let mut provider = match known {
            Some(provider) => provider,
            None => {
                let challenge =
                    Challenge { peer: self.peer().or(grant.challenge.peer), ..grant.challenge.clone() };
                let found = Provider::find(&self.endpoint, &challenge, &self.options).await;
                let found = found.map_err(Unrenewed::NotNow)?;
                let gone =
                    || Unrenewed::NotNow("the server names no authorization server at the moment".into());
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
                Err(reason) => {
                    tracing::warn!(server = %self.server, reason, "could not store a renewed grant; trying again")
                }
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.keeper.keep(&self.server, &grant.lineage, &text).await
    }

    /// Uses a grant that another gateway stored for the same server.
    pub fn replace(&self, grant: Grant) {
        if grant.url == bare(&self.endpoint.url).as_str() {
            *self.over.lock().expect("no code panics while it holds the reason") = None;
            self.show(grant);
        }
    }

    fn show(&self, grant: Grant) {
        grant.announce(&self.issued);
        let text = format!("Bearer {}", grant.access_token().expose());
        let Ok(mut header) = HeaderValue::from_str(&text) else {
            tracing::warn!(server = %self.server, "an access token cannot be sent: it is not a valid header value");
            return;
        };
        header.set_sensitive(true);
        let life = grant.lifetime().map(|seconds| seconds.saturating_mul(1000));
        let ends_at = life.map(|life| grant.received_at_ms.saturating_add(life));
        let ahead = life.map(|life| AHEAD_MS.min(life / 5)).filter(|_| grant.is_renewable());
        let renew_at = ends_at.zip(ahead).map(|(end, ahead)| end - ahead);
        self.live.store(Some(Arc::new(LiveGrant { grant, header, renew_at, ends_at })));
    }

    /// Records scopes that the server requires for a request and that were not granted.
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

    /// Whether the grant can no longer be used.
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

    /// The error for a grant that is no longer valid or not sufficient.
    /// Remembers the address of a connection to the server.
    pub fn met(&self, peer: Option<IpAddr>) {
        *self.peer.lock().expect("no code panics while it holds the address") = peer;
    }

    /// The address of the last connection to the server; `None` before the first.
    pub fn peer(&self) -> Option<IpAddr> {
        *self.peer.lock().expect("no code panics while it holds the address")
    }

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

/// Why a token is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Age,
    /// The server does not accept it.
    Refusal,
}
