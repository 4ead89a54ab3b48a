//! The lines that a server writes to its standard output, one message each.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::charge::Charge;
use crate::error::too_large;
use budget::{Budgets, Exceeded, Limits};
use wire::Ends;

const READ_SIZE: usize = 64 * 1024;
/// Beyond this size a line takes its memory with it: an idle link must not keep the space of its largest message.
const LARGE: usize = 1024 * 1024;

/// Splits output into lines. A line is searched once, however many parts it arrives in, and is not copied.
pub struct LineReader<R> {
    source: R,
    limits: Limits,
    buffer: BytesMut,
    /// How much of the buffer has no line end.
    searched: usize,
    /// The ends of the current line, if it exceeds a bound and is therefore dropped.
    skipped: Option<(Ends, Exceeded)>,
    charge: Charge,
}

pub enum Line {
    /// A line without its end.
    Whole(Bytes),
    /// A line that is too long, or for which there is no room: reported when that is noticed, and again when the line is over.
    TooLong { ends: Ends, exceeded: Exceeded, is_over: bool },
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub fn new(source: R, budgets: &Budgets) -> Self {
        let (limits, charge) = (budgets.limits, Charge::new(&budgets.buffered));
        Self { source, limits, buffer: BytesMut::new(), searched: 0, skipped: None, charge }
    }

    /// The next line; `None` at the end of the output. Output after the last line end is a line too.
    pub async fn next(&mut self) -> std::io::Result<Option<Line>> {
        loop {
            if let Some(found) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
                let line = self.buffer.split_to(self.searched + found + 1);
                self.searched = 0;
                return Ok(Some(self.finish(line)));
            }
            self.searched = self.buffer.len();
            if let Some((skipped, _)) = &mut self.skipped {
                skipped.add(&self.buffer);
                self.drop_buffer();
            } else if let Err(exceeded) = self.cover() {
                let mut ends = Ends::default();
                ends.add(&self.buffer);
                self.drop_buffer();
                self.skipped = Some((ends.clone(), exceeded));
                return Ok(Some(Line::TooLong { ends, exceeded, is_over: false }));
            }
            self.buffer.reserve(READ_SIZE);
            if self.source.read_buf(&mut self.buffer).await? == 0 {
                let rest = self.buffer.split();
                self.searched = 0;
                return Ok((!rest.is_empty()).then(|| self.finish(rest)));
            }
        }
    }

    /// Checks the size of the line so far, and charges it.
    fn cover(&mut self) -> Result<(), Exceeded> {
        match self.buffer.len() > self.limits.message_bytes {
            true => Err(too_large(&self.limits)),
            false => self.charge.cover(self.buffer.len()),
        }
    }

    fn finish(&mut self, line: BytesMut) -> Line {
        if line.len() > LARGE {
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        let is_large = line.len() > self.limits.message_bytes;
        let large = is_large.then(|| (Ends::default(), too_large(&self.limits)));
        if let Some((mut ends, exceeded)) = self.skipped.take().or(large) {
            ends.add(&line);
            return Line::TooLong { ends, exceeded, is_over: true };
        }
        let mut line = self.charge.attach(line.freeze());
        line.truncate(line.trim_ascii_end().len());
        Line::Whole(line)
    }

    fn drop_buffer(&mut self) {
        self.charge.release();
        self.buffer = BytesMut::new();
        self.searched = 0;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// Every line of an output that is written in parts of this size.
    async fn lines(output: &[u8], limit: usize, size: usize) -> Vec<String> {
        let (mut writer, reader) = tokio::io::duplex(size);
        let write = async move {
            writer.write_all(output).await.unwrap();
        };
        let limits = Limits { message_bytes: limit, ..Limits::default() };
        let mut reader = LineReader::new(reader, &Budgets::new(limits));
        let mut lines = Vec::new();
        let read = async {
            while let Some(line) = reader.next().await.unwrap() {
                lines.push(match line {
                    Line::Whole(line) => String::from_utf8(line.to_vec()).unwrap(),
                    Line::TooLong { is_over: false, .. } => "too long".to_owned(),
                    Line::TooLong { ends, .. } => format!("{:?}", ends.answer_id(true)),
                });
                assert!(reader.buffer.len() <= limit + READ_SIZE);
            }
        };
        tokio::join!(write, read);
        lines
    }

    #[tokio::test]
    async fn lines_are_the_same_however_they_arrive() {
        for size in [1, 2, 5, 1000] {
            let read = lines(b"one\r\n\n two\nthe rest", 100, size).await;
            assert_eq!(read, ["one", "", " two", "the rest"], "{size}");
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_dropped_and_the_next_one_read() {
        let long = format!("{{\"result\":\"{}\",\"id\":7}}\nnext\n", "x".repeat(300_000));
        for size in [1000, 1 << 20] {
            let read = lines(long.as_bytes(), 10_000, size).await;
            assert_eq!(read.last().unwrap(), "next");
            assert!(read.contains(&format!("{:?}", Some(b"7"))), "{read:?}");
        }
    }
}
