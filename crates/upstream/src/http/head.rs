//! The head of a response: its status, the few headers that matter here, and where its body ends. A head of which two
//! readers could disagree where the body ends is refused. Does no I/O.

use std::mem::MaybeUninit;
use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};
use httparse::{Header, ParserConfig, Response, Status};

use super::framing::Framing;
use wire::headers::SESSION_ID;
use wire::same_head;

const HEAD_LIMIT: usize = 64 * 1024;
const MAX_HEADERS: usize = 100;
/// Longer heads are not remembered.
const REMEMBERED: usize = 2 * 1024;
/// The length of a version and a status.
const BEGINNING: usize = "HTTP/1.1 200".len();

#[derive(Debug)]
pub struct ResponseHead {
    pub status: u16,
    pub content: MediaType,
    /// The value of `Mcp-Session-Id`.
    pub session: Option<Bytes>,
    pub location: Option<String>,
    /// The values of `WWW-Authenticate`.
    pub challenges: Vec<String>,
    pub framing: Framing,
    /// Whether the server keeps the connection open after the body.
    pub keeps_open: bool,
}

impl ResponseHead {
    /// Whether the body is a stream of events.
    pub fn is_event_stream(&self) -> bool {
        self.status == 200 && self.content == MediaType::Events
    }
}

/// The type of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaType {
    Json,
    Events,
    Other,
}

/// Takes heads out of a buffer as it fills.
#[derive(Default)]
pub struct HeadReader {
    /// How many bytes of the buffer contain no end of a head.
    seen: usize,
    /// How many bytes of empty lines came before the head; they count towards its limit.
    skipped: usize,
    last: Option<Remembered>,
}

/// A head of success that a server probably sends again, with another Content-Length.
struct Remembered {
    bytes: Vec<u8>,
    /// The value of its Content-Length.
    digits: Range<usize>,
    content: MediaType,
    session: Option<Bytes>,
    keeps_open: bool,
}

impl HeadReader {
    /// Forgets a head that has not arrived completely.
    pub fn begin(&mut self) {
        (self.seen, self.skipped) = (0, 0);
    }

    /// Takes the head of the final response out of the buffer; `None` if it is not complete. Informational ones before it
    /// are skipped.
    pub fn take(&mut self, buffer: &mut BytesMut) -> Result<Option<ResponseHead>, String> {
        if self.seen + self.skipped == 0
            && let Some(head) = self.last.as_ref().and_then(|last| last.take(buffer))
        {
            return Ok(Some(head));
        }
        loop {
            // Each empty line before a head would look like the end of one.
            let empty = empty_lines(buffer);
            buffer.advance(empty);
            self.skipped += empty;
            self.seen = self.seen.saturating_sub(empty);
            // The beginning is parsed at once, since it shows whether this is HTTP. After that a head is parsed only
            // when it is complete: one that comes in many small pieces would be parsed as often.
            let is_due = self.seen < BEGINNING || has_end(&buffer[self.seen.saturating_sub(2)..]);
            let parsed = if is_due && !buffer.is_empty() { parse(buffer)? } else { None };
            let Some(Parsed { length, mut head, session, digits }) = parsed else {
                self.seen = buffer.len();
                return if self.skipped + self.seen <= HEAD_LIMIT { Ok(None) } else { Err(too_long()) };
            };
            if self.skipped + length > HEAD_LIMIT {
                return Err(too_long());
            }
            self.begin();
            match head.status {
                101 => return Err("switches to another protocol without being asked".into()),
                100..200 => buffer.advance(length),
                _ => {
                    head.session = session.map(|place| Bytes::copy_from_slice(&buffer[place]));
                    self.last = digits.and_then(|digits| Remembered::of(&head, &buffer[..length], digits));
                    buffer.advance(length);
                    return Ok(Some(head));
                }
            }
        }
    }
}

impl Remembered {
    /// Returns `None` for a head that is unlikely to come again.
    fn of(head: &ResponseHead, bytes: &[u8], digits: Range<usize>) -> Option<Self> {
        let ResponseHead { content, ref session, keeps_open, .. } = *head;
        let is_usual = head.status == 200 && head.location.is_none() && head.challenges.is_empty();
        (is_usual && bytes.len() <= REMEMBERED).then(|| Self {
            bytes: bytes.to_vec(),
            digits,
            content,
            session: session.clone(),
            keeps_open,
        })
    }

    fn take(&self, buffer: &mut BytesMut) -> Option<ResponseHead> {
        let repeated = same_head::find(&self.bytes, &self.digits, buffer)?;
        buffer.advance(repeated.length);
        Some(ResponseHead {
            status: 200,
            content: self.content,
            session: self.session.clone(),
            location: None,
            challenges: Vec::new(),
            framing: Framing::Length(repeated.content_length),
            keeps_open: self.keeps_open,
        })
    }
}

/// The length of the empty lines at the beginning.
fn empty_lines(bytes: &[u8]) -> usize {
    let mut length = 0;
    while let [b'\n', ..] | [b'\r', b'\n', ..] = &bytes[length..] {
        length += if bytes[length] == b'\n' { 1 } else { 2 };
    }
    length
}

/// Whether an empty line follows a line.
fn has_end(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', bytes).any(|at| matches!(&bytes[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}

/// A head that is still in the buffer.
struct Parsed {
    length: usize,
    head: ResponseHead,
    /// Where the session's id stands.
    session: Option<Range<usize>>,
    /// Where the value of Content-Length stands, if there is one.
    digits: Option<Range<usize>>,
}

fn parse(buffer: &[u8]) -> Result<Option<Parsed>, String> {
    let mut fields = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADERS];
    let mut response = Response::new(&mut []);
    let length = match ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        buffer,
        &mut fields,
    ) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(format!("the response has more than {MAX_HEADERS} headers"));
        }
        Err(error) => return Err(format!("the response is not valid HTTP/1.1: {error}")),
    };
    let status = response.code.filter(|code| *code >= 100);
    let status = status.ok_or("the response is not valid HTTP/1.1: its status is not between 100 and 999")?;
    let is_current = response.version == Some(1);
    let mut content = None;
    let mut session = None;
    let mut location = None;
    let mut challenges = Vec::new();
    let mut digits = None;
    let mut ends = BodyEnds::default();
    let mut closes = !is_current;
    for Header { name, value } in response.headers.iter() {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        // Most headers differ from all of these in length already.
        match name.len() {
            8 if is("location") && location.is_none() => location = text(value),
            10 if is("connection") => {
                closes |= value
                    .split(|byte| *byte == b',')
                    .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"));
            }
            12 if is("content-type") => content = content.or(Some(MediaType::of(value))),
            14 if is("content-length") => {
                digits = ends.length.is_none().then(|| place(buffer, value));
                ends.add_length(value)?;
            }
            14 if is(SESSION_ID) && session.is_none() => session = Some(place(buffer, value)),
            16 if is("www-authenticate") => challenges.extend(text(value)),
            17 if is("transfer-encoding") => ends.add_coding(value)?,
            _ => {}
        }
    }
    let framing = match status {
        100..200 | 204 | 304 => Framing::Length(0),
        _ => ends.framing(is_current)?,
    };
    let content = content.unwrap_or(MediaType::Other);
    let head =
        ResponseHead { status, content, session: None, location, challenges, framing, keeps_open: !closes };
    Ok(Some(Parsed { length, head, session, digits }))
}

impl MediaType {
    fn of(value: &[u8]) -> Self {
        let begins = |with: &str| {
            value.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()))
        };
        if begins("application/json") {
            MediaType::Json
        } else if begins("text/event-stream") {
            MediaType::Events
        } else {
            MediaType::Other
        }
    }
}

/// What the headers say about the end of the body.
#[derive(Default)]
struct BodyEnds {
    length: Option<u64>,
    is_chunked: bool,
}

impl BodyEnds {
    fn add_length(&mut self, value: &[u8]) -> Result<(), String> {
        let digits =
            std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let length = digits.and_then(|digits| digits.parse().ok());
        let length = length.ok_or("the response has a Content-Length that is not a number")?;
        match self.length.replace(length) {
            Some(earlier) if earlier != length => Err("the response has two values of Content-Length".into()),
            Some(_) | None => Ok(()),
        }
    }

    fn add_coding(&mut self, value: &[u8]) -> Result<(), String> {
        if self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err("the response has a Transfer-Encoding other than chunked".into());
        }
        self.is_chunked = true;
        Ok(())
    }

    fn framing(&self, is_current: bool) -> Result<Framing, String> {
        match (self.is_chunked, self.length) {
            (true, Some(_)) => Err("the response has both Transfer-Encoding and Content-Length".into()),
            (true, None) if !is_current => {
                Err("the response has a Transfer-Encoding, but is HTTP/1.0".into())
            }
            (true, None) => Ok(Framing::CHUNKED),
            (false, Some(length)) => Ok(Framing::Length(length)),
            (false, None) => Ok(Framing::UntilClose),
        }
    }
}

/// A value that is readable text.
fn text(value: &[u8]) -> Option<String> {
    let is_readable = value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    String::from_utf8(value.to_vec()).ok().filter(|_| is_readable)
}

/// Where a part of a buffer stands in it.
fn place(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

fn too_long() -> String {
    format!("the headers of the response are larger than {} KiB", HEAD_LIMIT / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(head: &[u8], size: usize) -> Result<Option<(ResponseHead, BytesMut)>, String> {
        let mut reader = HeadReader::default();
        let mut buffer = BytesMut::new();
        for piece in head.chunks(size) {
            buffer.extend_from_slice(piece);
            if let Some(head) = reader.take(&mut buffer)? {
                return Ok(Some((head, buffer)));
            }
        }
        Ok(None)
    }

    fn taken(head: &str) -> ResponseHead {
        for size in 1..head.len() {
            let (head, _) = take(head.as_bytes(), size).unwrap().unwrap();
            assert!(head.status >= 200);
        }
        let (head, left) = take(head.as_bytes(), head.len()).unwrap().unwrap();
        assert_eq!(left, "");
        head
    }

    fn refusal(head: &str) -> String {
        for size in 1..head.len() {
            assert!(take(head.as_bytes(), size).is_err(), "{size}: {head:?}");
        }
        take(head.as_bytes(), head.len()).unwrap_err()
    }

    #[test]
    fn empty_lines_before_a_head_are_not_kept_and_count_towards_its_limit() {
        let (mut reader, mut buffer) = (HeadReader::default(), BytesMut::new());
        for piece in ["\r", "\n\n", "\r\n\r"] {
            buffer.extend_from_slice(piece.as_bytes());
            assert!(reader.take(&mut buffer).unwrap().is_none());
        }
        assert_eq!(&buffer[..], b"\r");
        buffer.extend_from_slice(b"\nHTTP/1.1 200 OK\r\n\r\nx");
        assert_eq!(reader.take(&mut buffer).unwrap().unwrap().status, 200);
        assert_eq!(&buffer[..], b"x");
        let (mut reader, mut lines) = (HeadReader::default(), 0);
        let refused = loop {
            lines += 1;
            if let Err(refused) = reader.take(&mut BytesMut::from("\n")) {
                break refused;
            }
        };
        assert_eq!((refused, lines), (too_long(), HEAD_LIMIT + 1));
    }

    #[test]
    fn a_head_gives_what_is_needed_of_it() {
        let head = taken(
            "HTTP/1.1 401 No\r\nServer: x\r\nContent-Type: Application/JSON; charset=utf-8\r\nMCP-Session-ID:  a-b \r\n\
             Location: /there\r\nWWW-Authenticate: Basic\r\nwww-authenticate: Bearer x\r\nContent-Length: 12\r\n\r\n",
        );
        assert_eq!((head.status, head.content, head.keeps_open), (401, MediaType::Json, true));
        assert_eq!(head.session.as_deref(), Some(b"a-b".as_slice()));
        assert_eq!(head.location.as_deref(), Some("/there"));
        assert_eq!(head.challenges, ["Basic", "Bearer x"]);
        assert_eq!(head.framing, Framing::Length(12));
        let bare = taken("HTTP/1.1 200\n\n");
        assert_eq!((bare.content, bare.framing), (MediaType::Other, Framing::UntilClose));
        assert!(bare.session.is_none() && bare.location.is_none() && bare.challenges.is_empty());
    }

    #[test]
    fn a_repeated_head_is_taken_as_if_it_were_the_first() {
        let head = |length: &str| {
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nmcp-session-id: a\r\n\r\n"
            )
        };
        let mut reader = HeadReader::default();
        let mut again = |head: &str| {
            let mut buffer = BytesMut::from(head);
            let taken = reader.take(&mut buffer).map(|head| format!("{head:?} {buffer:?}"));
            reader.begin();
            taken
        };
        let conflict = "5\r\ncontent-length: 6";
        for length in [
            "12",
            "7",
            "0",
            "007",
            "18446744073709551615",
            "5\r\ncontent-length: 5",
            "9",
            "1",
            conflict,
            "+1",
            "3",
        ] {
            let text = head(length) + "rest";
            let alone = take(text.as_bytes(), text.len()).map(|taken| {
                let (head, left) = taken.unwrap();
                format!("{:?} {left:?}", Some(head))
            });
            assert_eq!(again(&text), alone, "{length}");
        }
        for other in
            ["HTTP/1.1 204 x\r\ncontent-length: 5\r\n\r\n", "HTTP/1.1 204 x\r\ncontent-length: 6\r\n\r\n"]
        {
            assert!(again(other).unwrap().contains("Length(0)"));
        }
    }

    #[test]
    fn of_several_values_the_first_counts() {
        let head = taken(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-type: application/json\r\n\
             mcp-session-id: 1\r\nmcp-session-id: 2\r\nlocation: a\r\nlocation: b\r\n\r\n",
        );
        assert!(head.is_event_stream());
        assert_eq!(head.session.as_deref(), Some(b"1".as_slice()));
        assert_eq!(head.location.as_deref(), Some("a"));
    }

    #[test]
    fn informational_responses_are_skipped() {
        let head =
            taken("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 x\r\nlink: y\r\n\r\nHTTP/1.1 202 A\r\n\r\n");
        assert_eq!(head.status, 202);
        assert!(refusal("HTTP/1.1 101 x\r\nupgrade: y\r\n\r\n").contains("another protocol"));
    }

    #[test]
    fn the_end_of_the_body_is_never_ambiguous() {
        for (lines, framing) in [
            ("content-length: 0", Some(Framing::Length(0))),
            ("content-length: 007", Some(Framing::Length(7))),
            ("content-length: 18446744073709551615", Some(Framing::Length(u64::MAX))),
            ("content-length: 5\r\nContent-Length: 5", Some(Framing::Length(5))),
            ("transfer-encoding: Chunked", Some(Framing::CHUNKED)),
            ("x: y", Some(Framing::UntilClose)),
            ("content-length: 5\r\ncontent-length: 6", None),
            ("content-length: 5, 5", None),
            ("content-length: +5", None),
            ("content-length: -5", None),
            ("content-length: 0x5", None),
            ("content-length:", None),
            ("content-length: 5 5", None),
            ("content-length: 18446744073709551616", None),
            ("content-length: 5\r\ntransfer-encoding: chunked", None),
            ("transfer-encoding: chunked\r\ncontent-length: 5", None),
            ("transfer-encoding: chunked\r\ntransfer-encoding: chunked", None),
            ("transfer-encoding: gzip, chunked", None),
            ("transfer-encoding: chunked, chunked", None),
            ("transfer-encoding: chunked;q=1", None),
            ("transfer-encoding: identity", None),
            ("transfer-encoding:", None),
            ("transfer-encoding : chunked", None),
            ("content-length: 5\r\n folded: 6", None),
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n");
            match framing {
                Some(framing) => assert_eq!(taken(&text).framing, framing, "{lines:?}"),
                None => drop(refusal(&text)),
            }
        }
        assert!(refusal("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").contains("HTTP/1.0"));
        for status in [204, 304] {
            let head = taken(&format!("HTTP/1.1 {status} x\r\ncontent-length: 5\r\n\r\n"));
            assert_eq!(head.framing, Framing::Length(0));
        }
    }

    #[test]
    fn a_connection_is_kept_only_if_the_server_keeps_it() {
        for (head, keeps_open) in [
            ("HTTP/1.1 200 OK\r\nconnection: keep-alive\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\nconnection: closed\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\nConnection: x , Close\r\n\r\n", false),
            ("HTTP/1.1 200 OK\r\nconnection: x\r\nconnection: close\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n\r\n", false),
        ] {
            assert_eq!(taken(head).keeps_open, keeps_open, "{head:?}");
        }
    }

    #[test]
    fn what_is_not_http_is_refused_at_once() {
        for head in [
            "SSH-2.0-x\r\n",
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.1 20x\r\n",
            "HTTP/1.1 099 x\r\n\r\n",
            "HTTP/1.1 200 OK\r\na b: c\r\n\r\n",
        ] {
            assert!(take(head.as_bytes(), head.len()).is_err(), "{head:?}");
        }
        assert!(take(b"SSH-2.0-OpenSSH_9.9\r\n", 1).is_err());
    }

    #[test]
    fn heads_are_bounded() {
        let long = |length: usize| format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(length));
        let many = |count: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(count));
        for size in [1000, 100_000] {
            assert!(take(long(65_000).as_bytes(), size).unwrap().is_some());
            assert!(take(long(66_000).as_bytes(), size).unwrap_err().contains("64 KiB"));
            assert!(take(many(100).as_bytes(), size).unwrap().is_some());
            assert!(take(many(101).as_bytes(), size).unwrap_err().contains("100 headers"));
        }
        let endless = "HTTP/1.1 200 OK\r\nx: ".to_owned() + &"y".repeat(100_000);
        assert!(take(endless.as_bytes(), 1000).unwrap_err().contains("64 KiB"));
    }
}
