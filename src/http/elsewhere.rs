//! Requests to the REST API that another gateway on the same database has to answer, since it has what they are about.

use async_trait::async_trait;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http_body_util::{BodyExt, Collected};
use serde::{Deserialize, Serialize};

use super::Face;
use super::access::{CurrentPrincipal, ForwardedBy};
use super::error::Elsewhere;
use gateway::Gateway;
use gateway::caller::Owner;
use gateway::identification::Identity;
use model::PrincipalId;
use wire::meta;

/// The headers of a request that handlers look at.
const PASSED: [HeaderName; 4] = [
    ACCEPT,
    CONTENT_TYPE,
    HeaderName::from_static(meta::TRACEPARENT),
    HeaderName::from_static(meta::TRACESTATE),
];

/// Sends requests to other gateways.
#[async_trait]
pub trait OtherGateways: Send + Sync {
    /// Lets the gateway in this slot answer a request; `None` if it cannot be reached.
    async fn forward(&self, slot: u16, request: RestRequest) -> Option<Response>;
}

/// A request whose sender has been identified and may send it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestRequest {
    method: String,
    uri: String,
    headers: Vec<(String, String)>,
    principal: Option<u64>,
    #[serde(skip)]
    pub body: Bytes,
}

/// Middleware of every route on a shared database: runs the handler, and lets another gateway answer if the handler says so.
pub async fn pass(State(face): State<Face>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    // It was received before.
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    let request = RestRequest::of(&head, &body);
    let response = next.run(Request::from_parts(head, body.into())).await;
    match (request, response.extensions().get::<Elsewhere>().copied()) {
        (Some((request, owner)), Some(Elsewhere(slot))) => {
            let others = face.others.upgrade();
            let answer = match others {
                Some(others) => others.forward(slot, request).await,
                None => None,
            };
            if answer.as_ref().is_none_or(|answer| answer.status() == StatusCode::SERVICE_UNAVAILABLE) {
                face.gateway.doubt_home(owner);
            }
            answer.unwrap_or(response)
        }
        (Some(_) | None, _) => response,
    }
}

impl RestRequest {
    /// The request as it came, and the owner of its sender's links. `None` if it was forwarded before.
    fn of(head: &Parts, body: &Bytes) -> Option<(Self, Owner)> {
        if head.extensions.get::<ForwardedBy>().is_some() {
            return None;
        }
        let sender = head.extensions.get::<CurrentPrincipal>()?;
        let header = |name: &HeaderName| {
            let value = head.headers.get(name)?.to_str().ok()?;
            Some((name.to_string(), value.to_owned()))
        };
        let request = Self {
            method: head.method.to_string(),
            uri: head.uri.to_string(),
            headers: PASSED.iter().filter_map(header).collect(),
            principal: sender.0.as_ref().map(|principal| principal.id().0),
            body: body.clone(),
        };
        Some((request, sender.owner()))
    }

    /// Whether it answers a question of a call in flight.
    pub fn answers_question(&self) -> bool {
        self.uri.ends_with("/input")
    }

    /// The request for the routes of this gateway. `None` if its sender is no longer known.
    pub fn into_request(self, gateway: &Gateway) -> Option<Request> {
        let catalog = gateway.catalog();
        let principal = match self.principal {
            Some(id) => Some(catalog.principals().by_id(PrincipalId(id))?.clone()),
            None => None,
        };
        let mut headers = HeaderMap::new();
        for (name, value) in self.headers {
            headers.insert(HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?);
        }
        let mut request = Request::new(self.body.into());
        *request.method_mut() = Method::try_from(self.method.as_str()).ok()?;
        *request.uri_mut() = Uri::try_from(self.uri).ok()?;
        *request.headers_mut() = headers;
        request.extensions_mut().insert(ForwardedBy(principal.map(Identity::of_holder)));
        Some(request)
    }
}
