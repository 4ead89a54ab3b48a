//! Reads form-encoded bodies.

use axum::http::{HeaderMap, header};
use bytes::Bytes;

use super::error::OAuthError;
use model::oauth::{OAuthProblem, Parameters, parameters};

/// Parses the form of a request to `/token` or `/revoke`.
pub fn read_form(headers: &HeaderMap, body: &Bytes) -> Result<Parameters, OAuthError> {
    let mut media = headers.get_all(header::CONTENT_TYPE).iter();
    let is_form = media.next().and_then(|media| media.to_str().ok()).is_some_and(|media| {
        let media = media.split(';').next().unwrap_or_default().trim();
        media.eq_ignore_ascii_case("application/x-www-form-urlencoded")
    });
    if !is_form || media.next().is_some() {
        return Err(OAuthProblem::invalid_request(
            "the content type must be application/x-www-form-urlencoded",
        )
        .into());
    }
    if body.len() > parameters::LONGEST {
        return Err(OAuthError::too_large());
    }
    let parameters = Parameters::parse(body)?;
    parameters.require_single()?;
    Ok(parameters)
}
