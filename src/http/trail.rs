//! What is recorded of a call over REST or from the dashboard, from its arrival until its response has been sent.

use std::convert::Infallible;
use std::time::Instant;

use axum::extract::{FromRequestParts, MatchedPath};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use http_body::Body as _;

use super::Face;
use super::access::CurrentPrincipal;
use super::error::HandlerResult;
use gateway::principals::Principal;
use gateway::trail::{Arrival, Trail};
use model::Door;
use wire::meta::{TRACEPARENT, TRACESTATE};

/// When the first byte of a request arrived.
#[derive(Clone, Copy, Debug)]
pub struct ArrivedAt(pub Instant);

/// How the request of a handler arrived.
pub struct Arrived {
    arrival: Arrival,
    path: String,
}

impl<S: Sync> FromRequestParts<S> for Arrived {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let path = parts.extensions.get().map_or(parts.uri.path(), MatchedPath::as_str).to_owned();
        let principal = parts.extensions.get::<CurrentPrincipal>().and_then(|current| current.0.clone());
        let door = if path.starts_with("/api/dashboard/") { Door::Dashboard } else { Door::Rest };
        Ok(Self { arrival: arrival(parts, door, principal), path })
    }
}

/// How a request arrived, and the trace that its headers name.
pub fn arrival(head: &Parts, door: Door, principal: Option<Principal>) -> Arrival {
    let at = head.extensions.get().map_or_else(Instant::now, |ArrivedAt(at)| *at);
    let parent = match values(&head.headers, TRACEPARENT).as_slice() {
        [parent] => Some(*parent),
        _ => None,
    };
    // The standard allows several lines, which are one list.
    let state = parent.map(|_| values(&head.headers, TRACESTATE).join(","));
    Arrival::new(at, door, principal).in_trace(parent, state.as_deref())
}

fn values<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect()
}

impl Arrived {
    /// Begins what is recorded of the request, which is a call of this method.
    pub fn begin(self, face: &Face, method: &str, request_bytes: usize) -> Trail {
        face.gateway.trail_of_person(method, self.arrival, &self.path, request_bytes)
    }
}

/// The response to a call, which is recorded when the response has been sent.
pub fn recorded(result: HandlerResult<impl IntoResponse>, trail: Trail) -> Response {
    let mut response = match result {
        Ok(response) => response.into_response(),
        Err(error) => {
            match error.is_elsewhere() {
                // The other gateway records it.
                true => trail.forget(),
                false => trail.refuse(|| error.sentence().to_owned()),
            }
            error.into_response()
        }
    };
    let length = response.body().size_hint().exact().unwrap_or_default();
    trail.answered(usize::try_from(length).unwrap_or(usize::MAX));
    response.extensions_mut().insert(trail);
    response
}
