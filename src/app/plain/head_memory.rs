//! Remembers the last head on a connection. Nearly all clients send the same one with each message, apart from its
//! Content-Length, and then it is not parsed again.

use std::ops::Range;
use std::sync::Arc;

use super::head::{LARGEST_BODY, PlainHead, PlainHeaders};
use crate::http::access::AccessLevel;
use mcp::{EndpointPath, Routing};
use wire::same_head::{self, Repeated};

/// Longer heads are not remembered, since the budget of a connection counts only its read buffer.
const LONGEST: usize = 2 * 1024;

#[derive(Default)]
pub struct HeadMemory {
    last: Option<Box<Remembered>>,
}

/// A head that was parsed, with the positions of its parts.
struct Remembered {
    text: String,
    /// The value of its Content-Length.
    digits: Range<usize>,
    method: &'static str,
    path: Range<usize>,
    query: Option<Range<usize>>,
    place: EndpointPath,
    access: AccessLevel,
    headers: PlainHeaders<Range<usize>>,
    routing: Option<Arc<Routing>>,
}

impl HeadMemory {
    /// Reads the head of a request. Returns `None` if it is not complete or not plain.
    pub fn read<'a>(&'a mut self, bytes: &'a [u8]) -> Option<PlainHead<'a>> {
        let repeated = self.last.as_ref().and_then(|last| last.find(bytes));
        match repeated {
            Some(repeated) => self.last.as_ref().map(|last| last.again(repeated)),
            None => {
                let head = PlainHead::parse(bytes)?;
                self.last = Remembered::of(&head, bytes).map(Box::new);
                Some(head)
            }
        }
    }
}

impl Remembered {
    /// Returns `None` if the head cannot come again: only messages are sent often, and traced ones differ.
    fn of(head: &PlainHead<'_>, bytes: &[u8]) -> Option<Self> {
        if head.method != "POST" || head.headers.traceparent.is_some() || head.length > LONGEST {
            return None;
        }
        let text = str::from_utf8(&bytes[..head.length]).ok()?;
        let place_of = |part: &&str| {
            let start = part.as_ptr().addr() - text.as_ptr().addr();
            start..start + part.len()
        };
        let headers = head.headers.map(place_of);
        Some(Self {
            text: text.to_owned(),
            digits: headers.content_length.clone()?,
            method: head.method,
            path: place_of(&head.path),
            query: head.query.as_ref().map(place_of),
            place: head.place.clone(),
            access: head.access,
            headers,
            routing: head.routing.clone(),
        })
    }

    fn find(&self, bytes: &[u8]) -> Option<Repeated> {
        let repeated = same_head::find(self.text.as_bytes(), &self.digits, bytes)?;
        (repeated.content_length <= LARGEST_BODY as u64).then_some(repeated)
    }

    fn again(&self, repeated: Repeated) -> PlainHead<'_> {
        let part = |place: &Range<usize>| &self.text[place.clone()];
        PlainHead {
            method: self.method,
            path: part(&self.path),
            query: self.query.as_ref().map(part),
            place: self.place.clone(),
            access: self.access,
            headers: self.headers.map(part),
            routing: self.routing.clone(),
            length: repeated.length,
            body_length: repeated.content_length as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(length: &str) -> String {
        format!(
            "POST /v0/groups/dev/mcp?a=b HTTP/1.1\r\nHost: h:1\r\nContent-Length: {length}\r\nMcp-Session-Id: s\r\n\
             Mcp-Method: tools/call\r\nAuthorization: Bearer t\r\n\r\n"
        )
    }

    /// What a head says, for comparison.
    fn said(head: &PlainHead<'_>) -> String {
        let headers = head.headers.map(|value| value.to_string());
        let values = [headers.host, headers.accept, headers.authorization, headers.session, headers.version];
        let PlainHead { method, path, query, place, access, routing, length, body_length, .. } = head;
        format!(
            "{method} {path} {query:?} {place:?} {access:?} {routing:?} {length} {body_length} {values:?}"
        )
    }

    #[test]
    fn a_repeated_head_is_read_as_if_it_were_the_first() {
        let mut memory = HeadMemory::default();
        for length in ["12", "7", "65536", "0", "0012"] {
            let request = post(length);
            let alone = PlainHead::parse(request.as_bytes()).unwrap();
            let is_known = memory.last.as_ref().is_some_and(|last| last.find(request.as_bytes()).is_some());
            assert_eq!(is_known, length != "12", "{length}");
            assert_eq!(said(&memory.read(request.as_bytes()).unwrap()), said(&alone), "{length}");
        }
    }

    #[test]
    fn what_is_not_plain_stays_so_after_a_plain_head() {
        let mut memory = HeadMemory::default();
        for length in ["", "+1", "65537", "18446744073709551617", "1\r\nContent-Length: 1", "1\r\nOrigin: a"]
        {
            assert!(memory.read(post("12").as_bytes()).is_some());
            assert!(memory.read(post(length).as_bytes()).is_none(), "{length}");
        }
        let get = |length: &str| format!("GET /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        assert!(memory.read(get("0").as_bytes()).is_some());
        assert!(memory.read(get("1").as_bytes()).is_none());
    }

    #[test]
    fn traced_requests_and_long_ones_are_not_remembered() {
        let mut memory = HeadMemory::default();
        for header in ["Traceparent: x".to_owned(), format!("X: {}", "y".repeat(LONGEST))] {
            let request = post(&format!("12\r\n{header}"));
            assert!(memory.read(request.as_bytes()).is_some() && memory.last.is_none(), "{header}");
        }
    }
}
