//! MCP's streamable HTTP transport, client side: POST for every message, one GET stream for messages outside of calls,
//! DELETE at the end of a session.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::sync::{Notify, mpsc};

use super::answer::{AnswerEvents, AnswerStream, EventReader, Received};
use super::body::IncomingBody;
use super::client::{HttpClient, HttpResponse};
use super::fields::{Method, put, put_known, render};
use super::head::{MediaType, ResponseHead};
use super::{EVENTS, JSON, JSON_OR_EVENTS};
use crate::calls::Calls;
use crate::error::CallError;
use crate::inbound::answered_id;
use crate::link::{Carrier, Link};
use crate::pace::Pace;
use wire::headers::{self, HeaderParam, RoutingValues};
use wire::{Era, Head, MessageKind, Version};

const NOTICE_LIMIT: Duration = Duration::from_secs(10);
const END_SESSION_LIMIT: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub struct Streamable {
    client: Arc<HttpClient>,
    session: Arc<SessionHeaders>,
    /// Notices and answers, sent one after the other by a task of the link.
    outbox: mpsc::UnboundedSender<Posted>,
    flushed: Arc<Notify>,
}

/// What the headers of a session's requests say.
#[derive(Default)]
struct SessionHeaders {
    /// The session id that the upstream gave us with the answer to `initialize`.
    id: OnceLock<HeaderValue>,
    /// The header lines that are the same in every message after the handshake, in each era.
    legacy: OnceLock<Bytes>,
    modern: OnceLock<Bytes>,
}

/// Messages that wait to be sent by [`Streamable::deliver`].
pub type Outbox = mpsc::UnboundedReceiver<Posted>;

/// A message that waits to be sent.
pub struct Posted {
    /// An empty one is not sent: it asks to be told when all before it are.
    message: Bytes,
    version: Option<Version>,
    /// The call that cannot go on without this message.
    call: Option<u64>,
}

impl Streamable {
    pub fn new(client: HttpClient) -> (Self, Outbox) {
        let (outbox, waiting) = mpsc::unbounded_channel();
        let (session, flushed) = (Arc::default(), Arc::default());
        (Self { client: Arc::new(client), session, outbox, flushed }, waiting)
    }

    /// Whether the server itself is a process, which another gateway runs.
    pub fn is_through_gateway(&self) -> bool {
        self.client.is_through_gateway()
    }

    /// Sends a request. `routing` is what its headers repeat from the body; if it is not known, the body is parsed.
    pub async fn send(
        &self,
        body: Bytes,
        version: Option<Version>,
        routing: Option<&RoutingValues<'_>>,
        params: &HashMap<String, Vec<HeaderParam>>,
    ) -> Result<AnswerStream, CallError> {
        let fields = self.fields_of(&body, version, routing, params);
        let received = self.client.send(Method::Post, &self.client.target, &fields, &body).await?;
        let HttpResponse { head, .. } = &received;
        if head.status == 200 && head.content == MediaType::Json {
            self.learn_session(head);
            let reading = Some(self.client.message(received.body));
            return Ok(AnswerStream::Json { client: self.client.clone(), reading });
        }
        if head.is_event_stream() {
            let resumer = (version.map(Version::era) != Some(Era::Modern))
                .then(|| Resumer { streamable: self.clone(), version });
            self.learn_session(head);
            return Ok(AnswerStream::Events(Box::new(AnswerEvents::new(
                self.client.clone(),
                received.body,
                resumer,
            ))));
        }
        Box::pin(self.read_refusal(received, version)).await
    }

    /// Reads a response that is not a success.
    async fn read_refusal(
        &self,
        received: HttpResponse,
        version: Option<Version>,
    ) -> Result<AnswerStream, CallError> {
        let has_session = version.map(Version::era) == Some(Era::Legacy) && self.session.id.get().is_some();
        if has_session && received.head.status == 404 {
            return Err(self.client.session_lost());
        }
        if let Some(error) = self.client.misdirected(&received.head) {
            return Err(error);
        }
        if received.head.content == MediaType::Json && !matches!(received.head.status, 401 | 403) {
            return self.read_error(received).await;
        }
        match self.client.status_error(received).await {
            // Common servers refuse an unknown session with 400 instead of 404.
            CallError::Status { status: 400, text } if has_session && blames_session(text.as_bytes()) => {
                Err(self.client.session_lost())
            }
            error => Err(error),
        }
    }

    /// Reads a response with an error status. If it carries a JSON-RPC error, that is the answer.
    async fn read_error(&self, received: HttpResponse) -> Result<AnswerStream, CallError> {
        let status = received.head.status;
        let body = self.client.message(received.body).complete().await;
        let body = body.map_err(|error| self.client.unread(error))?;
        match Head::parse(&body) {
            Ok(Head { kind: MessageKind::Error, id: None, .. })
                if status == 400 && self.session.id.get().is_some() && blames_session(&body) =>
            {
                Err(self.client.session_lost())
            }
            Ok(Head { kind: MessageKind::Error, .. }) => {
                Ok(AnswerStream::Refused { status, message: Some(body) })
            }
            Ok(_) | Err(_) => Err(self.client.status_text(status, &body)),
        }
    }

    pub fn post(&self, message: Bytes, version: Option<Version>, call: Option<u64>) {
        let _ = self.outbox.send(Posted { message, version, call });
    }

    /// Waits until all messages queued by [`Streamable::post`] are delivered.
    pub async fn flush(&self) {
        if self.outbox.send(Posted { message: Bytes::new(), version: None, call: None }).is_ok() {
            self.flushed.notified().await;
        }
    }

    /// Sends the messages queued by [`Streamable::post`], in order, for as long as the link lives. A call whose server
    /// does not get the answer to its question fails: it would wait until its time is over.
    pub async fn deliver(self, mut outbox: Outbox, calls: Arc<Calls>) {
        while let Some(Posted { message, version, call }) = outbox.recv().await {
            if message.is_empty() {
                self.flushed.notify_one();
                continue;
            }
            // A message that an upstream never acknowledges must not block the others.
            let told = tokio::time::timeout(NOTICE_LIMIT, self.tell(&message, version)).await;
            if let Err(error) = told.unwrap_or(Err(CallError::TimedOut(NOTICE_LIMIT))) {
                tracing::debug!(reason = error.kind(), "a notification did not reach the server");
                calls.answer_lost(call, &error);
            }
        }
    }

    /// Sends a notice or an answer and waits until the upstream has received it.
    pub async fn tell(&self, message: &Bytes, version: Option<Version>) -> Result<(), CallError> {
        let fields = self.fields_of(message, version, None, &HashMap::new());
        let received = self.client.send(Method::Post, &self.client.target, &fields, message).await?;
        match received.head.status {
            404 => Err(self.client.session_lost()),
            400.. => Err(match self.client.misdirected(&received.head) {
                Some(error) => error,
                None => self.client.status_error(received).await,
            }),
            _ => {
                received.body.discard().await;
                Ok(())
            }
        }
    }

    /// Receives messages that a legacy upstream sends outside of any call, until the link ends or the session is lost.
    pub async fn listen(self, link: std::sync::Weak<Link>, version: Version) {
        let mut reader: Option<EventReader> = None;
        let mut pace = Pace::default();
        let mut broken = false;
        loop {
            let after = reader.as_ref().and_then(EventReader::last_event_id);
            let received = match self.open_stream(after, Some(version)).await {
                Ok(received) if received.head.is_event_stream() => received,
                Ok(received) => {
                    // A server need not offer such a stream, but it must know the session.
                    let error = self.read_refusal(received, Some(version)).await.err();
                    return suspect(&link, error.filter(CallError::did_not_run));
                }
                Err(error @ CallError::NotSent(_)) => return suspect(&link, Some(error)),
                Err(_) => {
                    pace.pause(Duration::ZERO).await;
                    continue;
                }
            };
            pace.begin();
            // While the connection was broken, messages may have been lost. A stream that the server itself ended
            // continues without loss.
            if let Some(link) = link.upgrade() {
                link.hears_now();
                if broken {
                    link.calls.signals.lists_changed();
                }
            }
            let reader = match &mut reader {
                Some(reader) => {
                    reader.go_on_with(received.body);
                    reader
                }
                None => reader.insert(EventReader::new(self.client.clone(), received.body)),
            };
            broken = loop {
                match (reader.next().await, link.upgrade()) {
                    // Every call has a stream of its own, so no answer belongs here.
                    (Ok(Some(Received::Event(event))), Some(_)) if answered_id(&event.data).is_some() => {
                        tracing::debug!("dropped a response that belongs to no call");
                    }
                    (Ok(Some(Received::Event(event))), Some(link)) => link.take_in(event.data, None),
                    (Ok(Some(Received::TooLarge(None))), Some(_)) => drop(self.client.too_large()),
                    (Ok(Some(Received::TooLarge(Some(_)))), Some(_)) => {}
                    (Ok(None), Some(_)) => break false,
                    (Err(_), Some(_)) => break true,
                    (_, None) => return,
                }
            };
            pace.pause(reader.retry()).await;
        }
    }

    pub async fn end_session(&self, version: Option<Version>) {
        // A gateway that runs the server keeps something for each link, also for those without a session.
        if self.session.id.get().is_none() && !self.client.is_through_gateway() {
            return;
        }
        let nothing = Bytes::new();
        let fields = render(&self.identified(version));
        let end = self.client.send(Method::Delete, &self.client.target, &fields, &nothing);
        // Servers may refuse to end sessions; there is nothing more to do then.
        let _ = tokio::time::timeout(END_SESSION_LIMIT, end).await;
    }

    async fn open_stream(
        &self,
        after: Option<&str>,
        version: Option<Version>,
    ) -> Result<HttpResponse, CallError> {
        let mut headers = self.identified(version);
        headers.insert(ACCEPT, EVENTS);
        if let Some(id) = after.and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(HeaderName::from_static(headers::LAST_EVENT_ID), id);
        }
        self.client.send(Method::Get, &self.client.target, &render(&headers), &Bytes::new()).await
    }

    /// The header lines of a message.
    fn fields_of(
        &self,
        body: &[u8],
        version: Option<Version>,
        routing: Option<&RoutingValues<'_>>,
        params: &HashMap<String, Vec<HeaderParam>>,
    ) -> Cow<'_, [u8]> {
        let posted = || render(&self.posted(version));
        match version.map(Version::era) {
            None => Cow::Owned(posted().to_vec()),
            Some(Era::Legacy) => Cow::Borrowed(self.session.legacy.get_or_init(posted)),
            Some(Era::Modern) => {
                let mut fields = self.session.modern.get_or_init(posted).to_vec();
                add_routing(&mut fields, body, routing, params);
                Cow::Owned(fields)
            }
        }
    }

    fn posted(&self, version: Option<Version>) -> HeaderMap {
        let mut headers = self.identified(version);
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(ACCEPT, JSON_OR_EVENTS);
        headers
    }

    fn identified(&self, version: Option<Version>) -> HeaderMap {
        let mut headers = self.client.headers();
        if let Some(version) = version {
            let version = HeaderValue::from_static(version.as_str());
            headers.insert(HeaderName::from_static(headers::PROTOCOL_VERSION), version);
        }
        if let Some(session) = self.session.id.get()
            && version.map(Version::era) != Some(Era::Modern)
        {
            headers.insert(HeaderName::from_static(headers::SESSION_ID), session.clone());
        }
        headers
    }

    /// The id of the session, as text.
    pub fn session_id(&self) -> Option<&str> {
        self.session.id.get().and_then(|id| id.to_str().ok())
    }

    fn learn_session(&self, head: &ResponseHead) {
        if self.session.id.get().is_none()
            && let Some(id) = head.session.as_ref().and_then(|id| HeaderValue::from_bytes(id).ok())
        {
            let _ = self.session.id.set(id);
        }
    }
}

/// Adds the header lines in which a modern message repeats parts of its body.
fn add_routing(
    fields: &mut Vec<u8>,
    body: &[u8],
    routing: Option<&RoutingValues<'_>>,
    params: &HashMap<String, Vec<HeaderParam>>,
) {
    let Some(routing) = routing else {
        let Ok(head) = Head::of_own(body) else { return };
        return add_routing(fields, body, Some(&RoutingValues::of(&head)), params);
    };
    let (method, name) = routing.encoded();
    put_known(fields, headers::METHOD, &method);
    if let Some(name) = name {
        put_known(fields, headers::NAME, &name);
    }
    let tool = routing.name.as_deref().filter(|_| routing.method == "tools/call");
    if let Some(wanted) = tool.and_then(|tool| params.get(tool))
        && let Ok(Head { params: Some(call), .. }) = Head::of_own(body)
    {
        for (name, value) in headers::param_headers(body, call.arguments.as_ref(), wanted) {
            put(fields, &name, &value);
        }
    }
}

fn blames_session(error: &[u8]) -> bool {
    String::from_utf8_lossy(error).to_ascii_lowercase().contains("session")
}

fn suspect(link: &std::sync::Weak<Link>, error: Option<CallError>) {
    if let (Some(link), Some(error)) = (link.upgrade(), error) {
        link.calls.signals.suspect(&error.to_string());
    }
}

/// Resumes a broken answer stream after the last event that arrived.
pub struct Resumer {
    streamable: Streamable,
    version: Option<Version>,
}

impl Resumer {
    pub async fn resume(&self, last_event_id: &str) -> Result<IncomingBody, CallError> {
        let received = self.streamable.open_stream(Some(last_event_id), self.version).await?;
        if received.head.is_event_stream() {
            return Ok(received.body);
        }
        Err(self.streamable.client.status_error(received).await)
    }
}

/// Starts receiving messages outside of calls on a legacy link.
pub fn start_listening(link: &Arc<Link>, version: Version) {
    let Carrier::Http(http) = &link.carrier else {
        // The other transports have one stream for everything, which is open.
        return link.hears_now();
    };
    let (listen, weak) = (http.clone().listen(Arc::downgrade(link), version), Arc::downgrade(link));
    let stop = link.stop.clone();
    link.tasks.spawn(async move {
        stop.run_until_cancelled(listen).await;
        // Without such a stream there is nothing to wait for.
        if let Some(link) = weak.upgrade() {
            link.hears_now();
        }
    });
}
