//! The metadata documents of the authorization server (RFC 8414) and of the MCP endpoints (RFC 9728).

use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::AuthorizationServer;
use super::server::{Issuing, SigningIn};
use super::{authorize, register, revoke, token};
use crate::http::error::{ErrorResponse, HandlerResult};
use crate::http::extract::Name;
use crate::http::reply::Json;
use model::oauth::{SCOPE, resource};

/// Path of the document about all MCP endpoints. The path of an endpoint follows in that of its own document.
pub const PROTECTED_RESOURCE: &str = "/.well-known/oauth-protected-resource";
pub const AUTHORIZATION_SERVER: &str = "/.well-known/oauth-authorization-server";

/// Where agents get tokens for an MCP endpoint.
#[derive(Serialize, ToSchema)]
pub struct ProtectedResource {
    /// The URL of the endpoint.
    resource: String,
    authorization_servers: Vec<String>,
    scopes_supported: [&'static str; 1],
    bearer_methods_supported: [&'static str; 1],
    resource_name: String,
}

impl AuthorizationServer {
    fn describe(&self, path: &str) -> ProtectedResource {
        let issuer = self.settings.external_issuer.as_ref().unwrap_or(&self.issuer);
        ProtectedResource {
            resource: format!("{}{path}", self.issuer),
            authorization_servers: vec![issuer.clone()],
            scopes_supported: [SCOPE],
            bearer_methods_supported: ["header"],
            resource_name: match path {
                "" => "toolgate".to_owned(),
                path => format!("toolgate, {path}"),
            },
        }
    }

    /// Describes the endpoint of a group or server. Names that cannot exist have no document.
    fn describe_named(&self, path: &str) -> HandlerResult<Json<ProtectedResource>> {
        match resource::is_endpoint(path) {
            true => Ok(Json(self.describe(path))),
            false => Err(ErrorResponse::not_here(format!("there is no MCP endpoint {path}"))),
        }
    }
}

/// Returns where agents get tokens for all MCP endpoints.
#[utoipa::path(get, path = PROTECTED_RESOURCE, tag = "sign-in",
    responses((status = 200, body = ProtectedResource)))]
pub async fn everything(SigningIn(server): SigningIn) -> Json<ProtectedResource> {
    Json(server.describe(""))
}

/// Returns where agents get tokens for `/mcp`.
#[utoipa::path(get, path = "/.well-known/oauth-protected-resource/mcp", tag = "sign-in",
    responses((status = 200, body = ProtectedResource)))]
pub async fn mcp(SigningIn(server): SigningIn) -> Json<ProtectedResource> {
    Json(server.describe("/mcp"))
}

/// Returns where agents get tokens for `/sse`.
#[utoipa::path(get, path = "/.well-known/oauth-protected-resource/sse", tag = "sign-in",
    responses((status = 200, body = ProtectedResource)))]
pub async fn sse(SigningIn(server): SigningIn) -> Json<ProtectedResource> {
    Json(server.describe("/sse"))
}

/// Returns where agents get tokens for the endpoint of a group.
#[utoipa::path(get, path = "/.well-known/oauth-protected-resource/v0/groups/{name}/mcp", tag = "sign-in",
    params(("name" = String, Path)), responses((status = 200, body = ProtectedResource)))]
pub async fn group_mcp(
    SigningIn(server): SigningIn,
    Name(name): Name,
) -> HandlerResult<Json<ProtectedResource>> {
    server.describe_named(&format!("/v0/groups/{name}/mcp"))
}

/// Returns where agents get tokens for the HTTP+SSE endpoint of a group.
#[utoipa::path(get, path = "/.well-known/oauth-protected-resource/v0/groups/{name}/sse", tag = "sign-in",
    params(("name" = String, Path)), responses((status = 200, body = ProtectedResource)))]
pub async fn group_sse(
    SigningIn(server): SigningIn,
    Name(name): Name,
) -> HandlerResult<Json<ProtectedResource>> {
    server.describe_named(&format!("/v0/groups/{name}/sse"))
}

/// Returns where agents get tokens for the endpoint of a server.
#[utoipa::path(get, path = "/.well-known/oauth-protected-resource/v0/servers/{name}/mcp", tag = "sign-in",
    params(("name" = String, Path)), responses((status = 200, body = ProtectedResource)))]
pub async fn server_mcp(
    SigningIn(server): SigningIn,
    Name(name): Name,
) -> HandlerResult<Json<ProtectedResource>> {
    server.describe_named(&format!("/v0/servers/{name}/mcp"))
}

/// Returns the metadata of the authorization server.
#[utoipa::path(get, path = AUTHORIZATION_SERVER, tag = "sign-in",
    responses((status = 200, body = std::collections::HashMap<String, Value>)))]
pub async fn authorization_server(Issuing(server): Issuing) -> Json<Map<String, Value>> {
    let at = |path: &str| Value::from(format!("{}{path}", server.issuer));
    let methods = json!(["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]);
    let mut document = Map::new();
    let mut add = |key: &str, value: Value| drop(document.insert(key.to_owned(), value));
    add("issuer", server.issuer.as_str().into());
    add("authorization_endpoint", at(authorize::PATH));
    add("token_endpoint", at(token::PATH));
    if server.settings.has_registration {
        add("registration_endpoint", at(register::PATH));
    }
    add("revocation_endpoint", at(revoke::PATH));
    add("response_types_supported", json!(["code"]));
    add("response_modes_supported", json!(["query"]));
    add("grant_types_supported", json!(["authorization_code", "refresh_token"]));
    add("code_challenge_methods_supported", json!(["S256"]));
    add("token_endpoint_auth_methods_supported", methods.clone());
    add("token_endpoint_auth_signing_alg_values_supported", json!(["RS256", "ES256", "EdDSA"]));
    add("revocation_endpoint_auth_methods_supported", methods);
    add("revocation_endpoint_auth_signing_alg_values_supported", json!(["RS256", "ES256", "EdDSA"]));
    add("client_id_metadata_document_supported", true.into());
    add("authorization_response_iss_parameter_supported", true.into());
    add("scopes_supported", json!([SCOPE, "offline_access"]));
    Json(document)
}

/// Whether pages of every origin may use a path: agents in browsers need the metadata, and no cookie counts there.
pub fn is_open_to_pages(path: &str) -> bool {
    let is_document = path == AUTHORIZATION_SERVER
        || path.strip_prefix(PROTECTED_RESOURCE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    is_document || matches!(path, register::PATH | token::PATH)
}
