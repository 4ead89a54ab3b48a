//! Why an agent's request is refused: one variant for each kind of error response that the protocol has.

use bytes::Bytes;

pub use super::engine::Throttled;
use budget::Exceeded;
use wire::Era;
use wire::error::code;

/// Why a request does not reach a server, or its response does not reach the caller.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refusal {
    #[error("unknown method: {0:?}")]
    UnknownMethod(String),
    #[error("{0}")]
    Invalid(String),
    #[error("unknown tool: {0}")]
    UnknownTool(String),
    #[error("unknown prompt: {0}")]
    UnknownPrompt(String),
    #[error("resource not found: {0}")]
    UnknownResource(String),
    #[error("unknown task: {0}")]
    UnknownTask(String),
    /// The server needs a capability that the client did not declare; the value is its path, such as `elicitation.url`.
    #[error("the server needs the client capability {0:?}, which the request does not declare")]
    MissingCapability(&'static str),
    /// The same for an extension.
    #[error("the request needs the client extension {0:?}, which it does not declare")]
    MissingExtension(&'static str),
    #[error("{0}")]
    Upstream(String),
    #[error("{0}")]
    Throttled(Throttled),
    #[error("the token of this client was revoked")]
    Revoked,
    /// The upstream's own error, passed on.
    #[error("{message}")]
    Rpc { code: i64, message: String, data: Option<Bytes> },
}

impl Refusal {
    /// The code of the error response to a client of this era.
    pub fn code(&self, era: Era) -> i64 {
        let code = match (self, era) {
            (Refusal::Rpc { code, .. }, _) => return *code,
            (Refusal::UnknownMethod(_), _) => code::METHOD_NOT_FOUND,
            (Refusal::UnknownResource(_), Era::Legacy) => code::RESOURCE_NOT_FOUND,
            (Refusal::UnknownResource(_), Era::Modern)
            | (
                Refusal::Invalid(_)
                | Refusal::UnknownTool(_)
                | Refusal::UnknownPrompt(_)
                | Refusal::UnknownTask(_),
                _,
            ) => code::INVALID_PARAMS,
            (Refusal::MissingCapability(_) | Refusal::MissingExtension(_), _) => {
                code::MISSING_CLIENT_CAPABILITY
            }
            (Refusal::Throttled(_), _) => code::TOO_MANY_CALLS,
            (Refusal::Upstream(_) | Refusal::Revoked, _) => code::INTERNAL_ERROR,
        };
        i64::from(code)
    }
}

/// A request that is larger than a bound allows.
impl From<Exceeded> for Refusal {
    fn from(exceeded: Exceeded) -> Self {
        Self::Invalid(exceeded.to_string())
    }
}
