//! Routes about the gateway itself: health, readiness, version, initialization, metrics.

use std::sync::Weak;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use utoipa::ToSchema;

use super::access::{ChangedBy, Peer};
use super::error::{ErrorResponse, HandlerResult};
use super::extract::json_object;
use super::reply::{Json, serialized};
use super::{Face, VERSION};
use model::{FieldError, Fields, Mode};

/// Path of the initialization.
pub const INIT: &str = "/init";
const HEALTH: &str = "/health";
const READY: &str = "/ready";

/// The state of the gateway.
#[derive(Serialize, ToSchema)]
#[schema(as = Health)]
pub struct HealthBody {
    /// `ok`, `degraded`, `starting`, `stale` or `draining`.
    status: &'static str,
}

/// Facts about the gateway.
#[derive(Serialize, ToSchema)]
pub struct Metadata {
    /// The version, with a leading `v`.
    version: &'static str,
}

/// Confirms that the gateway is running.
#[utoipa::path(get, path = HEALTH, tag = "system", responses((status = 200, body = HealthBody)))]
pub async fn health() -> Json<HealthBody> {
    Json(HealthBody { status: "ok" })
}

/// Returns the readiness. `degraded`: calls work, but changes cannot be stored. `starting`: the gateway waits for its database.
/// `stale`: calls are refused, since a shared database has not confirmed anybody's rights for too long.
#[utoipa::path(get, path = READY, tag = "system",
    responses((status = 200, body = HealthBody), (status = 503, body = HealthBody)))]
pub async fn ready(State(face): State<Face>) -> Response {
    let (code, status) = if face.draining.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else if face.gateway.has_stale_rights() {
        (StatusCode::SERVICE_UNAVAILABLE, "stale")
    } else if face.gateway.is_database_well() {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::OK, "degraded")
    };
    serialized(code, &HealthBody { status })
}

/// The response to any request while the gateway starts.
pub fn answer_while_starting(method: &Method, path: &str) -> Response {
    match (method, path) {
        (&Method::GET | &Method::HEAD, HEALTH) => Json(HealthBody { status: "ok" }).into_response(),
        (&Method::GET | &Method::HEAD, READY) => {
            serialized(StatusCode::SERVICE_UNAVAILABLE, &HealthBody { status: "starting" })
        }
        _ => ErrorResponse::starting().into_response(),
    }
}

/// Returns the version of the gateway.
#[utoipa::path(get, path = "/metadata", tag = "system", responses((status = 200, body = Metadata)))]
pub async fn metadata() -> Json<Metadata> {
    Json(Metadata { version: VERSION })
}

/// Initializes an enterprise gateway and returns the admin's token. In development mode it changes nothing.
#[utoipa::path(post, path = INIT, tag = "system",
    request_body = HashMap<String, String>, responses((status = 200, body = HashMap<String, String>)))]
pub async fn init(
    State(face): State<Face>,
    Extension(peer): Extension<Peer>,
    ChangedBy(by): ChangedBy,
    headers: HeaderMap,
    body: Bytes,
) -> HandlerResult<Json<Value>> {
    face.check_init_secret(&headers, peer)?;
    let mode = if body.iter().all(u8::is_ascii_whitespace) { None } else { requested_mode(&body)? };
    let admin = face.gateway.initialize(mode, &by).await?;
    let mut answer = json!({ "status": format!("initialized in {} mode", face.gateway.mode.as_str()) });
    if let Some(token) = admin {
        answer["admin_access_token"] = token.expose().into();
    }
    Ok(Json(answer))
}

fn requested_mode(body: &Bytes) -> Result<Option<Mode>, ErrorResponse> {
    let mut fields = Fields::new(json_object(body)?);
    let mode = fields.text("mode")?;
    fields.finish()?;
    let wrong = || FieldError::new("mode", "must be \"development\", \"enterprise\" or \"production\"");
    Ok(mode.map(|mode| Mode::parse(&mode).ok_or_else(wrong)).transpose()?)
}

/// Returns the metrics in the OpenMetrics text format, if telemetry is on.
#[utoipa::path(get, path = "/metrics", tag = "system",
    responses((status = 200, content_type = "application/openmetrics-text", body = String)))]
pub async fn metrics(State(face): State<Face>) -> HandlerResult<Response> {
    if !face.settings.telemetry {
        return Err(ErrorResponse::not_here("metrics are off; start the gateway with OTEL_ENABLED=true"));
    }
    let sessions = face.mcp.get().and_then(Weak::upgrade).map_or(0, |mcp| mcp.live_sessions());
    let tasks = Handle::current().metrics().num_alive_tasks();
    let state = face.gateway.gauges(sessions as u64, tasks as u64);
    let mut response = face.gateway.metrics.render(&state).into_response();
    let text = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    Ok(response)
}
