//! Edits to a message, as byte ranges with new bytes, all applied at once: bytes outside of the edits stay unchanged.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use super::scan::Span;
use super::text;
use super::walk;

/// Edits to one body, given in any order. Insertions at one place keep the order in which they were given and
/// come before a replacement that starts there.
#[derive(Debug, Clone)]
pub struct Patch<'a> {
    body: &'a [u8],
    edits: Vec<(Span, Cow<'a, [u8]>)>,
}

/// Unchanged parts of a message that are longer than this are worth a piece of their own.
const COPIED: usize = 8 * 1024;

/// Two edits overlap, or one is outside of the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub at: usize,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "edits of a message conflict at byte {}", self.at)
    }
}

impl std::error::Error for Conflict {}

impl<'a> Patch<'a> {
    pub fn new(body: &'a [u8]) -> Self {
        Self { body, edits: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    pub fn replace(&mut self, span: Span, with: impl Into<Cow<'a, [u8]>>) -> &mut Self {
        self.edits.push((span, with.into()));
        self
    }

    pub fn remove(&mut self, span: Span) -> &mut Self {
        self.replace(span, &[][..])
    }

    pub fn insert(&mut self, at: usize, what: impl Into<Cow<'a, [u8]>>) -> &mut Self {
        self.replace(at..at, what)
    }

    /// Sets the member `key` of `object` to the raw JSON `value`: replaces the existing one, or adds one at the end.
    pub fn set_member(&mut self, object: &Span, key: &str, value: &[u8]) -> &mut Self {
        self.edit_members(object, |_| false, &[(key, value)])
    }

    /// Removes the members of `object` whose key `is_unwanted`, and sets those of `set`. Call it once per object: the
    /// commas are correct only if all changes are known together.
    pub fn edit_members(
        &mut self,
        object: &Span,
        is_unwanted: impl Fn(&str) -> bool,
        set: &[(&str, &[u8])],
    ) -> &mut Self {
        let mut replaced = vec![false; set.len()];
        let mut commas = Commas::default();
        for (key, key_span, value) in walk::members(self.body, object) {
            let new = set.iter().position(|(name, _)| *name == key);
            match new {
                Some(index) if !replaced[index] => {
                    replaced[index] = true;
                    self.replace(value.clone(), set[index].1.to_vec());
                    commas.keep(key_span, value, &mut self.edits);
                }
                Some(_) => commas.drop(key_span, value),
                None if is_unwanted(&key) => commas.drop(key_span, value),
                None => commas.keep(key_span, value, &mut self.edits),
            }
        }
        let at = commas.kept.unwrap_or(object.start + 1);
        let mut comma = commas.kept.is_some();
        commas.finish(&mut self.edits);
        for ((key, value), _) in set.iter().zip(&replaced).filter(|(_, replaced)| !**replaced) {
            let mut member = if comma { b",".to_vec() } else { Vec::new() };
            member.extend_from_slice(&text::quote(key));
            member.push(b':');
            member.extend_from_slice(value);
            self.insert(at, member);
            comma = true;
        }
        self
    }

    /// Returns the changed message, in one allocation. On a conflict, which is a bug of the caller, it is empty: no
    /// peer accepts that as a message, whereas a partly edited one might contain a name that was never checked.
    pub fn apply(self) -> Bytes {
        let applied = self.try_apply();
        debug_assert!(applied.is_ok(), "{applied:?}");
        applied.unwrap_or_default()
    }

    /// Returns the changed message in pieces, of which long unchanged ones are parts of `whole`, which is the message
    /// itself. So a large message is not copied.
    pub fn apply_in_pieces(mut self, whole: &Bytes) -> Vec<Bytes> {
        if whole.len() <= COPIED || whole.len() != self.body.len() || self.length().is_err() {
            return vec![self.apply()];
        }
        let (mut pieces, mut copied, mut from) = (Vec::new(), Vec::new(), 0);
        let end = (whole.len()..whole.len(), Cow::Borrowed(&[][..]));
        for (span, with) in self.edits.iter().chain([&end]) {
            match span.start - from > COPIED {
                true => {
                    let before = Bytes::from(std::mem::take(&mut copied));
                    pieces.extend([before, whole.slice(from..span.start)]);
                }
                false => copied.extend_from_slice(&self.body[from..span.start]),
            }
            copied.extend_from_slice(with);
            from = span.end;
        }
        pieces.push(copied.into());
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }

    /// Sorts the edits and checks them. Returns the length of the changed message.
    fn length(&mut self) -> Result<usize, Conflict> {
        self.edits.sort_by_key(|(span, _)| (span.start, span.end));
        let (mut length, mut end) = (self.body.len(), 0);
        for (span, with) in &self.edits {
            if span.start < end || span.end < span.start || span.end > self.body.len() {
                return Err(Conflict { at: span.start });
            }
            length = length - span.len() + with.len();
            end = span.end;
        }
        Ok(length)
    }

    pub fn try_apply(mut self) -> Result<Bytes, Conflict> {
        let length = self.length()?;
        let mut out = Vec::with_capacity(length);
        let mut from = 0;
        for (span, with) in &self.edits {
            out.extend_from_slice(&self.body[from..span.start]);
            out.extend_from_slice(with);
            from = span.end;
        }
        out.extend_from_slice(&self.body[from..]);
        Ok(out.into())
    }
}

/// Turns runs of dropped members into spans that include exactly the right commas.
#[derive(Default)]
struct Commas {
    /// The end of the last kept member.
    kept: Option<usize>,
    dropping: Option<Span>,
}

impl Commas {
    fn drop(&mut self, key: Span, value: Span) {
        let start = self.dropping.as_ref().map_or(self.kept.unwrap_or(key.start), |run| run.start);
        self.dropping = Some(start..value.end);
    }

    fn keep(&mut self, key: Span, value: Span, edits: &mut Vec<(Span, Cow<'_, [u8]>)>) {
        if let Some(run) = self.dropping.take() {
            // A run at the front includes the comma after it, any other run the comma before it.
            let end = if self.kept.is_none() { key.start } else { run.end };
            edits.push((run.start..end, Cow::Borrowed(&[])));
        }
        self.kept = Some(value.end);
    }

    fn finish(self, edits: &mut Vec<(Span, Cow<'_, [u8]>)>) {
        edits.extend(self.dropping.map(|run| (run, Cow::Borrowed(&[][..]))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(body: &str, drop: &[&str], set: &[(&str, &[u8])]) -> String {
        let mut patch = Patch::new(body.as_bytes());
        patch.edit_members(&(0..body.len()), |key| drop.contains(&key), set);
        String::from_utf8(patch.apply().to_vec()).unwrap()
    }

    #[test]
    fn edits_may_be_given_in_any_order() {
        let mut patch = Patch::new(b"abcdef");
        patch
            .remove(4..6)
            .insert(0, b"<".to_vec())
            .replace(1..2, &b"BB"[..])
            .insert(1, &b"1"[..])
            .insert(1, &b"2"[..]);
        assert_eq!(patch.apply(), "<a12BBcd");
    }

    #[test]
    fn conflicts_are_told() {
        for (one, two) in [(0..3, 2..4), (0..1, 6..9), (1..4, 2..2)] {
            let mut patch = Patch::new(b"abcdef");
            patch.remove(one).remove(two);
            assert!(patch.try_apply().is_err());
        }
    }

    #[test]
    fn members_go_with_their_commas() {
        let body = r#"{"a":1, "b":2, "c":3, "d":4}"#;
        assert_eq!(edited(body, &["a", "b"], &[]), r#"{"c":3, "d":4}"#);
        assert_eq!(edited(body, &["b", "c"], &[]), r#"{"a":1, "d":4}"#);
        assert_eq!(edited(body, &["a", "c", "d"], &[]), r#"{"b":2}"#);
        assert_eq!(edited(body, &["a", "b", "c", "d"], &[]), "{}");
    }

    #[test]
    fn members_are_set_in_place_or_at_the_end() {
        assert_eq!(edited(r#"{"a":1,"b":2}"#, &["b"], &[("a", b"9"), ("c", b"3")]), r#"{"a":9,"c":3}"#);
        assert_eq!(edited(r#"{"a":1}"#, &["a"], &[("b", b"2"), ("c", b"3")]), r#"{"b":2,"c":3}"#);
        assert_eq!(edited("{ }", &[], &[("b", b"2")]), r#"{"b":2 }"#);
    }

    #[test]
    fn pieces_are_the_changed_message() {
        let long = "x".repeat(3 * COPIED);
        let whole = Bytes::from(format!(r#"{{"id":1,"result":"{long}","y":"{long}"}}"#));
        let end = whole.len();
        for edits in [
            vec![(6..7, "22")],
            vec![(0..1, "{ "), (6..7, ""), (end - 1..end, ",\"z\":1}")],
            vec![(6..6, "3"), (100..200, ""), (2 * COPIED..end - 10, "")],
            vec![(0..end, "{}")],
            vec![],
        ] {
            let patch = || {
                let mut patch = Patch::new(&whole);
                for (span, with) in &edits {
                    patch.replace(span.clone(), with.as_bytes());
                }
                patch
            };
            let pieces = patch().apply_in_pieces(&whole);
            assert_eq!(pieces.concat(), patch().apply(), "{edits:?}");
            assert!(pieces.iter().all(|piece| !piece.is_empty()));
        }
        let mut id = Patch::new(&whole);
        id.replace(6..7, &b"22"[..]);
        assert_eq!(id.apply_in_pieces(&whole).iter().map(Bytes::len).collect::<Vec<_>>(), [8, end - 7]);
    }
}
