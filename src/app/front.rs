//! Entry point of all requests: checks Host and Origin, then passes MCP paths to `mcp` and everything else to the
//! router. Calls of agents do not go through axum's router.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body as RouterBody;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, ACCESS_CONTROL_REQUEST_HEADERS, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName,
    HeaderValue, RETRY_AFTER,
};
use hyper::{Request, Response};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::http::access::{AccessLevel, AccessRequest, Peer};
use crate::http::error::ErrorResponse;
use crate::http::reply::NoContent;
use crate::http::revocable::{UntilRevoked, until_revoked};
use crate::http::{Face, body, origin_check};
use crate::routes;
use gateway::principals::Principal;
use mcp::{self, Ask, EndpointPath, Mcp, Reply, Routing, Viewer};
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
                Ok(self.router.oneshot(request).await?.map(ResponseBody::Router))
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
        let body = body::read_body(body).await?;
        let revoked = caller.as_ref().map(Principal::revoked);
        let ask = ask(place, caller.as_ref(), head, body);
        let reply = until_revoked(revoked, self.mcp.serve(ask)).await?;
        Ok(respond(reply, revoked))
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

fn respond(reply: Reply, revoked: Option<&CancellationToken>) -> Response<ResponseBody> {
    let mut headers = HeaderMap::new();
    let body = match reply.body {
        mcp::ReplyBody::Empty => ResponseBody::Pieces(VecDeque::new()),
        mcp::ReplyBody::Json(pieces) => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            ResponseBody::Pieces(pieces.into())
        }
        mcp::ReplyBody::Events(events) => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
            match revoked {
                None => ResponseBody::Events(events),
                Some(revoked) => ResponseBody::Revocable(UntilRevoked::new(events, revoked)),
            }
        }
    };
    if let Some(session) = reply.session.and_then(|session| HeaderValue::try_from(session).ok()) {
        headers.insert(HeaderName::from_static(SESSION_ID), session);
    }
    if let Some(allow) = reply.allow {
        headers.insert(ALLOW, HeaderValue::from_static(allow));
    }
    if let Some(seconds) = reply.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from_static(seconds));
    }
    let mut response = Response::new(body);
    *response.status_mut() = reply.status;
    *response.headers_mut() = headers;
    response
}

/// The body of any response.
pub enum ResponseBody {
    Router(RouterBody),
    Pieces(VecDeque<Bytes>),
    Events(mcp::EventBody),
    /// An event stream that ends when its token is revoked.
    Revocable(UntilRevoked<mcp::EventBody>),
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            ResponseBody::Router(body) => Pin::new(body).poll_frame(context),
            ResponseBody::Pieces(pieces) => {
                Poll::Ready(pieces.pop_front().map(|piece| Ok(Frame::data(piece))))
            }
            ResponseBody::Events(events) => {
                Pin::new(events).poll_frame(context).map_err(|impossible| match impossible {})
            }
            ResponseBody::Revocable(events) => {
                Pin::new(events).poll_frame(context).map_err(|impossible| match impossible {})
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Router(body) => body.is_end_stream(),
            ResponseBody::Pieces(pieces) => pieces.is_empty(),
            ResponseBody::Events(_) | ResponseBody::Revocable(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Router(body) => body.size_hint(),
            ResponseBody::Pieces(pieces) => {
                SizeHint::with_exact(pieces.iter().map(|piece| piece.len() as u64).sum())
            }
            ResponseBody::Events(_) | ResponseBody::Revocable(_) => SizeHint::default(),
        }
    }
}
