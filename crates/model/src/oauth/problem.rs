//! An error of OAuth: a code that the RFCs define, and a sentence for the developer of the agent.

use std::fmt;

/// The error codes of RFC 6749, 7591 and 8707 that occur here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemCode {
    InvalidRequest,
    InvalidClient,
    InvalidGrant,
    UnsupportedGrantType,
    UnsupportedResponseType,
    AccessDenied,
    InvalidTarget,
    InvalidRedirectUri,
    InvalidClientMetadata,
    ServerError,
    TemporarilyUnavailable,
}

impl ProblemCode {
    pub fn as_str(self) -> &'static str {
        match self {
            ProblemCode::InvalidRequest => "invalid_request",
            ProblemCode::InvalidClient => "invalid_client",
            ProblemCode::InvalidGrant => "invalid_grant",
            ProblemCode::UnsupportedGrantType => "unsupported_grant_type",
            ProblemCode::UnsupportedResponseType => "unsupported_response_type",
            ProblemCode::AccessDenied => "access_denied",
            ProblemCode::InvalidTarget => "invalid_target",
            ProblemCode::InvalidRedirectUri => "invalid_redirect_uri",
            ProblemCode::InvalidClientMetadata => "invalid_client_metadata",
            ProblemCode::ServerError => "server_error",
            ProblemCode::TemporarilyUnavailable => "temporarily_unavailable",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuthProblem {
    pub code: ProblemCode,
    sentence: String,
}

impl OAuthProblem {
    pub fn new(code: ProblemCode, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into() }
    }

    pub fn invalid_request(sentence: impl Into<String>) -> Self {
        Self::new(ProblemCode::InvalidRequest, sentence)
    }

    pub fn invalid_client(sentence: impl Into<String>) -> Self {
        Self::new(ProblemCode::InvalidClient, sentence)
    }

    pub fn invalid_grant(sentence: impl Into<String>) -> Self {
        Self::new(ProblemCode::InvalidGrant, sentence)
    }

    pub fn invalid_metadata(sentence: impl Into<String>) -> Self {
        Self::new(ProblemCode::InvalidClientMetadata, sentence)
    }

    pub fn invalid_target() -> Self {
        let sentence =
            "the parameter resource must be the address of this gateway or of one of its MCP endpoints";
        Self::new(ProblemCode::InvalidTarget, sentence)
    }

    /// The sentence in the characters that RFC 6749 allows in `error_description`.
    pub fn description(&self) -> String {
        let allowed = |c: char| matches!(c, ' '..='~') && c != '"' && c != '\\';
        self.sentence.chars().map(|c| if allowed(c) { c } else { '\'' }).collect()
    }

    /// The sentence for people.
    pub fn sentence(&self) -> &str {
        &self.sentence
    }
}

impl fmt::Display for OAuthProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_has_only_the_characters_of_the_rfc() {
        let problem = OAuthProblem::invalid_request("a \"b\" \\ ä \n.");
        assert_eq!(problem.description(), "a 'b' ' ' '.");
    }
}
