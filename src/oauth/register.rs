//! `POST /register`: dynamic registration of software (RFC 7591). Nothing is stored: the client id is the sealed software.

use std::time::Instant;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde_json::Value;

use super::AuthorizationServer;
use super::error::OAuthError;
use super::server::{REGISTRATIONS_PER_MINUTE, Registering};
use crate::http::Face;
use crate::http::access::Source;
use crate::http::reply::serialized;
use budget::{Bound, Exceeded};
use gateway::now_ms;
use model::oauth::registration::LONGEST_CLIENT_ID;
use model::oauth::{OAuthProblem, Software};

pub const PATH: &str = "/register";

/// The largest registration.
const LONGEST: usize = 64 * 1024;

/// The beginning of a client id that is sealed software.
const SEALED: &str = "tgs_";

/// Registers the software of an agent (RFC 7591) and returns its client id.
#[utoipa::path(post, path = PATH, tag = "sign-in", request_body = HashMap<String, Value>,
    responses((status = 201, body = std::collections::HashMap<String, Value>)))]
pub async fn register(
    State(face): State<Face>,
    Registering(server): Registering,
    Source(source): Source,
    body: Bytes,
) -> Result<Response, OAuthError> {
    if !server.registrations.count(source, Instant::now()) {
        face.gateway.budgets().refusals.count(Bound::Registrations);
        let refused = Exceeded { bound: Bound::Registrations, limit: REGISTRATIONS_PER_MINUTE.into() };
        return Err(OAuthError::too_many(refused.to_string()));
    }
    answer(&server, &body)
}

fn answer(server: &AuthorizationServer, body: &Bytes) -> Result<Response, OAuthError> {
    if body.len() > LONGEST {
        return Err(OAuthError::too_large());
    }
    let Ok(Value::Object(metadata)) = serde_json::from_slice(body) else {
        return Err(OAuthProblem::invalid_metadata("the body is not a JSON object").into());
    };
    let registered = server.settings.rules.read_registration(metadata)?;
    let client_id = server.seal_client_id(&registered.software)?;
    Ok(serialized(StatusCode::CREATED, &registered.response(&client_id, now_ms() / 1000)))
}

impl AuthorizationServer {
    fn seal_client_id(&self, software: &Software) -> Result<String, OAuthProblem> {
        let sealed = self.client_ids.seal(software.to_json().as_bytes());
        let client_id = format!("{SEALED}{}", URL_SAFE_NO_PAD.encode(sealed));
        match client_id.len() <= LONGEST_CLIENT_ID {
            true => Ok(client_id),
            false => {
                Err(OAuthProblem::invalid_metadata("the name, redirect URIs and keys are too long together"))
            }
        }
    }

    /// The software that a client id of a registration contains; `None` if it is no such client id.
    pub fn open_client_id(&self, client_id: &str) -> Option<Software> {
        let encoded = client_id.strip_prefix(SEALED).filter(|_| client_id.len() <= LONGEST_CLIENT_ID)?;
        let opened = self.client_ids.open(&URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()?;
        let software = Software::from_json(std::str::from_utf8(&opened).ok()?)?;
        Some(Software { client_id: client_id.to_owned(), ..software })
    }
}
