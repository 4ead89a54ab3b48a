//! What a reply has beside its body, in a form that another gateway can read.

#![allow(clippy::disallowed_types)] // Status codes are passed on here.

use hyper::StatusCode;
use serde::{Deserialize, Serialize};

use super::reply::{Reply, ReplyBody};
use gateway::trail::Trail;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyHead {
    status: u16,
    session: Option<String>,
    is_busy: bool,
    kind: BodyKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BodyKind {
    Empty,
    Json,
    Events,
}

impl ReplyHead {
    pub fn of(reply: &Reply) -> Self {
        Self {
            status: reply.status.as_u16(),
            session: reply.session.clone(),
            is_busy: reply.retry_after.is_some(),
            kind: match reply.body {
                ReplyBody::Empty => BodyKind::Empty,
                ReplyBody::Json(_) => BodyKind::Json,
                ReplyBody::Events(_) => BodyKind::Events,
            },
        }
    }

    pub fn kind(&self) -> BodyKind {
        self.kind
    }

    pub fn into_reply(self, body: ReplyBody) -> Reply {
        Reply {
            status: StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_GATEWAY),
            session: self.session,
            opened: None,
            allow: None,
            retry_after: self.is_busy.then_some("1"),
            body,
            // The other gateway records it.
            trail: Trail::default(),
        }
    }
}
