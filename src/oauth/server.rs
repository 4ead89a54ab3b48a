//! What the endpoints of the authorization server share: its settings, its seals and its rate limits.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use url::Url;

use super::external::ExternalTokens;
use super::{authorize, login, metadata, provider_login, register, revoke, token};
use crate::http::Face;
use crate::http::error::ErrorResponse;
use crate::http::source_limit::SourceLimit;
use gateway::sign_in::PeopleRules;
use model::oauth::registration::SoftwareRules;
use seal::PurposeSeal;
use store::Store;
use upstream::sign_in::{ClientDocuments, IdentityProvider, Web};

/// How many registrations an address may send in a minute.
pub const REGISTRATIONS_PER_MINUTE: u32 = 100;

/// What the operator can set.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// `PUBLIC_URL`, without a path.
    pub url: Url,
    pub rules: SoftwareRules,
    /// Whether software may register itself (`OAUTH_DCR`).
    pub has_registration: bool,
    /// `JWT_ISSUER`: the authorization server in place of this one.
    pub external_issuer: Option<String>,
}

/// What is asked outside of this gateway, and how its answers are judged.
pub struct Outside {
    pub documents: ClientDocuments,
    pub provider: Option<Arc<IdentityProvider>>,
    pub people: PeopleRules,
    pub external: Option<ExternalTokens>,
    pub web: Web,
}

/// Exists only if people can sign in: in enterprise mode, with `PUBLIC_URL` and without `OAUTH=off`.
pub struct AuthorizationServer {
    pub settings: ServerSettings,
    /// The issuer: `PUBLIC_URL` without a trailing slash.
    pub issuer: String,
    /// Seals the client ids of registrations.
    pub client_ids: PurposeSeal,
    /// Seals what a browser keeps while a person is at the identity provider.
    pub sign_ins: PurposeSeal,
    /// The limit of registrations.
    pub registrations: SourceLimit,
    /// What software publishes about itself.
    pub documents: ClientDocuments,
    /// The identity provider; `None` if people sign in with their token.
    pub provider: Option<Arc<IdentityProvider>>,
    /// Who may sign in there.
    pub people: PeopleRules,
    /// Tokens of the external issuer, if there is one.
    pub external: Option<ExternalTokens>,
    /// For requests to this gateway itself, which find out whether agents can reach it.
    pub web: Web,
}

impl AuthorizationServer {
    pub fn new(settings: ServerSettings, store: &Store, outside: Outside) -> Self {
        let Outside { documents, provider, people, external, web } = outside;
        Self {
            issuer: settings.url.as_str().trim_end_matches('/').to_owned(),
            settings,
            client_ids: store.seal_for("oauth client id"),
            sign_ins: store.seal_for("sign-in"),
            registrations: SourceLimit::per_minute(REGISTRATIONS_PER_MINUTE),
            documents,
            provider,
            people,
            external,
            web,
        }
    }

    /// Whether agents get their tokens here, and not from another issuer.
    pub fn issues_tokens(&self) -> bool {
        self.settings.external_issuer.is_none()
    }

    /// Whether browsers reach it with https.
    pub fn is_https(&self) -> bool {
        self.settings.url.scheme() == "https"
    }
}

/// Nobody can sign in here, so the routes for it do not exist.
fn nobody(path: &str) -> ErrorResponse {
    ErrorResponse::not_here(format!(
        "nobody can sign in here, so {path} does not exist; start the gateway in enterprise mode with PUBLIC_URL, and \
         without OAUTH=off"
    ))
}

/// Why a route for signing in does not exist here, or not yet. Counts whatever the method is.
pub fn missing(face: &Face, path: &str) -> Option<ErrorResponse> {
    let is_issuing =
        [authorize::PATH, token::PATH, register::PATH, revoke::PATH, metadata::AUTHORIZATION_SERVER]
            .contains(&path);
    let is_for_people = path.starts_with(metadata::PROTECTED_RESOURCE)
        || [login::PATH, login::LOGOUT, provider_login::PATH].contains(&path);
    match (is_issuing, is_for_people) {
        (true, _) if path == register::PATH => registering_server(face).err(),
        (true, _) => issuing_server(face, path).err(),
        (false, true) => signing_in_server(face, path).err(),
        (false, false) => None,
    }
}

/// What signing in needs.
fn signing_in_server(face: &Face, path: &str) -> Result<Arc<AuthorizationServer>, ErrorResponse> {
    let server = face.sign_in.as_ref().ok_or_else(|| nobody(path))?;
    match face.gateway.is_initialized() {
        true => Ok(server.clone()),
        false => Err(ErrorResponse::not_initialized()),
    }
}

fn issuing_server(face: &Face, path: &str) -> Result<Arc<AuthorizationServer>, ErrorResponse> {
    let server = signing_in_server(face, path)?;
    match &server.settings.external_issuer {
        None => Ok(server),
        Some(issuer) => Err(ErrorResponse::not_here(format!(
            "this gateway issues no tokens; JWT_ISSUER names {issuer} for that"
        ))),
    }
}

fn registering_server(face: &Face) -> Result<Arc<AuthorizationServer>, ErrorResponse> {
    let server = issuing_server(face, register::PATH)?;
    match server.settings.has_registration {
        true => Ok(server),
        false => Err(ErrorResponse::not_here("software cannot register itself here; OAUTH_DCR is off")),
    }
}

/// Extracts what signing in needs. 404 where nobody can sign in, 403 before initialization.
pub struct SigningIn(pub Arc<AuthorizationServer>);

/// The same for the endpoints of the authorization server, which do not exist beside an external one.
pub struct Issuing(pub Arc<AuthorizationServer>);

/// The same where software may register itself.
pub struct Registering(pub Arc<AuthorizationServer>);

impl FromRequestParts<Face> for SigningIn {
    type Rejection = ErrorResponse;

    async fn from_request_parts(parts: &mut Parts, face: &Face) -> Result<Self, ErrorResponse> {
        signing_in_server(face, parts.uri.path()).map(Self)
    }
}

impl FromRequestParts<Face> for Issuing {
    type Rejection = ErrorResponse;

    async fn from_request_parts(parts: &mut Parts, face: &Face) -> Result<Self, ErrorResponse> {
        issuing_server(face, parts.uri.path()).map(Self)
    }
}

impl FromRequestParts<Face> for Registering {
    type Rejection = ErrorResponse;

    async fn from_request_parts(_: &mut Parts, face: &Face) -> Result<Self, ErrorResponse> {
        registering_server(face).map(Self)
    }
}
