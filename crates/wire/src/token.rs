//! The scalar tokens of JSON: finds the end of a string, number or literal, or says why it is invalid. The inner part
//! of [`super::scan`], which handles objects and arrays.

use std::fmt;
use std::ops::Range;

use super::word;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    pub at: usize,
    pub reason: &'static str,
}

/// The reason for which JSON that is otherwise valid is refused.
pub(super) const TOO_DEEP: &str = "nesting deeper than 1,000 levels";

impl SyntaxError {
    /// Whether it may be JSON, but is nested too deep to be accepted.
    pub fn is_too_deep(&self) -> bool {
        self.reason == TOO_DEEP
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not valid JSON: {} at byte {}", self.reason, self.at)
    }
}

impl std::error::Error for SyntaxError {}

/// The end of a string; `at` is the position of the opening quote. UTF-8 is checked here and nowhere else, since all
/// other tokens are ASCII, and only in strings that have a byte beyond ASCII: most have none.
#[inline]
pub(super) fn string_end(body: &[u8], at: usize) -> Result<usize, SyntaxError> {
    // Nearly all strings are ASCII without escapes.
    match word::ascii_string_stop(body, at + 1) {
        Some(end) if body[end] == b'"' => Ok(end + 1),
        stop => unusual_string_end(body, at + 1, stop.unwrap_or(body.len())),
    }
}

/// The end of a string that starts at `start` and has something unusual at `at`.
#[inline(never)]
fn unusual_string_end(body: &[u8], start: usize, at: usize) -> Result<usize, SyntaxError> {
    let (mut at, mut is_ascii) = (at, true);
    loop {
        let stop = if is_ascii { word::ascii_string_stop } else { word::string_stop };
        at = stop(body, at).unwrap_or(body.len());
        match body.get(at) {
            Some(b'"') if is_ascii => return Ok(at + 1),
            Some(b'"') => return check_utf8(body, start..at).map(|()| at + 1),
            Some(b'\\') => at = escape_end(body, at)?,
            Some(0x80..) => is_ascii = false,
            Some(_) => return Err(SyntaxError { at, reason: "control character in a string" }),
            None => return Err(SyntaxError { at, reason: "unexpected end in a string" }),
        }
    }
}

fn check_utf8(body: &[u8], text: Range<usize>) -> Result<(), SyntaxError> {
    match std::str::from_utf8(&body[text.clone()]) {
        Ok(_) => Ok(()),
        Err(error) => Err(SyntaxError { at: text.start + error.valid_up_to(), reason: "invalid UTF-8" }),
    }
}

/// The end of an escape. Lone surrogates are accepted, as in RFC 8259: servers that cut a text inside an emoji really
/// send them.
fn escape_end(body: &[u8], at: usize) -> Result<usize, SyntaxError> {
    let length = match body.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
        Some(b'u') => 6,
        _ => return Err(SyntaxError { at, reason: "invalid escape" }),
    };
    match body.get(at + 2..at + length) {
        Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => Ok(at + length),
        _ => Err(SyntaxError { at, reason: "invalid escape" }),
    }
}

pub(super) fn number_end(body: &[u8], at: usize) -> Result<usize, SyntaxError> {
    let mut at = at;
    if body.get(at) == Some(&b'-') {
        at += 1;
    }
    at = if body.get(at) == Some(&b'0') { at + 1 } else { digits_end(body, at)? };
    if body.get(at) == Some(&b'.') {
        at = digits_end(body, at + 1)?;
    }
    if matches!(body.get(at), Some(b'e' | b'E')) {
        at += 1;
        if matches!(body.get(at), Some(b'+' | b'-')) {
            at += 1;
        }
        at = digits_end(body, at)?;
    }
    Ok(at)
}

fn digits_end(body: &[u8], at: usize) -> Result<usize, SyntaxError> {
    let rest = body.get(at..).unwrap_or_default();
    match rest.iter().take_while(|byte| byte.is_ascii_digit()).count() {
        0 => Err(SyntaxError { at, reason: "expected a digit" }),
        count => Ok(at + count),
    }
}

pub(super) fn literal_end(body: &[u8], at: usize) -> Result<usize, SyntaxError> {
    let rest = body.get(at..).unwrap_or_default();
    [&b"true"[..], b"false", b"null"]
        .into_iter()
        .find(|word| rest.starts_with(word))
        .map(|word| at + word.len())
        .ok_or(SyntaxError { at, reason: "expected a value" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_end_where_the_grammar_says() {
        assert_eq!(string_end(br#""a\"\u00e9\\" "#, 0), Ok(13));
        assert_eq!(number_end(b"-0.5e+30,", 0), Ok(8));
        assert_eq!(number_end(b"01", 0), Ok(1));
        assert_eq!(literal_end(b"nullx", 0), Ok(4));
    }

    #[test]
    fn broken_tokens_are_told_with_their_place() {
        for bad in [&b"\"cut"[..], b"\"\n\"", br#""\x""#, br#""\u12g4""#, br#""\u12"#, br#""\"#] {
            assert!(string_end(bad, 0).is_err(), "{bad:?}");
        }
        assert_eq!(
            string_end(b"\"a\xc3\xa9\\n\xc3\"", 0),
            Err(SyntaxError { at: 6, reason: "invalid UTF-8" })
        );
        assert_eq!(number_end(b"1.x", 0), Err(SyntaxError { at: 2, reason: "expected a digit" }));
        assert_eq!(number_end(b"1e", 0).map_err(|error| error.at), Err(2));
        assert_eq!(literal_end(b"nul", 0).map_err(|error| error.at), Err(0));
    }
}
