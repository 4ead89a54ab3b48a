//! The person at the browser that sent a request, known by the cookie of their session.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::AuthorizationServer;
use super::cookies::Cookie;
use crate::http::Face;
use crate::http::access::ChangedBy;
use crate::http::error::ErrorResponse;
use crate::http::origin_check::Sender;
use gateway::sign_in::BrowserSession;
use model::By;

/// Whoever visits a page.
pub struct Visitor {
    /// `None` if they are not signed in.
    pub session: Option<BrowserSession>,
    /// Who they are in the audit.
    pub by: By,
    sender: Sender,
}

impl Visitor {
    /// Whether a page of another origin sent the request.
    pub fn comes_from_elsewhere(&self) -> bool {
        self.sender == Sender::OtherPage
    }
}

impl FromRequestParts<Face> for Visitor {
    type Rejection = ErrorResponse;

    async fn from_request_parts(parts: &mut Parts, face: &Face) -> Result<Self, ErrorResponse> {
        let Ok(ChangedBy(by)) = ChangedBy::from_request_parts(parts, face).await;
        let Some(server) = &face.sign_in else {
            return Ok(Self { session: None, by, sender: Sender::Unknown });
        };
        let session = find_session(face, server, parts).await?;
        let by = match &session {
            Some(session) => By::user(session.user.name().as_str(), by.address),
            None => by,
        };
        Ok(Self { session, by, sender: Sender::of(&parts.headers, &server.settings.url) })
    }
}

async fn find_session(
    face: &Face,
    server: &Arc<AuthorizationServer>,
    parts: &Parts,
) -> Result<Option<BrowserSession>, ErrorResponse> {
    match server.cookie(Cookie::Session, &parts.headers) {
        Some(cookie) => Ok(face.gateway.session(cookie).await?),
        None => Ok(None),
    }
}
