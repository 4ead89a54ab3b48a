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
mod tests {
    use std::collections::VecDeque;

    use tokio::io::AsyncWriteExt;

    use super::*;

    /// A server that reads and writes as the test says.
    #[derive(Default)]
    struct Script {
        /// What it sends, one piece for each read, and then it closes the connection.
        sends: VecDeque<Vec<u8>>,
        /// How many bytes each write takes; all of them after that. `None` is an error, 0 is a full socket, which takes
        /// more only after the next piece was read.
        takes: VecDeque<Option<usize>>,
        writes: Vec<Vec<u8>>,
        /// Whether the next read has to wait first.
        waits: bool,
    }

    impl AsyncRead for Script {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.waits = !self.waits;
            if self.waits {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if let Some(mut piece) = self.sends.pop_front() {
                let rest = piece.split_off(piece.len().min(buffer.remaining()));
                buffer.put_slice(&piece);
                if !rest.is_empty() {
                    self.sends.push_front(rest);
                }
            }
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Script {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            match self.takes.pop_front() {
                Some(Some(0)) => Poll::Pending,
                Some(None) => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                taken => {
                    let length = taken.flatten().unwrap_or(usize::MAX).min(bytes.len());
                    self.writes.push(bytes[..length].to_vec());
                    Poll::Ready(Ok(length))
                }
            }
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            parts: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            self.poll_write(context, &bytes)
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    async fn post(connection: &mut Connection<Script>, body: &[u8]) -> Result<ResponseHead, SendError> {
        let target = Target::new("http://h/mcp".parse().unwrap());
        let body = Bytes::copy_from_slice(body);
        let request = Request {
            method: Method::Post,
            target: &target,
            fields: b"host: h\r\n",
            authorization: None,
            body: &body,
        };
        connection.send(&request).await
    }

    fn with(script: Script) -> Box<Connection<Script>> {
        Connection::new(script, Security::Plain, None)
    }

    fn sending(pieces: &[&[u8]]) -> Box<Connection<Script>> {
        with(Script { sends: pieces.iter().map(|piece| piece.to_vec()).collect(), ..Script::default() })
    }

    /// The status, the body, and whether the connection can be used again.
    type Seen = (u16, Vec<u8>, bool);

    async fn read(connection: &mut Connection<Script>) -> Result<Seen, String> {
        let head = post(connection, b"{}").await.map_err(|error| format!("{error:?}"))?;
        let mut framing = head.framing;
        let mut body = Vec::new();
        while let Some(piece) = connection.piece(&mut framing).await? {
            body.extend_from_slice(&piece);
        }
        Ok((head.status, body, head.keeps_open && connection.rest()))
    }

    const LENGTH: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x\r\nhel\r\n2\r\nlo\r\n0\r\nT: y\r\n\r\n";
    const CLOSED_AFTER: &[u8] = b"HTTP/1.0 200 OK\r\n\r\nhello";

    #[tokio::test]
    async fn a_response_is_the_same_however_it_arrives() {
        let informed = [b"HTTP/1.1 100 Continue\r\n\r\n", LENGTH].concat();
        let excessive = [LENGTH, b"!"].concat();
        for (response, expected) in [
            (LENGTH, (200, b"hello".to_vec(), true)),
            (CHUNKED, (200, b"hello".to_vec(), true)),
            (CLOSED_AFTER, (200, b"hello".to_vec(), false)),
            (&informed, (200, b"hello".to_vec(), true)),
            (b"HTTP/1.1 204 x\r\n\r\n", (204, vec![], true)),
            (b"HTTP/1.1 202 x\r\ncontent-length: 0\r\n\r\n", (202, vec![], true)),
        ] {
            for cut in 0..response.len() {
                let (one, two) = response.split_at(cut);
                let pieces = [one, two];
                let pieces = if cut == 0 { &pieces[1..] } else { &pieces };
                assert_eq!(read(&mut sending(pieces)).await, Ok(expected.clone()), "{cut}");
            }
            let bytes: Vec<&[u8]> = response.chunks(1).collect();
            assert_eq!(read(&mut sending(&bytes)).await, Ok(expected));
        }
        // What follows a response makes the connection unusable.
        assert_eq!(read(&mut sending(&[&excessive])).await, Ok((200, b"hello".to_vec(), false)));
    }

    #[tokio::test]
    async fn a_response_that_is_cut_off_is_lost() {
        for response in [LENGTH, CHUNKED] {
            for length in 0..response.len() {
                let seen = read(&mut sending(&[&response[..length]][usize::from(length == 0)..])).await;
                assert!(seen.unwrap_err().contains("the connection was closed before"), "{length}");
            }
        }
    }

    #[tokio::test]
    async fn several_requests_share_a_connection_and_its_buffer() {
        let mut connection = sending(&[LENGTH, CHUNKED, LENGTH]);
        for _ in 0..3 {
            assert_eq!(read(&mut connection).await, Ok((200, b"hello".to_vec(), true)));
        }
        assert_eq!(connection.stream.writes.len(), 3);
    }

    #[tokio::test]
    async fn head_and_body_are_one_write() {
        for length in [0, 2, 5_000, 8_192, 100_000] {
            let mut connection = sending(&[LENGTH]);
            let body = vec![b'x'; length];
            post(&mut connection, &body).await.unwrap();
            let [written] = connection.stream.writes.as_slice() else { panic!("not one write") };
            let head = format!("POST /mcp HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n\r\n");
            assert_eq!(*written, [head.as_bytes(), &body].concat());
        }
    }

    #[tokio::test]
    async fn a_request_is_written_in_as_many_steps_as_it_takes() {
        for body in [&[b'x'; 100][..], &[b'y'; 20_000]] {
            let mut whole = sending(&[LENGTH]);
            post(&mut whole, body).await.unwrap();
            let takes = [Some(7), Some(1), Some(60), Some(5)].into();
            let mut connection = with(Script { sends: [LENGTH.to_vec()].into(), takes, ..Script::default() });
            let head = post(&mut connection, body).await.unwrap();
            assert!(head.keeps_open);
            assert_eq!(connection.stream.writes.concat(), whole.stream.writes.concat());
            assert_eq!(connection.piece(&mut head.framing.clone()).await.unwrap().unwrap(), "hello");
        }
    }

    #[tokio::test]
    async fn only_what_was_not_begun_counts_as_not_sent() {
        let failing = |takes: &[Option<usize>]| Script { takes: takes.to_vec().into(), ..Script::default() };
        let not_sent = post(&mut with(failing(&[None])), b"{}").await;
        assert!(matches!(not_sent, Err(SendError::NotSent(_))), "{not_sent:?}");
        let half = post(&mut with(failing(&[Some(1), None])), b"{}").await;
        assert!(matches!(half, Err(SendError::Lost(_))), "{half:?}");
        let mut encrypted = Connection::new(failing(&[None]), Security::Tls, None);
        let unknown = post(&mut encrypted, b"{}").await;
        assert!(matches!(unknown, Err(SendError::Lost(_))), "{unknown:?}");
        let unanswered = post(&mut with(failing(&[])), b"{}").await;
        assert!(matches!(unanswered, Err(SendError::Lost(_))), "{unanswered:?}");
    }

    #[tokio::test]
    async fn an_answer_to_half_a_request_is_an_answer() {
        let early: &[u8] = b"HTTP/1.1 413 x\r\ncontent-length: 5\r\n\r\nlarge";
        // It comes while the socket is full, or is found after writing has failed.
        for takes in [vec![Some(10), Some(0), Some(0), Some(0), Some(0)], vec![Some(10), None]] {
            let (one, two) = early.split_at(20);
            let sends = [one.to_vec(), two.to_vec()].into();
            let mut connection = with(Script { sends, takes: takes.into(), ..Script::default() });
            let head = post(&mut connection, &[b'x'; 50_000]).await.unwrap();
            assert_eq!((head.status, head.keeps_open), (413, false));
            assert_eq!(connection.stream.writes.concat().len(), 10);
            assert_eq!(connection.piece(&mut head.framing.clone()).await.unwrap().unwrap(), "large");
        }
        // An informational response is none.
        let sends = [b"HTTP/1.1 100 x\r\n\r\n".to_vec(), LENGTH.to_vec()].into();
        let takes = [Some(10), Some(0), Some(0), Some(20)].into();
        let mut connection = with(Script { sends, takes, ..Script::default() });
        assert_eq!(read(&mut connection).await, Ok((200, b"hello".to_vec(), true)));
    }

    #[tokio::test]
    async fn a_large_response_is_one_read_if_the_last_one_was_large() {
        let response = [b"HTTP/1.1 200 x\r\ncontent-length: 50000\r\n\r\n", &[b'x'; 50_000][..]].concat();
        for (last, arrives) in [(0, READ), (50_000, response.len()), (10_000_000, response.len())] {
            let mut connection = sending(&[&response]);
            connection.expect_again(last);
            let head = post(&mut connection, b"{}").await.unwrap();
            assert_eq!(connection.buffered(), arrives + 50_000 - response.len(), "{last}");
            let mut framing = head.framing;
            let mut body = Vec::new();
            while let Some(piece) = connection.piece(&mut framing).await.unwrap() {
                body.extend_from_slice(&piece);
            }
            assert!(body == [b'x'; 50_000] && connection.rest());
            assert!(connection.buffer.capacity() <= READ, "an idle connection holds no large buffer");
        }
    }

    #[tokio::test]
    async fn a_large_response_holds_no_buffer_before_it_comes() {
        let (stream, mut server) = tokio::io::duplex(READ);
        let mut connection = Connection::new(stream, Security::Plain, None);
        {
            let mut beginning = pin!(connection.begin_large(50_000));
            for _ in 0..2 {
                assert!(beginning.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
        }
        assert_eq!(connection.buffer.capacity(), 0);
        // Nor if only a part of its head comes.
        server.write_all(b"HTTP/1.1 200").await.unwrap();
        assert_eq!(connection.begin_large(50_000).await.unwrap(), 12);
        assert_eq!((&connection.buffer[..], connection.buffer.capacity()), (&b"HTTP/1.1 200"[..], READ));
    }

    #[tokio::test]
    async fn a_response_after_a_large_one_holds_at_most_twice_its_size() {
        for length in [8_400, 40_000, 70_000] {
            let head = format!("HTTP/1.1 200 x\r\ncontent-length: {length}\r\n\r\n").into_bytes();
            let mut connection = sending(&[&[head, vec![b'x'; length]].concat()]);
            connection.expect_again(120_000);
            post(&mut connection, b"{}").await.unwrap();
            assert_eq!(connection.buffered(), length);
            let body = connection.take(length).try_into_mut().unwrap();
            assert!(body == vec![b'x'; length] && body.capacity() <= 2 * length, "{}", body.capacity());
        }
    }

    #[tokio::test]
    async fn an_early_beginning_of_a_response_is_kept_if_a_large_one_is_expected() {
        let mut connection = sending(&[b"HTTP/1.1 200 x\r\n", b"content-length: 5\r\n\r\nhello"]);
        connection.stream.takes = [Some(10), Some(0), Some(0)].into();
        connection.expect_again(50_000);
        assert_eq!(read(&mut connection).await, Ok((200, b"hello".to_vec(), true)));
    }

    #[tokio::test]
    async fn a_stream_on_which_nothing_comes_holds_no_buffer() {
        let mut connection = sending(&[b"HTTP/1.1 200 x\r\n\r\n", b"data: 1\n\n"]);
        let mut framing = post(&mut connection, b"{}").await.unwrap().framing;
        assert!(connection.buffer.capacity() > 0);
        let polled = pin!(connection.piece(&mut framing)).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        assert_eq!(connection.buffer.capacity(), 0);
        assert_eq!(connection.piece(&mut framing).await.unwrap().unwrap(), "data: 1\n\n");
    }
}
