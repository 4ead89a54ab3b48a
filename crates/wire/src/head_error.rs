//! Why a body is rejected before it is processed: it is not JSON, or not a valid message.

use std::fmt;

use super::error::code;
use super::scan::SyntaxError;

/// Why a body is not a message that the gateway accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadError {
    Syntax {
        at: usize,
        reason: &'static str,
    },
    /// JSON, but not an acceptable message; `id` is the raw id for the response, if there is one.
    Invalid {
        reason: String,
        id: Option<Vec<u8>>,
    },
}

impl HeadError {
    pub fn code(&self) -> i32 {
        match self {
            Self::Syntax { .. } => code::PARSE_ERROR,
            Self::Invalid { .. } => code::INVALID_REQUEST,
        }
    }

    pub(super) fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid { reason: reason.into(), id: None }
    }
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { at, reason } => SyntaxError { at: *at, reason }.fmt(f),
            Self::Invalid { reason, .. } => write!(f, "not a valid JSON-RPC message: {reason}"),
        }
    }
}

impl std::error::Error for HeadError {}

impl From<SyntaxError> for HeadError {
    fn from(error: SyntaxError) -> Self {
        if error.is_too_deep() {
            return Self::invalid(error.reason);
        }
        Self::Syntax { at: error.at, reason: error.reason }
    }
}
