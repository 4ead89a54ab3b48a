//! Serves plain requests on the socket itself. A request that is not plain, or whose head has not arrived completely, is
//! left to hyper together with the bytes that were read. A connection waits here for its next request only for a short
//! time; after that it rests without any buffer.

mod body;
pub mod head;
mod head_memory;
mod response;
mod sending;

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::unconstrained;
use tokio::time::{Sleep, sleep};

use super::events::Events;
use super::front::AgentReply;
use super::in_use::{Begun, FIRST_LOOK, READ_BUFFER, Shared, head_begun_behind, note_unread};
use super::response::{ResponseBody, charge_pieces, events_body};
use super::stream::ClientStream;
use crate::http::body as limits;
use crate::http::error::ErrorResponse;
use budget::Taken;
use gateway::identification::{Identity, TokenMemory};
use mcp::ReplyBody;

use body::RestOfBody;
use head::PlainHead;
use head_memory::HeadMemory;
use response::{Content, Pieces, ResponseHead, ResponseWriter};
use sending::send_pages;

/// The longest interval of the idle check, and so the longest time for which an idle connection delays a shutdown.
const LONGEST_LOOK: Duration = Duration::from_millis(250);
/// The least free space in the read buffer when a request is read: only a head that arrives in one piece is plain.
const LEAST_SPACE: usize = READ_BUFFER / 2;
/// Bodies of responses up to this size are copied behind their head; larger ones are sent from where they are.
const COPIED: usize = 4 * 1024;

/// How a connection goes on.
pub enum Next {
    /// No request has arrived for a while.
    Rest(ClientStream),
    Closed,
    /// The response is a stream of events.
    Events(Box<Events>),
    /// There is a request, or a part of one, that has not been served.
    Begun(Box<Begun>),
}

/// A connection in use.
struct PlainConnection {
    stream: ClientStream,
    buffer: BytesMut,
    /// When the first byte in the buffer arrived, if it did behind a request that was being answered.
    next_begun: Option<Instant>,
    writer: ResponseWriter,
    token: TokenMemory,
    charge: Taken,
}

/// What arrived on a connection.
enum Arrived {
    Bytes,
    /// Nothing for a while.
    Nothing,
    End,
}

/// How a request was answered.
enum Answered {
    Sent,
    /// With a response after which the connection closes, or not at all.
    Last,
    /// With a stream of events, of which nothing has been sent.
    Events {
        head: Vec<u8>,
        body: ResponseBody,
        closes: bool,
    },
}

/// Serves requests for as long as they are plain and follow each other soon enough.
pub async fn serve(begun: Begun, peer: IpAddr, shared: &Shared) -> Next {
    let Begun { stream, unread, mut head_begun, charge } = begun;
    let mut buffer = BytesMut::with_capacity(READ_BUFFER.max(unread.len()));
    buffer.extend_from_slice(&unread);
    drop(unread);
    let mut connection = PlainConnection {
        stream,
        buffer,
        next_begun: None,
        writer: ResponseWriter::default(),
        token: TokenMemory::default(),
        charge,
    };
    let mut heads = HeadMemory::default();
    let mut idle_check = IdleCheck::new();
    let mut has_served = false;
    loop {
        match connection.receive(&mut idle_check).await {
            Arrived::Bytes => {}
            Arrived::End => return Next::Closed,
            Arrived::Nothing if shared.shutdown.is_cancelled() => return Next::Closed,
            Arrived::Nothing if connection.stream.is_between_heads(has_served) => {
                return Next::Rest(connection.stream);
            }
            Arrived::Nothing => {
                // A part of a head that TLS has not opened yet; perhaps of the next request.
                let head_begun = if has_served { Instant::now() } else { head_begun };
                return connection.hand_over(Bytes::new(), head_begun);
            }
        }
        let arrived = Instant::now();
        if has_served {
            head_begun = head_begun_behind(connection.next_begun.take(), arrived);
        }
        let bytes = connection.buffer.split().freeze();
        let Some(head) = heads.read(&bytes) else {
            return connection.hand_over(bytes, head_begun);
        };
        if bytes.len() > head.length + head.body_length {
            connection.next_begun = Some(head_begun);
        }
        match connection.answer(&head, &bytes, peer, arrived, shared).await {
            Ok(Answered::Sent) => (has_served, idle_check.has_served) = (true, true),
            Ok(Answered::Last) => return Next::Closed,
            Ok(Answered::Events { head, body, closes }) => {
                let PlainConnection { stream, buffer, next_begun, .. } = connection;
                return Next::Events(Box::new(Events::new(stream, buffer, next_begun, head, body, closes)));
            }
            Err(error) => {
                note_unread(Some(&error), shared);
                return Next::Closed;
            }
        }
    }
}

impl PlainConnection {
    /// Waits for the first bytes of the next request.
    async fn receive(&mut self, idle_check: &mut IdleCheck) -> Arrived {
        if !self.buffer.is_empty() {
            return Arrived::Bytes;
        }
        if self.buffer.capacity() < LEAST_SPACE {
            // Reuses the whole buffer, since nobody holds a part of it any more.
            self.buffer.reserve(READ_BUFFER);
        }
        poll_fn(|context| match self.poll_read(context) {
            Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(Arrived::End),
            Poll::Ready(Ok(_)) => Poll::Ready(Arrived::Bytes),
            Poll::Pending => idle_check.poll_idle(context).map(|()| Arrived::Nothing),
        })
        .await
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.buffer.capacity() == self.buffer.len() {
            self.buffer.reserve(LEAST_SPACE);
        }
        pin!(self.stream.read_buf(&mut self.buffer)).poll(context)
    }

    /// Leaves the connection to hyper, with bytes that were read.
    fn hand_over(self, unread: Bytes, head_begun: Instant) -> Next {
        let Self { stream, charge, .. } = self;
        Next::Begun(Box::new(Begun { stream, unread, head_begun, charge }))
    }

    async fn answer(
        &mut self,
        head: &PlainHead<'_>,
        bytes: &Bytes,
        peer: IpAddr,
        arrived: Instant,
        shared: &Shared,
    ) -> io::Result<Answered> {
        let (admitted, is_complete) = self.admit(head, bytes, peer, shared).await;
        let answered = match admitted {
            Ok((caller, body)) => {
                // Pinned here, since moving a large future is expensive.
                let answering = pin!(shared.front.answer_plain(head, caller, body, arrived));
                match self.watch(answering).await {
                    Some(answered) => answered,
                    None => return Ok(Answered::Last),
                }
            }
            Err(error) => Err(error),
        };
        let closes = !is_complete || shared.draining.is_cancelled();
        let AgentReply { mut reply, revoked } = match answered {
            Ok(answered) => answered,
            Err(error) => {
                let (status, header, body) = error.into_parts();
                let mut head = ResponseHead::new(status, Content::Json(body.len()), closes);
                head.extra = header.as_ref().map(|(name, value)| (name.as_str(), value.as_bytes()));
                return self.send(&head, Pieces::of(body.into())).await;
            }
        };
        let (content, pieces) = match std::mem::replace(&mut reply.body, ReplyBody::Empty) {
            ReplyBody::Empty => (Content::Empty, Pieces::default()),
            ReplyBody::Json(pieces) => {
                let pieces = Pieces(charge_pieces(pieces, &shared.budgets.buffered));
                (Content::Json(pieces.remaining()), pieces)
            }
            ReplyBody::Events(events) => {
                let head = ResponseHead::of(&reply, Content::Events, closes);
                let head = self.writer.begin(&head).to_vec();
                return Ok(Answered::Events { head, body: events_body(*events, revoked.as_ref()), closes });
            }
        };
        self.send(&ResponseHead::of(&reply, content, closes), pieces).await
    }

    /// Checks whether a request may be made, and receives the rest of its body. Also tells whether the body was received
    /// completely: otherwise the connection cannot be used again.
    async fn admit(
        &mut self,
        head: &PlainHead<'_>,
        bytes: &Bytes,
        peer: IpAddr,
        shared: &Shared,
    ) -> (Result<(Option<Identity>, Bytes), ErrorResponse>, bool) {
        let admitted = shared.front.admit_plain(peer, head, &self.token).await;
        let end = head.length + head.body_length;
        if bytes.len() >= end {
            // Usually nothing: the beginning of a request that was sent before this one was answered.
            self.buffer.extend_from_slice(&bytes[end..]);
            return (admitted.map(|caller| (caller, bytes.slice(head.length..end))), true);
        }
        let arrived = bytes.slice(head.length..);
        let mut rest = RestOfBody::new(arrived, head.body_length, &mut self.stream, &mut self.buffer);
        let received = match admitted {
            Ok(caller) => limits::read_body(&mut rest, &shared.budgets).await.map(|body| (caller, body)),
            Err(error) => {
                limits::discard(&mut rest, 0).await;
                Err(error)
            }
        };
        let is_complete = rest.is_complete();
        if !self.buffer.is_empty() {
            self.next_begun = Some(Instant::now());
        }
        (received, is_complete)
    }

    /// Waits for an answer. Returns `None` if the client closes the connection first.
    async fn watch<T>(&mut self, mut answer: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        poll_fn(|context| {
            if let Poll::Ready(answer) = answer.as_mut().poll(context) {
                return Poll::Ready(Some(answer));
            }
            // The next request is left in the socket when the buffer is full.
            while self.buffer.len() < LEAST_SPACE {
                match self.poll_read(context) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(None),
                    Poll::Ready(Ok(_)) => {
                        self.next_begun.get_or_insert_with(Instant::now);
                    }
                    Poll::Pending => break,
                }
            }
            Poll::Pending
        })
        .await
    }

    async fn send(&mut self, head: &ResponseHead<'_>, mut body: Pieces) -> io::Result<Answered> {
        let written = self.writer.begin(head);
        if body.remaining() <= COPIED {
            body.0.iter().for_each(|piece| written.extend_from_slice(piece));
            self.stream.write_all(written).await?;
        } else {
            if let ClientStream::Plain(socket) = &self.stream {
                send_pages(socket, written, &mut body).await?;
            }
            self.stream.write_all_buf(&mut Buf::chain(written.as_slice(), &mut body)).await?;
        }
        self.stream.flush().await?;
        Ok(if head.closes { Answered::Last } else { Answered::Sent })
    }
}

/// Tells when a connection has had no request for a while, with one timer for many requests.
struct IdleCheck {
    sleep: Pin<Box<Sleep>>,
    /// What the timer wakes.
    wakes: Option<Waker>,
    interval: Duration,
    /// Whether a request was served since the last check.
    has_served: bool,
}

impl IdleCheck {
    fn new() -> Self {
        Self { sleep: Box::pin(sleep(FIRST_LOOK)), wakes: None, interval: FIRST_LOOK, has_served: false }
    }

    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let is_known = self.wakes.as_ref().is_some_and(|waker| waker.will_wake(context.waker()));
        if is_known && !self.sleep.is_elapsed() {
            return Poll::Pending;
        }
        self.wakes = Some(context.waker().clone());
        // Whatever the task has done before: a poll that its budget refuses would not reach the timer, which then wakes nobody.
        while pin!(unconstrained(self.sleep.as_mut())).poll(context).is_ready() {
            if !std::mem::take(&mut self.has_served) {
                return Poll::Ready(());
            }
            self.interval = (self.interval * 2).min(LONGEST_LOOK);
            self.sleep.as_mut().reset(tokio::time::Instant::now() + self.interval);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::{consume_budget, coop::has_budget_remaining};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_without_budget_is_told_that_it_is_idle() {
        for has_served in [false, true] {
            let mut idle_check = IdleCheck { has_served, ..IdleCheck::new() };
            let idle = poll_fn(|context| {
                while has_budget_remaining() {
                    let _ = pin!(consume_budget()).poll(context);
                }
                idle_check.poll_idle(context)
            });
            assert!(timeout(3 * LONGEST_LOOK, idle).await.is_ok(), "{has_served}");
        }
    }
}
