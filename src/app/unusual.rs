//! Serves connections whose client sent something else than a plain request, with hyper. When such a connection becomes
//! idle, hyper and its buffers are dropped.

use std::convert::Infallible;
use std::error::Error;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};

use super::front::Front;
use super::in_use::{Begun, FIRST_LOOK, HEAD_TIME, Shared, note_unread};
use super::response::ResponseBody;
use super::stream::ClientStream;
use crate::http::error::ErrorResponse;
use budget::{Bound, Taken};

/// The longest interval of the idle check. A connection is known to be idle after two, and a new one waits a second for that.
const LONGEST_LOOK: Duration = Duration::from_millis(250);
/// Largest head of a request, and the most that hyper buffers.
const MAX_BUFFER: usize = 64 * 1024;

/// Serves requests until the connection is idle, and then returns its stream. Returns `None` when it was closed.
pub async fn serve_until_rest(begun: Begun, peer: IpAddr, shared: &Shared) -> Option<ClientStream> {
    let Begun { mut stream, mut unread, mut head_begun, mut charge } = begun;
    let mut first_look = FIRST_LOOK;
    loop {
        let activity = Arc::<Activity>::default();
        let io = WatchedIo { io: TokioIo::new(stream), unread, charge, activity: activity.clone() };
        let service = ConnectionService { front: shared.front.clone(), peer, activity: activity.clone() };
        let mut builder = http1::Builder::new();
        let head_time = HEAD_TIME.saturating_sub(head_begun.elapsed());
        builder.timer(TokioTimer::new()).header_read_timeout(head_time).max_buf_size(MAX_BUFFER);
        let mut connection = builder.serve_connection(io, service);
        let (mut seen, mut look) = (None, first_look);
        loop {
            tokio::select! {
                biased;
                served = &mut connection => return end(served, shared),
                () = shared.shutdown.cancelled() => {
                    Pin::new(&mut connection).graceful_shutdown();
                    return end(connection.await, shared);
                }
                () = tokio::time::sleep(look) => {}
            }
            if activity.has_rested(&mut seen) {
                break;
            }
            look = (look * 2).min(LONGEST_LOOK);
        }
        // After a complete request the rest is the beginning of the next one; else it is still the same head.
        let has_served = activity.begun.load(Ordering::Relaxed) > 0;
        if has_served {
            head_begun = Instant::now();
        }
        let parts = connection.into_parts();
        stream = parts.io.io.into_inner();
        charge = parts.io.charge;
        // Keeps the part of the next request that was already read.
        unread = [parts.io.unread, parts.read_buf].concat().into();
        if unread.is_empty() && stream.is_between_heads(has_served) {
            return Some(stream);
        }
        // Dropping the buffers of half a head frees nothing, so it need not be tried often.
        first_look = LONGEST_LOOK;
    }
}

fn end(served: hyper::Result<()>, shared: &Shared) -> Option<ClientStream> {
    if let Err(error) = served {
        if error.is_timeout() {
            shared.budgets.refusals.count(Bound::HeadTime);
        }
        let cause = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
        note_unread(cause, shared);
        tracing::debug!(%error, "connection ended early");
    }
    None
}

/// Activity of a connection, as the idle check sees it.
#[derive(Default)]
struct Activity {
    /// Number of requests received, and of responses sent completely.
    begun: AtomicU64,
    ended: AtomicU64,
    reading_waits: AtomicBool,
    writing_waits: AtomicBool,
}

impl Activity {
    /// Tells whether no request is in flight, no write is blocked, no further bytes have arrived, and nothing has happened since
    /// the look before, of which `seen` is kept: if a response has just ended before all of its request was read, hyper is about
    /// to close the connection, and the rest of that request must never be read as another one.
    fn has_rested(&self, seen: &mut Option<(u64, u64)>) -> bool {
        let (begun, ended) = (self.begun.load(Ordering::Relaxed), self.ended.load(Ordering::Relaxed));
        seen.replace((begun, ended)) == Some((begun, ended))
            && begun == ended
            && self.reading_waits.load(Ordering::Relaxed)
            && !self.writing_waits.load(Ordering::Relaxed)
    }
}

struct ConnectionService {
    front: Front,
    peer: IpAddr,
    activity: Arc<Activity>,
}

impl Service<Request<Incoming>> for ConnectionService {
    type Response = Response<CountedBody>;
    type Error = Infallible;
    /// Boxed, since the connection reserves memory for it between requests, too.
    type Future = Pin<Box<dyn Future<Output = Result<Response<CountedBody>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.activity.begun.fetch_add(1, Ordering::Relaxed);
        let until_sent = UntilSent(self.activity.clone());
        let (front, peer) = (self.front.clone(), self.peer);
        // The answering future is made inside, since a captured one would be stored twice: it is several KiB long.
        mcp::boxed(|| async move {
            let response = front.answer(peer, request).await?;
            Ok(response.map(|body| CountedBody { body, _until_sent: until_sent }))
        })
    }
}

/// Counts a response as sent when it is dropped: hyper has taken all of it, or the connection is gone.
struct UntilSent(Arc<Activity>);

impl Drop for UntilSent {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// A response body that counts as in flight until it is dropped.
pub struct CountedBody {
    body: ResponseBody,
    _until_sent: UntilSent,
}

impl Body for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The stream of the client, with bytes that were read from it earlier and not used yet.
struct WatchedIo {
    io: TokioIo<ClientStream>,
    unread: Bytes,
    /// The part of the budget that hyper's read buffer takes.
    charge: Taken,
    activity: Arc<Activity>,
}

impl Read for WatchedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        if !self.unread.is_empty() {
            let length = self.unread.len().min(buffer.remaining());
            buffer.put_slice(&self.unread.split_to(length));
            return Poll::Ready(Ok(()));
        }
        let capacity = buffer.remaining() as u64;
        if capacity > self.charge.amount() {
            let more = capacity.next_power_of_two() - self.charge.amount();
            self.charge.grow(more).map_err(std::io::Error::other)?;
        }
        let polled = Pin::new(&mut self.io).poll_read(context, buffer);
        self.activity.reading_waits.store(polled.is_pending(), Ordering::Relaxed);
        polled
    }
}

impl WatchedIo {
    /// Writes our response instead of hyper's own to a request that hyper cannot read. The connection is closed after it,
    /// so what does not fit into the socket at once is given up.
    fn replace(&mut self, context: &mut Context<'_>, data: &[u8]) -> Option<usize> {
        let words = ErrorResponse::instead_of(data)?.into_last_words();
        let _ = Pin::new(&mut self.io).poll_write(context, &words);
        Some(data.len())
    }

    fn note<T>(&self, written: Poll<T>) -> Poll<T> {
        self.activity.writing_waits.store(written.is_pending(), Ordering::Relaxed);
        written
    }
}

impl Write for WatchedIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        if let Some(count) = self.replace(context, data) {
            return Poll::Ready(Ok(count));
        }
        let written = Pin::new(&mut self.io).poll_write(context, data);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        if let Some(count) = data.first().and_then(|first| self.replace(context, first)) {
            return Poll::Ready(Ok(count));
        }
        let written = Pin::new(&mut self.io).poll_write_vectored(context, data);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        // A TLS session accepts bytes that the socket does not.
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        self.note(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_rests_once_nothing_has_happened_between_two_looks() {
        let (activity, mut seen) = (Activity::default(), None);
        activity.reading_waits.store(true, Ordering::Relaxed);
        activity.begun.store(1, Ordering::Relaxed);
        let mut looks = |ended| {
            activity.ended.store(ended, Ordering::Relaxed);
            [activity.has_rested(&mut seen), activity.has_rested(&mut seen)]
        };
        assert_eq!(looks(0), [false, false], "a request is in flight");
        assert_eq!(looks(1), [false, true], "its response has ended before the first look");
        activity.begun.store(2, Ordering::Relaxed);
        assert_eq!(looks(2), [false, true], "a whole request between two looks");
    }
}
