//! Sends a stream of events as the response to a plain request. While nothing is sent, the connection holds no buffer.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::in_use::{Begun, READ_BUFFER, Shared, head_begun_behind, note_unread};
use super::response::ResponseBody;
use super::stream::ClientStream;

/// Events up to this size are collected and sent together, up to this size.
const COLLECTED: usize = 16 * 1024;

/// A stream of events that is being sent.
pub struct Events {
    stream: ClientStream,
    /// The beginning of the next request, and when that arrived.
    unread: BytesMut,
    next_begun: Option<Instant>,
    /// What is to be sent next.
    written: Vec<u8>,
    body: ResponseBody,
    /// Whether the connection is closed after the stream.
    closes: bool,
}

/// How a connection goes on after a stream.
pub enum AfterEvents {
    Rest(ClientStream),
    Closed,
    /// With the next request, or a part of it.
    Begun(Box<Begun>),
}

/// What happens next on the stream.
enum Step {
    Event(Bytes),
    /// There is no event yet.
    Wait,
    End,
    /// The client closed the connection.
    Gone,
}

impl Events {
    pub fn new(
        stream: ClientStream,
        unread: BytesMut,
        next_begun: Option<Instant>,
        head: Vec<u8>,
        body: ResponseBody,
        closes: bool,
    ) -> Self {
        // An empty buffer is not kept: streams are open for long.
        let unread = if unread.is_empty() { BytesMut::new() } else { unread };
        Self { stream, unread, next_begun, written: head, body, closes }
    }

    pub async fn send(mut self: Box<Self>, shared: &Shared) -> AfterEvents {
        match self.send_all().await {
            Ok(true) if !self.closes => self.go_on(shared),
            Ok(_) => AfterEvents::Closed,
            Err(error) => {
                note_unread(Some(&error), shared);
                AfterEvents::Closed
            }
        }
    }

    /// Sends everything. Returns `false` if the client closed the connection.
    async fn send_all(&mut self) -> io::Result<bool> {
        loop {
            match poll_fn(|context| self.poll_step(context)).await {
                Step::Event(event) if event.len() > COLLECTED => {
                    self.written.extend_from_slice(format!("{:x}\r\n", event.len()).as_bytes());
                    let mut all = Buf::chain(self.written.as_slice(), event).chain(&b"\r\n"[..]);
                    self.stream.write_all_buf(&mut all).await?;
                    self.written.clear();
                }
                Step::Event(event) => {
                    self.written.extend_from_slice(format!("{:x}\r\n", event.len()).as_bytes());
                    self.written.extend_from_slice(&event);
                    self.written.extend_from_slice(b"\r\n");
                    if self.written.len() > COLLECTED {
                        self.flush().await?;
                    }
                }
                Step::Wait => self.flush().await?,
                Step::End => {
                    self.written.extend_from_slice(b"0\r\n\r\n");
                    self.flush().await?;
                    return Ok(true);
                }
                Step::Gone => return Ok(false),
            }
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&std::mem::take(&mut self.written)).await?;
        self.stream.flush().await
    }

    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<Step> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                // An empty chunk would end the body.
                Ok(data) if !data.is_empty() => return Poll::Ready(Step::Event(data)),
                Ok(_) | Err(_) => return Poll::Ready(Step::Wait),
            },
            Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Step::End),
            Poll::Pending if !self.written.is_empty() => return Poll::Ready(Step::Wait),
            Poll::Pending => {}
        }
        // The next request is left in the socket when there is much of it.
        while self.unread.len() < READ_BUFFER {
            let mut bytes = [0; 256];
            match pin!(self.stream.read(&mut bytes)).poll(context) {
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Step::Gone),
                Poll::Ready(Ok(count)) => {
                    self.next_begun.get_or_insert_with(Instant::now);
                    self.unread.extend_from_slice(&bytes[..count]);
                }
                Poll::Pending => break,
            }
        }
        Poll::Pending
    }

    /// Goes on with the next request after the end of the stream.
    fn go_on(self, shared: &Shared) -> AfterEvents {
        let Self { stream, unread, next_begun, .. } = self;
        if unread.is_empty() && stream.is_between_heads(true) {
            return AfterEvents::Rest(stream);
        }
        match shared.budgets.buffered.take(READ_BUFFER as u64) {
            Ok(charge) => {
                let (unread, head_begun) = (unread.freeze(), head_begun_behind(next_begun, Instant::now()));
                AfterEvents::Begun(Box::new(Begun { stream, unread, head_begun, charge }))
            }
            Err(_) => AfterEvents::Closed,
        }
    }
}
