//! Requests to one registered URL: sends its credentials with every request, takes connections from the pool, follows
//! redirects only within the origin.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{
    AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT, WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Uri};
use rmcp::transport::auth::WWWAuthenticateParams;
use url::Url;

use super::dial::{Connection, Tls, dial};
use super::pool::ConnectionPool;
use crate::charge::Charge;
use crate::credentials::{Cause, Credentials};
use crate::error::{CallError, Denial};
use crate::oauth::Challenge;
use crate::{Boxed, CLIENT, Options};
use budget::{Bound, Budget, Budgets, Exceeded};
use model::{Endpoint, Redactor};

const MAX_REDIRECTS: usize = 5;
/// How much of an unneeded body is read so that its connection can be reused.
const DISCARD_LIMIT: usize = 64 * 1024;
const EXCERPT: usize = 500;

pub struct HttpClient {
    /// The registered URL.
    pub target: Target,
    masked_url: String,
    redactor: Redactor,
    /// The headers of the registration, sent with every request.
    fixed: HeaderMap,
    /// The OAuth credentials for this server, where its registration has no credentials.
    credentials: Option<Arc<Credentials>>,
    tls: Tls,
    budgets: Budgets,
    pool: Arc<ConnectionPool>,
}

/// A URL, and its form in a request line.
#[derive(Clone)]
pub struct Target {
    pub url: Url,
    uri: Uri,
}

impl Target {
    pub fn new(url: Url) -> Self {
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let uri = path.parse().unwrap_or_else(|_| Uri::from_static("/"));
        Self { url, uri }
    }
}

/// The status and headers of an upstream's response, and its unread body.
pub struct HttpResponse {
    pub status: u16,
    pub headers: HeaderMap,
    /// The address that it came from.
    peer: Option<IpAddr>,
    pub body: IncomingBody,
}

/// Builds the headers of a request, each time that it is sent.
pub type Headers<'a> = dyn Fn() -> HeaderMap + Send + Sync + 'a;

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
            tls: options.tls.clone(),
            budgets: options.budgets.clone(),
            pool: Arc::default(),
        }
    }

    /// The headers that every request has; the caller adds its own.
    pub fn headers(&self) -> HeaderMap {
        self.fixed.clone()
    }

    /// Sends one request; `NotSent` when the upstream certainly did not see it.
    pub fn send<'a>(
        &'a self,
        method: Method,
        target: &'a Target,
        headers: &'a Headers<'a>,
        body: &'a Bytes,
    ) -> Boxed<'a, Result<HttpResponse, CallError>> {
        match &self.credentials {
            Some(credentials) if credentials.has_grant() => {
                Box::pin(self.send_authorized(credentials, method, target, headers, body))
            }
            Some(_) | None => Box::pin(self.send_plain(method, target, headers, body)),
        }
    }

    /// Sends a request with the access token. If the token is refused, renews it and sends the request once more: a
    /// server that refuses a request did not run it.
    async fn send_authorized(
        &self,
        credentials: &Arc<Credentials>,
        method: Method,
        target: &Target,
        headers: &Headers<'_>,
        body: &Bytes,
    ) -> Result<HttpResponse, CallError> {
        let with = |token: &Option<HeaderValue>| {
            let mut headers = headers();
            headers.extend(token.clone().map(|token| (AUTHORIZATION, token)));
            headers
        };
        let token = credentials.header().await?;
        let received = self.send_plain(method.clone(), target, &|| with(&token), body).await?;
        let Some(old) = token.filter(|_| received.status == 401) else { return Ok(received) };
        received.body.discard().await;
        let token = Some(credentials.renew(&old, Cause::Refusal).await?);
        self.send_plain(method, target, &|| with(&token), body).await
    }

    async fn send_plain(
        &self,
        method: Method,
        target: &Target,
        headers: &Headers<'_>,
        body: &Bytes,
    ) -> Result<HttpResponse, CallError> {
        let received = self.send_once(&method, target, headers(), body).await?;
        match is_redirect(received.status) {
            false => Ok(received),
            true => Box::pin(self.follow(method, target.clone(), headers, body, received)).await,
        }
    }

    async fn follow(
        &self,
        method: Method,
        mut target: Target,
        headers: &Headers<'_>,
        body: &Bytes,
        mut received: HttpResponse,
    ) -> Result<HttpResponse, CallError> {
        for _ in 0..MAX_REDIRECTS {
            let location =
                received.headers.get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
            let url = target.url.join(location);
            let url = url.map_err(|_| self.lost("redirects to something that is not a URL"))?;
            if url.origin() != target.url.origin() {
                return Err(
                    self.lost("redirects to another origin, which is not followed; register that URL")
                );
            }
            received.body.discard().await;
            target = Target::new(url);
            received = self.send_once(&method, &target, headers(), body).await?;
            if !is_redirect(received.status) {
                return Ok(received);
            }
        }
        Err(self.lost("redirects too many times"))
    }

    async fn send_once(
        &self,
        method: &Method,
        target: &Target,
        headers: HeaderMap,
        body: &Bytes,
    ) -> Result<HttpResponse, CallError> {
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = target.uri.clone();
        *request.headers_mut() = headers;
        let mut fresh = false;
        loop {
            let mut connection = match self.pool.take() {
                Some(connection) => connection,
                None => {
                    fresh = true;
                    let dialled = Box::pin(dial(&target.url, &self.tls)).await;
                    let connection = dialled.map_err(|reason| self.not_sent(&reason))?;
                    if let Some(credentials) = &self.credentials {
                        credentials.met(connection.peer);
                    }
                    connection
                }
            };
            let sent = connection.drive(async |sender| match sender.ready().await {
                Ok(()) => Ok(sender.try_send_request(request).await),
                Err(_) => Err(request),
            });
            match sent.await {
                Err(_) if fresh => return Err(self.not_sent("the connection was closed immediately")),
                Err(unsent) => request = unsent,
                Ok(Ok(response)) => {
                    let (head, incoming) = response.into_parts();
                    let peer = connection.peer;
                    let body =
                        IncomingBody { incoming, connection: Some(connection), pool: self.pool.clone() };
                    let status = head.status.as_u16();
                    return Ok(HttpResponse { status, headers: head.headers, peer, body });
                }
                Ok(Err(mut error)) => match error.take_message() {
                    // hyper returns the request if no byte of it was sent.
                    Some(unsent) if !fresh => request = unsent,
                    Some(_) => return Err(self.not_sent(&error.error().to_string())),
                    None => return Err(self.lost(&cause(error.error()))),
                },
            }
        }
    }

    /// The error for a response whose status says that it contains no message.
    pub async fn status_error(&self, received: HttpResponse) -> CallError {
        let status = received.status;
        let challenge = Challenge { header: challenge_in(&received.headers), peer: received.peer };
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
                credentials.denial(&format!("{text}; it requires the scopes {scopes:?} for this"))
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

    /// Reads a body that is one message.
    pub fn message(&self, body: IncomingBody) -> impl Future<Output = Result<Bytes, BodyError>> + use<> {
        body.collect(self.largest_message(), self.budgets.buffered.clone())
    }

    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    pub fn session_lost(&self) -> CallError {
        CallError::SessionLost(format!("{} no longer knows the session", self.masked_url))
    }
}

/// A response body that is being read. At its end the connection returns to the pool; dropped earlier, it is closed.
pub struct IncomingBody {
    incoming: Incoming,
    connection: Option<Connection>,
    pool: Arc<ConnectionPool>,
}

/// Why a body could not be read.
pub enum BodyError {
    Broken(String),
    TooLarge,
    /// The gateway holds too many bytes for others.
    NoRoom(Exceeded),
}

impl From<Exceeded> for BodyError {
    fn from(exceeded: Exceeded) -> Self {
        BodyError::NoRoom(exceeded)
    }
}

impl From<String> for BodyError {
    fn from(reason: String) -> Self {
        BodyError::Broken(reason)
    }
}

impl IncomingBody {
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            let incoming = &mut self.incoming;
            let frame = match &mut self.connection {
                Some(connection) => connection.drive(async |_| incoming.frame().await).await,
                None => incoming.frame().await,
            };
            match frame {
                None => {
                    if let Some(connection) = self.connection.take() {
                        self.pool.put(connection);
                    }
                    return Ok(None);
                }
                Some(Ok(frame)) => {
                    // Trailers are ignored.
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => return Err(cause(&error)),
            }
        }
    }

    /// Reads the whole body, charged to the budget; not copied if it came in one piece.
    pub async fn collect(mut self, limit: usize, budget: Budget) -> Result<Bytes, BodyError> {
        let mut charge = Charge::new(&budget);
        let mut fits = |length: usize| match length > limit {
            true => Err(BodyError::TooLarge),
            false => Ok(charge.cover(length)?),
        };
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        fits(first.len())?;
        let Some(second) = self.chunk().await? else { return Ok(first) };
        fits(first.len() + second.len())?;
        let mut whole = BytesMut::from(first);
        whole.extend_from_slice(&second);
        while let Some(chunk) = self.chunk().await? {
            fits(whole.len() + chunk.len())?;
            whole.extend_from_slice(&chunk);
        }
        Ok(charge.attach(whole.freeze()))
    }

    /// Reads the beginning of a body, as far as it can be read, and drops the rest.
    async fn beginning(mut self, length: usize) -> Bytes {
        let mut read = BytesMut::new();
        while read.len() < length
            && let Ok(Some(chunk)) = self.chunk().await
        {
            read.extend_from_slice(&chunk);
        }
        read.truncate(length);
        read.freeze()
    }

    pub async fn discard(mut self) {
        let mut read = 0;
        while read <= DISCARD_LIMIT
            && let Ok(Some(chunk)) = self.chunk().await
        {
            read += chunk.len();
        }
    }
}

/// Whether a redirect is followed. The method stays the same: a message sent as GET would make no sense to the server.
fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 307 | 308)
}

fn fixed_headers(endpoint: &Endpoint) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let agent = format!("{}/{}", CLIENT.name, CLIENT.version);
    headers.extend(HeaderValue::from_str(&agent).ok().map(|value| (USER_AGENT, value)));
    let credentials = endpoint.basic_credentials().map(|credentials| format!("Basic {credentials}"));
    let bearer = endpoint.bearer_token.as_ref().map(|token| format!("Bearer {}", token.expose()));
    if let Some(value) = bearer.or(credentials).and_then(|text| sensitive(&text)) {
        headers.insert(AUTHORIZATION, value);
    }
    headers.extend(HeaderValue::from_str(&authority(&endpoint.url)).ok().map(|host| (HOST, host)));
    for (name, value) in &endpoint.headers {
        if let (Ok(name), Some(value)) = (HeaderName::try_from(name), sensitive(value.expose())) {
            headers.insert(name, value);
        }
    }
    headers
}

/// The most useful challenge: one that names metadata, else the first.
fn challenge_in(headers: &HeaderMap) -> Option<String> {
    let challenges = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    let challenges: Vec<&str> = challenges.collect();
    let telling = challenges.iter().find(|challenge| challenge.contains("resource_metadata"));
    telling.or(challenges.first()).map(|challenge| (*challenge).to_owned())
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

/// The text of a hyper error together with its source, which says what happened.
fn cause(error: &hyper::Error) -> String {
    use std::error::Error;
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
