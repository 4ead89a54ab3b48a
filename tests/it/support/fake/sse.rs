//! Event streams: the body that turns frames into events, and the legacy transport of `/sse` and `/message`.
//! Streamable HTTP is in `http`.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use http_body::Frame;
use serde_json::json;
use tokio::sync::mpsc;

use super::core::{self, Incoming, Transport};
use super::http::{self, plain_headers};
use super::state::{Audience, Out, Parked, Receiver, State, bytes_of};

/// When a stream ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// After the response to the POST that opened it.
    Answer,
    /// When the server forgets its session.
    Dropped,
}

/// Frames as server-sent events; with a number, each event gets an id and a cut stream can be resumed.
pub struct Events {
    state: Arc<State>,
    frames: Receiver,
    ready: VecDeque<String>,
    until: Until,
    number: Option<u64>,
    next: u64,
    over: bool,
}

impl Events {
    pub fn new(state: &Arc<State>, frames: Receiver, until: Until) -> Self {
        let number = state.behaviour().resume.then(|| state.next_serial());
        let ready = VecDeque::new();
        Self { state: state.clone(), frames, ready, until, number, next: 0, over: false }
    }

    /// The rest of a cut stream.
    pub fn resumed(state: &Arc<State>, number: u64, parked: Parked) -> Self {
        let Parked { rest, next } = parked;
        let mut events = Self::new(state, rest, Until::Answer);
        events.number = Some(number);
        events.next = next;
        events
    }

    pub fn starting_with(mut self, text: &str) -> Self {
        self.ready.push_back(text.to_owned());
        self
    }

    /// Adds a frame that was already taken from the channel.
    pub fn after(mut self, frame: Out) -> Self {
        // A hang-up is handled before a stream begins.
        if let Ok(text) = self.write(frame) {
            self.ready.push_back(text);
        }
        self
    }

    pub fn into_response(self) -> Response {
        let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
        (headers, Body::new(self)).into_response()
    }

    fn write(&mut self, frame: Out) -> io::Result<String> {
        match frame {
            Out::Note(message) => Ok(self.event(&message.to_string())),
            Out::Verbatim(text) => Ok(self.event(&text)),
            Out::Answer { text, .. } => {
                self.over = self.until == Until::Answer;
                Ok(self.event(&text))
            }
            Out::Cut => {
                self.over = true;
                Ok(self.park())
            }
            Out::Status(_) | Out::HangUp => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    fn event(&mut self, data: &str) -> String {
        format!("{}event: message\ndata: {data}\n\n", self.id())
    }

    fn id(&mut self) -> String {
        let Some(number) = self.number else { return String::new() };
        self.next += 1;
        format!("id: {number}-{}\n", self.next)
    }

    /// Keeps the rest for a request with the id of the last event. Without ids the rest is lost.
    fn park(&mut self) -> String {
        let Some(number) = self.number else { return String::new() };
        let event = format!("{}retry: 50\ndata: \n\n", self.id());
        let (_, closed) = mpsc::unbounded_channel();
        let rest = std::mem::replace(&mut self.frames, closed);
        self.state.memory().parked.insert(number, Parked { rest, next: self.next });
        event
    }
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(text) = self.ready.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(bytes_of(text).into()))));
        }
        if self.over {
            return Poll::Ready(None);
        }
        match self.frames.poll_recv(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Ready(Some(frame)) => {
                Poll::Ready(Some(self.write(frame).map(|text| Frame::data(bytes_of(text).into()))))
            }
        }
    }
}

/// `GET /sse`: the first event has the address for POST requests.
pub async fn open(Shared(state): Shared<Arc<State>>, headers: HeaderMap) -> Response {
    let behaviour = state.behaviour();
    state.see(&json!({"method": "GET"}), &plain_headers(&headers));
    if let Err(refusal) = http::admit(&behaviour, &headers, "GET") {
        return *refusal;
    }
    let session = state.new_session();
    let endpoint = behaviour.sse_endpoint.unwrap_or_else(|| format!("/message?sessionId={session}"));
    let (out, frames) = mpsc::unbounded_channel();
    state.memory().streams.insert(session.clone(), out.clone());
    state.listen(&session, Audience::All, &out, None);
    let hello = format!("event: endpoint\ndata: {endpoint}\n\n");
    Events::new(&state, frames, Until::Dropped).starting_with(&hello).into_response()
}

/// `POST /message?sessionId=...`: accepted here; the response comes on the stream.
pub async fn message(
    Shared(state): Shared<Arc<State>>,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> Response {
    let Ok(message) = model::deep_json::parse(&body) else {
        return *http::parse_error();
    };
    let headers_seen = plain_headers(&headers);
    state.see(&message, &headers_seen);
    if let Err(refusal) = http::admit(&state.behaviour(), &headers, "POST") {
        return *refusal;
    }
    let session =
        uri.query().and_then(|query| query.strip_prefix("sessionId=")).unwrap_or_default().to_owned();
    let stream = state.memory().streams.get(&session).filter(|stream| !stream.is_closed()).cloned();
    let Some(out) = stream else {
        return (StatusCode::NOT_FOUND, "Could not find session").into_response();
    };
    let incoming =
        Incoming { transport: Transport::Sse, text: body, message, headers: headers_seen, session };
    if incoming.is_request() {
        tokio::spawn(core::answer(state.clone(), incoming, out));
    } else {
        core::accept(&state, &incoming);
    }
    (StatusCode::ACCEPTED, "Accepted").into_response()
}
