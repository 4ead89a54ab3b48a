//! Any bytes as an event stream, whole and cut into chunks of one size: the same events and the same errors.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toolgate::wire::sse::Scanner;

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (size, limit, stream) = input;
    let read = |size: usize| {
        let mut scanner = Scanner::new(usize::from(limit));
        let mut events = Vec::new();
        for chunk in stream.chunks(size.max(1)) {
            scanner.feed(chunk);
            events.extend(std::iter::from_fn(|| scanner.next_event()));
        }
        (events, scanner.last_event_id().map(str::to_owned), scanner.retry())
    };
    assert_eq!(read(usize::from(size)), read(stream.len()));
});
