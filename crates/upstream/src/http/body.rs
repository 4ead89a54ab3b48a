//! The body of a response: pieces of it, or one whole message that is charged while it arrives.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::connection::{Connection, READ};
use super::framing::Framing;
use super::head::ResponseHead;
use super::pool::ConnectionPool;
use crate::charge::Charge;
use budget::{Budget, Exceeded};

/// How much of an unneeded body is read so that its connection can be reused.
pub const DISCARD_LIMIT: usize = 64 * 1024;

/// Room that a message gets because the server announces it. Beyond that, it gets as much as has already arrived.
const ROOM_AHEAD: usize = 128 * 1024;
/// The largest single read of a message whose length is not known.
const LARGEST_READ: usize = 256 * 1024;

/// A response body that is being read. At its end the connection returns to the pool; dropped earlier, it is closed.
pub struct IncomingBody {
    /// `None` after the end.
    connection: Option<Box<Connection>>,
    framing: Framing,
    keeps_open: bool,
    pool: Arc<ConnectionPool>,
}

/// Why a body could not be read.
pub enum BodyError {
    Broken(String),
    TooLarge,
    /// The gateway holds too many bytes for others.
    NoRoom(Exceeded),
}

impl From<Exceeded> for BodyError {
    fn from(exceeded: Exceeded) -> Self {
        BodyError::NoRoom(exceeded)
    }
}

impl From<String> for BodyError {
    fn from(reason: String) -> Self {
        BodyError::Broken(reason)
    }
}

impl IncomingBody {
    pub fn new(connection: Box<Connection>, head: &ResponseHead, pool: Arc<ConnectionPool>) -> Self {
        let ResponseHead { framing, keeps_open, .. } = *head;
        Self { connection: Some(connection), framing, keeps_open, pool }
    }

    /// The next piece; `None` at the end. If this is dropped half-way, nothing is lost.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, String> {
        let Some(connection) = &mut self.connection else { return Ok(None) };
        let piece = connection.piece(&mut self.framing).await;
        self.notice_end(piece)
    }

    /// The next piece of a body of which `held` bytes were read and all are needed.
    async fn large_chunk(&mut self, held: usize) -> Result<Option<Bytes>, String> {
        let Some(connection) = &mut self.connection else { return Ok(None) };
        let ahead = held.clamp(READ, LARGEST_READ);
        let piece = connection.large_piece(&mut self.framing, ahead).await;
        self.notice_end(piece)
    }

    fn notice_end(&mut self, piece: Result<Option<Bytes>, String>) -> Result<Option<Bytes>, String> {
        match &piece {
            Ok(Some(_)) => {}
            Ok(None) => self.release(),
            Err(_) => self.connection = None,
        }
        piece
    }

    /// Returns the connection to the pool, if the server keeps it open.
    fn release(&mut self) {
        if let Some(mut connection) = self.connection.take()
            && self.keeps_open
            && connection.rest()
        {
            self.pool.put(connection);
        }
    }

    /// Reads the beginning of a body, as far as it can be read, and drops the rest.
    pub async fn beginning(mut self, length: usize) -> Bytes {
        let mut read = BytesMut::new();
        while read.len() < length
            && let Ok(Some(chunk)) = self.chunk().await
        {
            read.extend_from_slice(&chunk);
        }
        read.truncate(length);
        read.freeze()
    }

    pub async fn discard(mut self) {
        let mut read = 0;
        while read <= DISCARD_LIMIT
            && let Ok(Some(chunk)) = self.chunk().await
        {
            read += chunk.len();
        }
    }
}

impl Drop for IncomingBody {
    /// An event stream is dropped after the answer, when often only its end is left.
    fn drop(&mut self) {
        if let Some(connection) = &mut self.connection
            && self.keeps_open
            && connection.skips_to_end(&mut self.framing)
        {
            self.release();
        }
    }
}

/// A body that is one message.
pub struct IncomingMessage {
    body: IncomingBody,
    limit: usize,
    charge: Charge,
    /// What was read of a body whose length is not known: its first piece, or all pieces.
    first: Bytes,
    whole: BytesMut,
}

impl IncomingMessage {
    pub fn new(body: IncomingBody, limit: usize, budget: &Budget) -> Self {
        Self { body, limit, charge: Charge::new(budget), first: Bytes::new(), whole: BytesMut::new() }
    }

    /// Reads the rest of the message; not copied if it came in one piece. If this is dropped half-way, nothing is lost.
    pub async fn complete(&mut self) -> Result<Bytes, BodyError> {
        match self.body.framing {
            Framing::Length(length) => self.complete_known(length).await,
            Framing::Chunked(_) | Framing::UntilClose => self.complete_unknown().await,
        }
    }

    async fn complete_known(&mut self, length: u64) -> Result<Bytes, BodyError> {
        let length = usize::try_from(length).ok().filter(|length| *length <= self.limit);
        let length = length.ok_or(BodyError::TooLarge)?;
        let Some(connection) = &mut self.body.connection else { return Ok(Bytes::new()) };
        loop {
            let held = connection.buffered();
            if held >= length {
                break;
            }
            self.charge.cover(held)?;
            // One more byte than expected, so that the last read does not fill the room: tokio then knows without a
            // system call that there is nothing left to read.
            let ahead = (length - held).min(held.max(ROOM_AHEAD)) + 1;
            if connection.fill(ahead).await? == 0 {
                return Err(BodyError::Broken(
                    "the connection was closed before the end of the response".into(),
                ));
            }
        }
        self.charge.cover(length)?;
        let message = connection.take(length);
        connection.expect_again(length);
        self.body.framing = Framing::Length(0);
        self.body.release();
        Ok(self.charge.attach(message))
    }

    async fn complete_unknown(&mut self) -> Result<Bytes, BodyError> {
        loop {
            let held = self.first.len() + self.whole.len();
            let Some(piece) = self.body.large_chunk(held).await? else { break };
            if held + piece.len() > self.limit {
                return Err(BodyError::TooLarge);
            }
            self.charge.cover(held + piece.len())?;
            match held {
                0 => self.first = piece,
                _ => {
                    if self.whole.is_empty() {
                        self.whole = BytesMut::from(std::mem::take(&mut self.first));
                    }
                    self.whole.extend_from_slice(&piece);
                }
            }
        }
        let message = match self.whole.is_empty() {
            true => std::mem::take(&mut self.first),
            false => std::mem::take(&mut self.whole).freeze(),
        };
        Ok(self.charge.attach(message))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::super::connection::Security;
    use super::super::fields::{Method, Request, Target};
    use super::super::stream::ServerStream;
    use super::*;
    use budget::{Bound, Refusals};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore, ServerConfig};
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    async fn pair() -> (Box<Connection>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (client, server) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        let stream = ServerStream::Plain(client.unwrap());
        (Connection::new(stream, Security::Plain, None), server.unwrap().0)
    }

    async fn pair_with_tls() -> (Box<Connection>, tokio_rustls::server::TlsStream<TcpStream>) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/it/support/tls");
        let certificate = CertificateDer::from_pem_file(format!("{folder}/first.cert.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(format!("{folder}/first.key.pem")).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider.clone());
        let client = client.with_safe_default_protocol_versions().unwrap();
        let client = Arc::new(client.with_root_certificates(roots).with_no_client_auth());
        let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let server = server.unwrap().with_no_client_auth().with_single_cert(vec![certificate], key);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connect = async {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            tokio_rustls::TlsConnector::from(client).connect(name, stream).await.unwrap()
        };
        let accept = async {
            let (stream, _) = listener.accept().await.unwrap();
            tokio_rustls::TlsAcceptor::from(Arc::new(server.unwrap())).accept(stream).await.unwrap()
        };
        let (client, server) = tokio::join!(connect, accept);
        (Connection::new(ServerStream::Tls(Box::new(client)), Security::Tls, None), server)
    }

    /// The body of a response to a request on this connection.
    async fn answered(
        mut connection: Box<Connection>,
        server: &mut (impl AsyncRead + AsyncWrite + Unpin),
        response: &[u8],
        pool: &Arc<ConnectionPool>,
    ) -> IncomingBody {
        let target = Target::new("http://h/".parse().unwrap());
        let body = Bytes::new();
        let request =
            Request { method: Method::Get, target: &target, fields: b"", authorization: None, body: &body };
        let answer = async {
            let mut request = [0; 18];
            server.read_exact(&mut request).await.unwrap();
            assert_eq!(&request, b"GET / HTTP/1.1\r\n\r\n");
            server.write_all(response).await.unwrap();
        };
        let (head, ()) = tokio::join!(connection.send(&request), answer);
        IncomingBody::new(connection, &head.unwrap(), pool.clone())
    }

    fn framed(message: &[u8]) -> [Vec<u8>; 3] {
        let length = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", message.len()).into_bytes();
        let mut chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        for chunk in message.chunks(60_000) {
            chunked.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            chunked.extend_from_slice(chunk);
            chunked.extend_from_slice(b"\r\n");
        }
        chunked.extend_from_slice(b"0\r\n\r\n");
        let closed = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
        [[&length, message].concat(), chunked, [&closed, message].concat()]
    }

    fn buffered(limit: u64) -> Budget {
        Budget::new(Bound::BufferedBytes, limit, &Refusals::default())
    }

    #[tokio::test]
    async fn a_message_of_any_size_and_framing_arrives_whole() {
        for length in [0, 1, 8_000, 9_000, 65_536, 131_073, 3_000_000] {
            let message: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            for (nth, response) in framed(&message).into_iter().enumerate() {
                let (budget, pool) = (buffered(10_000_000), Arc::default());
                let (connection, mut server) = pair().await;
                let (start, rest) = response.split_at(response.len().min(5_000));
                let body = answered(connection, &mut server, start, &pool).await;
                let mut reading = IncomingMessage::new(body, 10_000_000, &budget);
                let send = async {
                    server.write_all(rest).await.unwrap();
                    // Only the end of the connection ends the last kind.
                    (nth < 2).then_some(server)
                };
                let (read, server) = tokio::join!(reading.complete(), send);
                let Ok(read) = read else { panic!("{length} {nth}") };
                assert!(read == message, "{length} {nth}");
                assert_eq!(pool.take().is_some(), server.is_some());
                assert_eq!(budget.used() > 0, length > 128 * 1024);
                drop(read);
                assert_eq!(budget.used(), 0);
            }
        }
    }

    #[tokio::test]
    async fn a_message_is_bounded_by_its_limit_and_by_the_budget() {
        for response in framed(&[b'x'; 1_000_000]) {
            for (limit, room) in [(999_999, 10_000_000), (1_000_000, 500_000)] {
                let (connection, mut server) = pair().await;
                let (start, rest) = response.split_at(100);
                let body = answered(connection, &mut server, start, &Arc::default()).await;
                let mut reading = IncomingMessage::new(body, limit, &buffered(room));
                let send = async {
                    // The client may have closed the connection by now.
                    let _ = server.write_all(rest).await;
                    let _ = server.shutdown().await;
                };
                let read = async { (reading.complete().await, drop(reading)).0 };
                match (tokio::join!(read, send).0, room) {
                    (Err(BodyError::TooLarge), 10_000_000) | (Err(BodyError::NoRoom(_)), 500_000) => {}
                    _ => panic!("limit {limit}, room {room}"),
                }
            }
        }
    }

    #[tokio::test]
    async fn reading_may_be_interrupted_at_any_time() {
        let message: Vec<u8> = (0..60_000).map(|at| (at % 251) as u8).collect();
        for response in framed(&message) {
            let (connection, mut server) = pair().await;
            let (start, rest) = response.split_at(100);
            let body = answered(connection, &mut server, start, &Arc::default()).await;
            let mut reading = IncomingMessage::new(body, 100_000, &buffered(0));
            let send = async {
                for piece in rest.chunks(1_000) {
                    server.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
                server.shutdown().await.unwrap();
            };
            let read = async {
                for _ in 0..100 {
                    let polled = pin!(reading.complete()).poll(&mut Context::from_waker(Waker::noop()));
                    if let Poll::Ready(read) = polled {
                        return assert!(read.is_ok_and(|read| read == message));
                    }
                    tokio::task::yield_now().await;
                }
                assert!(reading.complete().await.is_ok_and(|read| read == message));
            };
            tokio::join!(read, send);
        }
    }

    /// Waits until a condition holds: what one side of a socket does takes a moment to reach the other.
    async fn eventually(mut holds: impl FnMut() -> bool) {
        while !holds() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn an_idle_connection_is_dropped_when_the_server_closes_it_or_speaks() {
        for says in [&b""[..], b"HTTP/1.1 408 x\r\n\r\n"] {
            let pool = Arc::<ConnectionPool>::default();
            let (mut connection, mut server) = pair().await;
            for _ in 0..3 {
                let body = answered(connection, &mut server, &framed(b"hi")[0], &pool).await;
                body.discard().await;
                connection = pool.take().unwrap();
            }
            pool.put(connection);
            server.write_all(says).await.unwrap();
            server.shutdown().await.unwrap();
            eventually(|| match pool.take() {
                Some(connection) => {
                    pool.put(connection);
                    false
                }
                None => true,
            })
            .await;
        }
    }

    #[tokio::test]
    async fn a_stream_that_is_dropped_after_its_end_arrived_leaves_its_connection() {
        let [_, chunked, _] = framed(b"data: 1\n\ndata: 2\n\n");
        for (arrives, is_kept) in [(chunked.len(), true), (chunked.len() - 1, false)] {
            let pool = Arc::<ConnectionPool>::default();
            let (connection, mut server) = pair().await;
            let mut body = answered(connection, &mut server, &chunked[..arrives], &pool).await;
            assert!(body.chunk().await.unwrap().is_some());
            drop(body);
            assert_eq!(pool.take().is_some(), is_kept);
        }
    }

    #[tokio::test]
    async fn tls_carries_large_messages_both_ways_and_shows_the_end() {
        let (pool, budget) = (Arc::<ConnectionPool>::default(), buffered(10_000_000));
        let (mut connection, mut server) = pair_with_tls().await;
        let target = Target::new("https://h/".parse().unwrap());
        let message = Bytes::from(vec![b'x'; 3_000_000]);
        for _ in 0..2 {
            let request = Request {
                method: Method::Post,
                target: &target,
                fields: b"",
                authorization: None,
                body: &message,
            };
            let [response, ..] = framed(&message);
            let echo = async {
                let mut received =
                    vec![0; "POST / HTTP/1.1\r\ncontent-length: 3000000\r\n\r\n".len() + 3_000_000];
                server.read_exact(&mut received).await.unwrap();
                assert!(received.ends_with(&message));
                server.write_all(&response).await.unwrap();
                server.flush().await.unwrap();
            };
            let exchange = async {
                let head = connection.send(&request).await.unwrap();
                let body = IncomingBody::new(connection, &head, pool.clone());
                let mut reading = IncomingMessage::new(body, 10_000_000, &budget);
                assert!(reading.complete().await.is_ok_and(|read| read == message));
                pool.take().unwrap()
            };
            connection = tokio::join!(exchange, echo).0;
        }
        assert!(connection.is_usable());
        server.shutdown().await.unwrap();
        eventually(|| !connection.is_usable()).await;
    }
}
