//! Reads any bytes as a request of an agent. Promise: what is taken for a plain request, which the gateway reads itself,
//! hyper's server reads in the same way. The reverse is not promised: everything unusual is left to hyper. And a request is
//! read in the same way whatever came before it on the connection.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use toolgate::app::{PlainRequest, read_plain};

pub const DICTIONARY: &[&str] = &[
    "POST /mcp HTTP/1.1\r\nHost: localhost\r\n",
    "GET /mcp HTTP/1.1\r\n",
    "DELETE /v0/groups/dev/mcp HTTP/1.1\r\n",
    "POST /v0/servers/a/mcp?x=y HTTP/1.1\r\n",
    "POST http://localhost/mcp HTTP/1.1\r\n",
    " HTTP/1.0\r\n",
    "Host: localhost\r\n",
    "Content-Length: 2\r\n",
    "Content-Length: 2, 2\r\n",
    "content-length: 02\r\n",
    "content-length: +2\r\n",
    "content-length : 2\r\n",
    "Transfer-Encoding: chunked\r\n",
    "transfer-encoding:\tchunked\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Expect: 100-continue\r\n",
    "Upgrade: h2c\r\n",
    "Accept: application/json, text/event-stream\r\n",
    "Authorization: Bearer t\r\n",
    "Mcp-Session-Id: s\r\n",
    "MCP-Protocol-Version: 2025-06-18\r\n",
    "Mcp-Method: tools/call\r\n",
    "Mcp-Name: a\r\n",
    "X-Forwarded-For: 1.1.1.1\r\n",
    "\r\n\r\n",
    "\r\n",
    "\n\n",
    "\n",
    "\r",
    " ",
    "\t",
    "%2f",
    "#",
    "\0",
    "{}",
];

pub fn run(input: &[u8]) {
    let plain = read_plain(&[], input);
    if let Some(plain) = &plain {
        assert_eq!(hypers(input).as_ref(), Some(plain));
    }
    let others = super::neighbours(input);
    for other in others.iter().map(Vec::as_slice).chain([input]) {
        assert_eq!(read_plain(&[other], input), plain);
        assert_eq!(read_plain(&[input], other), read_plain(&[], other));
    }
}

/// The first request, as hyper's server reads it.
fn hypers(input: &[u8]) -> Option<PlainRequest> {
    let seen = RefCell::new(None);
    let service = service_fn(async |request: Request<Incoming>| {
        let read = read(request).await;
        seen.borrow_mut().get_or_insert(read);
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(Client(input)), service);
    let mut connection = pin!(connection);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..100 {
        if connection.as_mut().poll(&mut context).is_ready() || seen.borrow().is_some() {
            break;
        }
    }
    seen.take().flatten()
}

async fn read(request: Request<Incoming>) -> Option<PlainRequest> {
    let (head, body) = request.into_parts();
    let headers = PlainRequest::NAMES.map(|name| {
        let mut values = head.headers.get_all(name).iter();
        let first = values.next().and_then(|value| value.to_str().ok()).map(str::to_owned);
        // A plain request has no header twice.
        first.filter(|_| values.next().is_none())
    });
    Some(PlainRequest {
        method: head.method.as_str().to_owned(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().map(str::to_owned),
        headers,
        body: body.collect().await.ok()?.to_bytes().to_vec(),
    })
}

/// A client that sends everything at once, and then nothing more.
struct Client<'a>(&'a [u8]);

impl AsyncRead for Client<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (now, later) = self.0.split_at(self.0.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.0 = later;
        if now.is_empty() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

impl AsyncWrite for Client<'_> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
