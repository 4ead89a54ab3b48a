//! Responses of the MCP endpoints: an error of the HTTP request is `{"error": ...}` with a status, an error of a
//! message is a JSON-RPC error. Only this module chooses statuses and codes.

#![allow(clippy::disallowed_types)] // Status codes are chosen here.

use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use serde_json::json;

use super::routing::Objection;
use super::session::Session;
use super::stream::EventBody;
use budget::Exceeded;
use gateway::answer::Answer;
use gateway::refusal::Refusal;
use gateway::trail::Trail;
use wire::error::code;
use wire::{Era, Head, HeadError, Version, authored, method, text};

pub struct Reply {
    pub status: StatusCode,
    /// The id of the new session, for the answer to `initialize`.
    pub session: Option<String>,
    /// The session that the handshake opened, for the transport that keeps it itself (HTTP+SSE).
    pub opened: Option<Arc<Session>>,
    pub allow: Option<&'static str>,
    /// After how many seconds the request may succeed.
    pub retry_after: Option<&'static str>,
    pub body: ReplyBody,
    /// What is recorded of a call. It is kept until the reply has been sent.
    pub trail: Trail,
}

pub enum ReplyBody {
    Empty,
    /// JSON in pieces that are sent one after the other, so that nothing large is copied.
    Json(Vec<Bytes>),
    /// Boxed, since a reply is moved often and seldom has it.
    Events(Box<EventBody>),
}

impl Reply {
    fn new(status: StatusCode, body: ReplyBody) -> Self {
        let trail = Trail::default();
        Self { status, session: None, opened: None, allow: None, retry_after: None, body, trail }
    }

    /// The reply to a call.
    pub fn to_call(mut self, trail: &Trail) -> Self {
        if let ReplyBody::Json(pieces) = &self.body {
            trail.answered(pieces.iter().map(Bytes::len).sum());
        }
        self.trail = trail.clone();
        self
    }

    /// The reply to a call that was refused before it was looked at.
    pub fn refused_call(era: Era, head: &Head<'_>, refusal: &Refusal, trail: &Trail) -> Self {
        trail.refused(refusal);
        let id = head.id.as_ref().map(|id| id.raw()).unwrap_or_default();
        Self::refusal(era, id, refusal).to_call(trail)
    }

    fn sentence(status: StatusCode, sentence: &str) -> Self {
        let body = json!({ "error": sentence }).to_string();
        Self::new(status, ReplyBody::Json(vec![body.into()]))
    }

    pub fn message(message: Message) -> Self {
        Self::new(StatusCode::OK, ReplyBody::Json(message.0))
    }

    pub fn whole(message: Bytes) -> Self {
        Self::message(Message::whole(message))
    }

    pub fn events(body: EventBody) -> Self {
        Self::new(StatusCode::OK, ReplyBody::Events(Box::new(body)))
    }

    /// A notice or an answer was accepted.
    pub fn accepted() -> Self {
        Self::new(StatusCode::ACCEPTED, ReplyBody::Empty)
    }

    pub fn session_ended() -> Self {
        Self::new(StatusCode::NO_CONTENT, ReplyBody::Empty)
    }

    pub fn not_found(sentence: impl AsRef<str>) -> Self {
        Self::sentence(StatusCode::NOT_FOUND, sentence.as_ref())
    }

    pub fn unknown_session() -> Self {
        Self::sentence(
            StatusCode::NOT_FOUND,
            "this session does not exist or has ended; initialize a new one",
        )
    }

    /// The request of a link of another gateway came to a gateway that does not run the server.
    pub fn misdirected(sentence: &str) -> Self {
        Self::sentence(StatusCode::MISDIRECTED_REQUEST, sentence)
    }

    pub fn bad_request(sentence: &str) -> Self {
        Self::sentence(StatusCode::BAD_REQUEST, sentence)
    }

    pub fn not_acceptable(sentence: &str) -> Self {
        Self::sentence(StatusCode::NOT_ACCEPTABLE, sentence)
    }

    /// The principal has too many open streams.
    pub fn too_many_streams(exceeded: &Exceeded) -> Self {
        let reply = Self::sentence(StatusCode::TOO_MANY_REQUESTS, &exceeded.to_string());
        Self { retry_after: Some("1"), ..reply }
    }

    pub fn wrong_method(allow: &'static str) -> Self {
        let reply =
            Self::sentence(StatusCode::METHOD_NOT_ALLOWED, &format!("this endpoint accepts only {allow}"));
        Self { allow: Some(allow), ..reply }
    }

    /// The body is not a valid message.
    pub fn unreadable(error: &HeadError) -> Self {
        let id = match error {
            HeadError::Invalid { id, .. } => id.as_deref(),
            HeadError::Syntax { .. } => None,
        };
        let message = authored::error(id, error.code(), &error.to_string(), None);
        Self::new(StatusCode::BAD_REQUEST, ReplyBody::Json(vec![message]))
    }

    pub fn invalid_message(id: Option<&[u8]>, sentence: &str) -> Self {
        let message = authored::error(id, code::INVALID_REQUEST, sentence, None);
        Self::new(StatusCode::BAD_REQUEST, ReplyBody::Json(vec![message]))
    }

    /// Refuses a message whose method differs from one of MCP in case only; `None` for all others.
    pub fn misspelled_method(era: Era, head: &Head<'_>) -> Option<Self> {
        let method = head.method.as_deref().filter(|method| method::is_misspelled(method))?;
        let refusal = Refusal::UnknownMethod(method.to_owned());
        Some(match &head.id {
            Some(id) => Self::refusal(era, id.raw(), &refusal),
            None => {
                let message = authored::error(None, code::METHOD_NOT_FOUND, &refusal.to_string(), None);
                Self::new(StatusCode::BAD_REQUEST, ReplyBody::Json(vec![message]))
            }
        })
    }

    /// An answer of a server. Modern clients also use the HTTP status of an error.
    pub fn answer(answer: Answer) -> Self {
        let status = answer.fault.map_or(StatusCode::OK, |fault| {
            let given = fault.status.and_then(|status| StatusCode::from_u16(status).ok());
            given.unwrap_or_else(|| modern_status(fault.code))
        });
        Self::new(status, ReplyBody::Json(answer.pieces))
    }

    pub fn refusal(era: Era, id: &[u8], refusal: &Refusal) -> Self {
        let status = match (era, refusal) {
            (Era::Modern, Refusal::UnknownMethod(_)) => modern_status(code::METHOD_NOT_FOUND.into()),
            (Era::Modern, Refusal::MissingCapability(_) | Refusal::MissingExtension(_)) => {
                modern_status(code::MISSING_CLIENT_CAPABILITY.into())
            }
            (Era::Modern, Refusal::Rpc { code, .. }) => modern_status(*code),
            (Era::Modern | Era::Legacy, _) => StatusCode::OK,
        };
        Self::new(status, ReplyBody::Json(Message::refusal(era, id, refusal).0))
    }

    /// A modern request that failed the checks of `routing`.
    pub fn objection(id: Option<&[u8]>, objection: &Objection) -> Self {
        let sentence = match objection {
            Objection::Incomplete(sentence) | Objection::HeaderMismatch(sentence) => sentence,
            Objection::UnsupportedVersion(requested) => return Self::unsupported_version(id, requested),
        };
        let message = authored::error(id, objection.code(), sentence, None);
        Self::new(StatusCode::BAD_REQUEST, ReplyBody::Json(vec![message]))
    }

    /// A protocol version that the gateway does not support.
    fn unsupported_version(id: Option<&[u8]>, requested: &str) -> Self {
        Self::supports_only(id, requested, |_| true)
    }

    /// An era that the server of a link does not speak.
    pub fn wrong_era(id: &[u8], era: Era) -> Self {
        let newest = match era {
            Era::Legacy => Version::LATEST_LEGACY,
            Era::Modern => Version::MODERN,
        };
        Self::supports_only(Some(id), newest.as_str(), |version| version.era() != era)
    }

    fn supports_only(id: Option<&[u8]>, requested: &str, is_supported: impl Fn(&Version) -> bool) -> Self {
        let supported = Version::SUPPORTED.iter().rev().filter(|version| is_supported(version));
        let supported: Vec<_> = supported.map(|version| version.as_str()).collect();
        let data = json!({ "supported": supported, "requested": requested }).to_string();
        let objection = Objection::UnsupportedVersion(requested.to_owned());
        let (sentence, code) = (objection.to_string(), objection.code());
        Self::new(
            StatusCode::BAD_REQUEST,
            ReplyBody::Json(vec![authored::error(id, code, &sentence, Some(data.as_bytes()))]),
        )
    }
}

impl Reply {
    /// The JSON message of the reply, if it has one, in one piece.
    pub fn into_message(self) -> Option<Bytes> {
        match self.body {
            ReplyBody::Json(pieces) => Some(Message(pieces).join()),
            ReplyBody::Empty | ReplyBody::Events(_) => None,
        }
    }

    /// The JSON message of the reply, in pieces; empty if it has none.
    pub fn into_pieces(self) -> Vec<Bytes> {
        match self.body {
            ReplyBody::Json(pieces) => pieces,
            ReplyBody::Empty | ReplyBody::Events(_) => Vec::new(),
        }
    }
}

/// The HTTP status that modern clients expect with an error of this code.
fn modern_status(code: i64) -> StatusCode {
    const BAD_REQUEST: [i32; 5] = [
        code::PARSE_ERROR,
        code::INVALID_REQUEST,
        code::HEADER_MISMATCH,
        code::MISSING_CLIENT_CAPABILITY,
        code::UNSUPPORTED_PROTOCOL_VERSION,
    ];
    match code {
        code if code == i64::from(code::METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        code if BAD_REQUEST.map(i64::from).contains(&code) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// One JSON-RPC message in pieces.
pub struct Message(Vec<Bytes>);

impl Message {
    pub fn whole(message: Bytes) -> Self {
        Self(vec![message])
    }

    /// A result that is shared with other answers and therefore not copied.
    pub fn result(id: &[u8], result: Bytes) -> Self {
        let head = [br#"{"jsonrpc":"2.0","id":"#, id, br#","result":"#].concat();
        Self(vec![head.into(), result, Bytes::from_static(b"}")])
    }

    /// A result whose last member is shared with other answers and therefore not copied; `opening` is what comes before
    /// it.
    pub fn result_in_two(id: &[u8], opening: &[u8], member: Bytes) -> Self {
        let head = [br#"{"jsonrpc":"2.0","id":"#, id, br#","result":"#, opening].concat();
        Self(vec![head.into(), member, Bytes::from_static(b"}}")])
    }

    pub fn refusal(era: Era, id: &[u8], refusal: &Refusal) -> Self {
        let needs = |capabilities: &[u8]| authored::object(&[("requiredCapabilities", capabilities)]);
        let data = match refusal {
            Refusal::UnknownResource(uri) => Some(authored::object(&[("uri", &text::quote(uri))])),
            Refusal::MissingCapability(name) => {
                let nest = |inner: Vec<u8>, key| authored::object(&[(key, &inner)]);
                Some(needs(&name.rsplit('.').fold(b"{}".to_vec(), nest)))
            }
            Refusal::MissingExtension(name) => {
                let extension = authored::object(&[(*name, b"{}".as_slice())]);
                Some(needs(&authored::object(&[("extensions", &extension)])))
            }
            Refusal::Throttled(throttled) => {
                // Rounded up: a call that comes even a moment earlier is refused again.
                let wait = throttled.retry_after.as_nanos().div_ceil(1_000_000).max(1).to_string();
                Some(authored::object(&[("retryAfterMs", wait.as_bytes())]))
            }
            Refusal::Rpc { data, .. } => data.as_ref().map(|data| data.to_vec()),
            Refusal::UnknownMethod(_)
            | Refusal::Invalid(_)
            | Refusal::UnknownTool(_)
            | Refusal::UnknownPrompt(_)
            | Refusal::UnknownTask(_)
            | Refusal::Upstream(_)
            | Refusal::Revoked => None,
        };
        let (code, sentence) = (refusal.code(era), refusal.to_string());
        Self(vec![authored::error(Some(id), code, &sentence, data.as_deref())])
    }

    /// In one piece, for a stream or a batch.
    pub fn join(self) -> Bytes {
        match <[Bytes; 1]>::try_from(self.0) {
            Ok([whole]) => whole,
            Err(pieces) => pieces.concat().into(),
        }
    }
}
