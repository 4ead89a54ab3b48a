//! Error responses: the only place where errors become status codes. The body is always
//! `{"error": "<one helpful sentence>"}`.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::reply::json_response;
use budget::Exceeded;
use gateway::{Error, ErrorKind};
use model::FieldError;

/// An error as an HTTP response.
#[derive(Debug)]
pub struct ErrorResponse {
    status: StatusCode,
    sentence: String,
    /// An extra header, such as `Retry-After`.
    header: Option<(HeaderName, HeaderValue)>,
    /// Lets programs tell this error from others with the same status.
    code: Option<&'static str>,
    /// The gateway that has to answer instead.
    elsewhere: Option<Elsewhere>,
}

/// In the extensions of a response: the slot of the gateway that has to answer instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elsewhere(pub u16);

/// The result of a handler.
pub type HandlerResult<T> = Result<T, ErrorResponse>;

/// Header with a machine-readable error code.
const ERROR_CODE: HeaderName = HeaderName::from_static("x-error-code");

/// How many seconds to wait after too many wrong tokens.
pub const GUESS_PAUSE: HeaderValue = HeaderValue::from_static("1");

impl ErrorResponse {
    fn new(status: StatusCode, sentence: impl Into<String>) -> Self {
        Self { status, sentence: sentence.into(), header: None, code: None, elsewhere: None }
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    pub fn is_unauthorized(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED
    }

    /// The same response with another challenge.
    pub fn with_challenge(self, challenge: &str) -> Self {
        let value = HeaderValue::from_str(challenge).expect("challenges are made of URLs and words of ours");
        Self { header: Some((header::WWW_AUTHENTICATE, value)), ..self }
    }

    pub fn not_initialized() -> Self {
        Self::forbidden("server is not initialized; send POST /init first")
    }

    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// Whether another gateway has to answer instead.
    pub fn is_elsewhere(&self) -> bool {
        self.elsewhere.is_some()
    }

    pub fn bad_request(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, sentence)
    }

    pub fn forbidden(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, sentence)
    }

    fn unauthorized(sentence: impl Into<String>) -> Self {
        let header = Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        Self { header, ..Self::new(StatusCode::UNAUTHORIZED, sentence) }
    }

    pub fn no_token() -> Self {
        Self::unauthorized("a token is required; send it in the header \"Authorization: Bearer <token>\"")
    }

    pub fn no_init_secret() -> Self {
        Self::unauthorized(
            "this gateway has an INIT_SECRET; send it in the header \"Authorization: Bearer <secret>\"",
        )
    }

    pub fn wrong_init_secret() -> Self {
        Self::unauthorized(
            "the secret in the header \"Authorization: Bearer <secret>\" is not the INIT_SECRET of this gateway",
        )
    }

    pub fn wrong_token() -> Self {
        Self::unauthorized("the token in the header \"Authorization: Bearer <token>\" is not valid")
    }

    pub fn token_of(whose: &str, wanted: &str) -> Self {
        Self::unauthorized(format!(
            "the token in the header \"Authorization: Bearer <token>\" belongs to {whose}; this address \
             accepts only tokens of {wanted}"
        ))
    }

    pub fn token_for_elsewhere() -> Self {
        Self::unauthorized(
            "the token in the header \"Authorization: Bearer <token>\" is for another MCP endpoint than this one",
        )
    }

    pub fn revoked_token() -> Self {
        Self::unauthorized("the token in the header \"Authorization: Bearer <token>\" was revoked")
    }

    pub fn too_many_guesses() -> Self {
        let sentence = "too many wrong tokens from this address; wait a second, then send a valid one";
        let header = Some((header::RETRY_AFTER, GUESS_PAUSE));
        Self { header, ..Self::new(StatusCode::TOO_MANY_REQUESTS, sentence) }
    }

    /// The gateway has not loaded its database yet.
    pub fn starting() -> Self {
        let header = Some((header::RETRY_AFTER, HeaderValue::from_static("1")));
        let sentence = "the gateway is starting and waits for its database; try again in a moment";
        Self { header, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, sentence) }
    }

    /// Something that a request depends on does not answer.
    pub fn unavailable(sentence: impl Into<String>) -> Self {
        let header = Some((header::RETRY_AFTER, HeaderValue::from_static("5")));
        Self { header, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, sentence) }
    }

    /// The database has not confirmed anybody's rights for too long. Not 401: clients would throw their tokens away.
    pub fn stale_rights() -> Self {
        let sentence =
            "the database cannot be reached, so that nobody's rights can be checked; try again later";
        let header = Some((header::RETRY_AFTER, HeaderValue::from_static("5")));
        Self { header, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, sentence) }
    }

    /// The request names an epoch that the only gateway on this database has not made.
    pub fn unknown_epoch(error: Error) -> Self {
        Self { code: Some("unknown_epoch"), ..error.into() }
    }

    /// The principal has too many open streams.
    pub fn too_many_streams(exceeded: &Exceeded) -> Self {
        let header = Some((header::RETRY_AFTER, HeaderValue::from_static("1")));
        Self { header, ..Self::new(StatusCode::TOO_MANY_REQUESTS, exceeded.to_string()) }
    }

    pub fn unknown_route(method: &str, path: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no route {method} {path}"))
    }

    pub fn not_here(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, sentence)
    }

    pub fn wrong_method(method: &str, path: &str) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("{path} does not support the method {method}"))
    }

    /// The rest of the body is not read, so the connection cannot be used again.
    pub fn slow_body() -> Self {
        let sentence = "the body arrived too slowly: it must be complete within 30 seconds, or arrive at 16 \
             KiB per second or faster";
        let header = Some((header::CONNECTION, HeaderValue::from_static("close")));
        Self { header, ..Self::new(StatusCode::REQUEST_TIMEOUT, sentence) }
    }

    pub fn too_large(exceeded: Exceeded) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, exceeded.to_string())
    }

    /// The gateway has no room for the request or its response.
    pub fn overloaded(exceeded: Exceeded) -> Self {
        let header = Some((header::RETRY_AFTER, HeaderValue::from_static("1")));
        Self { header, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, exceeded.to_string()) }
    }

    /// The response that replaces hyper's own, which has no body, to a request that hyper cannot read. `None` for all
    /// other bytes: what we respond has other headers first.
    pub fn instead_of(head: &[u8]) -> Option<Self> {
        let line_and_headers = head.strip_prefix(b"HTTP/1.1 ").filter(|rest| rest.starts_with(b"4"))?;
        let (line, headers) = line_and_headers.split_at(line_and_headers.iter().position(|b| *b == b'\r')?);
        if !headers.starts_with(b"\r\nconnection: close\r\ncontent-length: 0\r\n") {
            return None;
        }
        let status = StatusCode::from_bytes(line.get(..3)?).ok()?;
        Some(Self::new(
            status,
            match status {
                StatusCode::URI_TOO_LONG => "the request target is too long",
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "the head of the request is too large",
                _ => "the request is not valid HTTP/1.1",
            },
        ))
    }

    /// The status, an extra header, and the JSON body.
    pub fn into_parts(self) -> (StatusCode, Option<(HeaderName, HeaderValue)>, String) {
        let body = json!({ "error": self.sentence }).to_string();
        (self.status, self.header, body)
    }

    /// The bytes of the response, for a connection on which hyper does not respond and which is closed after it.
    pub fn into_last_words(self) -> Vec<u8> {
        let (status, header, body) = self.into_parts();
        let header = header
            .map(|(name, value)| format!("{name}: {}\r\n", value.to_str().unwrap_or_default()))
            .unwrap_or_default();
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nx-content-type-options: nosniff\r\n\
             cache-control: no-store\r\n{header}connection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        [head, body].concat().into_bytes()
    }
}

impl From<Error> for ErrorResponse {
    fn from(error: Error) -> Self {
        let status = match error.kind {
            ErrorKind::Invalid | ErrorKind::OAuthRequired => StatusCode::BAD_REQUEST,
            ErrorKind::Forbidden => StatusCode::FORBIDDEN,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Throttled => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Unavailable | ErrorKind::Elsewhere(_) => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Upstream | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let seconds =
            error.retry_after.map_or(1, |wait| wait.as_nanos().div_ceil(1_000_000_000).max(1) as u64);
        let header = match error.kind {
            ErrorKind::Throttled | ErrorKind::Unavailable | ErrorKind::Elsewhere(_) => {
                Some((header::RETRY_AFTER, HeaderValue::from(seconds)))
            }
            ErrorKind::Invalid
            | ErrorKind::OAuthRequired
            | ErrorKind::Forbidden
            | ErrorKind::NotFound
            | ErrorKind::Conflict
            | ErrorKind::Upstream
            | ErrorKind::Internal => None,
        };
        let code = (error.kind == ErrorKind::OAuthRequired).then_some("upstream_oauth_required");
        let elsewhere = match error.kind {
            ErrorKind::Elsewhere(slot) => Some(Elsewhere(slot)),
            _ => None,
        };
        Self { header, code, elsewhere, ..Self::new(status, error.to_string()) }
    }
}

impl From<FieldError> for ErrorResponse {
    fn from(error: FieldError) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        let (code, elsewhere) = (self.code, self.elsewhere);
        let (status, header, body) = self.into_parts();
        let mut response = json_response(status, body);
        if let Some(code) = code {
            response.headers_mut().insert(ERROR_CODE, HeaderValue::from_static(code));
        }
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, value);
        }
        if let Some(elsewhere) = elsewhere {
            response.extensions_mut().insert(elsewhere);
        }
        response
    }
}
