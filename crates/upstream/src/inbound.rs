//! Messages from a server that belong to one call.

use bytes::Bytes;

use wire::{Id, Response, find_answer_id};

/// A message that belongs to a call, as the upstream sent it.
#[derive(Debug)]
pub enum Inbound {
    /// Progress or a log line.
    Notice(Bytes),
    /// A request of the upstream to the caller; see `Exchange::refuse`.
    Request(Bytes),
    /// The answer: a result or an error. Nothing comes after it.
    Answer(Response),
}

/// The call that a message answers, found without reading all of it.
pub fn answered_id(message: &[u8]) -> Option<u64> {
    let span = find_answer_id(message)?;
    Id::at(message, span)?.as_u64()
}
