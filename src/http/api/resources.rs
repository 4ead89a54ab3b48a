//! `/api/v0/resources` and `/api/v0/resource_templates`: listing and reading resources.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::Value;
use utoipa::ToSchema;

use super::coverage;
use crate::http::Face;
use crate::http::access::CurrentPrincipal;
use crate::http::error::{ErrorResponse, HandlerResult};
use crate::http::extract::{Query, json_object};
use crate::http::record::{ResourceRecord, TemplateRecord};
use crate::http::reply::{Json, Written};
use crate::http::trail::{Arrived, recorded};
use model::{FieldError, Fields};

/// The resource to return or read.
#[derive(ToSchema)]
pub struct ResourceInput {
    /// The server's own URI of the resource, or the qualified one.
    pub uri: String,
}

/// The contents of a resource, as its server sent them.
#[derive(ToSchema)]
pub struct ResourceContents {
    /// Objects with `uri`, `mimeType`, and `text` or `blob`.
    pub contents: Vec<Value>,
}

/// Lists the resources of the enabled servers.
#[utoipa::path(get, path = "/api/v0/resources", tag = "resources",
    params(
        ("server" = Option<String>, Query, description = "Lists only what this server offers"),
        ("all" = Option<bool>, Query, description = "Whether to include disabled servers; false if omitted"),
    ), responses((status = 200, body = [ResourceRecord])))]
pub async fn list(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    query: Query,
) -> HandlerResult<Response> {
    let (catalog, coverage) = (face.catalog_for(&caller), coverage(&query)?);
    let resources = catalog.covered_resources(&coverage)?;
    let records = resources.map(|(entry, resource)| ResourceRecord::of(entry, resource));
    Ok(Json(records.collect::<Vec<_>>()).into_response())
}

/// Lists the resource templates of the enabled servers.
#[utoipa::path(get, path = "/api/v0/resource_templates", tag = "resources",
    params(
        ("server" = Option<String>, Query, description = "Lists only what this server offers"),
        ("all" = Option<bool>, Query, description = "Whether to include disabled servers; false if omitted"),
    ), responses((status = 200, body = [TemplateRecord])))]
pub async fn templates(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    query: Query,
) -> HandlerResult<Response> {
    let (catalog, coverage) = (face.catalog_for(&caller), coverage(&query)?);
    let templates = catalog.covered_templates(&coverage)?;
    let records = templates.map(|(entry, template)| TemplateRecord::of(entry, template));
    Ok(Json(records.collect::<Vec<_>>()).into_response())
}

/// Returns the record of a resource, without its contents.
#[utoipa::path(post, path = "/api/v0/resources/get", tag = "resources",
    request_body = ResourceInput, responses((status = 200, body = ResourceRecord)))]
pub async fn get(State(face): State<Face>, caller: CurrentPrincipal, body: Bytes) -> HandlerResult<Response> {
    let uri = uri(&body)?;
    let catalog = face.catalog_for(&caller);
    face.gateway.check_uri(&uri).map_err(gateway::Error::from)?;
    let (entry, resource) = catalog.resource(&uri)?;
    Ok(Json(ResourceRecord::of(entry, resource)).into_response())
}

/// Reads a resource and returns its contents.
#[utoipa::path(post, path = "/api/v0/resources/read", tag = "resources",
    request_body = ResourceInput, responses((status = 200, body = ResourceContents)))]
pub async fn read(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    arrived: Arrived,
    body: Bytes,
) -> HandlerResult<Response> {
    let uri = uri(&body)?;
    let trail = arrived.begin(&face, "resources/read", body.len());
    let contents = face.gateway.read_resource(caller.owner(), &uri, &trail).await;
    Ok(recorded(contents.map(Written).map_err(ErrorResponse::from), trail))
}

fn uri(body: &Bytes) -> Result<String, ErrorResponse> {
    let mut fields = Fields::new(json_object(body)?);
    let uri = fields.required_text("uri")?;
    fields.finish()?;
    if uri.is_empty() {
        return Err(FieldError::new("uri", "must not be empty").into());
    }
    Ok(uri)
}
