//! Entry point of all requests: checks Host and Origin, then passes MCP paths to `mcp` and everything else to the
//! router, and adds the headers of every response. Calls of agents do not go through axum's router.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body as RouterBody;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, ACCESS_CONTROL_REQUEST_HEADERS, CACHE_CONTROL, CONNECTION, HeaderMap, HeaderValue, ORIGIN,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response};
use tokio_util::sync::CancellationToken;

use super::peers::{self, Internal};
use super::plain::head::{HeadParts, PlainHead};
use super::response::{ResponseBody, charged, respond};
use crate::http::access::{AccessLevel, AccessRequest, Peer, token_in};
use crate::http::error::ErrorResponse;
use crate::http::origin_check::LocalPages;
use crate::http::reply::NoContent;
use crate::http::revocable::until_revoked;
use crate::http::trail::{ArrivedAt, arrival};
use crate::http::{Face, FaceParts, body, origin_check, system};
use crate::oauth::metadata;
use crate::routes::{self, LateRouter};
use gateway::identification::{Identity, TokenMemory};
use gateway::trail::Arrival;
use mcp::{Ask, EndpointPath, Mcp, Reply, Routing, Viewer};
use model::Mode;
use wire::headers::{METHOD, PROTOCOL_VERSION, SESSION_ID};

/// Headers of every response. A response with a `Cache-Control` of its own keeps that.
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const EVERY_ORIGIN: HeaderValue = HeaderValue::from_static("*");
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// What nearly all agents accept.
const USUAL_ACCEPT: &str = "application/json, text/event-stream";

#[derive(Clone)]
pub struct Front {
    pub router: LateRouter,
    pub mcp: Arc<Mcp>,
    pub face: Face,
    pub peers: Arc<Internal>,
}

impl Front {
    pub async fn answer(
        self,
        peer: IpAddr,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Infallible> {
        let (mut head, body) = request.into_parts();
        head.extensions.insert(ArrivedAt(Instant::now()));
        let is_internal = head.uri.path() == peers::PATH && head.method == Method::POST;
        if is_internal && self.face.gateway.is_shared() {
            // Not for clients: it has a seal instead of a token.
            let response = match body::read_body(body, self.face.gateway.budgets()).await {
                Ok(sealed) => self.peers.answer(&sealed),
                Err(error) => error.into_response(),
            };
            return Ok(response.map(ResponseBody::Router));
        }
        let draining = self.face.draining.clone();
        let endpoint = routes::find_endpoint(head.uri.path());
        let mut response = match self.admit(&head, endpoint.is_some()) {
            Ok(cors) => self.answer_admitted(peer, head, endpoint, body, cors).await,
            Err(error) => {
                body::discard(body, 0).await;
                error.into_response().map(ResponseBody::Router)
            }
        };
        add_headers(response.headers_mut());
        if draining.is_cancelled() {
            close_after(response.headers_mut());
        }
        Ok(response)
    }

    /// Refuses what a foreign web page may have sent. Returns the origin to name in CORS headers, if there is one.
    fn admit(&self, head: &Parts, is_mcp: bool) -> Result<Option<HeaderValue>, ErrorResponse> {
        let FaceParts { gateway, settings, .. } = &*self.face;
        origin_check::require_host(head)?;
        let needs_no_token = match gateway.mode {
            Mode::Development => true,
            Mode::Enterprise => head.uri.path() == system::INIT && !gateway.is_initialized(),
        };
        if needs_no_token {
            origin_check::check_host(settings, head)?;
        }
        if self.face.sign_in.is_some() && metadata::is_open_to_pages(head.uri.path()) {
            return Ok(head.headers.contains_key(ORIGIN).then_some(EVERY_ORIGIN));
        }
        let local_pages = if is_mcp { LocalPages::MayChange } else { LocalPages::MayRead };
        origin_check::check_origin(settings, head, local_pages)
    }

    async fn answer_admitted(
        self,
        peer: IpAddr,
        head: Parts,
        endpoint: Option<(EndpointPath, AccessLevel)>,
        body: Incoming,
        cors: Option<HeaderValue>,
    ) -> Response<ResponseBody> {
        let asked = origin_check::is_preflight(&head.method, &head.headers)
            .then(|| head.headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned());
        let mut response = match (&cors, &asked) {
            (Some(_), Some(_)) => NoContent.into_response().map(ResponseBody::Router),
            (Some(_) | None, _) => self.serve(peer, head, endpoint, body).await,
        };
        if let Some(origin) = cors {
            origin_check::allow(response.headers_mut(), origin, asked.flatten());
        }
        response
    }

    async fn serve(
        self,
        peer: IpAddr,
        mut head: Parts,
        endpoint: Option<(EndpointPath, AccessLevel)>,
        body: Incoming,
    ) -> Response<ResponseBody> {
        match endpoint {
            Some((place, access)) => {
                let answered = self.serve_agent(peer, place, access, &head, body).await;
                answered.unwrap_or_else(|error| error.into_response().map(ResponseBody::Router))
            }
            None => {
                head.extensions.insert(Peer(peer));
                let request = Request::from_parts(head, RouterBody::new(body));
                let budget = self.face.gateway.budgets().buffered.clone();
                let mut response = self.router.answer(request).await;
                let trail = response.extensions_mut().remove().unwrap_or_default();
                charged(response, &budget).map(|body| body.recorded(trail))
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
        let asked = AccessRequest::of(head, peer);
        let (path, has_token) = (asked.path, asked.token.is_some());
        let caller = match self.face.admit(access, &asked).await {
            Ok(caller) => caller,
            Err(error) => {
                body::discard(body, 0).await;
                return Err(self.face.challenged(error, path, has_token));
            }
        };
        if let Err(error) = self.face.reach_epoch(&head.headers).await {
            body::discard(body, 0).await;
            return Err(error);
        }
        let budgets = self.face.gateway.budgets();
        // Only messages have a use for a body.
        let body = match head.method == Method::POST {
            true => body::read_body(body, budgets).await?,
            false => body::drop_body(body, budgets).await.map(|()| Bytes::new())?,
        };
        let revoked = caller.as_ref().map(|caller| &caller.ends);
        let ask = ask(place, caller.as_ref(), head, body);
        let reply = until_revoked(revoked, pin!(self.mcp.serve(ask))).await;
        let reply = reply.map_err(|error| self.face.challenged(error, path, true))?;
        Ok(respond(reply, revoked, &budgets.buffered))
    }
}

/// The reply to a plain request.
pub struct AgentReply {
    pub reply: Reply,
    /// Cancelled when the credential of the request ends.
    pub revoked: Option<CancellationToken>,
}

/// Plain requests are those of agents, without anything that only browsers send. They pass the same checks as all others.
impl Front {
    pub async fn admit_plain(
        &self,
        peer: IpAddr,
        head: &PlainHead<'_>,
        memory: &TokenMemory,
    ) -> Result<Option<Identity>, ErrorResponse> {
        let sent = &head.parts.headers;
        if self.face.gateway.mode == Mode::Development {
            let host = head.value(&sent.host);
            origin_check::check_name(&self.face.settings, host.unwrap_or_default())?;
        }
        let authorization = head.value(&sent.authorization);
        let token = authorization.and_then(|value| token_in(value.as_bytes()));
        let (method, path) = (head.parts.method, head.path());
        let forwarded_for = head.value(&sent.forwarded_for);
        let memory = Some(memory);
        let route = "";
        let (headers, is_repeated) = (None, false);
        let asked =
            AccessRequest { method, path, route, token, headers, forwarded_for, peer, memory, is_repeated };
        let admitted = self.face.admit(head.parts.access, &asked).await;
        admitted.map_err(|error| self.face.challenged(error, path, token.is_some()))
    }

    pub async fn answer_plain(
        &self,
        head: &PlainHead<'_>,
        caller: Option<Identity>,
        body: Bytes,
        arrived: Instant,
    ) -> Result<AgentReply, ErrorResponse> {
        let revoked = caller.as_ref().map(|caller| caller.ends.clone());
        let HeadParts { method, place, headers, routing, .. } = head.parts;
        // Nobody needs it unless calls are traced.
        let state = head.value(&headers.tracestate).filter(|_| self.face.gateway.is_traced());
        let (principal, grant) = caller.as_ref().map(|caller| (caller.principal.id(), caller.grant)).unzip();
        let caller = caller.map(|caller| caller.principal);
        let arrival = Arrival::new(arrived, place.transport.door(), caller);
        let ask = Ask {
            method,
            transport: place.transport,
            viewer: Viewer { scope: place.scope.clone(), principal },
            revoked: revoked.clone(),
            grant: grant.flatten(),
            session: head.value(&headers.session),
            version: head.value(&headers.version),
            routing: routing.clone(),
            accepts_events: accepts_events(head.value(&headers.accept).into_iter()),
            query: head.query(),
            body,
            is_forwarded: false,
            arrival: arrival.in_trace(head.value(&headers.traceparent), state),
        };
        let reply = until_revoked(revoked.as_ref(), pin!(self.mcp.serve(ask))).await;
        let reply = reply.map_err(|error| self.face.challenged(error, head.path(), true))?;
        Ok(AgentReply { reply, revoked })
    }
}

/// Adds the headers of every response.
pub fn add_headers(headers: &mut HeaderMap) {
    headers.insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
}

/// Makes the client open another connection, which a load balancer takes to another gateway.
pub fn close_after(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, CLOSE);
}

fn ask<'a>(place: EndpointPath, caller: Option<&Identity>, head: &'a Parts, body: Bytes) -> Ask<'a> {
    Ask {
        method: head.method.as_str(),
        transport: place.transport,
        viewer: Viewer { scope: place.scope, principal: caller.map(|caller| caller.principal.id()) },
        revoked: caller.map(|caller| caller.ends.clone()),
        grant: caller.and_then(|caller| caller.grant),
        session: single(&head.headers, SESSION_ID),
        version: single(&head.headers, PROTOCOL_VERSION),
        routing: head.headers.contains_key(METHOD).then(|| Arc::new(routing(&head.headers))),
        accepts_events: accepts_events(
            head.headers.get_all(ACCEPT).iter().map(|value| value.to_str().unwrap_or_default()),
        ),
        query: head.uri.query(),
        body,
        is_forwarded: false,
        arrival: arrival(head, place.transport.door(), caller.map(|caller| caller.principal.clone())),
    }
}

/// Tells whether the client accepts an event stream. Without an `Accept` header it accepts anything; several such
/// headers count as one.
fn accepts_events<'a>(accepted: impl Iterator<Item = &'a str>) -> bool {
    let is_event_stream = |media: &[u8]| {
        let end = media.iter().position(|byte| *byte == b';').unwrap_or(media.len());
        let media = media[..end].trim_ascii();
        [&b"text/event-stream"[..], b"text/*", b"*/*"].iter().any(|wanted| media.eq_ignore_ascii_case(wanted))
    };
    let accepts = |value: &str| {
        value == USUAL_ACCEPT || value.as_bytes().split(|byte| *byte == b',').any(is_event_stream)
    };
    let mut accepted = accepted.peekable();
    accepted.peek().is_none() || accepted.any(accepts)
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
    headers.iter().for_each(|(name, value)| routing.add(name.as_str(), value.as_bytes()));
    routing
}
