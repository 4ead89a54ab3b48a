//! The faults on the server's side of the connection: the list of them, when one is chosen, and how those that affect
//! only the text of a response change it. Faults of bytes and connections are carried out in `wire`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::random::Random;

/// One kind of wrong response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The connection is reset before the first byte of the response.
    Reset,
    ResetMidway,
    /// No byte is sent until the peer gives up.
    Stall,
    StallMidway,
    /// The response is never sent, and the sending half of the connection is closed.
    HalfClose,
    /// The correct response, a few bytes at a time.
    Drip,
    /// Bytes that are not HTTP.
    Garbage,
    /// A `Content-Length` beyond the body, which then ends early.
    LongLength,
    /// A `Content-Length` that cuts the body off.
    ShortLength,
    BrokenChunk,
    WrongType,
    EmptyBody,
    /// An event stream that ends in the middle of the response.
    CutStream,
    /// The correct response, and then the same again without a request.
    Unasked,
    ServerError,
    Unavailable,
    /// 429 with `Retry-After`.
    TooMany,
    /// The server forgets the session and answers 404.
    LostSession,
    /// A response that continues as long as it is read, up to [`super::wire::ENDLESS`].
    Endless,
    /// The response is cut off, but the HTTP framing around it is intact.
    CutJson,
    TrailingBytes,
    NulByte,
    InvalidUtf8,
    ResultAndError,
    ResultNoObject,
    /// The id of another call in flight.
    OtherId,
    UnknownId,
    /// The id as a string.
    StringId,
    NoId,
    /// The response twice on one stream.
    Twice,
    /// The connection closes too early, and the HTTP framing does not show that the response is incomplete.
    CutUnframed,
    /// A head that does not end, up to a limit.
    EndlessHead,
    /// A redirect to itself.
    Circle,
    /// A redirect to another origin.
    Away,
    /// The correct response after hundreds of notifications.
    Flood,
    /// The same after thousands.
    Deluge,
    /// Progress under the token of another call in flight.
    OtherToken,
    /// The response again on the listening stream, with the id of another call in flight.
    Stray,
}

/// Every fault by the name used in reports.
const ALL: &[(Fault, &str)] = &[
    (Fault::Reset, "reset"),
    (Fault::ResetMidway, "reset midway"),
    (Fault::Stall, "stall"),
    (Fault::StallMidway, "stall midway"),
    (Fault::HalfClose, "half-close"),
    (Fault::Drip, "slow drip"),
    (Fault::Garbage, "garbage instead of HTTP"),
    (Fault::LongLength, "Content-Length too long"),
    (Fault::ShortLength, "Content-Length too short"),
    (Fault::BrokenChunk, "broken chunk"),
    (Fault::WrongType, "wrong content type"),
    (Fault::EmptyBody, "empty body"),
    (Fault::CutStream, "cut event stream"),
    (Fault::Unasked, "response nobody asked for"),
    (Fault::ServerError, "status 500"),
    (Fault::Unavailable, "status 503"),
    (Fault::TooMany, "status 429 with Retry-After"),
    (Fault::LostSession, "status 404, session lost"),
    (Fault::Endless, "endless answer"),
    (Fault::CutJson, "cut JSON"),
    (Fault::TrailingBytes, "trailing bytes"),
    (Fault::NulByte, "NUL byte"),
    (Fault::InvalidUtf8, "invalid UTF-8"),
    (Fault::ResultAndError, "result and error"),
    (Fault::ResultNoObject, "result that is no object"),
    (Fault::OtherId, "id of another call"),
    (Fault::UnknownId, "unknown id"),
    (Fault::StringId, "id as a string"),
    (Fault::NoId, "no id"),
    (Fault::Twice, "answer twice"),
    (Fault::CutUnframed, "cut answer without a length"),
    (Fault::EndlessHead, "endless head"),
    (Fault::Circle, "redirect in a circle"),
    (Fault::Away, "redirect to another origin"),
    (Fault::Flood, "hundreds of notices"),
    (Fault::Deluge, "thousands of notices"),
    (Fault::OtherToken, "progress token of another call"),
    (Fault::Stray, "answer on the listening stream"),
];

impl Fault {
    pub fn name(self) -> &'static str {
        ALL.iter().find(|(fault, _)| *fault == self).map_or("unnamed", |(_, name)| name)
    }

    /// Whether it changes only the text of the response, so that it is possible on every transport.
    pub fn is_of_text(self) -> bool {
        matches!(
            self,
            Fault::CutJson
                | Fault::TrailingBytes
                | Fault::NulByte
                | Fault::InvalidUtf8
                | Fault::ResultAndError
                | Fault::ResultNoObject
                | Fault::OtherId
                | Fault::UnknownId
                | Fault::StringId
                | Fault::NoId
        )
    }

    /// Applies this fault to a response. `text` has the members `jsonrpc`, `id` and `result`, in this order.
    pub fn deform(self, text: &str, id: u64, other: u64) -> Vec<u8> {
        let named = format!(r#""id":{id},"#);
        let renamed = |with: &str| text.replacen(&named, with, 1).into_bytes();
        match self {
            Fault::CutJson => text.as_bytes()[..text.len() * 2 / 3].to_vec(),
            Fault::TrailingBytes => [text.as_bytes(), br#"{"jsonrpc":"2.0"}x"#].concat(),
            Fault::NulByte => [text.as_bytes(), b"\0"].concat(),
            Fault::InvalidUtf8 => {
                let mut bytes = text.as_bytes().to_vec();
                let middle = bytes.iter().position(|byte| *byte == b'~').unwrap_or(bytes.len() / 2);
                bytes[middle] = 0xff;
                bytes
            }
            Fault::ResultAndError => {
                let whole = text.strip_suffix('}').unwrap_or(text);
                format!(r#"{whole},"error":{{"code":1,"message":"both"}}}}"#).into_bytes()
            }
            Fault::ResultNoObject => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"text"}}"#).into_bytes(),
            Fault::OtherId | Fault::UnknownId => renamed(&format!(r#""id":{other},"#)),
            Fault::StringId => renamed(&format!(r#""id":"{id}","#)),
            Fault::NoId => renamed(""),
            _ => text.as_bytes().to_vec(),
        }
    }
}

/// Chooses faults while they are switched on, and counts them.
pub struct Faults {
    random: Mutex<Random>,
    counts: Mutex<BTreeMap<String, u64>>,
    is_on: AtomicBool,
}

impl Faults {
    pub fn new(random: Random) -> Self {
        Self { random: Mutex::new(random), counts: Mutex::default(), is_on: AtomicBool::new(false) }
    }

    pub fn switch(&self, on: bool) {
        self.is_on.store(on, Ordering::Release);
    }

    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// A fault in `percent` of 100 cases while they are switched on.
    pub fn draw(&self, percent: u64) -> Option<Fault> {
        if !self.chance(percent) {
            return None;
        }
        Some(self.random.lock().expect("no code panics while it holds the generator").pick(ALL).0)
    }

    /// True in `percent` of 100 cases while faults are switched on.
    pub fn chance(&self, percent: u64) -> bool {
        self.is_on()
            && self.random.lock().expect("no code panics while it holds the generator").chance(percent)
    }

    pub fn below(&self, limit: u64) -> u64 {
        self.random.lock().expect("no code panics while it holds the generator").below(limit)
    }

    pub fn count(&self, kind: &str) {
        *self
            .counts
            .lock()
            .expect("no code panics while it holds the counts")
            .entry(kind.to_owned())
            .or_default() += 1;
    }

    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.lock().expect("no code panics while it holds the counts").clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_of_the_text_changes_it() {
        let text = r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"a~b"}]}}"#;
        for (fault, name) in ALL.iter().filter(|(fault, _)| fault.is_of_text()) {
            assert_ne!(fault.deform(text, 7, 8), text.as_bytes(), "{name}");
        }
        assert_eq!(Fault::Drip.deform(text, 7, 8), text.as_bytes());
    }
}
