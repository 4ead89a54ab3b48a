//! The page that a person finds who opens the address of a gateway in enterprise mode in a browser. It says what this
//! is and how to go on. The status stays 404: the dashboard does not exist in this mode.

use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::Face;
use super::address::base_url;
use super::reply::escaped;
use model::Mode;

const STYLE: &str = "\
    :root { color-scheme: light dark; }\
    body { max-width: 42rem; margin: 4rem auto; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; }\
    code { padding: 0.1em 0.3em; border-radius: 4px; background: #eef1f4; overflow-wrap: anywhere; }\
    @media (prefers-color-scheme: dark) { code { background: #2d333b; } }\
    dt { margin-top: 1rem; font-weight: 600; }\
    dd { margin: 0; }";

impl Face {
    /// Returns the page, if a browser asks an enterprise gateway for its dashboard.
    pub fn landing_page(&self, method: &Method, path: &str, headers: &HeaderMap) -> Option<Response> {
        let is_page = matches!(path, "/" | "/index.html") && matches!(*method, Method::GET | Method::HEAD);
        if self.gateway.mode != Mode::Enterprise || !is_page || !accepts_html(headers) {
            return None;
        }
        let page = page(&base_url(&self.settings, headers), self.gateway.is_initialized());
        let hash = STANDARD.encode(Sha256::digest(STYLE));
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        let headers = [
            (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
            (header::CONTENT_SECURITY_POLICY, policy),
            (header::REFERRER_POLICY, "no-referrer".to_owned()),
            (header::VARY, "accept".to_owned()),
        ];
        Some((StatusCode::NOT_FOUND, headers, page).into_response())
    }
}

fn page(base: &str, is_initialized: bool) -> String {
    let base = escaped(base);
    let admin = match is_initialized {
        true => format!(
            "Log in with <code>toolgate --registry {base} login -</code>, then list the servers with \
             <code>toolgate list servers</code>. An agent gets its token from \
             <code>toolgate create mcp-client NAME --allow SERVERS</code>, a person from \
             <code>toolgate create user NAME</code>."
        ),
        false => format!(
            "This gateway is not initialized yet. <code>toolgate --registry {base} init-server</code> does that and \
             saves the admin token."
        ),
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>toolgate</title><style>{STYLE}</style></head>\n\
         <body><main><h1>toolgate</h1>\n\
         <p>This is a toolgate gateway: MCP clients reach the tools of all registered MCP servers here. It runs in \
         enterprise mode, which has no dashboard.</p>\n<dl>\n\
         <dt>To connect an MCP client</dt>\n<dd>Use the address <code>{base}/mcp</code> and the header \
         <code>Authorization: Bearer TOKEN</code>. An admin of this gateway creates the token.</dd>\n\
         <dt>To manage the gateway</dt>\n<dd>{admin}</dd>\n\
         <dt>To use the REST API</dt>\n<dd>Its routes are under <code>{base}/api/v0</code>, described in \
         <code>{base}/api/v0/openapi.json</code>. They need the token of a user.</dd>\n\
         </dl></main></body>\n</html>\n"
    )
}

/// Tells whether a request accepts HTML by name, as browsers do, and not only by `*/*`.
fn accepts_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|list| list.split(',')).any(|media| {
        let media = media.split(';').next().unwrap_or_default().trim();
        media.eq_ignore_ascii_case("text/html")
    })
}
