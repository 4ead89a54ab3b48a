//! Why an agent's request is refused: a kind for each answer that the protocol has for it.

use bytes::Bytes;

/// Why a request does not reach a server, or its answer not the caller.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refusal {
    #[error("method {0:?} is not known here")]
    UnknownMethod(String),
    #[error("{0}")]
    Invalid(String),
    #[error("unknown tool: {0}")]
    UnknownTool(String),
    #[error("unknown prompt: {0}")]
    UnknownPrompt(String),
    #[error("resource not found: {0}")]
    UnknownResource(String),
    /// The server wants something of the client that it did not declare, by the name of the capability.
    #[error("the server needs the client capability {0:?}, which the request does not declare")]
    MissingCapability(&'static str),
    #[error("{0}")]
    Upstream(String),
    #[error("the token of this client was revoked")]
    Revoked,
    /// The upstream's own error, passed on.
    #[error("{message}")]
    Rpc { code: i64, message: String, data: Option<Bytes> },
}
