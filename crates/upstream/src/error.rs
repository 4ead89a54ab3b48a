//! Errors of connecting and of calls; the variants differ by what the caller can do about them.

use std::time::Duration;

use super::kind::kind_of;
use super::oauth::Challenge;
use budget::{Bound, Exceeded, Limits};
use model::ServerName;

/// Why connecting failed. The sentence names the server, what happened and, where known, what to do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("{0}")]
    Failed(String),
    /// The server did not answer at all.
    #[error("{0}")]
    Unreachable(String),
    /// The upstream requires credentials that it did not get.
    #[error("{0}")]
    Unauthorized(Denial),
}

/// An upstream's challenge because of missing authorization.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Denial {
    pub text: String,
    pub challenge: Challenge,
    /// Whether there was a grant, which is not valid or not sufficient.
    pub had_grant: bool,
}

impl Denial {
    /// The denial for a grant that is no longer valid or not sufficient.
    pub fn of_grant(server: &ServerName, reason: &str) -> Self {
        let text = format!(
            "authorization required: {reason}; authorize it again with POST /api/v0/servers/{server}/reauthorize"
        );
        Self { text, challenge: Challenge::default(), had_grant: true }
    }
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The upstream never saw the call: sending it again is safe.
    #[error("{0}")]
    NotSent(String),
    /// The upstream refused because it no longer knows the session: the call did not run.
    #[error("{0}")]
    SessionLost(String),
    /// The call may have run; its answer is lost.
    #[error("{0}")]
    Lost(String),
    #[error("{0}")]
    Unauthorized(Denial),
    /// The upstream answered with an HTTP status instead of a message.
    #[error("{text}")]
    Status { status: u16, text: String },
    #[error("no answer within {}", seconds(*.0))]
    TimedOut(Duration),
    /// The call, or its answer, would exceed a bound of the gateway.
    #[error("{0}")]
    Exceeded(String),
    /// The answer does not fit beside the other bytes in transit; the call may have run.
    #[error("{0}")]
    NoRoom(Exceeded),
}

impl CallError {
    /// The kind of the failure, in words that quote nothing of the server.
    pub fn kind(&self) -> String {
        match self {
            CallError::NotSent(reason) | CallError::Lost(reason) => {
                kind_of(reason).unwrap_or_else(|| "the connection failed".into())
            }
            CallError::SessionLost(_) => "lost its session".into(),
            CallError::Unauthorized(_) => "requires authorization".into(),
            CallError::Status { status, .. } => format!("answered HTTP {status}"),
            // The sentence of the bound.
            CallError::Exceeded(sentence) => sentence.clone(),
            CallError::NoRoom(exceeded) => exceeded.to_string(),
            CallError::TimedOut(limit) => format!("timed out after {}", seconds(*limit)),
        }
    }

    /// The error of a call whose answer is larger than a message may be.
    pub fn too_large(limits: &Limits) -> Self {
        Self::dropped(too_large(limits))
    }

    /// The error of a call whose answer was dropped because of a bound.
    pub fn dropped(exceeded: Exceeded) -> Self {
        match exceeded.bound == Bound::BufferedBytes {
            true => Self::NoRoom(exceeded),
            false => Self::Exceeded(exceeded.to_string()),
        }
    }

    /// Whether the upstream certainly did not run the call.
    pub fn did_not_run(&self) -> bool {
        match self {
            CallError::NotSent(_) | CallError::SessionLost(_) => true,
            CallError::Lost(_)
            | CallError::Unauthorized(_)
            | CallError::Status { .. }
            | CallError::TimedOut(_)
            | CallError::Exceeded(_)
            | CallError::NoRoom(_) => false,
        }
    }
}

/// A message that is larger than one may be.
pub fn too_large(limits: &Limits) -> Exceeded {
    Exceeded { bound: Bound::MessageSize, limit: limits.message_bytes as u64 }
}

/// A duration as text: `30 s`, `1.5 s`.
pub fn seconds(limit: Duration) -> String {
    format!("{} s", limit.as_secs_f64())
}
