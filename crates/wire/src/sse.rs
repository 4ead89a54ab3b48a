//! Server-sent events (the WHATWG event stream format) as bytes: a scanner for incoming chunks, and the frames that the
//! gateway writes. It has no connection and knows nothing about MCP.

use std::fmt;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};

use super::ends::Ends;
use super::word;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// An event with data. The data may be empty: servers send such events only for their id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub name: Option<String>,
    pub data: Bytes,
    /// The id of this event, if it has one; the id to resume from is [`Scanner::last_event_id`].
    pub id: Option<String>,
}

/// An event was larger than allowed. It is skipped; the events after it can still be read. Reported twice: when the
/// event exceeds the limit, and when it is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooLong {
    pub limit: usize,
    /// Both ends of the event, once it is over.
    pub ends: Option<Ends>,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an event of the stream is larger than {} bytes", self.limit)
    }
}

impl std::error::Error for TooLong {}

/// Splits a stream into events: feed it chunks, and take events until there is none. An event that is unfinished when
/// the stream ends is dropped.
#[derive(Debug)]
pub struct Scanner {
    limit: usize,
    buffer: BytesMut,
    /// How much of the buffer is known to have no line end; makes the search linear for a line of many chunks.
    searched: usize,
    started: bool,
    /// The last line ended with CR: an LF right after it belongs to that line end.
    after_cr: bool,
    /// The ends of the current event, if the rest of it is dropped because of its size.
    skipped: Option<Box<Ends>>,
    /// Bytes of the current line were dropped already, so it is not the empty line that ends an event.
    line_cut: bool,
    partial: PartialEvent,
    last_event_id: Option<String>,
    retry: Option<Duration>,
}

impl Scanner {
    /// `max_event_bytes` limits one line and all data of one event; nothing larger is ever buffered.
    pub fn new(max_event_bytes: usize) -> Self {
        Self {
            limit: max_event_bytes,
            buffer: BytesMut::new(),
            searched: 0,
            started: false,
            after_cr: false,
            skipped: None,
            line_cut: false,
            partial: PartialEvent::default(),
            last_event_id: None,
            retry: None,
        }
    }

    pub fn feed(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    pub fn next_event(&mut self) -> Option<Result<Event, TooLong>> {
        if !self.begin() {
            return None;
        }
        while let Some(line) = self.next_line() {
            let cut = std::mem::replace(&mut self.line_cut, false);
            let blank = line.is_empty() && !cut;
            if let Some(skipped) = &mut self.skipped {
                if blank {
                    let ends = self.skipped.take().map(|ends| *ends);
                    return Some(Err(TooLong { limit: self.limit, ends }));
                }
                skipped.add(&line);
                skipped.add(b"\n");
            } else if blank {
                if let Some(event) = self.dispatch() {
                    return Some(Ok(event));
                }
            } else if self.partial.size + line.len() > self.limit {
                return Some(Err(self.skip(&[&line, b"\n"])));
            } else {
                self.field(line);
            }
        }
        if let Some(skipped) = &mut self.skipped {
            self.line_cut |= !self.buffer.is_empty();
            skipped.add(&self.buffer);
            self.cut();
        } else if self.partial.size + self.buffer.len() > self.limit {
            self.line_cut = true;
            let rest = self.buffer.split();
            self.cut();
            return Some(Err(self.skip(&[&rest])));
        }
        None
    }

    /// The number of bytes that are buffered for events that are not complete.
    pub fn held(&self) -> usize {
        self.buffer.len() + self.partial.size
    }

    /// The id after which to resume; events without data count too.
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// How long the server asks a client to wait before it reconnects.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Drops the byte order mark; false while it is not yet known whether there is one.
    fn begin(&mut self) -> bool {
        if !self.started {
            if self.buffer.len() < BOM.len() && BOM.starts_with(&self.buffer) {
                return false;
            }
            if self.buffer.starts_with(BOM) {
                self.buffer.advance(BOM.len());
            }
            self.started = true;
        }
        true
    }

    fn next_line(&mut self) -> Option<Bytes> {
        if self.after_cr && !self.buffer.is_empty() {
            self.after_cr = false;
            if self.buffer[0] == b'\n' {
                self.buffer.advance(1);
            }
        }
        let Some(end) = word::line_end(&self.buffer, self.searched) else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(end).freeze();
        self.after_cr = self.buffer[0] == b'\r';
        self.buffer.advance(1);
        self.searched = 0;
        Some(line)
    }

    fn field(&mut self, line: Bytes) {
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let mut value = line.slice((colon + 1).min(line.len())..);
        if value.starts_with(b" ") {
            value.advance(1);
        }
        match &line[..colon] {
            b"data" => self.partial.add(value),
            b"event" => self.partial.name = Some(owned(&value)).filter(|name| !name.is_empty()),
            b"id" if !value.contains(&0) => self.partial.id = Some(owned(&value)),
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                let milliseconds = owned(&value).parse().ok().map(Duration::from_millis);
                self.retry = milliseconds.or(self.retry);
            }
            _ => {}
        }
    }

    fn dispatch(&mut self) -> Option<Event> {
        let partial = std::mem::take(&mut self.partial);
        if let Some(id) = &partial.id {
            self.last_event_id = Some(id.clone()).filter(|id| !id.is_empty());
        }
        let data = partial.data?.into_bytes();
        Some(Event { name: partial.name, data, id: partial.id })
    }

    /// Drops the current event: what was read of it before, and the `rest`.
    fn skip(&mut self, rest: &[&[u8]]) -> TooLong {
        let mut ends = Ends::default();
        if let Some(data) = std::mem::take(&mut self.partial).data {
            ends.add(&data.into_bytes());
            ends.add(b"\n");
        }
        rest.iter().for_each(|part| ends.add(part));
        self.skipped = Some(Box::new(ends));
        TooLong { limit: self.limit, ends: None }
    }

    fn cut(&mut self) {
        self.buffer.clear();
        self.searched = 0;
    }
}

/// The event that is being read.
#[derive(Debug, Default)]
struct PartialEvent {
    name: Option<String>,
    id: Option<String>,
    data: Option<EventData>,
    size: usize,
}

/// The data of an event. A single line, the usual case, is passed on without a copy; several lines are copied together.
#[derive(Debug)]
enum EventData {
    Line(Bytes),
    Lines(BytesMut),
}

impl PartialEvent {
    fn add(&mut self, line: Bytes) {
        self.size += line.len() + 1;
        self.data = Some(match self.data.take() {
            None => EventData::Line(line),
            Some(EventData::Line(first)) => EventData::Lines(joined(BytesMut::from(first), &line)),
            Some(EventData::Lines(lines)) => EventData::Lines(joined(lines, &line)),
        });
    }
}

impl EventData {
    fn into_bytes(self) -> Bytes {
        match self {
            Self::Line(line) => line,
            Self::Lines(lines) => lines.freeze(),
        }
    }
}

fn joined(mut lines: BytesMut, line: &[u8]) -> BytesMut {
    lines.extend_from_slice(b"\n");
    lines.extend_from_slice(line);
    lines
}

fn owned(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// Writes one event in the format of the stream. Every line end in `data` starts another data line, and arrives as LF;
/// only the first line of `event` is written.
pub fn frame(event: Option<&str>, data: &[u8]) -> Bytes {
    let name = event.map(|name| name.split(['\r', '\n']).next().unwrap_or_default());
    let mut out = BytesMut::with_capacity(data.len() + name.map_or(0, |name| name.len() + 8) + 8);
    if let Some(name) = name {
        for part in ["event: ", name, "\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
    let mut rest = Some(data);
    while let Some(text) = rest {
        let end = word::line_end(text, 0);
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&text[..end.unwrap_or(text.len())]);
        out.extend_from_slice(b"\n");
        rest =
            end.map(|end| &text[end..]).map(|tail| tail.strip_prefix(b"\r\n").unwrap_or_else(|| &tail[1..]));
    }
    out.extend_from_slice(b"\n");
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(scanner: &mut Scanner, input: &[u8]) -> Vec<Result<(String, String), TooLong>> {
        scanner.feed(input);
        std::iter::from_fn(|| scanner.next_event())
            .map(|event| event.map(|event| (event.name.unwrap_or_default(), owned(&event.data))))
            .collect()
    }

    fn event(name: &str, data: &str) -> Result<(String, String), TooLong> {
        Ok((name.to_owned(), data.to_owned()))
    }

    #[test]
    fn all_line_ends_and_fields_are_understood() {
        let mut scanner = Scanner::new(100);
        let input = b"\xef\xbb\xbfevent: a\r\ndata:1\rdata:  2\ndata\n\n: comment\n\nid: 7\nretry: 20\n\r\ndata: x\r\r";
        assert_eq!(events(&mut scanner, input), [event("a", "1\n 2\n"), event("", "x")]);
        assert_eq!((scanner.last_event_id(), scanner.retry()), (Some("7"), Some(Duration::from_millis(20))));
        assert_eq!(events(&mut scanner, b"\nid: a\0b\nretry: 1s\ndata: cut\n"), []);
        assert_eq!(events(&mut scanner, b"\nid\n\n"), [event("", "cut")]);
        assert_eq!((scanner.last_event_id(), scanner.retry()), (None, Some(Duration::from_millis(20))));
    }

    #[test]
    fn a_too_long_event_is_skipped_and_the_next_one_read() {
        let mut scanner = Scanner::new(12);
        let long = || Err(TooLong { limit: 12, ends: None });
        let over = |text: &str| {
            let mut ends = Ends::default();
            ends.add(text.as_bytes());
            Err(TooLong { limit: 12, ends: Some(ends) })
        };
        assert_eq!(
            events(&mut scanner, b"data: 1234567\ndata: 2\n\ndata: 3\n\n"),
            [long(), over("data: 1234567\ndata: 2\n"), event("", "3")]
        );
        assert_eq!(events(&mut scanner, b"data: 12345678"), [long()]);
        assert_eq!(events(&mut scanner, b"90"), []);
        assert_eq!(events(&mut scanner, b"\n\ndata: 4\n\n"), [over("data: 1234567890\n"), event("", "4")]);
        let last = [long(), over("1234\ndata: 5678\n")];
        assert_eq!(events(&mut scanner, b"data: 1234\ndata: 5678\n\n"), last);
    }

    #[test]
    fn a_single_line_is_handed_out_without_a_copy() {
        let mut scanner = Scanner::new(1 << 20);
        let line = vec![b'x'; 300_000];
        for chunk in frame(Some("message"), &line).chunks(1 << 16) {
            scanner.feed(chunk);
        }
        let start = scanner.buffer.as_ptr() as usize;
        let event = scanner.next_event().unwrap().unwrap();
        assert_eq!(event.data, line);
        assert_eq!(event.data.as_ptr() as usize - start, "event: message\ndata: ".len());
    }

    #[test]
    fn frames_carry_newlines_as_lines() {
        assert_eq!(frame(None, b"{}"), "data: {}\n\n");
        assert_eq!(frame(Some("a\nb"), b"1\r\n2\r3\n"), "event: a\ndata: 1\ndata: 2\ndata: 3\ndata: \n\n");
    }
}
