//! The error of a request: a kind that a face turns into a status, and one sentence for people.

use std::fmt;
use std::time::Duration;

use super::engine::Throttled;
use budget::Exceeded;
use model::{FieldError, excerpt};
use store::{self, StoreError};
use upstream::{CallError, ConnectError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request itself is wrong.
    Invalid,
    /// Not allowed in this mode.
    Forbidden,
    /// The server requires OAuth, and the request has no redirect URI to which a person's browser could return.
    OAuthRequired,
    NotFound,
    Conflict,
    /// The upstream failed; the sentence is the reason.
    Upstream,
    /// A limit was reached; the same request may work later.
    Throttled,
    /// The database cannot be used now and nothing was changed, or there is no room for the response. The same request may
    /// work later.
    Unavailable,
    /// Another gateway on the same database has to answer, the one in this slot. It is also the answer if that one cannot be
    /// reached.
    Elsewhere(u16),
    /// The gateway failed; the cause is in the log.
    Internal,
}

#[derive(Debug)]
pub struct Error {
    pub kind: ErrorKind,
    /// When the same request may work.
    pub retry_after: Option<Duration>,
    sentence: String,
}

impl Error {
    /// Sentences are cut: they may quote a server.
    fn new(kind: ErrorKind, sentence: impl Into<String>) -> Self {
        Self { kind, retry_after: None, sentence: excerpt::cut(sentence.into(), excerpt::SENTENCE) }
    }

    pub fn invalid(sentence: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, sentence)
    }

    pub fn forbidden(sentence: impl Into<String>) -> Self {
        Self::new(ErrorKind::Forbidden, sentence)
    }

    pub fn not_found(sentence: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, sentence)
    }

    pub fn oauth_required(server: &str) -> Self {
        let sentence = format!(
            "server {server:?} requires OAuth authorization; give an oauth_redirect_uri, or oauth_client_id and \
             oauth_client_secret if its authorization server supports client credentials"
        );
        Self::new(ErrorKind::OAuthRequired, sentence)
    }

    pub fn already_registered(server: &str) -> Self {
        Self::conflict(format!("server {server:?} is already registered; use force=true to replace it"))
    }

    pub fn conflict(sentence: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, sentence)
    }

    pub fn upstream(sentence: impl Into<String>) -> Self {
        Self::new(ErrorKind::Upstream, sentence)
    }

    pub fn internal(cause: impl fmt::Display) -> Self {
        tracing::error!(%cause, "internal error");
        Self::new(ErrorKind::Internal, "internal error; the log of the gateway has the cause")
    }

    /// The database cannot be used; `reason` says why.
    pub fn unavailable(reason: impl fmt::Display) -> Self {
        let sentence =
            format!("the database cannot be used now: {reason}; nothing was changed, try again later");
        Self::new(ErrorKind::Unavailable, sentence)
    }

    /// This gateway does not know of all changes up to an epoch yet.
    pub fn behind(epoch: i64) -> Self {
        let sentence = format!("this gateway has not read the changes up to epoch {epoch} yet; try again");
        Self { retry_after: Some(Duration::from_secs(1)), ..Self::new(ErrorKind::Unavailable, sentence) }
    }

    /// The gateway in this slot has what the request is about.
    pub fn elsewhere(slot: u16) -> Self {
        let sentence = "another gateway has what this request is about, and cannot be reached; try again in some seconds";
        Self { retry_after: Some(Duration::from_secs(1)), ..Self::new(ErrorKind::Elsewhere(slot), sentence) }
    }

    /// The response does not fit beside the other bytes in transit.
    pub fn no_room(exceeded: Exceeded) -> Self {
        Self::new(ErrorKind::Unavailable, exceeded.to_string())
    }

    /// The disk failed while a change was being stored.
    fn unsure(reason: &str) -> Self {
        let sentence = format!(
            "the database cannot be used now: {reason}; the change has no effect now, but may be stored if \
             the gateway is restarted before the disk works again"
        );
        Self::new(ErrorKind::Unavailable, sentence)
    }

    /// The database contains invalid data.
    fn damaged(what: &str) -> Self {
        tracing::error!(what, "the database is damaged");
        let sentence = format!("the database is damaged: {what}; `toolgate check` lists all problems");
        Self::new(ErrorKind::Internal, sentence)
    }

    pub fn stopping() -> Self {
        Self::upstream("the gateway is stopping")
    }

    pub fn unknown_server(name: &str) -> Self {
        Self::not_found(format!("server {name:?} does not exist"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Error {}

impl From<Throttled> for Error {
    fn from(throttled: Throttled) -> Self {
        let error = Self::new(ErrorKind::Throttled, throttled.to_string());
        Self { retry_after: Some(throttled.retry_after), ..error }
    }
}

impl From<FieldError> for Error {
    fn from(error: FieldError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// A request that is larger than a bound allows.
impl From<Exceeded> for Error {
    fn from(exceeded: Exceeded) -> Self {
        Self::invalid(exceeded.to_string())
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound(name) => Self::unknown_server(name.as_str()),
            StoreError::Unavailable(cause) => Self::unavailable(store::describe(&cause)),
            StoreError::Unsure(reason) => Self::unsure(&reason),
            StoreError::Corrupt(what) => Self::damaged(&what),
        }
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        Self::upstream(error.to_string())
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        Self::upstream(error.to_string())
    }
}
