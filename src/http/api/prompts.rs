//! `/api/v0/prompts`: listing, rendering, enabling and disabling prompts.

use std::collections::{BTreeMap, HashMap};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::Value;
use utoipa::ToSchema;

use super::{coverage, entity};
use crate::http::Face;
use crate::http::access::{ChangedBy, CurrentPrincipal};
use crate::http::error::{ErrorResponse, HandlerResult};
use crate::http::extract::{Query, json_object};
use crate::http::record::PromptRecord;
use crate::http::reply::{Json, Written};
use crate::http::trail::{Arrived, recorded};
use gateway::trail::Trail;
use model::Fields;

/// The prompt to render, and its arguments.
#[derive(ToSchema)]
pub struct RenderInput {
    /// The full name of the prompt.
    pub name: String,
    pub arguments: Option<HashMap<String, String>>,
}

/// A prompt with its arguments filled in.
#[derive(ToSchema)]
pub struct RenderedPrompt {
    pub description: Option<String>,
    pub messages: Vec<PromptMessage>,
    /// The `_meta` object of the result, if the server sent one.
    pub meta: Option<HashMap<String, Value>>,
}

/// A message of a rendered prompt.
#[derive(ToSchema)]
pub struct PromptMessage {
    /// `user` or `assistant`.
    pub role: String,
    /// A content block of MCP.
    pub content: HashMap<String, Value>,
}

/// Lists the prompts of the enabled servers.
#[utoipa::path(get, path = "/api/v0/prompts", tag = "prompts",
    params(
        ("server" = Option<String>, Query, description = "Lists only what this server offers"),
        ("all" = Option<bool>, Query, description = "Whether to include disabled servers; false if omitted"),
    ), responses((status = 200, body = [PromptRecord])))]
pub async fn list(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    query: Query,
) -> HandlerResult<Response> {
    let (catalog, coverage) = (face.catalog_for(&caller), coverage(&query)?);
    let prompts = catalog.covered_prompts(&coverage)?;
    Ok(Json(prompts.map(|(entry, prompt)| PromptRecord::of(entry, prompt)).collect::<Vec<_>>())
        .into_response())
}

/// Returns a prompt.
#[utoipa::path(get, path = "/api/v0/prompt", tag = "prompts",
    params(("name" = String, Query, description = "The full name")),
    responses((status = 200, body = PromptRecord)))]
pub async fn get(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    query: Query,
) -> HandlerResult<Response> {
    let catalog = face.catalog_for(&caller);
    let (entry, prompt) = catalog.prompt(query.required("name")?)?;
    Ok(Json(PromptRecord::of(entry, prompt)).into_response())
}

/// Renders a prompt with the given arguments.
#[utoipa::path(post, path = "/api/v0/prompts/render", tag = "prompts",
    request_body = RenderInput, responses((status = 200, body = RenderedPrompt)))]
pub async fn render(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    arrived: Arrived,
    body: Bytes,
) -> HandlerResult<Response> {
    let mut fields = Fields::new(json_object(&body)?);
    let name = fields.required_text("name")?;
    let arguments = fields.text_map("arguments")?.unwrap_or_default();
    fields.finish()?;
    let trail = arrived.begin(&face, "prompts/get", body.len());
    Ok(run(&face, &caller, &name, &arguments, trail).await)
}

/// Renders a prompt for a person.
pub async fn run(
    face: &Face,
    caller: &CurrentPrincipal,
    name: &str,
    arguments: &BTreeMap<String, String>,
    trail: Trail,
) -> Response {
    let rendered = face.gateway.render(caller.owner(), name, arguments, &trail).await;
    recorded(rendered.map(Written).map_err(ErrorResponse::from), trail)
}

/// Enables a prompt, or all prompts of a server, and returns the full names that changed.
#[utoipa::path(post, path = "/api/v0/prompts/enable", tag = "prompts",
    params(("entity" = Option<String>, Query, description = "A full name, or the name of a server")),
    request_body(content = Option<HashMap<String, String>>, description = "An object with `entity`, unless the query has it"),
    responses((status = 200, body = [String])))]
pub async fn enable(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    query: Query,
    body: Bytes,
) -> HandlerResult<Json<Vec<String>>> {
    Ok(Json(face.gateway.switch_prompts(&entity(&query, &body)?, true, &by).await?))
}

/// Disables a prompt, or all prompts of a server, and returns the full names that changed.
#[utoipa::path(post, path = "/api/v0/prompts/disable", tag = "prompts",
    params(("entity" = Option<String>, Query, description = "A full name, or the name of a server")),
    request_body(content = Option<HashMap<String, String>>, description = "An object with `entity`, unless the query has it"),
    responses((status = 200, body = [String])))]
pub async fn disable(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    query: Query,
    body: Bytes,
) -> HandlerResult<Json<Vec<String>>> {
    Ok(Json(face.gateway.switch_prompts(&entity(&query, &body)?, false, &by).await?))
}
