//! Requests to one registered URL: sends its credentials with every request, takes connections from the pool, follows
//! redirects only within the origin.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use rmcp::transport::auth::WWWAuthenticateParams;
use url::Url;

use super::body::{BodyError, DISCARD_LIMIT, IncomingBody, IncomingMessage};
use super::connection::{Connection, Security, SendError};
use super::dial::{Tls, dial};
use super::fields::{Method, Request, Target};
use super::head::ResponseHead;
use super::pool::ConnectionPool;
use super::stream::ServerStream;
use crate::credentials::{Cause, Credentials};
use crate::error::{CallError, Denial};
use crate::oauth::Challenge;
use crate::through::ThroughGateway;
use crate::{CLIENT, Dialer, Options};
use budget::{Bound, Budgets};
use model::{Endpoint, Redactor, ServerConfig};

const MAX_REDIRECTS: usize = 5;
const EXCERPT: usize = 500;
/// The status of a request that did not reach the gateway that runs the server.
const MISDIRECTED: u16 = 421;

pub struct HttpClient {
    /// The registered URL.
    pub target: Target,
    masked_url: String,
    redactor: Redactor,
    /// The headers of the registration, sent with every request.
    fixed: HeaderMap,
    /// The OAuth credentials for this server, where its registration has no credentials.
    credentials: Option<Arc<Credentials>>,
    route: Route,
    budgets: Budgets,
    pool: Arc<ConnectionPool>,
}

/// How connections to the server are opened.
enum Route {
    Socket(Tls),
    Gateway(Dialer, ThroughGateway),
}

/// The head of an upstream's response, and its unread body.
pub struct HttpResponse {
    pub head: ResponseHead,
    /// The address that it came from.
    peer: Option<IpAddr>,
    pub body: IncomingBody,
}

impl HttpClient {
    pub fn new(
        endpoint: &Endpoint,
        redactor: Redactor,
        credentials: Option<Arc<Credentials>>,
        options: &Options,
    ) -> Self {
        Self {
            target: Target::new(endpoint.url.clone()),
            masked_url: endpoint.masked_url(),
            redactor,
            fixed: fixed_headers(endpoint),
            credentials,
            route: Route::Socket(options.tls.clone()),
            budgets: options.budgets.clone(),
            pool: Arc::default(),
        }
    }

    /// A client of a server that another gateway runs.
    pub fn through(config: &ServerConfig, slot: u16, options: &Options) -> Result<Self, CallError> {
        let dialer = options.dialer.get();
        let dialer =
            dialer.ok_or_else(|| CallError::NotSent("the gateway is starting or stopping".into()))?;
        let (server, link) = (config.name.clone(), dialer.new_link());
        let url = Url::parse("http://gateway/").expect("this is a URL");
        let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("gateway"))]);
        Ok(Self {
            target: Target::new(url),
            masked_url: format!("the gateway that runs server {:?}", server.as_str()),
            redactor: Redactor::of(config),
            fixed: headers,
            credentials: None,
            route: Route::Gateway(options.dialer.clone(), ThroughGateway { slot, server, link }),
            budgets: options.budgets.clone(),
            pool: Arc::default(),
        })
    }

    /// Whether the server is reached through another gateway.
    pub fn is_through_gateway(&self) -> bool {
        matches!(self.route, Route::Gateway(..))
    }

    /// The error for a response that says that the gateway that runs the server did not get the request.
    pub fn misdirected(&self, head: &ResponseHead) -> Option<CallError> {
        let is_misdirected = head.status == MISDIRECTED && self.is_through_gateway();
        is_misdirected.then(|| self.not_sent("it does not answer, or another gateway runs it now"))
    }

    /// The headers that every request has; the caller adds its own.
    pub fn headers(&self) -> HeaderMap {
        self.fixed.clone()
    }

    /// Sends one request with these header lines; `NotSent` when the upstream certainly did not see it.
    pub async fn send(
        &self,
        method: Method,
        target: &Target,
        fields: &[u8],
        body: &Bytes,
    ) -> Result<HttpResponse, CallError> {
        let request = Request { method, target, fields, authorization: None, body };
        match &self.credentials {
            // Boxed, since the future is large and rarely needed.
            Some(credentials) if credentials.has_grant() => {
                Box::pin(self.send_authorized(credentials, request)).await
            }
            Some(_) | None => self.send_plain(request).await,
        }
    }

    /// Sends a request with the access token. If the token is refused, renews it and sends the request once more: a
    /// server that refuses a request did not run it.
    async fn send_authorized(
        &self,
        credentials: &Arc<Credentials>,
        request: Request<'_>,
    ) -> Result<HttpResponse, CallError> {
        let token = credentials.header().await?;
        let received = self.send_plain(Request { authorization: token.as_ref(), ..request }).await?;
        let Some(old) = token.filter(|_| received.head.status == 401) else { return Ok(received) };
        received.body.discard().await;
        let token = credentials.renew(&old, Cause::Refusal).await?;
        self.send_plain(Request { authorization: Some(&token), ..request }).await
    }

    async fn send_plain(&self, request: Request<'_>) -> Result<HttpResponse, CallError> {
        let received = self.send_once(&request).await?;
        match is_redirect(received.head.status) {
            false => Ok(received),
            true => Box::pin(self.follow(request, received)).await,
        }
    }

    async fn follow(
        &self,
        request: Request<'_>,
        mut received: HttpResponse,
    ) -> Result<HttpResponse, CallError> {
        let mut target = request.target.clone();
        for _ in 0..MAX_REDIRECTS {
            let url = target.url.join(received.head.location.as_deref().unwrap_or_default());
            let url = url.map_err(|_| self.lost("redirects to something that is not a URL"))?;
            if url.origin() != target.url.origin() {
                return Err(
                    self.lost("redirects to another origin, which is not followed; register that URL")
                );
            }
            received.body.discard().await;
            target = Target::new(url);
            received = self.send_once(&Request { target: &target, ..request }).await?;
            if !is_redirect(received.head.status) {
                return Ok(received);
            }
        }
        Err(self.lost("redirects too many times"))
    }

    async fn send_once(&self, request: &Request<'_>) -> Result<HttpResponse, CallError> {
        loop {
            let (mut connection, is_fresh) = match self.pool.take() {
                Some(connection) => (connection, false),
                None => (Box::pin(self.dial(request.target)).await?, true),
            };
            match connection.send(request).await {
                Ok(head) => {
                    let peer = connection.peer;
                    let body = IncomingBody::new(connection, &head, self.pool.clone());
                    return Ok(HttpResponse { head, peer, body });
                }
                Err(SendError::NotSent(reason)) if is_fresh => return Err(self.not_sent(&reason)),
                // The server closed it while it was idle.
                Err(SendError::NotSent(_)) => {}
                Err(SendError::Lost(reason)) => return Err(self.lost(&reason)),
            }
        }
    }

    async fn dial(&self, target: &Target) -> Result<Box<Connection>, CallError> {
        let tls = match &self.route {
            Route::Socket(tls) => tls,
            Route::Gateway(dialer, to) => {
                let dialer = dialer.get().ok_or_else(|| self.not_sent("this gateway is stopping"))?;
                let stream = ServerStream::Gateway(dialer.dial(to));
                return Ok(Connection::new(stream, Security::Plain, None));
            }
        };
        let dialled = dial(&target.url, tls).await;
        let connection = dialled.map_err(|reason| self.not_sent(&reason))?;
        if let Some(credentials) = &self.credentials {
            credentials.met(connection.peer);
        }
        Ok(connection)
    }

    /// The error for a response whose status says that it contains no message.
    pub async fn status_error(&self, received: HttpResponse) -> CallError {
        let status = received.head.status;
        let challenge = Challenge { header: most_useful(received.head.challenges), peer: received.peer };
        let text = received.body.beginning(DISCARD_LIMIT).await;
        match self.status_text(status, &text) {
            CallError::Status { status: 401 | 403, text } => self.denied(status, text, challenge),
            error => error,
        }
    }

    fn denied(&self, status: u16, text: String, challenge: Challenge) -> CallError {
        let Some(credentials) = self.credentials.as_ref().filter(|credentials| credentials.has_grant())
        else {
            return CallError::Unauthorized(Denial { text, challenge, had_grant: false });
        };
        let challenge = challenge.header.as_deref();
        let wanted = challenge.and_then(|challenge| missing_scopes(challenge, &self.target.url));
        CallError::Unauthorized(match wanted {
            Some(scopes) if status == 403 => {
                credentials.lack(scopes.split_whitespace().map(str::to_owned));
                credentials.denial(&format!("{text}; this request needs the scopes {scopes:?}"))
            }
            Some(_) | None => credentials.denial(&text),
        })
    }

    pub fn status_text(&self, status: u16, body: &[u8]) -> CallError {
        // Redacted before it is shortened: afterwards a part of a secret would not be recognized.
        let body = &body[..body.len().min(DISCARD_LIMIT)];
        let text = self.redactor.redact(&String::from_utf8_lossy(body));
        let excerpt: String =
            text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(EXCERPT).collect();
        let said = if excerpt.is_empty() { String::new() } else { format!(": {excerpt}") };
        let text = format!("{} answered with HTTP status {status}{said}", self.masked_url);
        CallError::Status { status, text }
    }

    pub fn not_sent(&self, reason: &str) -> CallError {
        CallError::NotSent(self.redactor.redact(&format!("cannot reach {}: {reason}", self.masked_url)))
    }

    pub fn lost(&self, reason: &str) -> CallError {
        CallError::Lost(self.redactor.redact(&format!("{}: {reason}", self.masked_url)))
    }

    /// The error for a message that is larger than allowed; it is counted.
    pub fn too_large(&self) -> CallError {
        self.budgets.refusals.count(Bound::MessageSize);
        CallError::too_large(&self.budgets.limits)
    }

    /// The error for a body that could not be read.
    pub fn unread(&self, error: BodyError) -> CallError {
        match error {
            BodyError::Broken(reason) => self.lost(&reason),
            BodyError::TooLarge => self.too_large(),
            BodyError::NoRoom(exceeded) => CallError::NoRoom(exceeded),
        }
    }

    pub fn largest_message(&self) -> usize {
        self.budgets.limits.message_bytes
    }

    /// A body that is one message, to be read.
    pub fn message(&self, body: IncomingBody) -> IncomingMessage {
        IncomingMessage::new(body, self.largest_message(), &self.budgets.buffered)
    }

    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    pub fn session_lost(&self) -> CallError {
        CallError::SessionLost(format!("{} no longer knows the session", self.masked_url))
    }
}

/// Whether a redirect is followed. The method stays the same: a message sent as GET would make no sense to the server.
fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 307 | 308)
}

fn fixed_headers(endpoint: &Endpoint) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.extend(HeaderValue::from_str(&authority(&endpoint.url)).ok().map(|host| (HOST, host)));
    let agent = format!("{}/{}", CLIENT.name, CLIENT.version);
    headers.extend(HeaderValue::from_str(&agent).ok().map(|value| (USER_AGENT, value)));
    let credentials = endpoint.basic_credentials().map(|credentials| format!("Basic {credentials}"));
    let bearer = endpoint.bearer_token.as_ref().map(|token| format!("Bearer {}", token.expose()));
    if let Some(value) = bearer.or(credentials).and_then(|text| sensitive(&text)) {
        headers.insert(AUTHORIZATION, value);
    }
    for (name, value) in &endpoint.headers {
        if let (Ok(name), Some(value)) = (HeaderName::try_from(name), sensitive(value.expose())) {
            headers.insert(name, value);
        }
    }
    headers
}

/// The most useful challenge: one that names metadata, else the first.
fn most_useful(mut challenges: Vec<String>) -> Option<String> {
    let telling = challenges.iter().position(|challenge| challenge.contains("resource_metadata"));
    (!challenges.is_empty()).then(|| challenges.swap_remove(telling.unwrap_or(0)))
}

fn missing_scopes(challenge: &str, url: &Url) -> Option<String> {
    let said = WWWAuthenticateParams::parse(challenge, url);
    said.scope.clone().filter(|_| said.is_insufficient_scope())
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_bytes(text.as_bytes()).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}
