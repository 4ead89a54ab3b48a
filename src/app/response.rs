//! Responses as they are sent: the reply to an agent or the response of the router, charged to the budget of bytes in
//! transit while it is being sent.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body as RouterBody;
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::Response;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use tokio_util::sync::CancellationToken;

use crate::http::error::ErrorResponse;
use crate::http::revocable::UntilRevoked;
use budget::{Budget, Exceeded, Taken};
use gateway::trail::Trail;
use mcp::{self, Reply};
use wire::error::code;
use wire::headers::SESSION_ID;
use wire::{authored, find_answer_id};

/// Responses up to this size are not charged: their number is limited by that of connections.
const UNCHARGED: usize = 16 * 1024;

/// Makes the response to an agent. A message that does not fit into the budget becomes an error.
pub fn respond(reply: Reply, revoked: Option<&CancellationToken>, budget: &Budget) -> Response<ResponseBody> {
    let mut headers = HeaderMap::new();
    let trail = reply.trail;
    let body = match reply.body {
        mcp::ReplyBody::Empty => ResponseBody::Pieces(VecDeque::new()),
        mcp::ReplyBody::Json(pieces) => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            ResponseBody::Pieces(charge_pieces(pieces, budget))
        }
        mcp::ReplyBody::Events(events) => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
            events_body(*events, revoked)
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
    let mut response = Response::new(body.recorded(trail));
    *response.status_mut() = reply.status;
    *response.headers_mut() = headers;
    response
}

/// The body of an event stream, which ends when the token of its request is revoked.
pub fn events_body(events: mcp::EventBody, revoked: Option<&CancellationToken>) -> ResponseBody {
    match revoked {
        None => ResponseBody::Events(events),
        Some(revoked) => ResponseBody::Revocable(UntilRevoked::new(events, revoked)),
    }
}

/// Charges the budget for a response of the router. One that does not fit becomes an error.
pub fn charged(response: Response<RouterBody>, budget: &Budget) -> Response<ResponseBody> {
    match response.body().size_hint().exact() {
        Some(length) if length > UNCHARGED as u64 => match budget.take(length) {
            Ok(taken) => response.map(|body| ResponseBody::ChargedRouter(body, Some(taken))),
            Err(exceeded) => ErrorResponse::overloaded(exceeded).into_response().map(ResponseBody::Router),
        },
        Some(_) | None => response.map(ResponseBody::Router),
    }
}

/// Charges the budget for each large piece of a message. A shared one is not charged, since it is held anyway. A message
/// that does not fit becomes an error.
pub fn charge_pieces(mut pieces: Vec<Bytes>, budget: &Budget) -> VecDeque<Bytes> {
    for index in 0..pieces.len() {
        let piece = &mut pieces[index];
        if piece.len() <= UNCHARGED || !piece.is_unique() {
            continue;
        }
        match budget.take(piece.len() as u64) {
            // The bytes are charged until they are sent, however long hyper holds them.
            Ok(taken) => *piece = budget::charged(std::mem::take(piece), taken),
            Err(exceeded) => return [too_much(&pieces, exceeded)].into(),
        }
    }
    pieces.into()
}

/// The error in place of a message that does not fit.
fn too_much(pieces: &[Bytes], exceeded: Exceeded) -> Bytes {
    let first = pieces.first().map_or(&[][..], |piece| piece.as_ref());
    let id = find_answer_id(first).map(|span| &first[span]);
    authored::error(id, code::INTERNAL_ERROR, &exceeded.to_string(), None)
}

/// The body of any response.
pub enum ResponseBody {
    Router(RouterBody),
    Pieces(VecDeque<Bytes>),
    /// A body of the router; its first piece, which is usually the only one, is charged until it is sent.
    ChargedRouter(RouterBody, Option<Taken>),
    Events(mcp::EventBody),
    /// An event stream that ends when its token is revoked.
    Revocable(UntilRevoked<mcp::EventBody>),
    /// The response to a call, which is recorded when it has been sent.
    Recorded {
        body: Box<ResponseBody>,
        _until_sent: Trail,
    },
}

impl ResponseBody {
    /// Keeps what is recorded of a call until the body has been sent.
    pub fn recorded(self, trail: Trail) -> Self {
        match trail.is_recorded() {
            true => ResponseBody::Recorded { body: Box::new(self), _until_sent: trail },
            false => self,
        }
    }
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
            ResponseBody::Recorded { body, .. } => Pin::new(&mut **body).poll_frame(context),
            ResponseBody::ChargedRouter(body, taken) => {
                let polled = Pin::new(body).poll_frame(context);
                polled.map_ok(|frame| {
                    frame.map_data(|data| match taken.take() {
                        Some(taken) => budget::charged(data, taken),
                        None => data,
                    })
                })
            }
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
            ResponseBody::Router(body) | ResponseBody::ChargedRouter(body, _) => body.is_end_stream(),
            ResponseBody::Recorded { body, .. } => body.is_end_stream(),
            ResponseBody::Pieces(pieces) => pieces.is_empty(),
            ResponseBody::Events(_) | ResponseBody::Revocable(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Router(body) | ResponseBody::ChargedRouter(body, _) => body.size_hint(),
            ResponseBody::Recorded { body, .. } => body.size_hint(),
            ResponseBody::Pieces(pieces) => {
                SizeHint::with_exact(pieces.iter().map(|piece| piece.len() as u64).sum())
            }
            ResponseBody::Events(_) | ResponseBody::Revocable(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use budget::{Bound, Refusals};

    const LARGE: usize = 10 * UNCHARGED;

    fn message(id: &str) -> Vec<Bytes> {
        let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#);
        vec![head.into(), vec![b' '; LARGE].into(), Bytes::from_static(b"{}}")]
    }

    #[test]
    fn a_message_is_charged_until_its_last_byte_is_gone() {
        let budget = Budget::new(Bound::BufferedBytes, LARGE as u64, &Refusals::default());
        let mut pieces = charge_pieces(message("7"), &budget);
        assert_eq!((pieces.len(), budget.used()), (3, LARGE as u64));
        let held = pieces.remove(1).unwrap();
        drop(pieces);
        assert_eq!(budget.used(), LARGE as u64);
        drop(held);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_message_that_does_not_fit_is_an_error_with_its_id() {
        let budget = Budget::new(Bound::BufferedBytes, LARGE as u64 - 1, &Refusals::default());
        let pieces = charge_pieces(message(r#""mine""#), &budget);
        let error: serde_json::Value = serde_json::from_slice(&pieces[0]).unwrap();
        assert_eq!(
            (pieces.len(), &error["id"], &error["error"]["code"]),
            (1, &"mine".into(), &(-32603).into())
        );
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn small_and_shared_bytes_cost_nothing() {
        let budget = Budget::new(Bound::BufferedBytes, 0, &Refusals::default());
        let shared = Bytes::from(vec![b'x'; LARGE]);
        let pieces = charge_pieces(vec![Bytes::from_static(b"{}"), shared.clone()], &budget);
        assert_eq!((pieces.len(), pieces[1].len()), (2, LARGE));
    }
}
