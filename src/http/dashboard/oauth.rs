//! Authorizing servers from the dashboard: the authorization server redirects the browser back to the gateway, and the
//! dashboard polls for the outcome. The pages are plain and escape all text from elsewhere.

use axum::extract::State;
use axum::http::HeaderMap;
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::http::Face;
use crate::http::access::ChangedBy;
use crate::http::address::base_url;
use crate::http::authorization::{AuthorizationRequired, CALLBACK};
use crate::http::error::HandlerResult;
use crate::http::extract::{Name, Query, json_object};
use crate::http::reply::{Accepted, HtmlPage, Json};
use gateway::authorizations::{AuthorizationResponse, Refused, SessionRecord};
use gateway::oauth::RegistrationOutcome;
use gateway::servers::Existing;
use gateway::{Error, ErrorKind};
use model::{By, Fields, Secret};

/// Registers a server. If it requires OAuth, registers it again with the gateway's own redirect URI.
pub async fn register(
    face: &Face,
    headers: &HeaderMap,
    by: &By,
    mut input: Map<String, Value>,
    existing: Existing,
) -> Result<RegistrationOutcome, Error> {
    match face.gateway.register(input.clone(), existing, by).await {
        Err(error) if error.kind == ErrorKind::OAuthRequired => {
            input.insert("oauth_redirect_uri".to_owned(), callback(face, headers).into());
            face.gateway.register(input, existing, by).await
        }
        settled => settled,
    }
}

/// Changes a server. If it then requires OAuth, changes it with the gateway's own redirect URI.
pub async fn amend(
    face: &Face,
    headers: &HeaderMap,
    by: &By,
    name: &str,
    mut changes: Map<String, Value>,
) -> Result<RegistrationOutcome, Error> {
    match face.gateway.amend(name, changes.clone(), by).await {
        Err(error) if error.kind == ErrorKind::OAuthRequired => {
            changes.insert("oauth_redirect_uri".to_owned(), callback(face, headers).into());
            face.gateway.amend(name, changes, by).await
        }
        settled => settled,
    }
}

/// Starts a new authorization of a server.
#[utoipa::path(post, path = "/api/dashboard/servers/{name}/reauthorize", tag = "dashboard",
    params(("name" = String, Path)),
    request_body(content = Option<HashMap<String, String>>, description = "No body, or an empty JSON object"),
    responses((status = 202, body = AuthorizationRequired)))]
pub async fn reauthorize(
    State(face): State<Face>,
    headers: HeaderMap,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
    body: Bytes,
) -> HandlerResult<Accepted<AuthorizationRequired>> {
    if !body.iter().all(u8::is_ascii_whitespace) {
        Fields::new(json_object(&body)?).finish()?;
    }
    let pending = face.gateway.reauthorize(&name, Some(callback(&face, &headers)), &by).await?;
    Ok(Accepted(AuthorizationRequired::from(pending)))
}

/// Returns the status of an authorization.
#[utoipa::path(get, path = "/api/dashboard/oauth/session/{id}", tag = "dashboard", params(("id" = String, Path)),
    responses((status = 200, body = SessionBody)))]
pub async fn session(State(face): State<Face>, Name(id): Name) -> HandlerResult<Json<SessionBody>> {
    Ok(Json(face.gateway.authorization(&id).await?.into()))
}

/// Receives the redirect of the authorization server.
#[utoipa::path(get, path = CALLBACK, tag = "dashboard",
    params(
        ("state" = Option<String>, Query), ("code" = Option<String>, Query), ("iss" = Option<String>, Query),
        ("error" = Option<String>, Query), ("error_description" = Option<String>, Query),
    ),
    responses((status = 200, content_type = "text/html", body = String)))]
pub async fn callback_page(State(face): State<Face>, ChangedBy(by): ChangedBy, query: Query) -> HtmlPage {
    let failed = |reason: &str| HtmlPage::bad_request("Authorization failed", reason);
    let Some(state) = query.text("state") else { return failed("The parameter \"state\" is missing.") };
    let code = match (query.text("error"), query.text("code")) {
        (Some(error), _) => {
            let description = query.text("error_description").map(str::to_owned);
            Err(Refused { error: error.to_owned(), description })
        }
        (None, Some(code)) => Ok(Secret::new(code)),
        (None, None) => return failed("The parameter \"code\" is missing."),
    };
    let response = AuthorizationResponse { code, issuer: query.text("iss").map(str::to_owned) };
    match face.gateway.complete_oauth_callback(&Secret::new(state), response, &by).await {
        Ok(server) => {
            let text = format!("Server \"{}\" is connected. You can close this page.", server.name);
            HtmlPage::ok("Authorization successful", &text)
        }
        Err(error) => failed(&error.to_string()),
    }
}

/// The status of an authorization.
#[derive(Serialize, ToSchema)]
#[schema(as = SessionRecord)]
pub struct SessionBody {
    /// The id of the authorization.
    session_id: String,
    /// `pending`, `completed`, `failed` or `expired`.
    status: &'static str,
    server_name: String,
    /// The time when the authorization expires (RFC 3339).
    expires_at: String,
    /// Why the authorization failed; empty if it did not.
    error: String,
}

impl From<SessionRecord> for SessionBody {
    fn from(session: SessionRecord) -> Self {
        let SessionRecord { session_id, status, server_name, expires_at, error } = session;
        Self { session_id, status, server_name, expires_at, error }
    }
}

fn callback(face: &Face, headers: &HeaderMap) -> String {
    format!("{}{CALLBACK}", base_url(&face.settings, headers))
}
