//! Responses to plain requests, as bytes.

#![allow(clippy::disallowed_types)] // Status codes are passed on here.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Buf, Bytes};
use httpdate::HttpDate;
use hyper::StatusCode;

use mcp::Reply;
use wire::headers::{SESSION_ID, put_number};

/// The head of a response.
pub struct ResponseHead<'a> {
    status: StatusCode,
    content: Content,
    /// Whether the connection is closed after it.
    pub closes: bool,
    session: Option<&'a str>,
    pub extra: Option<(&'a str, &'a [u8])>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Empty,
    /// A body of this length.
    Json(usize),
    /// A body in chunks.
    Events,
}

impl<'a> ResponseHead<'a> {
    pub fn new(status: StatusCode, content: Content, closes: bool) -> Self {
        Self { status, content, closes, session: None, extra: None }
    }

    pub fn of(reply: &'a Reply, content: Content, closes: bool) -> Self {
        let allow = reply.allow.map(|methods| ("allow", methods.as_bytes()));
        let retry_after = reply.retry_after.map(|seconds| ("retry-after", seconds.as_bytes()));
        let session = reply.session.as_deref();
        Self { session, extra: allow.or(retry_after), ..Self::new(reply.status, content, closes) }
    }
}

/// Writes the heads of the responses of one connection.
#[derive(Default)]
pub struct ResponseWriter {
    written: Vec<u8>,
    /// When the last head was written, in seconds since 1970.
    second: u64,
    /// The line with its date, and the empty line behind it.
    date_line: Vec<u8>,
}

impl ResponseWriter {
    /// Writes a head into the buffer for the next response.
    pub fn begin(&mut self, head: &ResponseHead<'_>) -> &mut Vec<u8> {
        self.set_date();
        let Self { written, date_line, .. } = self;
        written.clear();
        match head.status {
            StatusCode::OK => written.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
            status => written.extend_from_slice(format!("HTTP/1.1 {status}\r\n").as_bytes()),
        }
        written.extend_from_slice(b"x-content-type-options: nosniff\r\ncache-control: no-store\r\n");
        match head.content {
            Content::Empty if head.status == StatusCode::NO_CONTENT => {}
            Content::Empty => written.extend_from_slice(b"content-length: 0\r\n"),
            Content::Json(length) => {
                written.extend_from_slice(b"content-type: application/json\r\ncontent-length: ");
                put_number(written, length);
                written.extend_from_slice(b"\r\n");
            }
            Content::Events => written.extend_from_slice(
                b"content-type: text/event-stream\r\nx-accel-buffering: no\r\ntransfer-encoding: chunked\r\n",
            ),
        }
        let session = head.session.map(|session| (SESSION_ID, session.as_bytes()));
        let closes = head.closes.then_some(("connection", &b"close"[..]));
        let extra = head.extra.filter(|(name, _)| closes.is_none_or(|(other, _)| *name != other));
        for (name, value) in [session, extra, closes].into_iter().flatten() {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                written.extend_from_slice(part);
            }
        }
        written.extend_from_slice(date_line);
        written
    }

    fn set_date(&mut self) {
        let now = SystemTime::now();
        let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if second != self.second || self.date_line.is_empty() {
            self.second = second;
            self.date_line = format!("date: {}\r\n\r\n", HttpDate::from(now)).into_bytes();
        }
    }
}

/// The pieces of a body, which are sent one after the other.
#[derive(Default)]
pub struct Pieces(pub VecDeque<Bytes>);

impl Pieces {
    pub fn of(body: Bytes) -> Self {
        Self([body].into())
    }
}

impl Buf for Pieces {
    fn remaining(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.0.front().map_or(&[], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let pairs = slices.iter_mut().zip(&self.0);
        pairs.map(|(slice, piece)| *slice = IoSlice::new(piece)).count()
    }

    fn advance(&mut self, mut count: usize) {
        while let Some(piece) = self.0.front_mut() {
            let part = count.min(piece.len());
            piece.advance(part);
            count -= part;
            if !piece.is_empty() {
                return;
            }
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(head: &ResponseHead<'_>) -> String {
        let text = String::from_utf8(ResponseWriter::default().begin(head).clone()).unwrap();
        let (head, date) = text.split_once("date: ").unwrap();
        assert!(
            httpdate::parse_http_date(date.trim_end()).is_ok() && date.ends_with("GMT\r\n\r\n"),
            "{date}"
        );
        head.to_owned()
    }

    #[test]
    fn a_head_has_what_its_response_needs() {
        let always = "x-content-type-options: nosniff\r\ncache-control: no-store\r\n";
        let mut head = ResponseHead::new(StatusCode::OK, Content::Json(12), false);
        head.session = Some("s");
        assert_eq!(
            written(&head),
            format!(
                "HTTP/1.1 200 OK\r\n{always}content-type: application/json\r\ncontent-length: 12\r\nmcp-session-id: s\r\n"
            )
        );
        let head = ResponseHead::new(StatusCode::NO_CONTENT, Content::Empty, false);
        assert_eq!(written(&head), format!("HTTP/1.1 204 No Content\r\n{always}"));
        let mut head = ResponseHead::new(StatusCode::REQUEST_TIMEOUT, Content::Empty, true);
        head.extra = Some(("connection", b"close"));
        assert_eq!(
            written(&head),
            format!("HTTP/1.1 408 Request Timeout\r\n{always}content-length: 0\r\nconnection: close\r\n")
        );
    }

    #[test]
    fn pieces_are_one_body() {
        let pieces = || Pieces([&b"ab"[..], b"", b"cde"].map(Bytes::from_static).into());
        for step in 1..=5 {
            let (mut left, mut all) = (pieces(), Vec::new());
            while left.has_remaining() {
                let mut slices = [IoSlice::new(&[]); 2];
                let count = left.chunks_vectored(&mut slices);
                let next: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
                let taken = next.len().min(step);
                all.extend_from_slice(&next[..taken]);
                left.advance(taken);
            }
            assert_eq!(all, b"abcde", "{step}");
        }
    }
}
