//! The MCP endpoint of a gateway over streamable HTTP: sends messages with the headers of their era and reads what
//! comes back. It knows nothing about standard input and output.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Method, RequestBuilder, Response};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cli::remote::{Remote, RemoteError};
use crate::cli::wording::Source;
use wire::headers::{PROTOCOL_VERSION, SESSION_ID};
use wire::sse::Scanner;
use wire::{Head, MessageKind};

/// How long a message waits for a gateway that cannot be reached, such as one that restarts.
const UNREACHABLE_LIMIT: Duration = Duration::from_secs(30);
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

pub struct Endpoint {
    remote: Remote,
    path: Vec<String>,
}

/// A session at the gateway, as the headers of its requests name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHeaders {
    pub id: HeaderValue,
    pub version: Option<HeaderValue>,
}

impl SessionHeaders {
    pub fn to_map(&self) -> HeaderMap {
        let mut headers = HeaderMap::from_iter([(HeaderName::from_static(SESSION_ID), self.id.clone())]);
        if let Some(version) = &self.version {
            headers.insert(HeaderName::from_static(PROTOCOL_VERSION), version.clone());
        }
        headers
    }
}

#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The message did not reach the gateway.
    #[error("{0}")]
    NotSent(RemoteError),
    #[error("the connection to the gateway was lost before it answered: {0}")]
    Lost(reqwest::Error),
    #[error("the gateway ended its response without an answer")]
    Unanswered,
}

impl Endpoint {
    pub fn new(remote: Remote, path: Vec<String>) -> Self {
        Self { remote, path }
    }

    /// Posts a message. While the gateway cannot be reached, tries again for some time. `written` is cancelled when the
    /// message is being written.
    pub async fn post(
        &self,
        message: &Bytes,
        headers: HeaderMap,
        written: &CancellationToken,
    ) -> Result<McpResponse, EndpointError> {
        let begun = Instant::now();
        loop {
            match self.post_once(message, headers.clone(), written).await {
                Err(EndpointError::NotSent(_)) if begun.elapsed() < UNREACHABLE_LIMIT => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                posted => return posted,
            }
        }
    }

    /// Posts a message without trying again.
    pub async fn post_once(
        &self,
        message: &Bytes,
        headers: HeaderMap,
        written: &CancellationToken,
    ) -> Result<McpResponse, EndpointError> {
        self.send(|| {
            let body = MessageBody { message: Some(message.clone()), written: written.clone() };
            let request = self.request(Method::POST, headers.clone(), "application/json, text/event-stream");
            request.header(CONTENT_TYPE, "application/json").body(Body::wrap(body))
        })
        .await
    }

    /// Opens the stream of a session for messages outside of calls.
    pub async fn open_stream(&self, session: &SessionHeaders) -> Result<McpResponse, EndpointError> {
        self.send(|| self.request(Method::GET, session.to_map(), "text/event-stream")).await
    }

    pub async fn end_session(&self, session: &SessionHeaders) {
        // A session that does not exist any more needs no end.
        let _ = self.send(|| self.request(Method::DELETE, session.to_map(), "application/json")).await;
    }

    /// Describes a response that is not a success.
    pub fn refused(&self, status: u16, body: &[u8]) -> RemoteError {
        self.remote.refused(status, body, None, Source::default())
    }

    fn request(&self, method: Method, headers: HeaderMap, accept: &'static str) -> RequestBuilder {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        self.remote.mcp_request(method, &path).headers(headers).header(ACCEPT, accept)
    }

    async fn send(&self, build: impl Fn() -> RequestBuilder) -> Result<McpResponse, EndpointError> {
        match self.remote.exchange(build).await {
            Ok(response) => Ok(McpResponse::new(response)),
            Err(error) if error.is_connect() => Err(EndpointError::NotSent(self.remote.unreachable(&error))),
            Err(error) => Err(EndpointError::Lost(error)),
        }
    }
}

/// A response of the endpoint, whose messages are read one by one.
pub struct McpResponse {
    pub status: u16,
    /// The id of the session that the request opened.
    pub session: Option<HeaderValue>,
    /// `None` if the response is not an event stream.
    events: Option<Scanner>,
    body: Option<Response>,
}

impl McpResponse {
    fn new(response: Response) -> Self {
        let header = |name: &str| response.headers().get(name);
        let is_stream =
            header("content-type").is_some_and(|media| media.as_bytes().starts_with(b"text/event-stream"));
        Self {
            status: response.status().as_u16(),
            session: header(SESSION_ID).cloned(),
            // The gateway bounds the size of messages.
            events: is_stream.then(|| Scanner::new(usize::MAX)),
            body: Some(response),
        }
    }

    pub fn is_stream(&self) -> bool {
        self.events.is_some()
    }

    /// Returns the next message; `None` at the end. A response that is not a stream has at most one.
    pub async fn next(&mut self) -> Result<Option<Bytes>, EndpointError> {
        let Some(scanner) = &mut self.events else {
            let Some(response) = self.body.take() else { return Ok(None) };
            let message = response.bytes().await.map_err(EndpointError::Lost)?;
            return Ok(Some(message).filter(|message| !message.is_empty()));
        };
        loop {
            match scanner.next_event() {
                Some(Ok(event)) if !event.data.is_empty() => return Ok(Some(event.data)),
                Some(_) => continue,
                None => {}
            }
            let Some(response) = &mut self.body else { return Ok(None) };
            match response.chunk().await.map_err(EndpointError::Lost)? {
                Some(chunk) => scanner.feed(&chunk),
                None => self.body = None,
            }
        }
    }

    /// Reads the response to its end without using it.
    pub async fn discard(mut self) {
        while let Ok(Some(_)) = self.next().await {}
    }
}

/// Tells whether a message answers a request.
pub fn is_answer(message: &[u8]) -> bool {
    Head::of_own(message).is_ok_and(|head| matches!(head.kind, MessageKind::Result | MessageKind::Error))
}

/// The body of a request, which reports when it is being written.
struct MessageBody {
    message: Option<Bytes>,
    written: CancellationToken,
}

impl http_body::Body for MessageBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.written.cancel();
        Poll::Ready(self.message.take().map(|message| Ok(Frame::data(message))))
    }

    fn is_end_stream(&self) -> bool {
        self.message.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.message.as_ref().map_or(0, |message| message.len() as u64))
    }
}
