//! One HTTP/1.1 connection, which carries one request at a time. It has no task of its own: whoever uses it reads and
//! writes its socket. Knows nothing of MCP.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use url::Url;

use super::fields::{Method, Request, Target};
use super::framing::{Framing, Piece};
use super::head::{HeadReader, ResponseHead};
use super::stream::ServerStream;

/// How much is read at a time, unless more is expected. A request up to this size is copied, so that it is one write.
pub const READ: usize = 8 * 1024;
/// The most that is expected because the last response was so long, and room for its head.
const MOST_EXPECTED: usize = 128 * 1024;
const HEAD: usize = 1024;

pub struct Connection<S = ServerStream> {
    stream: S,
    security: Security,
    /// Bytes that were received and not used yet. While there are none, requests are put together here.
    buffer: BytesMut,
    heads: HeadReader,
    /// How much is read at once when the next response comes, if the last one was large: a server that sent a large response often
    /// sends another. 0 if it was not.
    expected: usize,
    /// Whether the buffer is too large to be kept while the connection is idle.
    is_grown: bool,
    /// The address of the other side.
    pub peer: Option<IpAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// A write that fails has written nothing.
    Plain,
    /// Whether a write that fails has written anything is not known.
    Tls,
}

/// Why there is no response.
#[derive(Debug)]
pub enum SendError {
    /// No byte of the request was written.
    NotSent(String),
    Lost(String),
}

impl Connection<ServerStream> {
    /// Whether an idle connection can take a request: the server neither closed it nor sent what nobody asked for.
    pub fn is_usable(&mut self) -> bool {
        self.stream.is_silent()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Boxed, since a connection moves with the call that uses it.
    pub fn new(stream: S, security: Security, peer: Option<IpAddr>) -> Box<Self> {
        Box::new(Self {
            stream,
            security,
            buffer: BytesMut::new(),
            heads: HeadReader::default(),
            expected: 0,
            is_grown: false,
            peer,
        })
    }

    /// Sends a request and reads the head of the response.
    pub async fn send(&mut self, request: &Request<'_>) -> Result<ResponseHead, SendError> {
        self.buffer.clear();
        self.buffer.reserve(READ);
        request.write_head(&mut self.buffer);
        let mut body: &[u8] = request.body;
        if self.buffer.len() + body.len() <= READ {
            self.buffer.extend_from_slice(body);
            body = &[];
        }
        self.is_grown |= self.buffer.len() > READ;
        let Self { stream, buffer, .. } = self;
        let written = match poll_fn(|context| write(stream, context, buffer, body)).await {
            Ok(written) => written,
            Err(error) if self.security == Security::Plain => {
                return Err(SendError::NotSent(error.to_string()));
            }
            Err(error) => {
                self.buffer.clear();
                return self.late_answer(error).await;
            }
        };
        let is_written = written == self.buffer.len() + body.len()
            && poll_fn(|context| Poll::Ready(Pin::new(&mut *stream).poll_flush(context))).await.is_ready();
        if !is_written {
            return Box::pin(self.send_rest(written, body)).await;
        }
        self.buffer.clear();
        self.read_head().await.map_err(SendError::Lost)
    }

    /// Writes what the socket did not take at once. A server may answer before it has read everything, for example that
    /// the request is too large; then it may never read the rest.
    async fn send_rest(&mut self, written: usize, body: &[u8]) -> Result<ResponseHead, SendError> {
        let mut head = self.buffer.split();
        let mut body = body;
        skip(&mut head, &mut body, written);
        self.heads.begin();
        let early = poll_fn(|context| {
            loop {
                let blocked = match head.is_empty() && body.is_empty() {
                    true => match Pin::new(&mut self.stream).poll_flush(context) {
                        Poll::Ready(flushed) => {
                            return Poll::Ready(flushed.map(|()| None).map_err(Early::Unwritten));
                        }
                        Poll::Pending => true,
                    },
                    false => match write(&mut self.stream, context, &head, body) {
                        Poll::Ready(Ok(written)) => {
                            skip(&mut head, &mut body, written);
                            false
                        }
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(Early::Unwritten(error))),
                        Poll::Pending => true,
                    },
                };
                if blocked {
                    match ready!(self.poll_fill(context, READ)) {
                        Ok(0) => return Poll::Ready(Err(Early::Invalid(CLOSED.into()))),
                        Ok(_) => {}
                        Err(error) => return Poll::Ready(Err(Early::Unwritten(error))),
                    }
                    match self.heads.take(&mut self.buffer) {
                        Ok(None) => {}
                        answered => return Poll::Ready(answered.map_err(Early::Invalid)),
                    }
                }
            }
        });
        match early.await {
            Ok(None) => self.read_head().await.map_err(SendError::Lost),
            Ok(Some(head)) => Ok(ResponseHead { keeps_open: false, ..head }),
            Err(Early::Invalid(reason)) => Err(SendError::Lost(reason)),
            Err(Early::Unwritten(error)) => self.late_answer(error).await,
        }
    }

    /// The answer of a server that closed the connection while the request was being written; it may have sent one
    /// before.
    async fn late_answer(&mut self, error: io::Error) -> Result<ResponseHead, SendError> {
        match self.read_head().await {
            Ok(head) => Ok(ResponseHead { keeps_open: false, ..head }),
            Err(_) => Err(SendError::Lost(broke(&error))),
        }
    }

    async fn read_head(&mut self) -> Result<ResponseHead, String> {
        self.heads.begin();
        loop {
            if let Some(head) = self.heads.take(&mut self.buffer)? {
                return Ok(head);
            }
            let expected = if self.buffer.is_empty() { std::mem::take(&mut self.expected) } else { 0 };
            let read = match expected {
                0 => self.fill(READ.saturating_sub(self.buffer.len()).max(READ / 8)).await,
                // Boxed, so that it makes the way of small responses no longer.
                _ => Box::pin(self.begin_large(expected)).await,
            };
            if read? == 0 {
                return Err(CLOSED.into());
            }
        }
    }

    /// Reads the beginning of a response that is expected to be large, or all of it. A large buffer is held only once much of the
    /// response has come.
    async fn begin_large(&mut self, expected: usize) -> Result<usize, String> {
        let mut looked = false;
        let read = poll_fn(|context| {
            // Usually nothing has come when it first looks.
            let room = if std::mem::replace(&mut looked, true) { expected } else { READ };
            if self.buffer.capacity() < room {
                self.buffer = BytesMut::with_capacity(room);
            }
            let polled = pin!(self.stream.read_buf(&mut self.buffer)).poll(context);
            if polled.is_pending() {
                self.buffer = BytesMut::new();
            }
            polled
        });
        let read = read.await.map_err(|error| broke(&error))?;
        let (length, room) = (self.buffer.len(), self.buffer.capacity());
        self.is_grown = length > READ;
        // What came is held for as long as its client takes to read it, so it must not hold much more.
        let fits = if self.is_grown { length >= room / 2 } else { room <= READ };
        if !fits {
            let arrived = std::mem::take(&mut self.buffer);
            self.buffer.reserve(length.max(READ));
            self.buffer.extend_from_slice(&arrived);
        }
        Ok(read)
    }

    /// The next piece of a body; `None` at its end. While nothing comes, no buffer is held.
    pub async fn piece(&mut self, framing: &mut Framing) -> Result<Option<Bytes>, String> {
        loop {
            match framing.next(&mut self.buffer)? {
                Piece::Data(piece) => return Ok(Some(piece)),
                Piece::End => return Ok(None),
                Piece::Missing => {}
            }
            let read = poll_fn(|context| self.poll_trickle(context)).await;
            if read.map_err(|error| broke(&error))? == 0 {
                return end_of(framing);
            }
        }
    }

    /// The next piece of a body that is expected to have `ahead` further bytes.
    pub async fn large_piece(
        &mut self,
        framing: &mut Framing,
        ahead: usize,
    ) -> Result<Option<Bytes>, String> {
        loop {
            match framing.next(&mut self.buffer)? {
                Piece::Data(piece) => return Ok(Some(piece)),
                Piece::End => return Ok(None),
                Piece::Missing => {}
            }
            if self.fill(ahead).await? == 0 {
                return end_of(framing);
            }
        }
    }

    /// Whether the rest of a body that nobody needs has already arrived; it is dropped.
    pub fn skips_to_end(&mut self, framing: &mut Framing) -> bool {
        let mut has_read = false;
        loop {
            match framing.next(&mut self.buffer) {
                Ok(Piece::Data(_)) => {}
                Ok(Piece::End) => return true,
                Ok(Piece::Missing) if !has_read => {
                    has_read = true;
                    let mut context = Context::from_waker(Waker::noop());
                    if !matches!(self.poll_trickle(&mut context), Poll::Ready(Ok(1..))) {
                        return false;
                    }
                }
                Ok(Piece::Missing) | Err(_) => return false,
            }
        }
    }

    /// How many bytes have arrived that were not taken yet.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Takes bytes that have arrived, without copying them.
    pub fn take(&mut self, length: usize) -> Bytes {
        match self.is_grown && self.buffer.len() == length {
            true => std::mem::take(&mut self.buffer).freeze(),
            false => self.buffer.split_to(length).freeze(),
        }
    }

    /// Expects that the next response is about as long as one with a body of this length.
    pub fn expect_again(&mut self, length: usize) {
        // One byte remains free for the same reason as in `body.rs`.
        self.expected = if length > READ { (length + HEAD + 1).min(MOST_EXPECTED) } else { 0 };
    }

    /// Prepares for waiting in the pool; false if more came than the response that was read.
    pub fn rest(&mut self) -> bool {
        let is_whole = self.buffer.is_empty();
        if std::mem::take(&mut self.is_grown) {
            self.buffer = BytesMut::new();
        }
        is_whole
    }

    /// Reads into the buffer, which gets room for `ahead` bytes; 0 when the server closed the connection.
    pub async fn fill(&mut self, ahead: usize) -> Result<usize, String> {
        poll_fn(|context| self.poll_fill(context, ahead)).await.map_err(|error| broke(&error))
    }

    fn poll_fill(&mut self, context: &mut Context<'_>, ahead: usize) -> Poll<io::Result<usize>> {
        self.is_grown |= self.buffer.len() + ahead > READ;
        self.buffer.reserve(ahead);
        pin!(self.stream.read_buf(&mut self.buffer)).poll(context)
    }

    /// Reads a little, without holding a buffer while nothing comes.
    fn poll_trickle(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut space = [const { MaybeUninit::<u8>::uninit() }; READ];
        let mut read = ReadBuf::uninit(&mut space);
        match Pin::new(&mut self.stream).poll_read(context, &mut read) {
            Poll::Pending => {
                if self.buffer.is_empty() {
                    self.buffer = BytesMut::new();
                }
                Poll::Pending
            }
            Poll::Ready(done) => {
                self.buffer.extend_from_slice(read.filled());
                Poll::Ready(done.map(|()| read.filled().len()))
            }
        }
    }
}

/// A status and a body.
type Seen = (u16, Vec<u8>);

/// The response to one request over this stream. Fuzzing compares it with another client.
pub async fn read_response<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> Result<Seen, String> {
    let mut connection = Connection::new(stream, Security::Plain, None);
    connection.get().await.map(|(seen, _)| seen)
}

/// The response to a second request over this stream; `None` if there cannot be one after the first response.
pub async fn read_second_response<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
) -> Option<Result<Seen, String>> {
    let mut connection = Connection::new(stream, Security::Plain, None);
    let (_, is_usable) = connection.get().await.ok()?;
    match is_usable && connection.rest() {
        true => Some(connection.get().await.map(|(seen, _)| seen)),
        false => None,
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Sends a request and reads its response. Also tells whether the connection stays open after that.
    async fn get(&mut self) -> Result<(Seen, bool), String> {
        let target = Target::new(Url::parse("http://localhost/").map_err(|error| error.to_string())?);
        let body = Bytes::new();
        let request =
            Request { method: Method::Get, target: &target, fields: b"", authorization: None, body: &body };
        let head = self.send(&request).await.map_err(|error| format!("{error:?}"))?;
        let mut framing = head.framing;
        let stays_open = head.keeps_open && !framing.ends_with_connection();
        let mut body = Vec::new();
        while let Some(piece) = self.piece(&mut framing).await? {
            body.extend_from_slice(&piece);
        }
        Ok(((head.status, body), stays_open))
    }
}

/// Why a request was not written as a whole.
enum Early {
    Unwritten(io::Error),
    Invalid(String),
}

const CLOSED: &str = "the connection was closed before the response arrived";

fn broke(error: &io::Error) -> String {
    format!("the connection broke: {error}")
}

/// What a closed connection means for a body.
fn end_of(framing: &Framing) -> Result<Option<Bytes>, String> {
    match framing.ends_with_connection() {
        true => Ok(None),
        false => Err("the connection was closed before the end of the response".into()),
    }
}

/// Writes both parts with one system call.
fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    context: &mut Context<'_>,
    head: &[u8],
    body: &[u8],
) -> Poll<io::Result<usize>> {
    let stream = Pin::new(stream);
    let written = match (head, body) {
        (head, []) => ready!(stream.poll_write(context, head)),
        ([], body) => ready!(stream.poll_write(context, body)),
        (head, body) => {
            ready!(stream.poll_write_vectored(context, &[IoSlice::new(head), IoSlice::new(body)]))
        }
    };
    Poll::Ready(written.and_then(|written| match written {
        0 => Err(io::ErrorKind::WriteZero.into()),
        written => Ok(written),
    }))
}

/// Removes what was written.
fn skip(head: &mut BytesMut, body: &mut &[u8], written: usize) {
    let of_head = written.min(head.len());
    head.advance(of_head);
    *body = &body[written - of_head..];
}

#[cfg(test)]
mod tests;
