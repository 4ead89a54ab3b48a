//! Tries the steps that an agent takes until it has a token, for real and from the gateway itself, and says what to change.

use serde::Serialize;
use serde_json::{Value, json};
use url::Url;
use utoipa::ToSchema;

use super::AuthorizationServer;
use super::metadata::{AUTHORIZATION_SERVER, PROTECTED_RESOURCE};
use super::register;
use super::server::SigningIn;
use crate::http::reply::Json;
use upstream::sign_in::{CheckStep, Proof, Web, WebResponse};

/// One step.
#[derive(Serialize, ToSchema)]
pub struct StepBody {
    step: &'static str,
    ok: bool,
    /// What was found or, if it is wrong, what to change.
    text: String,
}

impl From<CheckStep> for StepBody {
    fn from(CheckStep { step, ok, text }: CheckStep) -> Self {
        Self { step, ok, text }
    }
}

/// Tries each step that an agent takes to sign somebody in.
#[utoipa::path(get, path = "/api/v0/sign-in/check", tag = "sign-in", responses((status = 200, body = [StepBody])))]
pub async fn show(SigningIn(server): SigningIn) -> Json<Vec<StepBody>> {
    let issuer = async {
        match (&server.provider, &server.external) {
            (Some(provider), None) => provider.check().await,
            (None, None) => Vec::new(),
            (None, Some(external)) => external.check().await,
            (Some(provider), Some(external)) => [provider.check().await, external.check().await].concat(),
        }
    };
    let web = server.web.anew();
    let (mut steps, others) = tokio::join!(own_steps(&server, &web), issuer);
    steps.extend(others);
    Json(steps.into_iter().map(StepBody::from).collect())
}

/// At once: an address that does not answer takes the longest time for each of them.
async fn own_steps(server: &AuthorizationServer, web: &Web) -> Vec<CheckStep> {
    let step = |step, found: Result<String, String>| match found {
        Ok(text) => CheckStep { step, ok: true, text },
        Err(text) => CheckStep { step, ok: false, text },
    };
    let issuing = async {
        match server.issues_tokens() {
            true => Some(tokio::join!(authorization_server(server, web), registration(server, web))),
            false => None,
        }
    };
    let (address, resource, issuing) =
        tokio::join!(address(server, web), protected_resource(server, web), issuing);
    let mut steps =
        vec![step("address", address), step("https", https(server)), step("protected resource", resource)];
    if let Some((metadata, registration)) = issuing {
        steps.extend([step("authorization server", metadata), step("registration", registration)]);
    }
    steps
}

fn place(server: &AuthorizationServer, path: &str) -> Result<Url, String> {
    server.settings.url.join(path).map_err(|error| format!("PUBLIC_URL cannot be used: {error}"))
}

/// Gets an object from this gateway, in the way that agents do.
async fn get(server: &AuthorizationServer, web: &Web, path: &str) -> Result<Value, String> {
    let response = web
        .get(&place(server, path)?, &Proof::Nothing)
        .await
        .map_err(|reason| unreachable(server, &reason))?;
    if response.status != 200 {
        return Err(format!(
            "{}{path} answers with status {}; a proxy in front of the gateway must pass this path on",
            server.issuer, response.status
        ));
    }
    object(&response)
        .ok_or_else(|| format!("{}{path} does not answer with JSON; is it this gateway?", server.issuer))
}

fn object(response: &WebResponse) -> Option<Value> {
    serde_json::from_slice(&response.body).ok().filter(Value::is_object)
}

fn unreachable(server: &AuthorizationServer, reason: &str) -> String {
    format!(
        "{} cannot be reached from the gateway: {reason}; check PUBLIC_URL, its DNS name, its certificate and the proxy",
        server.issuer
    )
}

async fn address(server: &AuthorizationServer, web: &Web) -> Result<String, String> {
    let found = get(server, web, "/health").await?;
    match found["status"].as_str() {
        Some(_) => Ok(format!("a gateway answers at {}", server.issuer)),
        None => Err(format!("something else answers at {}; check PUBLIC_URL and the proxy", server.issuer)),
    }
}

fn https(server: &AuthorizationServer) -> Result<String, String> {
    match server.is_https() {
        true => Ok("agents reach it with https".to_owned()),
        false => Ok("http, which is enough for agents on this machine; others need a PUBLIC_URL with https"
            .to_owned()),
    }
}

async fn protected_resource(server: &AuthorizationServer, web: &Web) -> Result<String, String> {
    let path = format!("{PROTECTED_RESOURCE}/mcp");
    let refused = web.post(&place(server, "/mcp")?, &[], &Proof::Nothing).await;
    let refused = refused.map_err(|reason| unreachable(server, &reason))?;
    let challenge =
        refused.headers.get("www-authenticate").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if refused.status != 401 || !challenge.contains(&format!("{}{path}", server.issuer)) {
        return Err(format!(
            "{}/mcp does not say where its metadata is (status {}); a proxy must pass on the 401 with its \
             WWW-Authenticate header",
            server.issuer, refused.status
        ));
    }
    let found = get(server, web, &path).await?;
    match found["resource"].as_str() == Some(&format!("{}/mcp", server.issuer)) {
        true => Ok(format!("{}{path} describes /mcp", server.issuer)),
        false => Err(format!("{}{path} describes another resource; is it this gateway?", server.issuer)),
    }
}

async fn authorization_server(server: &AuthorizationServer, web: &Web) -> Result<String, String> {
    let found = get(server, web, AUTHORIZATION_SERVER).await?;
    match found["issuer"].as_str() == Some(&server.issuer) {
        true => Ok(format!("{}{AUTHORIZATION_SERVER} names the endpoints", server.issuer)),
        false => Err(format!(
            "{}{AUTHORIZATION_SERVER} names another issuer than PUBLIC_URL; is it this gateway?",
            server.issuer
        )),
    }
}

/// Whether this gateway, or another one with its key, registered some software.
fn is_ours(server: &AuthorizationServer, software: &Value) -> bool {
    software["client_id"].as_str().is_some_and(|id| server.open_client_id(id).is_some())
}

async fn registration(server: &AuthorizationServer, web: &Web) -> Result<String, String> {
    if !server.settings.has_registration {
        return Ok(
            "switched off (OAUTH_DCR=off): only software with a metadata document or of an admin is let in"
                .to_owned(),
        );
    }
    let software = json!({"client_name": "toolgate doctor", "redirect_uris": ["http://127.0.0.1/callback"],
        "token_endpoint_auth_method": "none"});
    let sent = web.post_json(&place(server, register::PATH)?, &software.to_string()).await;
    let sent = sent.map_err(|reason| unreachable(server, &reason))?;
    match sent.status {
        201 if !object(&sent).is_some_and(|software| is_ours(server, &software)) => Err(format!(
            "another gateway answers at {}, with another SECRET_KEY or database; check PUBLIC_URL and the proxy",
            server.issuer
        )),
        201 => Ok("software can register itself".to_owned()),
        429 => Ok("too many registrations were tried just now; it answers".to_owned()),
        status => Err(format!(
            "{}{} answers with status {status}; a proxy must pass this path on",
            server.issuer,
            register::PATH
        )),
    }
}
