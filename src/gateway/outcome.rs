//! How the answer of a tool turned out, for the metrics and for people who want to know what failed.

use bytes::Bytes;
use memchr::memmem;

use super::invoke::said_in;
use crate::telemetry::Outcome;
use crate::wire::{Head, RpcError};

/// Found by marks, without reading the answer: it may be large, and nothing but a count depends on this.
pub fn outcome_of(answer: &[u8]) -> Outcome {
    match memmem::find(answer, br#""isError""#) {
        Some(at) if answer[at + 9..].iter().find(|byte| !b": ".contains(byte)) == Some(&b't') => {
            Outcome::ToolError
        }
        Some(_) => Outcome::Ok,
        None if memmem::find(answer, br#""result""#).is_none() => Outcome::Failed,
        None => Outcome::Ok,
    }
}

/// The words of an answer that tells of a failure.
pub fn said_by(answer: &Bytes) -> String {
    let head = Head::parse(answer).ok();
    let error = head.as_ref().and_then(|head| head.error.clone());
    if let Some(error) = error.and_then(|span| RpcError::parse(&answer[span])) {
        return format!("{} (code {})", error.message, error.code);
    }
    let result = head.and_then(|head| head.result).map(|span| &answer[span]);
    said_in(result.unwrap_or_default())
}
