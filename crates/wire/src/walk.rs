//! Iterators of spans over JSON that was validated before, for parts of a message that the head does not read.

use std::borrow::Cow;

use super::scan::{Scan, Span, SyntaxError};
use super::text;

/// The span of the one JSON value that `body` consists of, without the white space around it.
pub fn whole(body: &[u8]) -> Result<Span, SyntaxError> {
    only_value(Scan::new(body))
}

/// Like [`whole`], for a value that may be nested deeper than any message: a batch, or a message that is refused.
pub fn whole_of_any_depth(body: &[u8]) -> Result<Span, SyntaxError> {
    only_value(Scan::unbounded(body))
}

fn only_value(mut scan: Scan<'_>) -> Result<Span, SyntaxError> {
    let span = scan.value()?;
    scan.finish()?;
    Ok(span)
}

/// Key (unescaped), key span and value span of each member of the object at `object`, in order. For JSON that was
/// validated before: on anything else the iterator just ends. A lone surrogate in a key reads as U+FFFD.
pub fn members<'a>(body: &'a [u8], object: &Span) -> Members<'a> {
    Members(Scan::within(body, object).filter(|scan| scan.peek() == Some(b'{')).map(Scan::entered))
}

/// The value span of each element of the array at `array`; for validated JSON, like [`members`].
pub fn elements<'a>(body: &'a [u8], array: &Span) -> Elements<'a> {
    Elements(Scan::within(body, array).filter(|scan| scan.peek() == Some(b'[')).map(Scan::entered))
}

/// The value span of the first member named `key`.
pub fn member(body: &[u8], object: &Span, key: &str) -> Option<Span> {
    members(body, object).find(|(name, ..)| name == key).map(|(.., value)| value)
}

#[derive(Debug, Clone)]
pub struct Members<'a>(Option<Scan<'a>>);

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, Span, Span);

    fn next(&mut self) -> Option<Self::Item> {
        let scan = self.0.as_mut()?;
        let key = scan.key().ok()??;
        let value = scan.value().ok()?;
        Some((text::unescape_lossy(&scan.body[key.clone()]), key, value))
    }
}

#[derive(Debug, Clone)]
pub struct Elements<'a>(Option<Scan<'a>>);

impl Iterator for Elements<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        self.0.as_mut()?.element().ok()?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_elements_give_spans() {
        let body = br#" { "a" : [1, "x"] , "\u0062":{} } "#;
        let found: Vec<_> = members(body, &(1..body.len())).collect();
        assert_eq!(found[0], ("a".into(), 3..6, 9..17));
        assert_eq!((found[1].0.as_ref(), &body[found[1].2.clone()]), ("b", &b"{}"[..]));
        let items: Vec<_> = elements(body, &found[0].2).map(|span| &body[span]).collect();
        assert_eq!(items, [&b"1"[..], b"\"x\""]);
        assert_eq!(members(body, &(9..17)).count(), 0);
        assert_eq!(elements(body, &(500..600)).count(), 0);
    }
}
