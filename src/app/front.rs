//! Entry point of all requests: checks Host and Origin, then passes MCP paths to `mcp` and everything else to the
//! router. Calls of agents do not go through axum's router.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body as RouterBody;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ACCESS_CONTROL_REQUEST_HEADERS, HeaderMap};
use hyper::{Method, Request, Response};
use tower::ServiceExt;

use super::response::{ResponseBody, charged, respond};
use crate::http::access::{AccessLevel, AccessRequest, Peer};
use crate::http::error::ErrorResponse;
use crate::http::reply::NoContent;
use crate::http::revocable::until_revoked;
use crate::http::{Face, body, origin_check};
use crate::routes;
use gateway::principals::Principal;
use mcp::{Ask, EndpointPath, Mcp, Routing, Viewer};
use wire::headers::{METHOD, PROTOCOL_VERSION, SESSION_ID};

#[derive(Clone)]
pub struct Front {
    pub router: axum::Router,
    pub mcp: Arc<Mcp>,
    pub face: Face,
}

impl Front {
    pub async fn answer(
        self,
        peer: IpAddr,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Infallible> {
        let (head, body) = request.into_parts();
        let cors = match origin_check::admit(&self.face.settings, &head.uri, &head.headers) {
            Ok(cors) => cors,
            Err(error) => {
                body::discard(body, 0).await;
                return Ok(error.into_response().map(ResponseBody::Router));
            }
        };
        let asked = origin_check::is_preflight(&head.method, &head.headers)
            .then(|| head.headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned());
        let mut response = match (&cors, &asked) {
            (Some(_), Some(_)) => NoContent.into_response().map(ResponseBody::Router),
            (Some(_) | None, _) => self.serve(peer, head, body).await?,
        };
        if let Some(origin) = cors {
            origin_check::allow(response.headers_mut(), origin, asked.flatten());
        }
        Ok(response)
    }

    async fn serve(
        self,
        peer: IpAddr,
        mut head: Parts,
        body: Incoming,
    ) -> Result<Response<ResponseBody>, Infallible> {
        match routes::find_endpoint(head.uri.path()) {
            Some((place, access)) => {
                let answered = self.serve_agent(peer, place, access, &head, body).await;
                Ok(answered.unwrap_or_else(|error| error.into_response().map(ResponseBody::Router)))
            }
            None => {
                head.extensions.insert(Peer(peer));
                let request = Request::from_parts(head, RouterBody::new(body));
                let budget = self.face.gateway.budgets().buffered.clone();
                Ok(charged(self.router.oneshot(request).await?, &budget))
            }
        }
    }

    async fn serve_agent(
        self,
        peer: IpAddr,
        place: EndpointPath,
        access: AccessLevel,
        head: &Parts,
        body: Incoming,
    ) -> Result<Response<ResponseBody>, ErrorResponse> {
        let (method, path) = (head.method.as_str(), head.uri.path());
        let asked = AccessRequest { method, path, headers: &head.headers, peer };
        let caller = match self.face.admit(access, &asked).await {
            Ok(caller) => caller.0,
            Err(error) => {
                body::discard(body, 0).await;
                return Err(error);
            }
        };
        let budgets = self.face.gateway.budgets();
        // Only messages have a use for a body.
        let body = match head.method == Method::POST {
            true => body::read_body(body, budgets).await?,
            false => body::drop_body(body, budgets).await.map(|()| Bytes::new())?,
        };
        let revoked = caller.as_ref().map(Principal::revoked);
        let ask = ask(place, caller.as_ref(), head, body);
        let reply = until_revoked(revoked, self.mcp.serve(ask)).await?;
        Ok(respond(reply, revoked, &budgets.buffered))
    }
}

fn ask<'a>(place: EndpointPath, caller: Option<&Principal>, head: &'a Parts, body: Bytes) -> Ask<'a> {
    Ask {
        method: head.method.as_str(),
        transport: place.transport,
        viewer: Viewer { scope: place.scope, client: caller.map(Principal::id) },
        revoked: caller.map(Principal::revoked).cloned(),
        session: single(&head.headers, SESSION_ID),
        version: single(&head.headers, PROTOCOL_VERSION),
        routing: head.headers.contains_key(METHOD).then(|| routing(&head.headers)),
        accepts_events: accepts_events(&head.headers),
        query: head.uri.query(),
        body,
    }
}

/// Tells whether the client accepts an event stream. Without an `Accept` header it accepts anything; several such
/// headers count as one.
fn accepts_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT);
    let mut medias = accepted.iter().flat_map(|value| value.to_str().unwrap_or_default().split(','));
    let is_event_stream = |media: &str| {
        let media = media.split(';').next().unwrap_or_default().trim();
        ["text/event-stream", "text/*", "*/*"].iter().any(|wanted| media.eq_ignore_ascii_case(wanted))
    };
    accepted.iter().next().is_none() || medias.any(is_event_stream)
}

/// Returns the value of a header that may be sent once. Sent twice or with a value that is not text, it counts as
/// present with an empty value, which matches nothing.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    let is_single = values.next().is_none();
    Some(first.to_str().ok().filter(|_| is_single).unwrap_or_default())
}

fn routing(headers: &HeaderMap) -> Routing {
    let mut routing = Routing::default();
    for (name, value) in headers {
        // A value that is not text must match nothing in the body.
        routing.add(name.as_str(), value.to_str().unwrap_or("\u{fffd}"));
    }
    routing
}
