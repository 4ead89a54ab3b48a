//! The one place where trouble becomes a status: `{"error": "<one helpful sentence>"}`, always.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::reply::json_response;
use crate::gateway::{Error, Kind};
use crate::model::FieldError;

/// An answer that says why there is no other.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    sentence: String,
}

impl Refusal {
    fn new(status: StatusCode, sentence: impl Into<String>) -> Self {
        Self { status, sentence: sentence.into() }
    }

    pub fn bad_request(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, sentence)
    }

    pub fn forbidden(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, sentence)
    }

    pub fn unknown_route(method: &str, path: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no route {method} {path}"))
    }

    pub fn not_here(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, sentence)
    }

    pub fn wrong_method(method: &str, path: &str) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("{path} does not answer to {method}"))
    }

    pub fn too_large(limit: usize) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {limit} bytes"))
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let status = match error.kind {
            Kind::Invalid => StatusCode::BAD_REQUEST,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::Conflict => StatusCode::CONFLICT,
            Kind::Upstream | Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

impl From<FieldError> for Refusal {
    fn from(error: FieldError) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        json_response(self.status, json!({ "error": self.sentence }).to_string())
    }
}
