//! Carries messages between standard input and output and the MCP endpoint of a gateway, in both eras of the protocol.
//! Requests run at once; notices and answers of the client are delivered in order.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::Connection;
use super::endpoint::Endpoint;
use super::exchange::cancelled_by;
use super::in_flight::InFlight;
use super::lines::{Input, Output, Writer};
use super::param_headers::ParamHeaders;
use super::session::Session;
use wire::{Era, Head, HeadError, MessageKind, OwnedId, authored};

/// How long requests may still take when the input has ended. Clients wait about two seconds for a server to end.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

pub struct Bridge {
    connection: Arc<Connection>,
    writer: Writer,
    /// Requests in flight and the delivery of notices.
    tasks: TaskTracker,
    /// Ends all tasks.
    closing: CancellationToken,
    /// Streams for messages outside of calls.
    streams: TaskTracker,
    closing_streams: CancellationToken,
    follows_session: bool,
}

impl Bridge {
    pub fn new(endpoint: Endpoint) -> Self {
        let (output, writer) = Output::open();
        let connection = Connection {
            endpoint,
            session: Session::default(),
            params: ParamHeaders::default(),
            in_flight: InFlight::default(),
            output,
        };
        Self {
            connection: Arc::new(connection),
            writer,
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            streams: TaskTracker::new(),
            closing_streams: CancellationToken::new(),
            follows_session: false,
        }
    }

    /// Runs until the input ends, nobody reads the output, or `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let (outbox, mut undelivered) = mpsc::unbounded_channel::<Bytes>();
        let connection = self.connection.clone();
        self.spawn(async move {
            while let Some(message) = undelivered.recv().await {
                connection.deliver(&message).await;
            }
        });
        let gone = self.writer.gone.clone();
        tokio::select! {
            () = self.take_all(&outbox) => {}
            () = gone.cancelled() => {}
            () = stop.cancelled() => {}
        }
        drop(outbox);
        self.close().await;
    }

    async fn take_all(&mut self, outbox: &mpsc::UnboundedSender<Bytes>) {
        let mut input = Input::new();
        loop {
            match input.next().await {
                Ok(Some(message)) => self.take(message, outbox).await,
                Ok(None) => return,
                Err(error) => return tracing::warn!(%error, "cannot read standard input"),
            }
        }
    }

    async fn take(&mut self, message: Bytes, outbox: &mpsc::UnboundedSender<Bytes>) {
        let connection = self.connection.clone();
        if message.starts_with(b"[") {
            return self.spawn(async move { connection.answer_batch(message).await });
        }
        let head = match Head::parse(&message) {
            Ok(head) => head,
            Err(error) => return connection.output.send(unreadable(&error)).await,
        };
        let era = if head.declares_version() { Era::Modern } else { Era::Legacy };
        match (head.kind, &head.id) {
            (MessageKind::Request, Some(id)) if era == Era::Legacy && is(&head, "initialize") => {
                // What follows belongs to the session, so it waits.
                if connection.initialize(&message, id.raw()).await && !self.follows_session {
                    self.follows_session = true;
                    self.spawn_stream(async move { connection.follow_session().await });
                }
            }
            (MessageKind::Request, Some(id)) => {
                let request = connection.in_flight.add(OwnedId::from(id), era);
                let is_listen = era == Era::Modern && is(&head, "subscriptions/listen");
                drop(head);
                match is_listen {
                    true => {
                        self.spawn_stream(async move { connection.keep_listening(message, request).await });
                    }
                    false => self.spawn(async move { connection.answer(message, request).await }),
                }
            }
            (_, _) => {
                let request = cancelled_by(&head).and_then(|id| connection.in_flight.find(id));
                if let Some(request) = &request {
                    request.cancelled.cancel();
                }
                if request.is_none_or(|request| request.era == Era::Legacy) {
                    drop(head);
                    let _ = outbox.send(message);
                }
            }
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let closing = self.closing.clone();
        self.tasks.spawn(async move { closing.run_until_cancelled(task).await });
    }

    fn spawn_stream(&self, stream: impl Future<Output = ()> + Send + 'static) {
        let closing = self.closing_streams.clone();
        self.streams.spawn(async move { closing.run_until_cancelled(stream).await });
    }

    /// Gives requests in flight a moment, cancels the others, and ends the session.
    async fn close(self) {
        self.closing_streams.cancel();
        self.streams.close();
        self.tasks.close();
        if tokio::time::timeout(LAST_ANSWERS, self.tasks.wait()).await.is_err() {
            // Those of the other era are cancelled by closing their responses.
            let pending = self.connection.in_flight.all();
            let pending = pending.into_iter().filter(|(_, pending)| pending.era == Era::Legacy);
            let cancel = async {
                for (id, request) in pending {
                    request.cancelled.cancel();
                    let params = authored::object(&[("requestId", &*id)]);
                    let notice = authored::notice("notifications/cancelled", Some(&params));
                    self.connection.deliver(&notice).await;
                }
            };
            let _ = tokio::time::timeout(LAST_ANSWERS, cancel).await;
        }
        self.closing.cancel();
        self.tasks.wait().await;
        self.streams.wait().await;
        self.connection.session.end(&self.connection.endpoint).await;
        drop(self.connection);
        self.writer.finish().await;
    }
}

fn is(head: &Head<'_>, method: &str) -> bool {
    head.method.as_deref() == Some(method)
}

/// Makes the answer to a line that is not a message.
fn unreadable(error: &HeadError) -> Bytes {
    let id = match error {
        HeadError::Invalid { id, .. } => id.as_deref(),
        HeadError::Syntax { .. } => None,
    };
    authored::error(id, error.code(), &error.to_string(), None)
}
