//! What the REST API and the dashboard share about authorizing servers: the response that asks for a person's consent,
//! and the path of the redirect URI.

use serde::Serialize;
use utoipa::ToSchema;

use gateway::oauth;

/// Path of the redirect URI for authorization servers.
pub const CALLBACK: &str = "/api/dashboard/oauth/callback";

/// A person must authorize the server first.
#[derive(Serialize, ToSchema)]
pub struct AuthorizationRequired {
    authorization_required: PendingAuthorization,
}

impl From<oauth::PendingAuthorization> for AuthorizationRequired {
    fn from(pending: oauth::PendingAuthorization) -> Self {
        Self { authorization_required: pending.into() }
    }
}

/// An authorization that waits for the consent of a person.
#[derive(Serialize, ToSchema)]
pub struct PendingAuthorization {
    /// The id of the authorization.
    session_id: String,
    /// The URL to open in a browser.
    authorization_url: String,
    /// The time when the authorization expires (RFC 3339).
    expires_at: String,
}

impl From<oauth::PendingAuthorization> for PendingAuthorization {
    fn from(pending: oauth::PendingAuthorization) -> Self {
        let oauth::PendingAuthorization { session_id, authorization_url, expires_at } = pending;
        Self { session_id, authorization_url, expires_at }
    }
}
