//! `POST /token`: gives tokens for a code or for a refresh token.

use std::net::IpAddr;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use super::AuthorizationServer;
use super::client_proof::ClientClaim;
use super::error::{OAuthError, problem_of};
use super::forms::read_form;
use super::server::Issuing;
use crate::http::Face;
use crate::http::access::{ChangedBy, Source};
use crate::http::reply::Json;
use gateway::sign_in::{IssuedTokens, TokenProblem};
use model::By;
use model::oauth::problem::ProblemCode;
use model::oauth::{ClientUrl, OAuthProblem, Parameters, SCOPE, Software, SoftwareOrigin, pkce, resource};

pub const PATH: &str = "/token";

/// What the audit calls a request that is refused here.
const REQUEST: &str = "token.request";

/// The tokens of an agent (RFC 6749, section 5.1).
#[derive(Serialize, ToSchema)]
pub struct Tokens {
    access_token: String,
    token_type: &'static str,
    /// The number of seconds for which the access token is valid.
    expires_in: u64,
    scope: &'static str,
    refresh_token: String,
}

impl From<IssuedTokens> for Tokens {
    fn from(issued: IssuedTokens) -> Self {
        Self {
            access_token: issued.access.expose().to_owned(),
            token_type: "Bearer",
            expires_in: issued.expires_in.as_secs(),
            scope: SCOPE,
            refresh_token: issued.refresh.expose().to_owned(),
        }
    }
}

/// Returns tokens for a code (`authorization_code`) or for a refresh token (`refresh_token`).
#[utoipa::path(post, path = PATH, tag = "sign-in",
    request_body(content = HashMap<String, String>, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, body = Tokens)))]
pub async fn give(
    State(face): State<Face>,
    Issuing(server): Issuing,
    Source(source): Source,
    ChangedBy(by): ChangedBy,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, OAuthError> {
    let issued = match server.issue(&face, &headers, &body, source, &by).await {
        Ok(issued) => issued,
        Err(error) => {
            if error.is_refusal() {
                face.note_refused(source, REQUEST, error.problem.code.as_str());
            }
            return Err(error);
        }
    };
    let mut response = Json(Tokens::from(issued)).into_response();
    response.headers_mut().insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    Ok(response)
}

impl AuthorizationServer {
    async fn issue(
        &self,
        face: &Face,
        headers: &HeaderMap,
        body: &Bytes,
        source: IpAddr,
        by: &By,
    ) -> Result<IssuedTokens, OAuthError> {
        let form = read_form(headers, body)?;
        match form.required("grant_type")? {
            "authorization_code" => self.redeem(face, headers, &form, source, by).await,
            "refresh_token" => self.refresh(face, headers, &form, source, by).await,
            _ => {
                let sentence = "grant_type must be authorization_code or refresh_token";
                Err(OAuthProblem::new(ProblemCode::UnsupportedGrantType, sentence).into())
            }
        }
    }

    async fn redeem(
        &self,
        face: &Face,
        headers: &HeaderMap,
        form: &Parameters,
        source: IpAddr,
        by: &By,
    ) -> Result<IssuedTokens, OAuthError> {
        let claim = ClientClaim::read(headers, form)?;
        let code = form.required("code")?;
        let pending = face.gateway.pending_code(code).await?;
        let of_client = pending.as_ref().filter(|pending| pending.client_id == claim.client_id);
        let software =
            self.known_software(face, &claim, of_client.map(|pending| pending.software.as_str())).await?;
        self.authenticate(software.as_ref(), &claim, source).await?;
        let Some(pending) = of_client else {
            return Err(OAuthProblem::invalid_grant("the code is not valid").into());
        };
        if form.get("redirect_uri").is_some_and(|uri| uri != pending.redirect_uri) {
            return Err(
                OAuthProblem::invalid_grant("the redirect_uri is not that of the authorization").into()
            );
        }
        if !pkce::is_proven(&pending.code_challenge, form.required("code_verifier")?) {
            return Err(OAuthProblem::invalid_grant("the code_verifier is wrong").into());
        }
        let narrowed = resource::requested_reach(&self.settings.url, form.resources())?;
        face.gateway.redeem(code, narrowed, by).await.map_err(problem)
    }

    async fn refresh(
        &self,
        face: &Face,
        headers: &HeaderMap,
        form: &Parameters,
        source: IpAddr,
        by: &By,
    ) -> Result<IssuedTokens, OAuthError> {
        let claim = ClientClaim::read(headers, form)?;
        let token = form.required("refresh_token")?;
        let granted = face.gateway.refresh_software(token).await?;
        let of_client = granted.as_ref().filter(|(client_id, _)| *client_id == claim.client_id);
        let software =
            self.known_software(face, &claim, of_client.map(|(_, software)| software.as_str())).await?;
        self.authenticate(software.as_ref(), &claim, source).await?;
        if of_client.is_none() {
            return Err(OAuthProblem::invalid_grant("the refresh_token is not valid").into());
        }
        let narrowed = resource::requested_reach(&self.settings.url, form.resources())?;
        face.gateway.renew_tokens(token, narrowed, by).await.map_err(problem)
    }

    /// The software that a request claims to come from. What the grant stored counts, except for software of admins, which
    /// they may have deleted. `None` for a client id with a document to which nothing was granted.
    pub async fn known_software(
        &self,
        face: &Face,
        claim: &ClientClaim,
        stored: Option<&str>,
    ) -> Result<Option<Software>, OAuthProblem> {
        let client_id = claim.client_id.as_str();
        let stored =
            stored.and_then(Software::from_json).filter(|known| known.origin != SoftwareOrigin::Admin);
        if let Some(software) = stored.or_else(|| self.open_client_id(client_id)) {
            return Ok(Some(software));
        }
        // The document is not fetched for this: nothing was granted to the client.
        if ClientUrl::parse(client_id).is_ok() {
            return Ok(None);
        }
        let found = self.admins_software(face, client_id).await?;
        found.map(Some).ok_or_else(|| OAuthProblem::invalid_client("the client_id is unknown"))
    }
}

fn problem(problem: TokenProblem) -> OAuthError {
    match problem {
        TokenProblem::InvalidGrant(sentence) => OAuthProblem::invalid_grant(sentence).into(),
        TokenProblem::InvalidTarget => OAuthProblem::invalid_target().into(),
        TokenProblem::Unavailable(error) => problem_of(&error).into(),
    }
}
