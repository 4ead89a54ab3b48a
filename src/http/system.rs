//! Routes about the gateway itself: is it up, which version, first set-up, metrics.

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Value, json};

use super::Face;
use super::error::Refusal;
use super::extract::json_object;
use super::reply::{Answer, Json};
use crate::gateway::record::ServerRecord;
use crate::model::{FieldError, Fields, Mode};

pub async fn health() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

pub async fn metadata() -> Json<Value> {
    Json(json!({ "version": concat!("v", env!("CARGO_PKG_VERSION")) }))
}

/// A development server initializes itself at start, so there this only confirms it.
pub async fn init(State(face): State<Face>, body: Bytes) -> Answer<Json<Value>> {
    let mode = if body.iter().all(u8::is_ascii_whitespace) { None } else { requested_mode(&body)? };
    let admin = face.gateway.initialize(mode).await?;
    let mut answer = json!({ "status": format!("initialized in {} mode", face.gateway.mode.as_str()) });
    if let Some(admin) = admin {
        answer["admin_access_token"] = admin.token.secret().expose().into();
    }
    Ok(Json(answer))
}

fn requested_mode(body: &Bytes) -> Result<Option<Mode>, Refusal> {
    let mut fields = Fields::new(json_object(body)?);
    let mode = fields.text("mode")?;
    fields.finish()?;
    let wrong = || FieldError::new("mode", "must be \"development\", \"enterprise\" or \"production\"");
    Ok(mode.map(|mode| Mode::parse(&mode).ok_or_else(wrong)).transpose()?)
}

pub async fn metrics(State(face): State<Face>) -> Answer<Response> {
    if !face.settings.telemetry {
        return Err(Refusal::not_here("metrics are off; start the gateway with OTEL_ENABLED=true"));
    }
    let catalog = face.gateway.catalog();
    let statuses = catalog.entries().map(|entry| ServerRecord::of(entry).status);
    let mut response = face.gateway.metrics.render(statuses).into_response();
    let text = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    Ok(response)
}
