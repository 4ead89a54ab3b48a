//! `/api/v0/upstream_oauth`: completes an authorization for a program that received the redirect itself, such as the
//! command line.

use axum::extract::State;
use bytes::Bytes;
use utoipa::ToSchema;

use super::servers::OneServer;
use crate::http::Face;
use crate::http::access::ChangedBy;
use crate::http::error::HandlerResult;
use crate::http::extract::{Name, json_object};
use crate::http::reply::Created;
use gateway::authorizations::{AuthorizationResponse, Refused};
use model::{FieldError, Fields, Secret};

/// The parameters of the redirect.
#[derive(ToSchema)]
pub struct CompletionInput {
    /// The `state` parameter of the redirect; the gateway put it into the authorization URL.
    pub state: String,
    /// The authorization code; required unless `error` is given.
    pub code: Option<String>,
    /// The issuer, if the authorization server sent it.
    pub iss: Option<String>,
    /// The OAuth error code, if the authorization was refused.
    pub error: Option<String>,
    /// The explanation of the error, if the authorization server sent one.
    pub error_description: Option<String>,
}

/// Completes an authorization and returns the server.
#[utoipa::path(post, path = "/api/v0/upstream_oauth/sessions/{id}/complete", tag = "servers",
    params(("id" = String, Path)), request_body = CompletionInput, responses((status = 201, body = OneServer)))]
pub async fn complete(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(id): Name,
    body: Bytes,
) -> HandlerResult<Created<OneServer>> {
    let mut fields = Fields::new(json_object(&body)?);
    let mut text = |key: &str| Ok::<_, FieldError>(fields.text(key)?.filter(|text| !text.is_empty()));
    let (code, state, issuer) = (text("code")?, text("state")?, text("iss")?);
    let (error, description) = (text("error")?, text("error_description")?);
    fields.finish()?;
    let state = state
        .ok_or_else(|| FieldError::new("state", "is required: the parameter \"state\" of the redirect"))?;
    let code = match (error, code) {
        (Some(error), _) => Err(Refused { error, description }),
        (None, Some(code)) => Ok(Secret::new(code)),
        (None, None) => return Err(FieldError::new("code", "is required unless \"error\" is given").into()),
    };
    let response = AuthorizationResponse { code, issuer };
    let server = face.gateway.complete_authorization(&id, &Secret::new(state), response, &by).await?;
    Ok(Created(server.into()))
}
