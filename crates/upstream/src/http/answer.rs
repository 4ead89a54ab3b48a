//! The response to one POST: a JSON message, or a stream of events that ends with the answer. A broken legacy stream is
//! resumed if the upstream gave it an event id.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::body::{IncomingBody, IncomingMessage};
use super::client::HttpClient;
// A circular import: a broken stream is resumed by the transport that opened it.
use super::streamable::Resumer;
use crate::charge::Charge;
use crate::error::CallError;
use wire::Ends;
use wire::sse::{Event, Scanner};

/// The delay before resuming when the upstream gave none.
const DEFAULT_RETRY: Duration = Duration::from_secs(1);
/// After this many resumes in a row without a new event the answer is considered lost.
const MAX_EMPTY_RESUMES: usize = 5;

// The largest variant is the usual one, and boxing it would cost an allocation for each call.
#[allow(clippy::large_enum_variant)]
pub enum AnswerStream {
    /// One message; `None` after it.
    Json {
        client: Arc<HttpClient>,
        reading: Option<IncomingMessage>,
    },
    /// A JSON-RPC error that came with an HTTP error status; already read.
    Refused {
        status: u16,
        message: Option<Bytes>,
    },
    Events(Box<AnswerEvents>),
}

impl AnswerStream {
    /// The next message on this stream; an error when there is none left.
    pub async fn next_message(&mut self) -> Result<Bytes, CallError> {
        match self {
            AnswerStream::Json { client, reading } => match reading {
                Some(body) => {
                    let message = body.complete().await;
                    *reading = None;
                    let message = message.map_err(|error| client.unread(error))?;
                    match message.trim_ascii_start().first() {
                        Some(b'{' | b'[') => Ok(message),
                        Some(_) => Err(client.lost("its response is not a JSON object")),
                        None => Err(client.lost("its response is empty")),
                    }
                }
                None => Err(client.lost("its response belongs to another request")),
            },
            AnswerStream::Refused { message, .. } => message
                .take()
                .ok_or_else(|| CallError::Lost("the response belongs to another request".into())),
            AnswerStream::Events(events) => events.next_message().await,
        }
    }
}

pub struct AnswerEvents {
    reader: EventReader,
    resumer: Option<Resumer>,
    empty_resumes: usize,
}

impl AnswerEvents {
    pub fn new(client: Arc<HttpClient>, body: IncomingBody, resumer: Option<Resumer>) -> Self {
        Self { reader: EventReader::new(client, body), resumer, empty_resumes: 0 }
    }

    async fn next_message(&mut self) -> Result<Bytes, CallError> {
        loop {
            let broken = match self.reader.next().await {
                Ok(Some(Received::Event(event))) => {
                    self.empty_resumes = 0;
                    return Ok(event.data);
                }
                // Only the answer itself, or a notice for this call, can be that large.
                Ok(Some(Received::TooLarge(_))) => return Err(self.reader.client.too_large()),
                Ok(None) => self.reader.client.lost("the event stream ended before the response"),
                Err(error) => error,
            };
            let (Some(resumer), Some(id)) = (&self.resumer, self.reader.last_event_id()) else {
                return Err(broken);
            };
            if self.empty_resumes == MAX_EMPTY_RESUMES {
                return Err(broken);
            }
            self.empty_resumes += 1;
            tokio::time::sleep(self.reader.retry()).await;
            let body = Box::pin(resumer.resume(id)).await.map_err(|_| broken)?;
            self.reader.go_on_with(body);
        }
    }
}

/// What a stream brought.
pub enum Received {
    Event(Event),
    /// An event that is too large, reported when that is noticed; and its ends, when it is over.
    TooLarge(Option<Ends>),
}

/// Events of one stream, which may span several HTTP bodies, one after the other.
pub struct EventReader {
    client: Arc<HttpClient>,
    body: IncomingBody,
    scanner: Scanner,
    charge: Charge,
    /// The last event id of the bodies before this one.
    earlier_event_id: Option<String>,
}

impl EventReader {
    pub fn new(client: Arc<HttpClient>, body: IncomingBody) -> Self {
        let scanner = Scanner::new(client.largest_message());
        let charge = Charge::new(&client.budgets().buffered);
        Self { client, body, scanner, charge, earlier_event_id: None }
    }

    pub fn last_event_id(&self) -> Option<&str> {
        self.scanner.last_event_id().or(self.earlier_event_id.as_deref())
    }

    pub fn go_on_with(&mut self, body: IncomingBody) {
        self.earlier_event_id = self.last_event_id().map(str::to_owned);
        self.body = body;
        self.scanner = Scanner::new(self.client.largest_message());
    }

    /// The next event that has data; `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<Received>, CallError> {
        loop {
            match self.scanner.next_event() {
                // Servers open a stream with an empty event to give it an id.
                Some(Ok(event)) if event.data.is_empty() => {}
                Some(Ok(mut event)) => {
                    event.data = self.charge.attach(event.data);
                    return Ok(Some(Received::Event(event)));
                }
                Some(Err(large)) => {
                    self.charge.release();
                    return Ok(Some(Received::TooLarge(large.ends)));
                }
                None => match self.body.chunk().await {
                    Ok(Some(chunk)) => {
                        self.scanner.feed(&chunk);
                        let covered = self.charge.cover(self.scanner.held());
                        covered.map_err(CallError::NoRoom)?;
                    }
                    Ok(None) => return Ok(None),
                    Err(reason) => return Err(self.client.lost(&reason)),
                },
            }
        }
    }

    pub fn retry(&self) -> Duration {
        self.scanner.retry().unwrap_or(DEFAULT_RETRY)
    }
}
