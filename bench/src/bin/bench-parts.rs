//! Repeats one part of the way of a call, so that its instructions can be counted.
//!
//! bench-parts head|patch|response|events COUNT

use std::hint::black_box;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use wire::sse::Scanner;
use wire::{Head, Patch, Response};

const CALL: &[u8] = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"up__echo","arguments":{"text":"hello from 0"},"_meta":{"progressToken":7}}}"#;
const RESULT: &[u8] =
    br#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"hello from 0"}],"isError":false}}"#;
/// The number of events in a stream, and the largest event that is read.
const EVENTS: usize = 10;
const LIMIT: usize = 1024 * 1024;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [part, count] = words.as_slice() else {
        bail!("usage: bench-parts head|patch|response|events COUNT")
    };
    let count: usize = count.parse()?;
    match part.as_str() {
        "head" => repeat(count, || Ok(Head::parse(black_box(CALL))?)),
        "patch" => patch(count),
        "response" => {
            let message = Bytes::from_static(RESULT);
            repeat(count, || Ok(Response::read(black_box(message.clone()))?))
        }
        "events" => events(count),
        _ => bail!("unknown part {part}"),
    }
}

fn repeat<T>(count: usize, mut once: impl FnMut() -> Result<T>) -> Result<()> {
    for _ in 0..count {
        black_box(once()?);
    }
    Ok(())
}

/// The patch of a forwarded call: its id, its progress token, and the name of the tool.
fn patch(count: usize) -> Result<()> {
    let head = Head::parse(CALL)?;
    let id = head.id.as_ref().context("the call has an id")?.span.clone();
    let params = head.params.as_ref().context("the call has params")?;
    let name = params.name.as_ref().context("the call has a name")?.span.clone();
    let token = head.meta().and_then(|meta| meta.progress_token.as_ref());
    let token = token.context("the call has a progress token")?.span.clone();
    repeat(count, || {
        let mut patch = Patch::new(black_box(CALL));
        patch.replace(id.clone(), b"1234".as_slice());
        patch.replace(name.clone(), br#""echo""#.as_slice());
        patch.replace(token.clone(), b"1234".as_slice());
        Ok(patch.apply())
    })
}

/// A stream of progress notices and a result, in one chunk.
fn events(count: usize) -> Result<()> {
    let notice =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#;
    let mut stream = Vec::new();
    for number in 1..EVENTS {
        stream.extend_from_slice(format!("id: {number}\nevent: message\ndata: {notice}\n\n").as_bytes());
    }
    stream.extend_from_slice(b"event: message\ndata: ");
    stream.extend_from_slice(RESULT);
    stream.extend_from_slice(b"\n\n");
    repeat(count, || {
        let mut scanner = Scanner::new(LIMIT);
        scanner.feed(black_box(&stream));
        let mut seen = 0;
        while let Some(event) = scanner.next_event() {
            black_box(event?);
            seen += 1;
        }
        ensure!(seen == EVENTS, "{seen} events");
        Ok(())
    })
}
