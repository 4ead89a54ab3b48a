//! How a call ended, and whether a caller was recognized, in the words of metrics and logs.

use std::fmt::{Error, Write};

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    Ok,
    /// The tool ran and reported an error.
    ToolError,
    /// The server reported an error, or there is no response of it that the caller can use.
    UpstreamError,
    TimedOut,
    /// The call was abandoned before the response.
    Cancelled,
    /// The requested tool is unknown, disabled or not allowed.
    Denied,
    /// A limit refused the call before anything was sent.
    Limited,
}

impl Outcome {
    pub const ALL: [Self; 7] = [
        Self::Ok,
        Self::ToolError,
        Self::UpstreamError,
        Self::TimedOut,
        Self::Cancelled,
        Self::Denied,
        Self::Limited,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::ToolError => "tool_error",
            Outcome::UpstreamError => "upstream_error",
            Outcome::TimedOut => "timed_out",
            Outcome::Cancelled => "cancelled",
            Outcome::Denied => "denied",
            Outcome::Limited => "limited",
        }
    }

    /// Whether the call was refused before it began, so that its duration says nothing about its server.
    pub fn is_refusal(self) -> bool {
        matches!(self, Outcome::Denied | Outcome::Limited)
    }
}

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), Error> {
        encoder.write_str(self.as_str())
    }
}

/// Whether the token of a request was recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SignIn {
    Recognized,
    Refused,
}

impl SignIn {
    pub fn as_str(self) -> &'static str {
        match self {
            SignIn::Recognized => "ok",
            SignIn::Refused => "refused",
        }
    }
}

impl EncodeLabelValue for SignIn {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), Error> {
        encoder.write_str(self.as_str())
    }
}
