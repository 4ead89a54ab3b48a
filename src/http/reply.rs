//! Good news: the shapes that successful answers come in.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::error::Refusal;

pub type Answer<T> = Result<T, Refusal>;

/// 200 with a body of JSON.
pub struct Json<T>(pub T);

/// 200 with JSON that is already written.
pub struct Written(pub Vec<u8>);

/// 201 with a body of JSON.
pub struct Created<T>(pub T);

/// 204.
pub struct NoContent;

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        serialized(StatusCode::OK, &self.0)
    }
}

impl IntoResponse for Written {
    fn into_response(self) -> Response {
        json_response(StatusCode::OK, self.0)
    }
}

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        serialized(StatusCode::CREATED, &self.0)
    }
}

impl IntoResponse for NoContent {
    fn into_response(self) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}

fn serialized(status: StatusCode, value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).expect("records have string keys and no failing parts");
    json_response(status, body)
}

pub fn json_response(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
