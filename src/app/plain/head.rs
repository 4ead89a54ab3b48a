//! The head of a plain request: one to an MCP endpoint, in the form in which nearly all agents send it. Everything else
//! is left to hyper: other paths and methods, other versions of HTTP, bodies in chunks, requests of browsers, repeated
//! headers, unusual characters, and heads that are not UTF-8. So a request is plain only if there is one way to read it.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::str;
use std::sync::Arc;

use httparse::{Header, Request, Status};

use super::head_memory::HeadMemory;
use crate::http::access::{AccessLevel, MIN_EPOCH};
use crate::routes;
use mcp::{EndpointPath, Routing};
use wire::headers::{METHOD, NAME, PROTOCOL_VERSION, SESSION_ID};

/// Requests with longer heads are unusual; hyper has limits for the parts of a head.
const LONGEST_HEAD: usize = 8 * 1024;
/// Requests with more headers are unusual.
const MOST_HEADERS: usize = 32;
/// Requests with larger bodies are unusual.
pub const LARGEST_BODY: usize = 64 * 1024;

/// The head of a plain request. It borrows what it says, since most heads on a connection say the same.
pub struct PlainHead<'a> {
    pub parts: &'a HeadParts,
    /// The text that they are parts of.
    text: &'a str,
    /// Length of the head, in bytes.
    pub length: usize,
    pub body_length: usize,
}

/// What a head says, with the positions of texts.
pub struct HeadParts {
    pub method: &'static str,
    path: Range<usize>,
    query: Option<Range<usize>>,
    pub place: EndpointPath,
    pub access: AccessLevel,
    pub headers: PlainHeaders<Range<usize>>,
    /// The routing headers, which only modern clients send.
    pub routing: Option<Arc<Routing>>,
}

/// The headers that matter. Each is sent at most once, and its value is text.
#[derive(Default)]
pub struct PlainHeaders<T> {
    pub host: Option<T>,
    pub accept: Option<T>,
    pub authorization: Option<T>,
    pub forwarded_for: Option<T>,
    pub session: Option<T>,
    pub version: Option<T>,
    pub traceparent: Option<T>,
    pub tracestate: Option<T>,
    connection: Option<T>,
    pub content_length: Option<T>,
    method: Option<T>,
    name: Option<T>,
}

/// Headers that make a request unusual: they change how it is read, or come from a browser.
const UNUSUAL: [&str; 10] = [
    "access-control-request-headers",
    "access-control-request-method",
    "expect",
    "keep-alive",
    "origin",
    "sec-fetch-site",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl<'a> PlainHead<'a> {
    /// A head that says these parts of the text, but may have another length.
    pub fn new(parts: &'a HeadParts, text: &'a str, length: usize, body_length: usize) -> Self {
        Self { parts, text, length, body_length }
    }

    pub fn path(&self) -> &'a str {
        &self.text[self.parts.path.clone()]
    }

    pub fn query(&self) -> Option<&'a str> {
        self.value(&self.parts.query)
    }

    /// The value of a header, given its position.
    pub fn value(&self, position: &Option<Range<usize>>) -> Option<&'a str> {
        position.clone().map(|position| &self.text[position])
    }
}

impl HeadParts {
    /// Parses the head of a request, and returns its text and the length of the body too. Returns `None` if it is not complete or
    /// not plain.
    pub fn parse(bytes: &[u8]) -> Option<(Self, &str, usize)> {
        let mut slots = [const { MaybeUninit::uninit() }; MOST_HEADERS];
        let mut request = Request::new(&mut []);
        let length = match request.parse_with_uninit_headers(bytes, &mut slots) {
            Ok(Status::Complete(length)) if length <= LONGEST_HEAD => length,
            Ok(Status::Complete(_) | Status::Partial) | Err(_) => return None,
        };
        // A request line may follow empty lines, which need not be looked at here.
        if request.version != Some(1) || bytes.first().is_none_or(u8::is_ascii_whitespace) {
            return None;
        }
        let text = str::from_utf8(&bytes[..length]).ok()?;
        let method = ["POST", "GET", "DELETE"].into_iter().find(|method| Some(*method) == request.method)?;
        let (path, query) = split_target(request.path?)?;
        let (place, access) = routes::find_endpoint(path)?;
        let mut headers = PlainHeaders::default();
        for header in request.headers.iter() {
            headers.add(header)?;
        }
        let body_length = match headers.content_length {
            Some(digits) => body_length(digits)?,
            None => 0,
        };
        let routing = headers.routing(request.headers);
        let is_plain = headers.host.is_some()
            && headers.connection.is_none_or(|value| value.eq_ignore_ascii_case("keep-alive"))
            && (body_length == 0 || method == "POST");
        let place_of = |part: &&str| {
            let start = part.as_ptr().addr() - text.as_ptr().addr();
            start..start + part.len()
        };
        let (path, query) = (place_of(&path), query.as_ref().map(place_of));
        let headers = headers.map(place_of);
        is_plain.then_some((Self { method, path, query, place, access, headers, routing }, text, body_length))
    }
}

impl<'a> PlainHeaders<&'a str> {
    /// Notes a header. Returns `None` if the request is not plain because of it.
    fn add(&mut self, header: &Header<'a>) -> Option<()> {
        let slot = match header.name.len() {
            4 if is(header, "host") => &mut self.host,
            6 if is(header, "accept") => &mut self.accept,
            8 if is(header, NAME) => &mut self.name,
            10 if is(header, "connection") => &mut self.connection,
            10 if is(header, METHOD) => &mut self.method,
            10 if is(header, "tracestate") => &mut self.tracestate,
            11 if is(header, "traceparent") => &mut self.traceparent,
            13 if is(header, "authorization") => &mut self.authorization,
            14 if is(header, "content-length") => &mut self.content_length,
            14 if is(header, SESSION_ID) => &mut self.session,
            15 if is(header, "x-forwarded-for") => &mut self.forwarded_for,
            20 if is(header, PROTOCOL_VERSION) => &mut self.version,
            // May take a while.
            20 if is(header, MIN_EPOCH) => return None,
            _ => return (!UNUSUAL.iter().any(|name| is(header, name))).then_some(()),
        };
        let is_first = slot.replace(text(header.value)?).is_none();
        is_first.then_some(())
    }

    fn routing(&self, all: &[Header<'a>]) -> Option<Arc<Routing>> {
        self.method?;
        let mut routing = Routing::default();
        all.iter().for_each(|header| routing.add(header.name, header.value));
        Some(Arc::new(routing))
    }
}

impl<T> PlainHeaders<T> {
    /// The same headers with other values.
    fn map<U>(&self, change: impl Fn(&T) -> U) -> PlainHeaders<U> {
        let change = |value: &Option<T>| value.as_ref().map(&change);
        PlainHeaders {
            host: change(&self.host),
            accept: change(&self.accept),
            authorization: change(&self.authorization),
            forwarded_for: change(&self.forwarded_for),
            session: change(&self.session),
            version: change(&self.version),
            traceparent: change(&self.traceparent),
            tracestate: change(&self.tracestate),
            connection: change(&self.connection),
            content_length: change(&self.content_length),
            method: change(&self.method),
            name: change(&self.name),
        }
    }
}

/// A plain request as a whole, with the values of its headers by [`PlainRequest::NAMES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainRequest {
    pub method: String,
    pub path: String,
    pub query: Option<String>,
    pub headers: [Option<String>; 8],
    pub body: Vec<u8>,
}

impl PlainRequest {
    pub const NAMES: [&str; 8] =
        ["host", "accept", "authorization", "x-forwarded-for", SESSION_ID, PROTOCOL_VERSION, METHOD, NAME];
}

/// Reads a plain request that follows others on the same connection. Returns `None` for everything else, and if it is not
/// complete.
pub fn read_plain(earlier: &[&[u8]], bytes: &[u8]) -> Option<PlainRequest> {
    let mut memory = HeadMemory::default();
    for request in earlier {
        memory.read(request);
    }
    let head = memory.read(bytes)?;
    let PlainHeaders { host, accept, authorization, forwarded_for, session, version, method, name, .. } =
        &head.parts.headers;
    let values = [host, accept, authorization, forwarded_for, session, version, method, name];
    Some(PlainRequest {
        method: head.parts.method.to_owned(),
        path: head.path().to_owned(),
        query: head.query().map(str::to_owned),
        headers: values.map(|value| head.value(value).map(str::to_owned)),
        body: bytes.get(head.length..head.length + head.body_length)?.to_vec(),
    })
}

/// Returns `None` if the length is not a plain number, or too large.
fn body_length(digits: &str) -> Option<usize> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let length: usize = digits.parse().ok().filter(|_| is_number)?;
    (length <= LARGEST_BODY).then_some(length)
}

fn is(header: &Header<'_>, name: &str) -> bool {
    header.name.eq_ignore_ascii_case(name)
}

/// Returns a value that consists of visible characters, spaces and tabs, as a header should.
fn text(value: &[u8]) -> Option<&str> {
    // httparse accepts no control characters but tabs.
    str::from_utf8(value).ok().filter(|text| text.is_ascii())
}

/// Splits the target of a request into path and query. Returns `None` for other forms than `/path?query`, and if it has
/// characters that might be read in different ways.
fn split_target(target: &str) -> Option<(&str, Option<&str>)> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_-.~".contains(&byte);
    let is_plain_query = |byte: u8| is_plain(byte) || b"=&%+".contains(&byte);
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let is_plain = path.bytes().all(is_plain) && query.is_none_or(|query| query.bytes().all(is_plain_query));
    (is_plain && path.starts_with('/')).then_some((path, query))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_plain(request: &str) -> bool {
        HeadParts::parse(request.as_bytes()).is_some()
    }

    fn with(headers: &str) -> String {
        format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")
    }

    #[test]
    fn a_plain_head_is_read_completely() {
        let request = "POST /v0/groups/dev/mcp?a=b HTTP/1.1\r\nhost: h:1\r\nACCEPT: application/json\r\nContent-Length: 12\r\n\
                       Mcp-Session-Id: s\r\nMCP-Protocol-Version: v\r\nAuthorization: Bearer t\r\nUser-Agent: \u{e9}\r\n\
                       X-Forwarded-For: 1.1.1.1\r\nconnection: Keep-Alive\r\n\r\n{}";
        let mut memory = HeadMemory::default();
        let head = memory.read(request.as_bytes()).unwrap();
        assert_eq!(
            (head.parts.method, head.path(), head.query()),
            ("POST", "/v0/groups/dev/mcp", Some("a=b"))
        );
        assert_eq!((head.length, head.body_length), (request.len() - 2, 12));
        let PlainHeaders { host, accept, authorization, forwarded_for, session, version, .. } =
            &head.parts.headers;
        let read = [host, accept, authorization, forwarded_for, session, version];
        let written = ["h:1", "application/json", "Bearer t", "1.1.1.1", "s", "v"];
        assert_eq!(read.map(|value| head.value(value)), written.map(Some));
        assert!(head.parts.routing.is_none());
    }

    #[test]
    fn a_head_that_is_not_utf8_is_not_plain() {
        let request =
            |agent: &[u8]| [b"GET /mcp HTTP/1.1\r\nHost: a\r\nUser-Agent: ", agent, b"\r\n\r\n"].concat();
        assert!(HeadParts::parse(&request("caf\u{e9}".as_bytes())).is_some());
        assert!(HeadParts::parse(&request(b"caf\xe9")).is_none());
    }

    #[test]
    fn whatever_might_be_read_in_two_ways_is_not_plain() {
        assert!(is_plain(&with("")) && is_plain(&with("Content-Length: 65536\r\n")));
        for headers in [
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: 1, 1\r\n",
            "Content-Length: \r\n",
            "Content-Length: 0x1\r\n",
            "Content-Length: 65537\r\n",
            "Content-Length: 18446744073709551617\r\n",
            "Transfer-Encoding: chunked\r\n",
            "transfer-encoding: identity\r\nContent-Length: 1\r\n",
            "Host: localhost\r\n",
            "Connection: close\r\n",
            "Connection: keep-alive, upgrade\r\n",
            "Upgrade: h2c\r\n",
            "Expect: 100-continue\r\n",
            "Origin: http://localhost\r\n",
            "Sec-Fetch-Site: none\r\n",
            "Authorization: Bearer a\r\nauthorization: Bearer b\r\n",
            "Mcp-Session-Id: \u{e9}\r\n",
            "Mcp-Session-Id : s\r\n",
            " folded: x\r\n",
        ] {
            assert!(!is_plain(&with(headers)), "{headers}");
        }
        for line in [
            "POST /mcp HTTP/1.0",
            "post /mcp HTTP/1.1",
            "PUT /mcp HTTP/1.1",
            "POST http://localhost/mcp HTTP/1.1",
            "POST * HTTP/1.1",
            "POST //mcp HTTP/1.1",
            "POST /mcp/ HTTP/1.1",
            "POST /mc%70 HTTP/1.1",
            "POST /api/v0/servers HTTP/1.1",
            "POST /mcp?a#b HTTP/1.1",
            "POST  /mcp HTTP/1.1",
            "\r\nPOST /mcp HTTP/1.1",
        ] {
            assert!(!is_plain(&format!("{line}\r\nHost: localhost\r\n\r\n")), "{line}");
        }
        assert!(!is_plain("POST /mcp HTTP/1.1\r\n\r\n"), "no host");
        assert!(!is_plain("GET /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n"), "a body");
        assert!(!is_plain(&with(&"a: b\r\n".repeat(MOST_HEADERS))), "too many headers");
        assert!(!is_plain(&with(&format!("{}: b\r\n", "a".repeat(LONGEST_HEAD)))), "a long head");
    }

    #[test]
    fn a_head_that_is_not_complete_is_not_plain() {
        let request = with("Content-Length: 2\r\nAccept: a\r\n");
        for end in 0..request.len() {
            assert!(!is_plain(&request[..end]), "{end}");
        }
        assert!(is_plain(&request));
    }

    #[test]
    fn routing_headers_are_kept_as_sent() {
        let request =
            with("Mcp-Method: tools/call\r\nMCP-NAME: a\r\nMcp-Param-Region: x\r\nmcp-param-region: y\r\n");
        let routing = HeadParts::parse(request.as_bytes()).unwrap().0.routing.unwrap();
        let mut expected = Routing::default();
        for (name, value) in [
            ("mcp-method", "tools/call"),
            ("mcp-name", "a"),
            ("mcp-param-region", "x"),
            ("mcp-param-region", "y"),
        ] {
            expected.add(name, value.as_bytes());
        }
        assert_eq!(format!("{routing:?}"), format!("{expected:?}"));
    }
}
