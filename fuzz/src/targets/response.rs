//! Reads any bytes as the response of a server, as a whole and in pieces. Promises: both give the same status and body,
//! and what is accepted, hyper's client accepts with the same status and body. The reverse is not promised: everything
//! ambiguous is refused here. And a response is read in the same way if a similar one came before it on the connection.
//! The first byte is the seed of the sizes of the pieces.

use std::collections::VecDeque;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub const DICTIONARY: &[&str] = &[
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.0 200 OK\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 101 Switching Protocols\r\n",
    "HTTP/1.1 204 No Content\r\n",
    "HTTP/1.1 304 Not Modified\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 5, 5\r\n",
    "content-length: 18446744073709551615\r\n",
    "content-length: +5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "transfer-encoding: gzip, chunked\r\n",
    "transfer-encoding: identity\r\n",
    "Connection: close\r\n",
    "Content-Type: application/json\r\n",
    "Content-Type: text/event-stream\r\n",
    "Mcp-Session-Id: s\r\n",
    "Location: /\r\n",
    "WWW-Authenticate: Bearer\r\n",
    "5\r\nhello\r\n",
    "0\r\n\r\n",
    "00\r\n",
    "ffffffffffffffff\r\n",
    "10000000000000000\r\n",
    "1;a=b\r\nx\r\n",
    "1 ;\t\r\n",
    "A: b\r\n",
    "\r\n\r\n",
    "\r\n",
    "\n\n",
    "\n",
    "\r",
    " ",
    "\t",
    ";",
    "\0",
];

pub fn run(input: &[u8]) {
    let [seed, response @ ..] = input else { return };
    let whole = ours(vec![response.to_vec()]);
    assert_eq!(ours(cut(response, *seed)), whole);
    if let Some(read) = &whole {
        assert_eq!(hypers(vec![response.to_vec()]).as_ref(), Some(read));
    }
    for earlier in super::neighbours(response) {
        // An earlier one that is not complete would take the beginning of the next.
        let is_complete = ours(vec![earlier.clone()]).is_some();
        let pieces = vec![earlier, response.to_vec()];
        if is_complete && let Some(second) = wait(upstream::read_second_response(Responder::new(pieces))) {
            assert_eq!(second.ok(), whole);
        }
    }
}

/// The status and the body.
type Seen = (u16, Vec<u8>);

fn ours(pieces: Vec<Vec<u8>>) -> Option<Seen> {
    wait(upstream::read_response(Responder::new(pieces))).ok()
}

fn hypers(pieces: Vec<Vec<u8>>) -> Option<Seen> {
    let handshake = http1::Builder::new().handshake(TokioIo::new(Responder::new(pieces)));
    let (mut sender, connection) = wait(handshake).ok()?;
    let read = async {
        let response = sender.send_request(Request::new(Empty::<Bytes>::new())).await.ok()?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.ok()?;
        Some((status, body.to_bytes().to_vec()))
    };
    let mut read = pin!(read);
    let mut connection = pin!(connection);
    let mut context = Context::from_waker(Waker::noop());
    let mut is_open = true;
    loop {
        if let Poll::Ready(read) = read.as_mut().poll(&mut context) {
            return read;
        }
        is_open = is_open && connection.as_mut().poll(&mut context).is_pending();
    }
}

/// Runs a future whose only partner is always ready.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
    }
}

/// Pieces of 1 to 16 bytes; all of one byte for the seed 0.
fn cut(response: &[u8], seed: u8) -> Vec<Vec<u8>> {
    let mut state = u32::from(seed);
    let mut rest = response;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(u32::from(seed).wrapping_mul(1_013_904_223));
        let (piece, after) = rest.split_at(rest.len().min(1 + (state >> 28) as usize));
        pieces.push(piece.to_vec());
        rest = after;
    }
    pieces
}

/// A server that sends its pieces after it got a request, and then closes the connection.
struct Responder {
    pieces: VecDeque<Vec<u8>>,
    is_asked: bool,
}

impl Responder {
    fn new(mut pieces: Vec<Vec<u8>>) -> Self {
        pieces.retain(|piece| !piece.is_empty());
        Self { pieces: pieces.into(), is_asked: false }
    }
}

impl AsyncRead for Responder {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_asked {
            return Poll::Pending;
        }
        if let Some(mut piece) = self.pieces.pop_front() {
            let rest = piece.split_off(piece.len().min(buffer.remaining()));
            buffer.put_slice(&piece);
            if !rest.is_empty() {
                self.pieces.push_front(rest);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Responder {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.is_asked = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
