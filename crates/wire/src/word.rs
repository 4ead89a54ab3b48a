//! Byte search eight bytes at a time, and in long texts with vector instructions, without unsafe code: the inner loop of
//! [`super::scan`] and [`super::sse`], which process messages of many megabytes.

use memchr::memchr2;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;
/// Most strings are shorter, and for them vectors do not pay.
const SHORT: usize = 64;
/// A part of a long text that stays in the processor's cache while it is looked at twice.
const PART: usize = 4 * 1024;

/// The first quote, backslash or control character at or after `from`: where plain string content ends.
pub(super) fn string_stop(bytes: &[u8], from: usize) -> Option<usize> {
    find(
        bytes,
        from,
        |word| equals(word, b'"') | equals(word, b'\\') | below(word, 0x20),
        |byte| (byte == b'"') | (byte == b'\\') | (byte < 0x20),
        |rest| plain_length(rest, |least, _| least >= 0x20),
    )
}

/// The first byte that stops [`string_stop`] or is not ASCII. As a signed number, such a byte is smaller than 0x20 like
/// a control character, so this search costs less than the other.
#[inline(never)]
pub(super) fn ascii_string_stop(bytes: &[u8], from: usize) -> Option<usize> {
    let is = |word: u64, byte: u8| (word ^ (ONES * u64::from(byte))).wrapping_sub(ONES);
    find(
        bytes,
        from,
        |word| is(word, b'"') | is(word, b'\\') | word.wrapping_sub(ONES * 0x20) | word,
        |byte| (byte == b'"') | (byte == b'\\') | (byte.cast_signed() < 0x20),
        |rest| plain_length(rest, |least, all| least >= 0x20 && all.is_ascii()),
    )
}

/// The first CR or LF at or after `from`.
pub(super) fn line_end(bytes: &[u8], from: usize) -> Option<usize> {
    find(
        bytes,
        from,
        |word| equals(word, b'\n') | equals(word, b'\r'),
        |byte| (byte == b'\n') | (byte == b'\r'),
        |rest| memchr2(b'\n', b'\r', rest).unwrap_or(rest.len()),
    )
}

/// Finds the first hit. The lowest mark of a word is exact: a borrow spreads only upwards, from a byte that is a hit
/// itself. In a long text, `skip` returns how many bytes from its beginning are no hits.
fn find(
    bytes: &[u8],
    from: usize,
    in_word: impl Fn(u64) -> u64,
    is_hit: impl Fn(u8) -> bool,
    skip: impl Fn(&[u8]) -> usize,
) -> Option<usize> {
    let mut at = from;
    let mut long_from = from.saturating_add(SHORT);
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let marks = in_word(u64::from_le_bytes(*chunk)) & HIGHS;
        if marks != 0 {
            return Some(at + marks.trailing_zeros() as usize / 8);
        }
        at += 8;
        if at >= long_from {
            // After that, the hit is near.
            at += skip(&bytes[at..]);
            long_from = usize::MAX;
        }
    }
    bytes.get(at..)?.iter().position(|&byte| is_hit(byte)).map(|offset| at + offset)
}

/// How many bytes of a string are before its first quote or backslash, if `is_plain` holds for all of them; otherwise before
/// the part of them for which it does not. It is given the least byte, and the bits that occur in any byte.
#[inline(never)]
fn plain_length(text: &[u8], is_plain: impl Fn(u8, u8) -> bool) -> usize {
    let mut length = 0;
    for part in text.chunks(PART) {
        let end = memchr2(b'"', b'\\', part);
        // The loop has no early exit, so that the compiler uses vectors.
        let before = &part[..end.unwrap_or(part.len())];
        let (least, all) =
            before.iter().fold((u8::MAX, 0), |(least, all), &byte| (byte.min(least), byte | all));
        if !is_plain(least, all) {
            return length;
        }
        match end {
            Some(end) => return length + end,
            None => length += part.len(),
        }
    }
    length
}

fn equals(word: u64, byte: u8) -> u64 {
    below(word ^ (ONES * u64::from(byte)), 1)
}

/// High bits of the bytes smaller than `limit` (at most 0x80).
fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(ONES * u64::from(limit)) & !word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_is_found() {
        for length in (0..40).chain([63, 64, 65, 127, 128, 129, 200, 333]) {
            for hit in 0..length {
                for byte in [b'"', b'\\', 0, 0x1f, b'\n', b'\r'] {
                    let mut bytes = vec![0xc3; length];
                    bytes[hit] = byte;
                    let stops = |byte: u8| byte == b'"' || byte == b'\\' || byte < 0x20;
                    assert_eq!(string_stop(&bytes, 0), stops(byte).then_some(hit));
                    assert_eq!(string_stop(&bytes, hit + 1), None);
                    assert_eq!(ascii_string_stop(&bytes, 0), Some(0));
                    bytes.fill(b'a');
                    bytes[hit] = byte;
                    assert_eq!(ascii_string_stop(&bytes, 0), stops(byte).then_some(hit));
                    bytes[hit] = 0x80;
                    assert_eq!(ascii_string_stop(&bytes, 0), Some(hit));
                    bytes[hit] = byte;
                    assert_eq!(line_end(&bytes, 0), matches!(byte, b'\n' | b'\r').then_some(hit));
                }
            }
        }
    }

    #[test]
    fn neighbours_of_the_wanted_bytes_are_no_hits() {
        let bytes: Vec<u8> = (0x20..=0xff).filter(|byte| *byte != b'"' && *byte != b'\\').collect();
        assert_eq!(string_stop(&bytes, 0), None);
        assert_eq!(line_end(&bytes, 0), None);
        assert_eq!(string_stop(&bytes, bytes.len() + 9), None);
    }
}
