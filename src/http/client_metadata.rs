//! `GET /client-metadata.json`: the OAuth client metadata document of this gateway, for authorization servers that
//! accept a URL as client id. It exists only if `PUBLIC_URL` is set.

use axum::extract::State;
use serde_json::{Value, json};
use url::Url;

use super::Face;
use super::authorization::CALLBACK;
use super::error::{ErrorResponse, HandlerResult};
use super::reply::Json;

pub const PATH: &str = "/client-metadata.json";

/// Returns the URL of the document, which is the client id of this gateway.
pub fn address(public_url: &Url) -> String {
    format!("{}{PATH}", base(public_url))
}

/// Returns the OAuth client metadata of the gateway, for authorization servers.
#[utoipa::path(get, path = PATH, tag = "system",
    responses((status = 200, body = std::collections::HashMap<String, Value>)))]
pub async fn get(State(face): State<Face>) -> HandlerResult<Json<Value>> {
    let Some(public_url) = &face.settings.public_url else {
        return Err(ErrorResponse::not_here(
            "there is no client metadata; start the gateway with PUBLIC_URL",
        ));
    };
    Ok(Json(json!({
        "client_id": address(public_url),
        "client_name": "toolgate",
        "client_uri": base(public_url),
        "redirect_uris": [format!("{}{CALLBACK}", base(public_url))],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "web",
    })))
}

fn base(public_url: &Url) -> &str {
    public_url.as_str().trim_end_matches('/')
}
