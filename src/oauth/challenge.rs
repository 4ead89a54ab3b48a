//! Tells agents without a valid token where they get one: the `WWW-Authenticate` of a 401 at an MCP endpoint (RFC 9728,
//! section 5.1).

use super::AuthorizationServer;
use super::metadata::PROTECTED_RESOURCE;
use crate::http::Face;
use crate::http::error::ErrorResponse;
use model::oauth::{SCOPE, resource};

impl Face {
    /// Completes the response to a request to an MCP endpoint that was refused.
    pub fn challenged(&self, error: ErrorResponse, path: &str, has_token: bool) -> ErrorResponse {
        match &self.sign_in {
            Some(server) if error.is_unauthorized() => {
                let document = server.document_of(path);
                let problem = if has_token { ", error=\"invalid_token\"" } else { "" };
                error.with_challenge(&format!(
                    "Bearer resource_metadata=\"{document}\", scope=\"{SCOPE}\"{problem}"
                ))
            }
            Some(_) | None => error,
        }
    }
}

impl AuthorizationServer {
    /// The URL of the metadata of an endpoint.
    fn document_of(&self, path: &str) -> String {
        let path = resource::documented_path(path);
        // Only such paths have a document, and the others may have characters that a header must not.
        let path = if resource::is_endpoint(&path) { path.as_str() } else { "" };
        format!("{}{PROTECTED_RESOURCE}{path}", self.issuer)
    }
}
