//! Byte search eight or sixteen bytes at a time, and in long texts with vector instructions: the inner loop of [`super::scan`]
//! and [`super::sse`], which process messages of many megabytes.

use memchr::memchr2;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;
/// Most strings are shorter, and for them vectors do not pay.
const SHORT: usize = 64;
/// How much of a long text is looked at before it is decided whether it has a hit: a few vectors.
const BLOCK: usize = 128;

/// The first quote, backslash or control character at or after `from`: where plain string content ends.
pub(super) fn string_stop(bytes: &[u8], from: usize) -> Option<usize> {
    find(
        bytes,
        from,
        first_in_word(|word| equals(word, b'"') | equals(word, b'\\') | below(word, 0x20)),
        |byte| (byte == b'"') | (byte == b'\\') | (byte < 0x20),
        blocks_without,
    )
}

/// The first byte that stops [`string_stop`] or is not ASCII. As a signed number, such a byte is smaller than 0x20 like
/// a control character, so this search costs less than the other.
#[inline]
pub(super) fn ascii_string_stop(bytes: &[u8], from: usize) -> Option<usize> {
    // Most strings are short.
    match bytes.get(from..).and_then(|rest| rest.first_chunk()).and_then(first_unusual) {
        Some(offset) => Some(from + offset),
        None => far_ascii_string_stop(bytes, from),
    }
}

#[inline(never)]
fn far_ascii_string_stop(bytes: &[u8], from: usize) -> Option<usize> {
    let is_hit = |byte: u8| (byte == b'"') | (byte == b'\\') | (byte.cast_signed() < 0x20);
    find(bytes, from, first_unusual, is_hit, blocks_without)
}

/// How many bytes [`first_unusual`] looks at: a vector, or a word where it does without vectors.
pub(super) const SHORT_TEXT: usize = if cfg!(target_arch = "x86_64") { 16 } else { 8 };

/// The length of a string of ASCII without escapes, if it ends within `text`, which begins behind the opening quote.
#[inline]
pub(super) fn short_string_length(text: &[u8; SHORT_TEXT]) -> Option<usize> {
    let stop = first_unusual(text)?;
    (text.get(stop) == Some(&b'"')).then_some(stop)
}

/// The first byte at which [`ascii_string_stop`] stops.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)] // Vector instructions have no safe interface for programs that need not ask whether they exist.
#[inline]
fn first_unusual(vector: &[u8; SHORT_TEXT]) -> Option<usize> {
    // SAFETY: all processors of this kind have these instructions.
    unsafe { first_unusual_by_sse2(vector) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn first_unusual_by_sse2(vector: &[u8; 16]) -> Option<usize> {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_cmplt_epi8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8,
    };
    let [low, high] = [0, 8].map(|at| i64::from_le_bytes(std::array::from_fn(|index| vector[at + index])));
    let (vector, all) = (_mm_set_epi64x(high, low), |byte: u8| _mm_set1_epi8(byte.cast_signed()));
    let ends = _mm_or_si128(_mm_cmpeq_epi8(vector, all(b'"')), _mm_cmpeq_epi8(vector, all(b'\\')));
    let hits = _mm_movemask_epi8(_mm_or_si128(ends, _mm_cmplt_epi8(vector, all(0x20))));
    (hits != 0).then_some(hits.trailing_zeros() as usize)
}

#[cfg(not(target_arch = "x86_64"))]
fn first_unusual(word: &[u8; SHORT_TEXT]) -> Option<usize> {
    let is = |word: u64, byte: u8| (word ^ (ONES * u64::from(byte))).wrapping_sub(ONES);
    first_in_word(|word| is(word, b'"') | is(word, b'\\') | word.wrapping_sub(ONES * 0x20) | word)(word)
}

/// Whether two texts are the same. Most are short, and compared without a call.
#[inline]
pub(super) fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    // Where the other is a constant, nothing is left of this choice.
    match other.len() {
        4..8 => have_same_ends::<4>(one, other),
        8..=16 => have_same_ends::<8>(one, other),
        _ => one == other,
    }
}

/// Whether the first and the last `N` bytes, which overlap, are the same.
#[inline]
fn have_same_ends<const N: usize>(one: &[u8], other: &[u8]) -> bool {
    one.first_chunk::<N>() == other.first_chunk() && one.last_chunk::<N>() == other.last_chunk()
}

/// The first CR or LF at or after `from`.
pub(super) fn line_end(bytes: &[u8], from: usize) -> Option<usize> {
    find(
        bytes,
        from,
        first_in_word(|word| equals(word, b'\n') | equals(word, b'\r')),
        |byte| (byte == b'\n') | (byte == b'\r'),
        |rest, _| memchr2(b'\n', b'\r', rest).unwrap_or(rest.len()),
    )
}

/// The first hit of a word, from its marks: the high bits of the bytes that are hits. The lowest mark is exact: a borrow spreads
/// only upwards, from a byte that is a hit itself.
fn first_in_word(marks: impl Fn(u64) -> u64) -> impl Fn(&[u8; 8]) -> Option<usize> {
    move |word| {
        let marks = marks(u64::from_le_bytes(*word)) & HIGHS;
        (marks != 0).then_some(marks.trailing_zeros() as usize / 8)
    }
}

/// Finds the first hit, `N` bytes at a time. In a long text, `skip` returns how many bytes from its beginning are no hits.
fn find<const N: usize, H: Fn(u8) -> bool>(
    bytes: &[u8],
    from: usize,
    first_in: impl Fn(&[u8; N]) -> Option<usize>,
    is_hit: H,
    skip: impl Fn(&[u8], &H) -> usize,
) -> Option<usize> {
    let mut at = from;
    let mut long_from = from.saturating_add(SHORT);
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        if let Some(offset) = first_in(chunk) {
            return Some(at + offset);
        }
        at += N;
        if at >= long_from {
            // After that, the hit is near.
            at += skip(&bytes[at..], &is_hit);
            long_from = usize::MAX;
        }
    }
    bytes.get(at..)?.iter().position(|&byte| is_hit(byte)).map(|offset| at + offset)
}

/// The length of the blocks before the first one with a hit, with the widest vectors that the processor has.
#[inline(never)]
#[allow(unsafe_code)] // Only the caller knows which instructions the processor has.
fn blocks_without(text: &[u8], is_hit: &impl Fn(u8) -> bool) -> usize {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has these instructions.
        return unsafe { blocks_without_by_avx2(text, is_hit) };
    }
    count_blocks(text, is_hit)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn blocks_without_by_avx2(text: &[u8], is_hit: &impl Fn(u8) -> bool) -> usize {
    count_blocks(text, is_hit)
}

/// Inlined, so that it is compiled for the instructions of its caller.
#[inline(always)]
fn count_blocks(text: &[u8], is_hit: &impl Fn(u8) -> bool) -> usize {
    let (blocks, _) = text.as_chunks::<BLOCK>();
    // The look at a block has no early exit, so that the compiler uses vectors.
    let has_hit = |block: &[u8; BLOCK]| block.iter().fold(false, |any, &byte| any | is_hit(byte));
    blocks.iter().position(has_hit).unwrap_or(blocks.len()) * BLOCK
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
        for length in (0..40).chain([63, 64, 65, 127, 128, 129, 191, 192, 193, 200, 333]) {
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
                    if let Some(text) = bytes.first_chunk() {
                        let is_end = byte == b'"' && hit < SHORT_TEXT;
                        assert_eq!(short_string_length(text), is_end.then_some(hit));
                    }
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
