//! Reads any bytes as an event stream, once as a whole and once in chunks. Promises: both give the same events and the
//! same errors, no event is larger than allowed, and a frame written by the gateway reads back.
//! The first byte is the size of the chunks, the second the maximum size of an event.

use wire::sse::{Scanner, frame};

pub const DICTIONARY: &[&str] = &[
    "data:",
    "data: ",
    "data\n",
    "event: ",
    "id: ",
    "id\n",
    "retry: ",
    "retry: 99999999999999999999\n",
    ": ping\n",
    ":\n",
    "\n\n",
    "\r\n\r\n",
    "\r\r",
    "\r",
    "\n",
    "\u{feff}",
    "{\"jsonrpc\":\"2.0\"}",
    "message",
    "endpoint",
    "\0",
];

pub fn run(input: &[u8]) {
    let [size, limit, stream @ ..] = input else { return };
    let limit = usize::from(*limit) * 4;
    let whole = read(stream, stream.len(), limit);
    assert_eq!(read(stream, usize::from(*size), limit), whole);
    for event in whole.0.iter().flatten() {
        assert!(event.data.len() <= limit, "an event of {} bytes", event.data.len());
    }
    let written = frame(Some("message"), stream);
    let (events, ..) = read(&written, written.len(), usize::MAX);
    let [Ok(event)] = events.as_slice() else { panic!("one frame became {} events", events.len()) };
    assert_eq!(event.name.as_deref(), Some("message"));
    assert_eq!(event.data, with_plain_line_ends(stream));
}

type Seen = (Vec<Result<wire::sse::Event, wire::sse::TooLong>>, Option<String>, Option<std::time::Duration>);

fn read(stream: &[u8], size: usize, limit: usize) -> Seen {
    let mut scanner = Scanner::new(limit);
    let mut events = Vec::new();
    for chunk in stream.chunks(size.max(1)) {
        scanner.feed(chunk);
        events.extend(std::iter::from_fn(|| scanner.next_event()));
    }
    (events, scanner.last_event_id().map(str::to_owned), scanner.retry())
}

fn with_plain_line_ends(data: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(data.len());
    for (at, byte) in data.iter().enumerate() {
        match byte {
            b'\n' if at > 0 && data[at - 1] == b'\r' => {}
            b'\r' => plain.push(b'\n'),
            other => plain.push(*other),
        }
    }
    plain
}
