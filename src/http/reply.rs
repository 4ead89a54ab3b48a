//! Success responses.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// 200 with a JSON body.
pub struct Json<T>(pub T);

/// 200 with a JSON body that is already serialized.
pub struct Written(pub Vec<u8>);

/// 201 with a JSON body.
pub struct Created<T>(pub T);

/// 202 with a JSON body: the caller must do something before the request takes effect.
pub struct Accepted<T>(pub T);

/// 204 without a body.
pub struct NoContent;

/// A plain HTML page with a title and a sentence.
pub struct HtmlPage {
    status: StatusCode,
    title: &'static str,
    text: String,
}

impl HtmlPage {
    pub fn ok(title: &'static str, text: &str) -> Self {
        Self { status: StatusCode::OK, title, text: text.to_owned() }
    }

    pub fn bad_request(title: &'static str, text: &str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, title, text: text.to_owned() }
    }
}

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

impl<T: Serialize> IntoResponse for Accepted<T> {
    fn into_response(self) -> Response {
        serialized(StatusCode::ACCEPTED, &self.0)
    }
}

impl IntoResponse for HtmlPage {
    fn into_response(self) -> Response {
        let (title, text) = (escaped(self.title), escaped(&self.text));
        let page = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{title}</title></head>\n\
             <body><h1>{title}</h1><p>{text}</p></body>\n</html>\n"
        );
        let headers = [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
            // The URL of the page has an authorization code in it.
            (header::REFERRER_POLICY, "no-referrer"),
        ];
        (self.status, headers, page).into_response()
    }
}

/// Escapes text for HTML.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            plain => escaped.push(plain),
        }
    }
    escaped
}

impl IntoResponse for NoContent {
    fn into_response(self) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}

pub fn serialized(status: StatusCode, value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).expect("records have string keys and no failing parts");
    json_response(status, body)
}

pub fn json_response(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
