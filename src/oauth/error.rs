//! Errors of the authorization server as responses: `{"error", "error_description"}`, as RFC 6749, section 5.2, says.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::http::reply::json_response;
use gateway::{Error, ErrorKind};
use model::oauth::OAuthProblem;
use model::oauth::problem::ProblemCode;

/// An error of OAuth as a response.
#[derive(Debug)]
pub struct OAuthError {
    status: StatusCode,
    pub problem: OAuthProblem,
}

impl OAuthError {
    pub fn too_large() -> Self {
        let problem = OAuthProblem::invalid_request("the body is too large");
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, problem }
    }

    /// Whether the sender made a mistake, and not the gateway.
    pub fn is_refusal(&self) -> bool {
        self.status.is_client_error()
    }

    pub fn too_many(sentence: String) -> Self {
        let problem = OAuthProblem::new(ProblemCode::TemporarilyUnavailable, sentence);
        Self { status: StatusCode::TOO_MANY_REQUESTS, problem }
    }
}

impl From<OAuthProblem> for OAuthError {
    fn from(problem: OAuthProblem) -> Self {
        let status = match problem.code {
            ProblemCode::InvalidClient => StatusCode::UNAUTHORIZED,
            ProblemCode::ServerError => StatusCode::INTERNAL_SERVER_ERROR,
            ProblemCode::TemporarilyUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            ProblemCode::InvalidRequest
            | ProblemCode::InvalidGrant
            | ProblemCode::UnsupportedGrantType
            | ProblemCode::UnsupportedResponseType
            | ProblemCode::AccessDenied
            | ProblemCode::InvalidTarget
            | ProblemCode::InvalidRedirectUri
            | ProblemCode::InvalidClientMetadata => StatusCode::BAD_REQUEST,
        };
        Self { status, problem }
    }
}

/// The problem that an error of the gateway is for an agent.
pub fn problem_of(error: &Error) -> OAuthProblem {
    let code = match error.kind {
        ErrorKind::Throttled | ErrorKind::Unavailable | ErrorKind::Elsewhere(_) => {
            ProblemCode::TemporarilyUnavailable
        }
        ErrorKind::Invalid
        | ErrorKind::OAuthRequired
        | ErrorKind::Forbidden
        | ErrorKind::NotFound
        | ErrorKind::Conflict
        | ErrorKind::Upstream
        | ErrorKind::Internal => ProblemCode::ServerError,
    };
    OAuthProblem::new(code, error.to_string())
}

impl From<Error> for OAuthError {
    fn from(error: Error) -> Self {
        problem_of(&error).into()
    }
}

impl IntoResponse for OAuthError {
    fn into_response(self) -> Response {
        let problem = &self.problem;
        let body = json!({ "error": problem.code.as_str(), "error_description": problem.description() });
        let mut response = json_response(self.status, body.to_string());
        let headers = response.headers_mut();
        match self.status {
            StatusCode::UNAUTHORIZED => {
                let challenge = HeaderValue::from_static("Basic realm=\"toolgate\"");
                headers.insert(header::WWW_AUTHENTICATE, challenge);
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        headers.insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
        response
    }
}
