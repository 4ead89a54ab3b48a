//! `POST /revoke` (RFC 7009): ends the grant of a token.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;

use super::client_proof::ClientClaim;
use super::error::OAuthError;
use super::forms::read_form;
use super::server::Issuing;
use crate::http::Face;
use crate::http::access::{ChangedBy, Source};

pub const PATH: &str = "/revoke";

/// Revokes a token, with all tokens of its grant. A token that is not valid is no error.
#[utoipa::path(post, path = PATH, tag = "sign-in",
    request_body(content = HashMap<String, String>, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200)))]
pub async fn revoke(
    State(face): State<Face>,
    Issuing(server): Issuing,
    Source(source): Source,
    ChangedBy(by): ChangedBy,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, OAuthError> {
    let form = read_form(&headers, &body)?;
    let claim = ClientClaim::read(&headers, &form)?;
    let token = form.required("token")?;
    let granted = face.gateway.refresh_software(token).await?;
    let stored = granted.filter(|(client_id, _)| *client_id == claim.client_id);
    let software =
        server.known_software(&face, &claim, stored.as_ref().map(|(_, json)| json.as_str())).await?;
    server.authenticate(software.as_ref(), &claim, source).await?;
    face.gateway.revoke(token, &claim.client_id, &by).await?;
    Ok(StatusCode::OK)
}
