//! One connection of a client, for as long as it lasts. While it is used, hyper serves it; once it rests, hyper and
//! its buffers are let go and only the socket stays, so that a thousand idle agents cost next to nothing.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::front::{Front, ResponseBody};

/// A connection on which no request arrives is closed after this.
const IDLE: Duration = Duration::from_secs(75);
/// When a connection is looked at; one that did nothing since the last time rests. The first look comes soon, since
/// many agents only say hello: buffers of those that come one after the other are then the same memory. One that is
/// busy is looked at less and less.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

pub async fn serve(stream: TcpStream, peer: IpAddr, front: Front, shutdown: CancellationToken) {
    // Answers are whole writes; waiting for more to send would stall event streams.
    let _ = stream.set_nodelay(true);
    let mut stream = stream;
    loop {
        // Browsers connect in advance; one that never asked anything must not delay the end.
        let asks = tokio::time::timeout(IDLE, stream.readable());
        if !matches!(shutdown.run_until_cancelled(asks).await, Some(Ok(Ok(())))) {
            return;
        }
        // In a box: most connections rest, and should not keep room for it.
        match Box::pin(serve_until_rest(stream, peer, &front, &shutdown)).await {
            Some(resting) => stream = resting,
            None => return,
        }
    }
}

/// The socket comes back when nothing is under way on it; `None` when the connection is over.
async fn serve_until_rest(
    stream: TcpStream,
    peer: IpAddr,
    front: &Front,
    shutdown: &CancellationToken,
) -> Option<TcpStream> {
    let (mut stream, mut unread) = (stream, Bytes::new());
    loop {
        let activity = Arc::<Activity>::default();
        let io = WatchedIo { io: TokioIo::new(stream), unread, activity: activity.clone() };
        let service = ConnectionService { front: front.clone(), peer, activity: activity.clone() };
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(IDLE);
        let mut connection = builder.serve_connection(io, service);
        // It was woken by one request, which alone does not make it busy.
        let (mut seen, mut look) = (1, FIRST_LOOK);
        loop {
            tokio::select! {
                served = &mut connection => return end(served),
                () = shutdown.cancelled() => {
                    Pin::new(&mut connection).graceful_shutdown();
                    return end(connection.await);
                }
                () = tokio::time::sleep(look) => {}
            }
            let begun = activity.begun.load(Ordering::Relaxed);
            if begun == seen && activity.rests() {
                break;
            }
            (seen, look) = (begun, (look * 2).min(LONGEST_LOOK));
        }
        let parts = connection.into_parts();
        stream = parts.io.io.into_inner();
        // The beginning of a request that is still on its way is not lost.
        unread = [parts.io.unread, parts.read_buf].concat().into();
        if unread.is_empty() {
            return Some(stream);
        }
    }
}

fn end(served: hyper::Result<()>) -> Option<TcpStream> {
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended early");
    }
    None
}

/// What happens on a connection.
#[derive(Default)]
struct Activity {
    /// Requests that came, and answers that were given to the last byte.
    begun: AtomicU64,
    ended: AtomicU64,
    reading_waits: AtomicBool,
    writing_waits: AtomicBool,
}

impl Activity {
    /// Nothing is being answered, everything written was taken, and nothing more has come.
    fn rests(&self) -> bool {
        self.begun.load(Ordering::Relaxed) == self.ended.load(Ordering::Relaxed)
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
    /// In a box: the connection keeps room for it between requests, too.
    type Future = Pin<Box<dyn Future<Output = Result<Response<CountedBody>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.activity.begun.fetch_add(1, Ordering::Relaxed);
        let until_sent = UntilSent(self.activity.clone());
        let answer = self.front.clone().answer(self.peer, request);
        Box::pin(async move { Ok(answer.await?.map(|body| CountedBody { body, _until_sent: until_sent })) })
    }
}

/// Counts an answer as given when hyper has taken all of it, or nobody wants it any more.
struct UntilSent(Arc<Activity>);

impl Drop for UntilSent {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// A body that is counted as long as it is not sent.
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

/// The socket, with what was read from it before and has not been used.
struct WatchedIo {
    io: TokioIo<TcpStream>,
    unread: Bytes,
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
        let polled = Pin::new(&mut self.io).poll_read(context, buffer);
        self.activity.reading_waits.store(polled.is_pending(), Ordering::Relaxed);
        polled
    }
}

impl WatchedIo {
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
        let written = Pin::new(&mut self.io).poll_write(context, data);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, data);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
