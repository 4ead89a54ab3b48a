//! Extractors for requests. Bodies are parsed as JSON whatever their content type; an error names the field that is
//! wrong.

use std::collections::HashMap;
use std::convert::Infallible;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use bytes::Bytes;
use serde_json::{Map, Value};

use super::access::CurrentPrincipal;
use super::error::ErrorResponse;
use model::FieldError;

/// Parses a body as a JSON object.
pub fn json_object(body: &Bytes) -> Result<Map<String, Value>, ErrorResponse> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(ErrorResponse::bad_request("the body is empty; it must be a JSON object"));
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(ErrorResponse::bad_request("the body must be a JSON object")),
        Err(error) => Err(ErrorResponse::bad_request(format!("the body is not valid JSON: {error}"))),
    }
}

/// The query parameters of a request. If a key is repeated, the first value counts.
pub struct Query(HashMap<String, String>);

impl Query {
    /// Returns the value of a parameter; an empty value counts as missing.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Refuses parameters that do not exist: a misspelled one would select something else than was meant.
    pub fn only(&self, known: &[&str]) -> Result<(), ErrorResponse> {
        let unknown = self.0.keys().filter(|key| !known.contains(&key.as_str())).min();
        match unknown {
            None => Ok(()),
            Some(key) => {
                Err(FieldError::new(key, format!("is unknown; known are {}", known.join(", "))).into())
            }
        }
    }

    pub fn required(&self, key: &str) -> Result<&str, ErrorResponse> {
        self.text(key)
            .ok_or_else(|| ErrorResponse::bad_request(format!("the query parameter \"{key}\" is required")))
    }

    pub fn flag(&self, key: &str) -> Result<bool, ErrorResponse> {
        match self.text(key) {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1") => Ok(true),
            Some(_) => Err(FieldError::new(key, "must be true or false").into()),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let query = parts.uri.query().unwrap_or_default();
        let mut values = HashMap::new();
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            values.entry(key.into_owned()).or_insert_with(|| value.into_owned());
        }
        Ok(Self(values))
    }
}

impl<S: Sync> FromRequestParts<S> for CurrentPrincipal {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or(Self(None)))
    }
}

/// The one path parameter of a route, decoded.
pub struct Name(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = ErrorResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ErrorResponse> {
        let name: Result<Path<String>, PathRejection> = Path::from_request_parts(parts, state).await;
        name.map(|Path(name)| Self(name)).map_err(|error| ErrorResponse::bad_request(error.body_text()))
    }
}
