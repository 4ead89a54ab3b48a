//! The legacy HTTP+SSE transport, client side: one GET stream carries everything from the upstream, beginning with the
//! address to POST to. Both must have the same origin.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use tokio::sync::{Notify, mpsc};

use super::error::{CallError, too_large};
use super::http::{EVENTS, EventReader, HttpClient, JSON, Method, Received, Target, render};
use super::link::Link;

pub struct EventStream {
    client: Arc<HttpClient>,
    /// Where messages are posted to.
    address: Target,
    /// The header lines of every message.
    fields: Bytes,
    outbox: mpsc::UnboundedSender<(Bytes, Option<u64>)>,
    flushed: Arc<Notify>,
}

/// The parts of an open connection that a task of the link uses.
pub struct Incoming {
    reader: EventReader,
    /// Messages, each with the call that cannot go on without it.
    outbox: mpsc::UnboundedReceiver<(Bytes, Option<u64>)>,
    client: Arc<HttpClient>,
    address: Target,
    fields: Bytes,
    flushed: Arc<Notify>,
}

impl EventStream {
    /// Opens the stream and waits for the address.
    pub async fn open(client: HttpClient) -> Result<(Self, Incoming), CallError> {
        let client = Arc::new(client);
        let fields = fields_with(&client, ACCEPT, EVENTS);
        let received = client.send(Method::Get, &client.target, &fields, &Bytes::new()).await?;
        if received.head.status != 200 {
            return Err(client.status_error(received).await);
        }
        if !received.head.is_event_stream() {
            return Err(client.lost("does not answer with an event stream; is it a streamable_http server?"));
        }
        let mut reader = EventReader::new(client.clone(), received.body);
        let address = loop {
            match reader.next().await? {
                None => return Err(client.lost("the event stream ended before it named an endpoint")),
                Some(Received::Event(event)) if event.name.as_deref() == Some("endpoint") => {
                    break event.data;
                }
                Some(Received::Event(_) | Received::TooLarge(_)) => {}
            }
        };
        let address = String::from_utf8_lossy(&address);
        let address = client
            .target
            .url
            .join(address.trim())
            .map_err(|_| client.lost("names an endpoint that is not a URL"))?;
        if address.origin() != client.target.url.origin() {
            return Err(client.lost("names an endpoint of another origin"));
        }
        let address = Target::new(address);
        let fields = fields_with(&client, CONTENT_TYPE, JSON);
        let (outbox, waiting) = mpsc::unbounded_channel();
        let flushed = Arc::new(Notify::new());
        let incoming = Incoming {
            reader,
            outbox: waiting,
            client: client.clone(),
            address: address.clone(),
            fields: fields.clone(),
            flushed: flushed.clone(),
        };
        Ok((Self { client, address, fields, outbox, flushed }, incoming))
    }

    pub async fn send(&self, body: Bytes) -> Result<(), CallError> {
        submit(&self.client, &self.address, &self.fields, &body).await
    }

    pub fn post(&self, message: Bytes, call: Option<u64>) {
        let _ = self.outbox.send((message, call));
    }

    /// Waits until all posted messages are delivered.
    pub async fn flush(&self) {
        if self.outbox.send((Bytes::new(), None)).is_ok() {
            self.flushed.notified().await;
        }
    }
}

impl Incoming {
    /// Carries messages both ways until the stream ends; then the link is lost.
    pub async fn run(mut self, link: Weak<Link>) {
        let outbox = async {
            while let Some((message, call)) = self.outbox.recv().await {
                if message.is_empty() {
                    self.flushed.notify_one();
                    continue;
                }
                if let Err(error) = submit(&self.client, &self.address, &self.fields, &message).await {
                    tracing::debug!(reason = error.kind(), "a notification did not reach the server");
                    if let Some(link) = link.upgrade() {
                        link.calls.answer_lost(call, &error);
                    }
                }
            }
            std::future::pending::<()>().await;
        };
        let inbox = async {
            loop {
                match self.reader.next().await {
                    Ok(Some(received)) => match (received, link.upgrade()) {
                        (Received::Event(event), Some(link)) => link.take_in(event.data, None),
                        (Received::TooLarge(Some(ends)), Some(link)) => {
                            let budgets = self.client.budgets();
                            link.calls.drop_large(&ends, true, too_large(&budgets.limits), budgets);
                        }
                        // Its id may stand at its end.
                        (Received::TooLarge(None), Some(_)) => {}
                        (_, None) => return None,
                    },
                    Ok(None) => return Some(self.client.lost("the event stream ended")),
                    Err(error) => return Some(error),
                }
            }
        };
        let ended = tokio::select! {
            () = outbox => None,
            ended = inbox => ended,
        };
        if let (Some(error), Some(link)) = (ended, link.upgrade()) {
            link.calls.lose(&error.to_string());
        }
    }
}

async fn submit(client: &HttpClient, address: &Target, fields: &[u8], body: &Bytes) -> Result<(), CallError> {
    let received = client.send(Method::Post, address, fields, body).await?;
    match received.head.status {
        200..=299 => {
            received.body.discard().await;
            Ok(())
        }
        404 => Err(client.session_lost()),
        _ => Err(client.status_error(received).await),
    }
}

/// The header lines of a request: those of the registration, and one more.
fn fields_with(client: &HttpClient, name: HeaderName, value: HeaderValue) -> Bytes {
    let mut headers = client.headers();
    headers.insert(name, value);
    render(&headers)
}
