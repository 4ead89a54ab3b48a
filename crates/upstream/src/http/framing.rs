//! Where the body of a response ends, and the decoding of chunks. Everything ambiguous is an error: two readers that
//! disagree about the end of a body disagree about the beginning of the next one. Does no I/O.

use bytes::{Buf, Bytes, BytesMut};
use memchr::{memchr, memchr2};

/// The bytes that the chunk extensions and the trailers of one body may take together.
const ASIDE_LIMIT: usize = 8 * 1024;
const MAX_TRAILERS: usize = 100;
/// The digits of the largest size.
const MAX_DIGITS: usize = 16;

/// What is still to be read of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// This many bytes.
    Length(u64),
    Chunked(Chunked),
    /// Everything until the server closes the connection.
    UntilClose,
}

/// The next step of reading a body.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    Data(Bytes),
    /// The buffer has to be filled first.
    Missing,
    End,
}

/// A chunked body that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunked {
    part: Part,
    /// The bytes of extensions and trailers that were skipped.
    skipped: usize,
    trailers: usize,
    /// How many bytes of the buffer contain no line end.
    scanned: usize,
}

/// What comes next in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Size,
    /// The rest of the line with the size.
    Extension {
        size: u64,
        /// Whether anything but white space was seen.
        has_begun: bool,
    },
    /// This many bytes of a chunk.
    Data(u64),
    /// The line end after a chunk.
    DataEnd,
    Trailers,
    End,
}

impl Framing {
    pub const CHUNKED: Self =
        Self::Chunked(Chunked { part: Part::Size, skipped: 0, trailers: 0, scanned: 0 });

    /// Takes the next piece of the body from the buffer, without copying it.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Piece, String> {
        match self {
            Framing::Length(0) => Ok(Piece::End),
            Framing::Length(left) => Ok(take(left, buffer)),
            Framing::Chunked(chunked) => chunked.next(buffer),
            Framing::UntilClose if buffer.is_empty() => Ok(Piece::Missing),
            Framing::UntilClose => Ok(Piece::Data(buffer.split().freeze())),
        }
    }

    /// Whether the body is whole if the connection ends now.
    pub fn ends_with_connection(&self) -> bool {
        matches!(self, Framing::UntilClose)
    }
}

impl Chunked {
    fn next(&mut self, buffer: &mut BytesMut) -> Result<Piece, String> {
        loop {
            let is_over = match &mut self.part {
                Part::Size => self.read_size(buffer)?,
                Part::Extension { size, has_begun } => {
                    let (size, has_begun) = (*size, *has_begun);
                    self.skip_extension(size, has_begun, buffer)?
                }
                Part::Data(0) => {
                    self.part = Part::DataEnd;
                    true
                }
                Part::Data(left) => return Ok(take(left, buffer)),
                Part::DataEnd => match &buffer[..] {
                    [b'\r', b'\n', ..] => {
                        buffer.advance(2);
                        self.part = Part::Size;
                        true
                    }
                    [] | [b'\r'] => false,
                    _ => return Err("a chunk of the response is longer than its size".into()),
                },
                Part::Trailers => self.skip_trailer(buffer)?,
                Part::End => return Ok(Piece::End),
            };
            if !is_over {
                return Ok(Piece::Missing);
            }
        }
    }

    /// Reads the size of a chunk; false if it is not complete.
    fn read_size(&mut self, buffer: &mut BytesMut) -> Result<bool, String> {
        let digits = buffer.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if digits > MAX_DIGITS || (digits == 0 && !buffer.is_empty()) {
            return Err(invalid_size());
        }
        if digits == buffer.len() {
            return Ok(false);
        }
        let text = std::str::from_utf8(&buffer[..digits]).ok();
        let size = text.and_then(|text| u64::from_str_radix(text, 16).ok());
        buffer.advance(digits);
        self.part = Part::Extension { size: size.ok_or_else(invalid_size)?, has_begun: false };
        Ok(true)
    }

    /// Skips what follows a size on its line; false if the line is not complete.
    fn skip_extension(&mut self, size: u64, has_begun: bool, buffer: &mut BytesMut) -> Result<bool, String> {
        let length = memchr2(b'\r', b'\n', buffer).unwrap_or(buffer.len());
        let first = buffer[..length].iter().copied().find(|byte| !matches!(byte, b' ' | b'\t'));
        if !has_begun && first.is_some_and(|byte| byte != b';') {
            return Err(invalid_size());
        }
        self.skip(length)?;
        buffer.advance(length);
        match &buffer[..] {
            [b'\r', b'\n', ..] => {
                buffer.advance(2);
                self.part = if size == 0 { Part::Trailers } else { Part::Data(size) };
                Ok(true)
            }
            [] | [b'\r'] => {
                self.part = Part::Extension { size, has_begun: has_begun || first.is_some() };
                Ok(false)
            }
            _ => Err(invalid_size()),
        }
    }

    /// Skips one line after the last chunk; false if it is not complete. Nobody needs trailers, but they have to be valid.
    fn skip_trailer(&mut self, buffer: &mut BytesMut) -> Result<bool, String> {
        let invalid = || "the end of the response is not valid".to_owned();
        if matches!(&buffer[..], [b'\r', after, ..] if *after != b'\n') {
            return Err(invalid());
        }
        let Some(end) = memchr(b'\n', &buffer[self.scanned..]) else {
            self.scanned = buffer.len();
            return if self.skipped + self.scanned <= ASIDE_LIMIT { Ok(false) } else { Err(too_long()) };
        };
        let line = buffer.split_to(self.scanned + end + 1);
        self.scanned = 0;
        self.skip(line.len())?;
        if line[..] == *b"\r\n" {
            self.part = Part::End;
            return Ok(true);
        }
        self.trailers += 1;
        // The parser takes one valid line as the beginning of several.
        let mut field = [httparse::EMPTY_HEADER];
        let parsed = httparse::parse_headers(&line, &mut field);
        match line.ends_with(b"\r\n")
            && self.trailers <= MAX_TRAILERS
            && parsed == Ok(httparse::Status::Partial)
        {
            true => Ok(true),
            false => Err(invalid()),
        }
    }

    fn skip(&mut self, length: usize) -> Result<(), String> {
        self.skipped += length;
        if self.skipped <= ASIDE_LIMIT { Ok(()) } else { Err(too_long()) }
    }
}

/// Takes at most `left` bytes.
fn take(left: &mut u64, buffer: &mut BytesMut) -> Piece {
    if buffer.is_empty() {
        return Piece::Missing;
    }
    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
    *left -= length as u64;
    Piece::Data(buffer.split_to(length).freeze())
}

fn invalid_size() -> String {
    "the size of a chunk of the response is not valid".into()
}

fn too_long() -> String {
    format!("the response has chunk extensions and trailers of more than {} KiB", ASIDE_LIMIT / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds a body in pieces of this size; `None` if its end does not come.
    fn read(mut framing: Framing, body: &[u8], size: usize) -> Result<Option<(Vec<u8>, usize)>, String> {
        let mut buffer = BytesMut::new();
        let mut read = Vec::new();
        let mut pieces = body.chunks(size);
        loop {
            match framing.next(&mut buffer)? {
                Piece::Data(data) => read.extend_from_slice(&data),
                Piece::End => return Ok(Some((read, buffer.len() + pieces.map(<[u8]>::len).sum::<usize>()))),
                Piece::Missing => match pieces.next() {
                    Some(piece) => buffer.extend_from_slice(piece),
                    None => return Ok(None),
                },
            }
        }
    }

    /// The result, which must not depend on how the body is cut.
    fn read_all_ways(framing: Framing, body: &[u8]) -> Result<Option<(Vec<u8>, usize)>, String> {
        let whole = read(framing, body, body.len().max(1));
        for size in 1..body.len() {
            assert_eq!(read(framing, body, size), whole, "{size}: {}", body.escape_ascii());
        }
        whole
    }

    #[test]
    fn a_chunked_body_ends_where_it_says() {
        for (body, data, left) in [
            ("0\r\n\r\n", "", 0),
            ("3\r\nabc\r\n0\r\n\r\n", "abc", 0),
            ("3\r\nabc\r\n00002\r\nde\r\n0\r\n\r\nHTTP", "abcde", 4),
            ("A\r\n0123456789\r\n0\r\n\r\n", "0123456789", 0),
            ("a;name=\"v\" ;x\r\n0123456789\r\n0;last\r\n\r\n", "0123456789", 0),
            ("3 \t\r\nabc\r\n0\r\n\r\n", "abc", 0),
            ("3\r\n\r\n\r\r\n0\r\nA: b\r\nC: d\r\n\r\nx", "\r\n\r", 1),
        ] {
            let read = read_all_ways(Framing::CHUNKED, body.as_bytes());
            assert_eq!(read, Ok(Some((data.as_bytes().to_vec(), left))), "{body:?}");
        }
    }

    #[test]
    fn an_unfinished_chunked_body_has_no_end() {
        let body = b"3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n";
        for length in 0..body.len() {
            assert_eq!(read_all_ways(Framing::CHUNKED, &body[..length]), Ok(None), "{length}");
        }
    }

    #[test]
    fn invalid_chunks_are_refused() {
        for body in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "+1\r\na\r\n",
            "0x1\r\na\r\n",
            " 1\r\na\r\n",
            "1\na\r\n",
            "1\ra\r\n",
            "1 1\r\na",
            "1 x\r\na",
            "1;a\nb\r\na",
            "3\r\nabcd\r\n",
            "3\r\nabc\n0\r\n\r\n",
            "3\r\nabc\rx",
            "10000000000000000\r\n",
            "fffffffffffffffff\r\n",
            "0\r\n\rx",
            "0\r\nno colon\r\n\r\n",
            "0\r\nA: b\n\nC: d\r\n\r\n",
            "0\r\nA: b\nC: d\r\n\r\n",
            "00000000000000001\r\na\r\n",
            "0\r\n A: folded\r\n\r\n",
        ] {
            assert!(read_all_ways(Framing::CHUNKED, body.as_bytes()).is_err(), "{body:?}");
        }
    }

    #[test]
    fn the_largest_size_does_not_overflow() {
        let body = b"ffffffffffffffff\r\nabc";
        assert_eq!(read_all_ways(Framing::CHUNKED, body), Ok(None));
    }

    #[test]
    fn what_comes_beside_the_data_is_bounded() {
        let extension = |length: usize| format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(length));
        let many = |length: usize, times: usize| {
            format!("{}0\r\n\r\n", format!("1;{}\r\na\r\n", "x".repeat(length)).repeat(times))
        };
        let trailer = |length: usize| format!("0\r\nA: {}\r\n\r\n", "x".repeat(length));
        let trailers = |times: usize| format!("0\r\n{}\r\n", "A: b\r\n".repeat(times));
        for (body, is_valid) in [
            (extension(8_000), true),
            (extension(9_000), false),
            (many(100, 70), true),
            (many(100, 100), false),
            (trailer(8_000), true),
            (trailer(9_000), false),
            (trailers(100), true),
            (trailers(101), false),
        ] {
            for size in [1000, 100_000] {
                let read = read(Framing::CHUNKED, body.as_bytes(), size);
                assert_eq!(read.is_ok_and(|read| read.is_some()), is_valid, "{}", body.len());
            }
        }
        // An error does not wait for the end of what is too long.
        for start in ["1;", "0\r\nA: "] {
            let endless = format!("{start}{}", "x".repeat(20_000));
            assert!(read(Framing::CHUNKED, endless.as_bytes(), 1000).is_err());
        }
    }

    #[test]
    fn other_bodies_end_after_their_length_or_with_the_connection() {
        assert_eq!(read_all_ways(Framing::Length(0), b"abc"), Ok(Some((vec![], 3))));
        assert_eq!(read_all_ways(Framing::Length(3), b"abcd"), Ok(Some((b"abc".to_vec(), 1))));
        assert_eq!(read_all_ways(Framing::Length(u64::MAX), b"abcd"), Ok(None));
        assert_eq!(read_all_ways(Framing::UntilClose, b"abcd"), Ok(None));
        assert!(Framing::UntilClose.ends_with_connection());
        assert!(!Framing::Length(1).ends_with_connection() && !Framing::CHUNKED.ends_with_connection());
    }
}
