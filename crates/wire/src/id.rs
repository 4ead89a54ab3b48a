//! Request ids and progress tokens as the peer wrote them, and a fast search for the id of a response: a large response
//! is passed on without being parsed, so its id is searched at both ends first.

use std::hash::{Hash, Hasher};
use std::ops::Deref;

use super::scan::{Scan, Span};
use super::text;

/// A JSON string or number token, byte for byte, so that it goes back exactly as it came (`1` never `1.0`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id<'a> {
    raw: &'a [u8],
    pub span: Span,
}

impl<'a> Id<'a> {
    /// The token at `span`, or `None` if that is neither string nor number.
    pub fn at(body: &'a [u8], span: Span) -> Option<Self> {
        let raw = body.get(span.clone())?;
        matches!(raw.first()?, b'"' | b'-' | b'0'..=b'9').then_some(Self { raw, span })
    }

    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// The id as a number, as the gateway itself assigns them; `None` for a string, even one of digits.
    pub fn as_u64(&self) -> Option<u64> {
        std::str::from_utf8(self.raw).ok()?.parse().ok()
    }

    /// Whether this is a valid request id: a string, or a number without fraction and exponent.
    pub fn is_request_id(&self) -> bool {
        self.raw.starts_with(b"\"") || !self.raw.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'))
    }
}

/// An id or progress token that outlives its message. Short ones, which nearly all are, need no allocation.
#[derive(Clone, Debug)]
pub struct OwnedId(Stored);

#[derive(Clone, Debug)]
enum Stored {
    Inline(u8, [u8; INLINE]),
    Long(Box<[u8]>),
}

const INLINE: usize = 22;

impl From<&[u8]> for OwnedId {
    fn from(raw: &[u8]) -> Self {
        let mut bytes = [0; INLINE];
        match bytes.get_mut(..raw.len()) {
            Some(start) => {
                start.copy_from_slice(raw);
                Self(Stored::Inline(raw.len() as u8, bytes))
            }
            None => Self(Stored::Long(raw.into())),
        }
    }
}

impl OwnedId {
    /// The key under which a request is found: the same for all ways of writing the same string.
    pub fn key_of(raw: &[u8]) -> Self {
        if !raw.contains(&b'\\') {
            return raw.into();
        }
        // No key is that of another id: a string that is written without escapes has no quote in it, and no token begins
        // with a backslash.
        let key = match text::unescape(raw) {
            Some(value) => [b"\"", value.as_bytes(), b"\""].concat(),
            None => [b"\\", raw].concat(),
        };
        key.as_slice().into()
    }
}

impl From<&Id<'_>> for OwnedId {
    fn from(id: &Id<'_>) -> Self {
        id.raw.into()
    }
}

impl Default for OwnedId {
    fn default() -> Self {
        Self::from(&[][..])
    }
}

impl Deref for OwnedId {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Stored::Inline(length, bytes) => &bytes[..usize::from(*length)],
            Stored::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for OwnedId {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for OwnedId {}

impl Hash for OwnedId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

/// The span of the id of a response (a message with `result` or `error`); `None` for any other message and for a
/// response without an id. The bytes between the two ends are not checked, so the message may still turn out not to be
/// JSON. If there are several `id` members, the result is one at the top level.
pub fn find_answer_id(body: &[u8]) -> Option<Span> {
    let mut scan = Scan::unbounded(body);
    let mut id = None;
    scan.enter().ok()?;
    while let Some(key) = scan.key().ok()? {
        match &body[key] {
            br#""jsonrpc""# => {
                scan.value().ok()?;
            }
            br#""id""# => id = token(body, scan.value().ok()?),
            br#""result""# | br#""error""# => return id.or_else(|| at_end(body)).or_else(|| by_scan(body)),
            br#""method""# | br#""params""# => return None,
            _ => return by_scan(body),
        }
    }
    None
}

/// The id of a response of which only the two ends are known. `end` is empty if it is not known yet.
pub fn find_answer_id_at_ends(beginning: &[u8], end: &[u8]) -> Option<Vec<u8>> {
    let mut scan = Scan::unbounded(beginning);
    let mut id = None;
    scan.enter().ok()?;
    while let Some(key) = scan.key().ok()? {
        match &beginning[key] {
            br#""jsonrpc""# => {
                scan.value().ok()?;
            }
            br#""id""# => id = token(beginning, scan.value().ok()?).map(|span| beginning[span].to_vec()),
            br#""result""# | br#""error""# => {
                return id.or_else(|| at_end(end).map(|span| end[span].to_vec()));
            }
            _ => return None,
        }
    }
    None
}

/// The id if the message ends with `,"id":<id>}`. The last byte of an object is its own closing bracket; a scalar right
/// before that bracket is therefore a value of this object, and the quotes around its key cannot be part of a string,
/// since they are not escaped. An id inside a nested object is followed by another bracket.
fn at_end(body: &[u8]) -> Option<Span> {
    let rest = body.trim_ascii_end().strip_suffix(b"}")?.trim_ascii_end();
    let end = rest.len();
    let start = match rest.strip_suffix(b"\"") {
        Some(inner) => inner.iter().rposition(|&byte| byte == b'"')?,
        None => rest.iter().rposition(|byte| !matches!(byte, b'-' | b'0'..=b'9'))? + 1,
    };
    if start == end || rest[start..].contains(&b'\\') {
        return None;
    }
    let key = rest[..start].trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
    let before = key.strip_suffix(br#""id""#)?.trim_ascii_end();
    (before.last()? == &b',').then_some(start..end)
}

fn by_scan(body: &[u8]) -> Option<Span> {
    let mut scan = Scan::unbounded(body);
    let (mut id, mut answers) = (None, false);
    scan.enter().ok()?;
    while let Some(key) = scan.key().ok()? {
        let value = scan.value().ok()?;
        match text::unescape(&body[key]).as_deref() {
            Some("id") => id = id.or_else(|| token(body, value)),
            Some("result" | "error") => answers = true,
            Some("method") => return None,
            Some(_) | None => {}
        }
    }
    scan.finish().ok()?;
    id.filter(|_| answers)
}

fn token(body: &[u8], span: Span) -> Option<Span> {
    Id::at(body, span).filter(Id::is_request_id).map(|id| id.span)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(body: &str) -> Option<&str> {
        find_answer_id(body.as_bytes()).map(|span| &body[span])
    }

    #[test]
    fn a_request_is_found_however_its_id_is_written() {
        let key = |raw: &str| OwnedId::key_of(raw.as_bytes());
        for (one, other) in [
            (r#""c""#, r#""\u0063""#),
            (r#""a/\"b\"""#, r#""a\/\u0022b\u0022""#),
            (r#""\ud83d\ude00""#, "\"\u{1f600}\""),
        ] {
            assert_eq!(key(one), key(other));
        }
        let ids =
            ["1", r#""1""#, r#""c""#, r#""C""#, r#""\"c\"""#, r#""\\u0063""#, r#""\ud83d""#, r#""\\ud83d""#];
        for (at, one) in ids.iter().enumerate() {
            assert!(ids[at + 1..].iter().all(|other| key(one) != key(other)), "{one}");
        }
    }

    #[test]
    fn an_answers_id_is_found_wherever_it_stands() {
        assert_eq!(found(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#), Some("7"));
        assert_eq!(found(r#"{"result":{"id":1},"jsonrpc":"2.0","id" : "a b" } "#), Some(r#""a b""#));
        assert_eq!(found(r#"{"result":{},"id":-3}"#), Some("-3"));
        assert_eq!(found(r#"{"result":{},"id":"a\"b"}"#), Some(r#""a\"b""#));
        assert_eq!(found(r#"{"x":1,"\u0069d":4,"error":{}}"#), Some("4"));
        assert_eq!(found(r#"{"result":{},"id":4,"x":{"id":5}}"#), Some("4"));
        let deep = format!(r#"{{"result":{}{},"id":4,"x":1}}"#, "[".repeat(2000), "]".repeat(2000));
        assert_eq!(found(&deep), Some("4"));
    }

    #[test]
    fn ids_of_others_are_not_taken() {
        assert_eq!(found(r#"{"result":{"a":1,"id":5}}"#), None);
        assert_eq!(found(r#"{"result":{},"x\"id":5}"#), None);
        assert_eq!(found(r#"{"result":{},"x,\"id":"5"}"#), None);
        assert_eq!(found(r#"{"result":",\"id\":5"}"#), None);
        assert_eq!(found(r#"{"result":[1,{"id":2}],"ID":5}"#), None);
        assert_eq!(found(r#"{"id":1,"method":"ping"}"#), None);
        assert_eq!(found(r#"{"id":null,"error":{"code":1}}"#), None);
        assert_eq!(found(r#"{"id":1}"#), None);
        assert_eq!(found(r#"[{"id":1,"result":1}]"#), None);
    }

    #[test]
    fn tokens_keep_their_spelling() {
        let id = Id::at(br#""\u0061""#, 0..8).unwrap();
        assert_eq!(id.raw(), br#""\u0061""#);
        assert_eq!(Id::at(b"18446744073709551615", 0..20).unwrap().as_u64(), Some(u64::MAX));
        assert_eq!(Id::at(b"\"5\"", 0..3).unwrap().as_u64(), None);
        assert!(!Id::at(b"1.0", 0..3).unwrap().is_request_id());
        assert_eq!(Id::at(b"null", 0..4), None);
    }
}
