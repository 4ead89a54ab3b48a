//! JSON strings, decoded and encoded. A decoded string keeps its position in the message, so that it can be replaced.

use std::borrow::Cow;

use super::scan::Span;
use super::word;

/// A string of a message: its value, and its position (quotes included).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text<'a> {
    pub value: Cow<'a, str>,
    pub span: Span,
}

impl Text<'_> {
    pub fn as_str(&self) -> &str {
        &self.value
    }
}

/// `text` as a JSON string, quotes included.
pub fn quote(text: &str) -> Vec<u8> {
    serde_json::to_vec(text).expect("a str always serializes to memory")
}

/// The value of a JSON string token (quotes included); `None` if it is not a valid one or contains a lone surrogate,
/// which a `str` cannot.
pub fn unescape(token: &[u8]) -> Option<Cow<'_, str>> {
    match decode(token)? {
        (text, Surrogates::Paired) => Some(text),
        (_, Surrogates::Lone) => None,
    }
}

/// Whether a string token (quotes included) is this text, written without escapes.
pub(super) fn is_plainly(token: &[u8], text: &str) -> bool {
    token.len() == text.len() + 2 && word::is_same(&token[1..token.len() - 1], text.as_bytes())
}

/// Whether a string token (quotes included) has this value, however it is written.
pub(super) fn says(token: &[u8], text: &str) -> bool {
    is_plainly(token, text) || token.contains(&b'\\') && unescape(token).is_some_and(|said| said == text)
}

/// The same for any value, which need not be a string.
pub(super) fn is_string(value: &[u8], text: &str) -> bool {
    value.first() == Some(&b'"') && says(value, text)
}

/// Like [`unescape`], with U+FFFD for a lone surrogate, and empty for anything that is not a string token.
pub fn unescape_lossy(token: &[u8]) -> Cow<'_, str> {
    decode(token).map(|(text, _)| text).unwrap_or_default()
}

enum Surrogates {
    Paired,
    Lone,
}

fn decode(token: &[u8]) -> Option<(Cow<'_, str>, Surrogates)> {
    let inner = std::str::from_utf8(token).ok()?.strip_prefix('"')?.strip_suffix('"')?;
    let Some(first) = inner.bytes().position(|byte| byte == b'\\') else {
        return Some((Cow::Borrowed(inner), Surrogates::Paired));
    };
    let mut out = String::with_capacity(inner.len());
    let mut surrogates = Surrogates::Paired;
    let (mut plain, mut rest) = inner.split_at(first);
    while let Some(escape) = rest.strip_prefix('\\') {
        out.push_str(plain);
        let (letter, mut after) = match escape.strip_prefix('u') {
            Some(digits) => code_point(digits)?,
            None => (Some(short_escape(escape.chars().next()?)?), escape.get(1..)?),
        };
        if letter.is_none() {
            surrogates = Surrogates::Lone;
        }
        out.push(letter.unwrap_or(char::REPLACEMENT_CHARACTER));
        (plain, after) = after.split_at(after.find('\\').unwrap_or(after.len()));
        rest = after;
    }
    out.push_str(plain);
    Some((Cow::Owned(out), surrogates))
}

fn short_escape(letter: char) -> Option<char> {
    Some(match letter {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        '"' | '\\' | '/' => letter,
        _ => return None,
    })
}

/// The character for the digits after `\u`, including the second half of a surrogate pair, and the rest of the text.
/// The character is `None` for a lone surrogate.
fn code_point(digits: &str) -> Option<(Option<char>, &str)> {
    let (first, after) = hex(digits)?;
    let second = after.strip_prefix("\\u").and_then(hex);
    match (first, second) {
        (0xd800..=0xdbff, Some((low @ 0xdc00..=0xdfff, after))) => {
            let code = 0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00);
            Some((char::from_u32(code), after))
        }
        _ => Some((char::from_u32(first), after)),
    }
}

fn hex(digits: &str) -> Option<(u32, &str)> {
    let (digits, after) = digits.split_at_checked(4)?;
    Some((u32::from_str_radix(digits, 16).ok()?, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_and_done() {
        assert_eq!(unescape(br#""plain""#), Some(Cow::Borrowed("plain")));
        assert_eq!(unescape(br#""na\u006de \ud83d\ude00 \"\n""#).as_deref(), Some("name 😀 \"\n"));
        assert_eq!(unescape(br#""\b\f\n\r\t\"\\\/""#).as_deref(), Some("\u{8}\u{c}\n\r\t\"\\/"));
        assert_eq!(unescape(br#""\ud83d""#), None);
        assert_eq!(unescape_lossy(br#""cut \ud83d\u0041\udc00""#), "cut \u{fffd}A\u{fffd}");
        assert_eq!(unescape(b"\"cut"), None);
        assert_eq!(quote("a\"\n"), br#""a\"\n""#);
    }
}
