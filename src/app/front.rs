//! The front door: every request passes the guard, then MCP paths go straight to `mcp` and everything else to the
//! router. This is all that the way of an agent's call has of HTTP machinery, so that it can be replaced.

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
    HeaderValue,
};
use hyper::{Request, Response};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::http::access::{Access, Asked, Peer};
use crate::http::error::Refusal;
use crate::http::reply::NoContent;
use crate::http::revocable::{Until, until_revoked};
use crate::http::{Face, guard};
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
    ) -> Result<Response<Answer>, Infallible> {
        let (head, body) = request.into_parts();
        let cors = match guard::admit(&self.face.settings, &head.uri, &head.headers) {
            Ok(cors) => cors,
            Err(refusal) => {
                guard::discard(body, 0).await;
                return Ok(refusal.into_response().map(Answer::Router));
            }
        };
        let asked = guard::is_preflight(&head.method, &head.headers)
            .then(|| head.headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned());
        let mut response = match (&cors, &asked) {
            (Some(_), Some(_)) => NoContent.into_response().map(Answer::Router),
            (Some(_) | None, _) => self.serve(peer, head, body).await?,
        };
        if let Some(origin) = cors {
            guard::allow(response.headers_mut(), origin, asked.flatten());
        }
        Ok(response)
    }

    async fn serve(
        self,
        peer: IpAddr,
        mut head: Parts,
        body: Incoming,
    ) -> Result<Response<Answer>, Infallible> {
        match routes::mcp_place(head.uri.path()) {
            Some((place, access)) => {
                let answered = self.serve_agent(peer, place, access, &head, body).await;
                Ok(answered.unwrap_or_else(|refusal| refusal.into_response().map(Answer::Router)))
            }
            None => {
                head.extensions.insert(Peer(peer));
                let request = Request::from_parts(head, RouterBody::new(body));
                Ok(self.router.oneshot(request).await?.map(Answer::Router))
            }
        }
    }

    async fn serve_agent(
        self,
        peer: IpAddr,
        place: EndpointPath,
        access: Access,
        head: &Parts,
        body: Incoming,
    ) -> Result<Response<Answer>, Refusal> {
        let (method, path) = (head.method.as_str(), head.uri.path());
        let asked = Asked { method, path, headers: &head.headers, peer };
        let caller = match self.face.admit(access, &asked).await {
            Ok(caller) => caller.0,
            Err(refusal) => {
                guard::discard(body, 0).await;
                return Err(refusal);
            }
        };
        let body = guard::read_body(body).await?;
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

/// Somebody who says nothing takes anything. What is accepted may be said in several headers.
fn accepts_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT);
    let mut medias = accepted.iter().flat_map(|value| value.to_str().unwrap_or_default().split(','));
    let is_event_stream = |media: &str| {
        let media = media.split(';').next().unwrap_or_default().trim();
        ["text/event-stream", "text/*", "*/*"].iter().any(|wanted| media.eq_ignore_ascii_case(wanted))
    };
    accepted.iter().next().is_none() || medias.any(is_event_stream)
}

/// A header that must be there once. Sent twice, or with what is no text, it is there but says nothing that is known.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    let is_single = values.next().is_none();
    Some(first.to_str().ok().filter(|_| is_single).unwrap_or_default())
}

fn routing(headers: &HeaderMap) -> Routing {
    let mut routing = Routing::default();
    for (name, value) in headers {
        // What is no text matches nothing that a body says.
        routing.add(name.as_str(), value.to_str().unwrap_or("\u{fffd}"));
    }
    routing
}

fn respond(reply: Reply, revoked: Option<&CancellationToken>) -> Response<Answer> {
    let mut headers = HeaderMap::new();
    let body = match reply.body {
        mcp::ReplyBody::Empty => Answer::Pieces(VecDeque::new()),
        mcp::ReplyBody::Json(pieces) => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Answer::Pieces(pieces.into())
        }
        mcp::ReplyBody::Events(events) => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
            match revoked {
                None => Answer::Events(events),
                Some(revoked) => Answer::Revocable(Until::new(events, revoked)),
            }
        }
    };
    if let Some(session) = reply.session.and_then(|session| HeaderValue::try_from(session).ok()) {
        headers.insert(HeaderName::from_static(SESSION_ID), session);
    }
    if let Some(allow) = reply.allow {
        headers.insert(ALLOW, HeaderValue::from_static(allow));
    }
    let mut response = Response::new(body);
    *response.status_mut() = reply.status;
    *response.headers_mut() = headers;
    response
}

/// The body of any answer.
pub enum Answer {
    Router(RouterBody),
    Pieces(VecDeque<Bytes>),
    Events(mcp::EventBody),
    /// Events for whoever has a token, while it is valid.
    Revocable(Until<mcp::EventBody>),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            Answer::Router(body) => Pin::new(body).poll_frame(context),
            Answer::Pieces(pieces) => Poll::Ready(pieces.pop_front().map(|piece| Ok(Frame::data(piece)))),
            Answer::Events(events) => {
                Pin::new(events).poll_frame(context).map_err(|impossible| match impossible {})
            }
            Answer::Revocable(events) => {
                Pin::new(events).poll_frame(context).map_err(|impossible| match impossible {})
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Answer::Router(body) => body.is_end_stream(),
            Answer::Pieces(pieces) => pieces.is_empty(),
            Answer::Events(_) | Answer::Revocable(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answer::Router(body) => body.size_hint(),
            Answer::Pieces(pieces) => {
                SizeHint::with_exact(pieces.iter().map(|piece| piece.len() as u64).sum())
            }
            Answer::Events(_) | Answer::Revocable(_) => SizeHint::default(),
        }
    }
}
