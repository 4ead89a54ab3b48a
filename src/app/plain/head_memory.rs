//! Remembers the last head on a connection. Nearly all clients send the same one with each message, apart from its
//! Content-Length, and then it is not parsed again.

use std::ops::Range;

use super::head::{HeadParts, LARGEST_BODY, PlainHead};
use wire::same_head::{self, Repeated};

/// Longer heads are not compared with the next one, since the budget of a connection counts only its read buffer.
const LONGEST: usize = 2 * 1024;

#[derive(Default)]
pub struct HeadMemory {
    last: Option<Box<Last>>,
}

/// The head that was parsed last. It goes when the connection comes to rest.
struct Last {
    parts: HeadParts,
    repeatable: Option<Repeatable>,
}

/// A head that may come again.
struct Repeatable {
    text: String,
    /// The value of its Content-Length.
    digits: Range<usize>,
}

impl HeadMemory {
    /// Reads the head of a request. Returns `None` if it is not complete or not plain.
    pub fn read<'a>(&'a mut self, bytes: &'a [u8]) -> Option<PlainHead<'a>> {
        let repeated = self.last.as_ref().and_then(|last| last.repeatable.as_ref()?.find(bytes));
        if let Some(Repeated { length, content_length }) = repeated {
            let last = self.last.as_ref()?;
            let text = &last.repeatable.as_ref()?.text;
            return Some(PlainHead::new(&last.parts, text, length, content_length as usize));
        }
        let (parts, text, body_length) = HeadParts::parse(bytes)?;
        let repeatable = Repeatable::of(&parts, text);
        let last = self.last.insert(Box::new(Last { parts, repeatable }));
        Some(PlainHead::new(&last.parts, text, text.len(), body_length))
    }
}

impl Repeatable {
    /// Returns `None` if the head cannot come again: only messages are sent often, and traced ones differ.
    fn of(parts: &HeadParts, text: &str) -> Option<Self> {
        if parts.method != "POST" || parts.headers.traceparent.is_some() || text.len() > LONGEST {
            return None;
        }
        Some(Self { text: text.to_owned(), digits: parts.headers.content_length.clone()? })
    }

    fn find(&self, bytes: &[u8]) -> Option<Repeated> {
        let repeated = same_head::find(self.text.as_bytes(), &self.digits, bytes)?;
        (repeated.content_length <= LARGEST_BODY as u64).then_some(repeated)
    }
}

#[cfg(test)]
mod tests {
    use super::super::head::PlainHeaders;
    use super::*;

    fn post(length: &str) -> String {
        format!(
            "POST /v0/groups/dev/mcp?a=b HTTP/1.1\r\nHost: h:1\r\nContent-Length: {length}\r\nMcp-Session-Id: s\r\n\
             Mcp-Method: tools/call\r\nAuthorization: Bearer t\r\nMCP-Protocol-Version: v\r\nX-Forwarded-For: 1.1.1.1\r\n\r\n"
        )
    }

    /// What a head says, for comparison.
    fn said(head: &PlainHead<'_>) -> String {
        let headers = &head.parts.headers;
        let PlainHeaders { host, accept, authorization, forwarded_for, session, version, .. } = headers;
        let values = [host, accept, authorization, forwarded_for, session, version];
        let values = values.map(|value| head.value(value));
        let (PlainHead { length, body_length, .. }, path, query) = (head, head.path(), head.query());
        let HeadParts { method, place, access, routing, .. } = head.parts;
        format!(
            "{method} {path} {query:?} {place:?} {access:?} {routing:?} {length} {body_length} {values:?}"
        )
    }

    #[test]
    fn a_repeated_head_is_read_as_if_it_were_the_first() {
        let mut memory = HeadMemory::default();
        for length in ["12", "7", "65536", "0", "0012"] {
            let request = post(length);
            let mut other = HeadMemory::default();
            let alone = other.read(request.as_bytes()).unwrap();
            let last = memory.last.as_ref().and_then(|last| last.repeatable.as_ref());
            let is_known = last.is_some_and(|last| last.find(request.as_bytes()).is_some());
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
            assert!(memory.read(request.as_bytes()).is_some(), "{header}");
            assert!(memory.last.as_ref().is_some_and(|last| last.repeatable.is_none()), "{header}");
        }
    }
}
