//! A strict RFC 8259 scanner that yields spans of the body and allocates nothing: everything else in `wire` is built on
//! this pass. It decides what is JSON and where values are, not what they mean.

use std::ops::Range;

pub use super::token::SyntaxError;
use super::token::{TOO_DEEP, literal_end, number_end, string_end};
use super::word;

/// A byte range of a message; the range of a string includes the quotes.
pub type Span = Range<usize>;

/// Deepest nesting accepted; the message itself is the first level. serde_json reads raw values and skips unknown
/// members at any depth, but a typed `Value` only to level 127: no part of a message is read as one.
pub const MAX_DEPTH: usize = 1000;

/// A position in a body. To walk an object, call `enter`, then `key` and `value` in turn until `key` returns `None`;
/// its members can be entered the same way. `value` alone skips the next value.
#[derive(Debug, Clone)]
pub struct Scan<'a> {
    pub(super) body: &'a [u8],
    at: usize,
    depth: usize,
    max_depth: usize,
    /// Right after an opening bracket, where no comma is expected.
    fresh: bool,
}

impl<'a> Scan<'a> {
    pub fn new(body: &'a [u8]) -> Self {
        Self { body, at: 0, depth: 0, max_depth: MAX_DEPTH, fresh: false }
    }

    /// A scan of any depth: of what was checked before, of what the gateway wrote, or for the id of what is too deep.
    pub(super) fn unbounded(body: &'a [u8]) -> Self {
        Self { max_depth: usize::MAX, ..Self::new(body) }
    }

    pub(super) fn within(body: &'a [u8], span: &Span) -> Option<Self> {
        Some(Self { at: span.start, ..Self::unbounded(body.get(..span.end)?) })
    }

    /// The first byte of what comes next, white space skipped.
    #[inline]
    pub fn peek(&self) -> Option<u8> {
        match self.byte() {
            Some(byte) if byte > b' ' => Some(byte),
            Some(_) | None => self.clone().next_after_space(),
        }
    }

    /// Steps into the object or array that comes next and returns where it starts.
    #[inline]
    pub fn enter(&mut self) -> Result<usize, SyntaxError> {
        if !matches!(self.next(), Some(b'{' | b'[')) {
            return Err(self.fault("expected an object"));
        }
        let start = self.at;
        self.check_depth(self.depth)?;
        self.at += 1;
        self.depth += 1;
        self.fresh = true;
        Ok(start)
    }

    /// `enter` for a scan that is known to be just before a bracket.
    pub(super) fn entered(mut self) -> Self {
        self.next();
        self.at += 1;
        self.depth = 1;
        self.fresh = true;
        self
    }

    /// The next key of the object entered last, with the colon consumed; `None` when the object has ended.
    #[inline(always)]
    pub fn key(&mut self) -> Result<Option<Span>, SyntaxError> {
        let start = match self.byte() {
            Some(b'}') => {
                self.leave();
                return Ok(None);
            }
            Some(b',') if !self.fresh => self.at + 1,
            Some(_) if self.fresh => self.at,
            Some(_) | None => return self.any_key(),
        };
        match self.plain_key(start) {
            Some(key) => Ok(Some(key)),
            None => self.any_key(),
        }
    }

    /// The key at `start`, with the colon consumed, if it is short and there is no white space before the colon. So are nearly
    /// all keys in messages.
    #[inline(always)]
    fn plain_key(&mut self, start: usize) -> Option<Span> {
        let [b'"', text @ ..] = self.body.get(start..)?.first_chunk::<{ 1 + word::SHORT_TEXT }>()? else {
            return None;
        };
        let end = start + 2 + word::short_string_length(text)?;
        if *self.body.get(end)? != b':' {
            return None;
        }
        (self.at, self.fresh) = (end + 1, false);
        Some(start..end)
    }

    /// [`Self::key`], however the key is written.
    #[inline(never)]
    fn any_key(&mut self) -> Result<Option<Span>, SyntaxError> {
        if self.ends(b'}', "expected ',' or '}'")? { Ok(None) } else { self.key_and_colon().map(Some) }
    }

    /// The next element of the array entered last; `None` when the array has ended.
    pub fn element(&mut self) -> Result<Option<Span>, SyntaxError> {
        if self.ends(b']', "expected ',' or ']'")? { Ok(None) } else { self.value().map(Some) }
    }

    /// The position of the scan: right after the last thing read.
    pub fn position(&self) -> usize {
        self.at
    }

    pub fn finish(&mut self) -> Result<(), SyntaxError> {
        if self.next().is_none() { Ok(()) } else { Err(self.fault("unexpected text after the value")) }
    }

    /// Skips one value of any kind and depth, checking it, and returns its span. It is iterative, so that the input
    /// does not decide how much stack is used.
    #[inline]
    pub fn value(&mut self) -> Result<Span, SyntaxError> {
        match self.plain_string() {
            Some(string) => Ok(string),
            None => self.any_value(),
        }
    }

    /// The next value if it is a short string with no white space before it.
    #[inline]
    fn plain_string(&mut self) -> Option<Span> {
        let start = self.at;
        let [b'"', text @ ..] = self.body.get(start..)?.first_chunk::<{ 1 + word::SHORT_TEXT }>()? else {
            return None;
        };
        self.at = start + 2 + word::short_string_length(text)?;
        self.fresh = false;
        Some(start..self.at)
    }

    /// [`Self::value`], whatever it is.
    #[inline(never)]
    fn any_value(&mut self) -> Result<Span, SyntaxError> {
        let next = self.next();
        let start = self.at;
        self.fresh = false;
        match next {
            Some(b'{' | b'[') => self.containers()?,
            Some(_) => self.scalar()?,
            None => return Err(self.fault("unexpected end")),
        }
        Ok(start..self.at)
    }

    /// Skips an object or array with everything in it.
    #[inline(never)]
    fn containers(&mut self) -> Result<(), SyntaxError> {
        let mut open = Open::default();
        loop {
            let closed = match self.next() {
                Some(b'{') => self.open(&mut open, b'}')?,
                Some(b'[') => self.open(&mut open, b']')?,
                Some(_) if self.plain_string().is_some() => true,
                Some(_) => self.scalar().map(|()| true)?,
                None => return Err(self.fault("unexpected end")),
            };
            if closed && self.close(&mut open)? {
                return Ok(());
            }
        }
    }

    fn scalar(&mut self) -> Result<(), SyntaxError> {
        match self.byte() {
            Some(b'"') => self.token(string_end)?,
            Some(b'-' | b'0'..=b'9') => self.token(number_end)?,
            Some(_) | None => self.token(literal_end)?,
        };
        Ok(())
    }

    /// Opens a container inside `value`; true if it was empty and is closed already.
    fn open(&mut self, open: &mut Open, end: u8) -> Result<bool, SyntaxError> {
        self.check_depth(self.depth + open.count)?;
        self.at += 1;
        if self.next() == Some(end) {
            self.at += 1;
            return Ok(true);
        }
        open.push(end);
        if end == b'}' {
            self.key_and_colon()?;
        }
        Ok(false)
    }

    /// Closes the containers that end after a finished value; true if that was the outermost, false if a value follows.
    fn close(&mut self, open: &mut Open) -> Result<bool, SyntaxError> {
        while let Some(end) = open.end() {
            match self.next() {
                Some(b',') => {
                    self.at += 1;
                    if end == b'}' {
                        self.key_and_colon()?;
                    }
                    return Ok(false);
                }
                Some(byte) if byte == end => {
                    self.at += 1;
                    open.pop();
                }
                Some(_) => return Err(self.fault("expected ',' or the closing bracket")),
                None => return Err(self.fault("unexpected end")),
            }
        }
        Ok(true)
    }

    /// Consumes the closing bracket or the expected comma; true if it was the bracket.
    fn ends(&mut self, end: u8, reason: &'static str) -> Result<bool, SyntaxError> {
        let fresh = std::mem::replace(&mut self.fresh, false);
        match self.next() {
            Some(byte) if byte == end => {
                self.leave();
                Ok(true)
            }
            Some(b',') if !fresh => {
                self.at += 1;
                Ok(false)
            }
            Some(_) if fresh => Ok(false),
            Some(_) => Err(self.fault(reason)),
            None => Err(self.fault("unexpected end")),
        }
    }

    /// Steps out of the object or array entered last; the scan is at its closing bracket.
    fn leave(&mut self) {
        self.at += 1;
        self.depth = self.depth.saturating_sub(1);
        self.fresh = false;
    }

    /// The key that comes next, with the colon consumed.
    fn key_and_colon(&mut self) -> Result<Span, SyntaxError> {
        if let Some(key) = self.plain_key(self.at) {
            return Ok(key);
        }
        if self.next() != Some(b'"') {
            return Err(self.fault("expected a key"));
        }
        let key = self.token(string_end)?;
        if self.next() != Some(b':') {
            return Err(self.fault("expected ':'"));
        }
        self.at += 1;
        Ok(key)
    }

    /// Steps over a token whose end `measure` finds.
    fn token(
        &mut self,
        measure: impl Fn(&[u8], usize) -> Result<usize, SyntaxError>,
    ) -> Result<Span, SyntaxError> {
        let start = self.at;
        self.at = measure(self.body, start)?;
        Ok(start..self.at)
    }

    fn byte(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    /// The next byte that is not white space. Most messages have none between their tokens.
    #[inline]
    fn next(&mut self) -> Option<u8> {
        match self.byte() {
            Some(byte) if byte > b' ' => Some(byte),
            Some(_) | None => self.next_after_space(),
        }
    }

    #[inline(never)]
    fn next_after_space(&mut self) -> Option<u8> {
        while matches!(self.byte(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.byte()
    }

    fn check_depth(&self, depth: usize) -> Result<(), SyntaxError> {
        if depth < self.max_depth { Ok(()) } else { Err(self.fault(TOO_DEEP)) }
    }

    fn fault(&self, reason: &'static str) -> SyntaxError {
        SyntaxError { at: self.at, reason }
    }
}

/// The containers open inside one `value`, one bit each: set for an object.
#[derive(Default)]
struct Open {
    /// The innermost containers.
    objects: u128,
    count: usize,
    /// The containers around them, 128 at a time; allocates nothing for usual messages.
    outer: Vec<u128>,
}

impl Open {
    fn push(&mut self, end: u8) {
        if self.count > 0 && self.count.is_multiple_of(128) {
            self.outer.push(self.objects);
        }
        self.objects = self.objects << 1 | u128::from(end == b'}');
        self.count += 1;
    }

    fn pop(&mut self) {
        self.objects >>= 1;
        self.count -= 1;
        if self.count.is_multiple_of(128) {
            self.objects = self.outer.pop().unwrap_or_default();
        }
    }

    fn end(&self) -> Option<u8> {
        (self.count > 0).then_some(if self.objects & 1 == 1 { b'}' } else { b']' })
    }
}

#[cfg(test)]
mod tests {
    use super::super::walk::whole;
    use super::*;

    #[test]
    fn only_json_passes() {
        for good in
            ["{}", " [ ] ", "-0.5e+3", "\"\\ud83d\"", "[1,{\"a\":[null,true]},\"\"]", "{\"a\":{},\"b\":[]}"]
        {
            assert!(whole(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in [
            "",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "{,}",
            "01",
            "1.",
            "-",
            "tru",
            "\"\n\"",
            "\"\\x\"",
            "\"\\u12\"",
            "1 2",
            "[}",
        ] {
            assert!(whole(bad.as_bytes()).is_err(), "{bad}");
        }
        assert_eq!(whole(b"\"\xff\""), Err(SyntaxError { at: 1, reason: "invalid UTF-8" }));
        assert!(whole(b"[\xc3\xa9]").is_err() && whole("{\"\u{e9}\":\"\u{e9}\"}".as_bytes()).is_ok());
    }

    /// The members of an object, keys and values as written, but without spaces; `None` if it is not valid.
    fn members(body: &str) -> Option<Vec<[String; 2]>> {
        let mut scan = Scan::new(body.as_bytes());
        let mut members = Vec::new();
        scan.enter().ok()?;
        while let Some(key) = scan.key().ok()? {
            let value = scan.value().ok()?;
            members.push([key, value].map(|span| body[span].replace(' ', "")));
        }
        scan.finish().ok().map(|()| members)
    }

    #[test]
    fn tokens_without_white_space_are_read_as_those_with_it() {
        let spaced = |body: &str| {
            let letters = body.chars().map(|letter| match letter {
                '{' | '}' | '[' | ']' | ',' | ':' => format!(" {letter} "),
                _ => letter.into(),
            });
            letters.collect::<String>()
        };
        // Short strings with text behind them have a way of their own.
        for length in 0..20 {
            let text = "k".repeat(length);
            for end in ["", "0123456789abcdef"] {
                let object = |inner: &str| inner.replace('K', &format!("\"{text}\"")).replace('E', end);
                for good in [r#"{K:K,"b":[1,K,{K:2}],"c":"E"}"#, r#"{K:[],"d":{K:K,"e":"E"},"f":1}"#] {
                    let body = object(good);
                    let read = members(&body);
                    assert_eq!(read.as_ref().map(Vec::len), Some(3), "{body}");
                    assert_eq!(read, members(&spaced(&body)), "{body}");
                }
                for bad in [
                    r#"{,K:1,"b":"E"}"#,
                    r#"{K:1 "b":"E"}"#,
                    r#"{K:1"b":"E"}"#,
                    r#"{K:1,,"b":"E"}"#,
                    r#"{K:1,:"b":"E"}"#,
                    r#"{K::1,"b":"E"}"#,
                    r#"{K,"b":"E"}"#,
                    r#"{K K,"b":"E"}"#,
                    r#"{"b":"E",K:1,}"#,
                    r#"{"b":["E",{,K:1}]}"#,
                    r#"{"b":["E",{K 1}]}"#,
                    r#"{"b":["E"K]}"#,
                    r#"{K:"E"]"#,
                ] {
                    let body = object(bad);
                    assert_eq!((members(&body), members(&spaced(&body))), (None, None), "{body}");
                }
                let whole = object(r#"{K:K,"c":"E"}"#);
                for cut in 0..whole.len() {
                    assert_eq!(members(&whole[..cut]), None, "{whole} {cut}");
                }
            }
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(whole(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert!(whole(nested(MAX_DEPTH + 1).as_bytes()).is_err_and(|error| error.is_too_deep()));
        assert!(whole("[".repeat(1 << 20).as_bytes()).is_err());
        assert!(Scan::unbounded(nested(1 << 20).as_bytes()).value().is_ok());
    }

    #[test]
    fn every_bracket_counts_at_any_depth() {
        let check = |body: &str| Scan::new(body.as_bytes()).value().is_ok();
        let nested =
            |count, inner: &str| format!("{}{inner}{}", r#"[{"a":"#.repeat(count), "}]".repeat(count));
        assert!(check(&nested(MAX_DEPTH / 2, "1")));
        assert!(!check(&nested(MAX_DEPTH / 2, "[]")));
        for depth in [63, 64, 65, 128, 300] {
            let whole = nested(depth, "1");
            for at in 0..whole.len() {
                let mut broken = whole.clone().into_bytes();
                if matches!(broken[at], b'}' | b']') {
                    broken[at] = if broken[at] == b'}' { b']' } else { b'}' };
                    assert!(!check(std::str::from_utf8(&broken).unwrap()), "{depth} {at}");
                }
            }
        }
    }
}
