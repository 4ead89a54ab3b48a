//! The prompts page: all prompts of all servers; enabling, disabling and rendering them.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::empty_state::{EmptyState, nothing_offered};
use super::{Home, SwitchInput, SwitchedItem};
use crate::http::Face;
use crate::http::access::{ChangedBy, CurrentPrincipal};
use crate::http::address::base_url;
use crate::http::api::prompts;
use crate::http::error::{ErrorResponse, HandlerResult};
use crate::http::extract::{Name, json_object};
use crate::http::record::{PromptArgumentBody, PromptRecord};
use crate::http::reply::Json;
use crate::http::trail::Arrived;
use gateway::catalog::Catalog;
use model::Fields;

/// All prompts, and the empty state if there are none.
#[derive(Serialize, ToSchema)]
pub struct DashboardPrompts<'a> {
    prompts: Vec<DashboardPrompt<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    empty_state: Option<EmptyState>,
}

/// A prompt with the state of its server.
#[derive(Serialize, ToSchema)]
pub struct DashboardPrompt<'a> {
    /// The name that its server uses.
    name: &'a str,
    /// The full name, `<server>__<prompt>`.
    canonical_name: String,
    /// The name of the server.
    server: &'a str,
    #[schema(value_type = String)]
    description: &'a RawValue,
    /// Whether both the prompt and its server are enabled.
    enabled: bool,
    /// Whether the server is enabled.
    server_enabled: bool,
    arguments: Vec<PromptArgumentBody>,
    /// The arguments in one line; optional ones have a question mark.
    arguments_preview: String,
    /// The transport of the server.
    transport: &'static str,
    /// The status of the server.
    server_status: &'static str,
}

/// Lists all prompts, including disabled ones.
#[utoipa::path(get, path = "/api/dashboard/prompts", tag = "dashboard", responses((status = 200, body = DashboardPrompts)))]
pub async fn list(State(face): State<Face>, headers: HeaderMap) -> Response {
    let catalog = face.gateway.catalog();
    let prompts = records(&catalog);
    let empty_state = prompts.is_empty().then(|| {
        let has_servers = catalog.entries().next().is_some();
        let description =
            "Prompts are message templates that servers offer. None of the registered servers offers one.";
        nothing_offered(has_servers, &base_url(&face.settings, &headers), "No prompts", description)
    });
    Json(DashboardPrompts { prompts, empty_state }).into_response()
}

/// Enables or disables a prompt.
#[utoipa::path(patch, path = "/api/dashboard/prompts/{name}/enabled", tag = "dashboard",
    params(("name" = String, Path, description = "The full name")),
    request_body = SwitchInput, responses((status = 200, body = SwitchedItem)))]
pub async fn switch(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
    body: Bytes,
) -> HandlerResult<Json<SwitchedItem>> {
    let SwitchInput { enabled } = SwitchInput::parse(&body)?;
    face.gateway.catalog().prompt(&name)?;
    face.gateway.switch_prompts(&name, enabled, &by).await?;
    Ok(Json(SwitchedItem { name, enabled }))
}

/// Renders a prompt with the arguments in the body, either alone or under `arguments`.
#[utoipa::path(post, path = "/api/dashboard/prompts/{name}/render", tag = "dashboard",
    params(("name" = String, Path, description = "The full name")),
    request_body = std::collections::HashMap<String, String>,
    responses((status = 200, body = crate::http::api::prompts::RenderedPrompt)))]
pub async fn render(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    arrived: Arrived,
    Name(name): Name,
    body: Bytes,
) -> HandlerResult<Response> {
    let arguments = arguments(&body)?;
    let trail = arrived.begin(&face, "prompts/get", body.len());
    Ok(prompts::run(&face, &caller, &name, &arguments, trail).await)
}

fn arguments(body: &Bytes) -> Result<BTreeMap<String, String>, ErrorResponse> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(BTreeMap::new());
    }
    let body = json_object(body)?;
    // Argument values are text, so an object under `arguments` must be the map of all arguments.
    let object = match body.get("arguments") {
        Some(Value::Object(_) | Value::Null) if body.len() == 1 => body,
        Some(_) | None => Map::from_iter([("arguments".to_owned(), Value::Object(body))]),
    };
    Ok(Fields::new(object).text_map("arguments")?.unwrap_or_default())
}

fn records(catalog: &Catalog) -> Vec<DashboardPrompt<'_>> {
    let entries = catalog.entries_by_full_name().into_iter();
    entries
        .flat_map(|entry| {
            let home = Home::of(entry);
            entry.prompts().map(move |prompt| {
                let record = PromptRecord::of(entry, prompt);
                DashboardPrompt {
                    name: &prompt.name,
                    canonical_name: record.name,
                    server: home.server,
                    description: record.description,
                    enabled: record.enabled,
                    server_enabled: home.server_enabled,
                    arguments_preview: preview(&record.arguments),
                    arguments: record.arguments,
                    transport: home.transport,
                    server_status: home.server_status,
                }
            })
        })
        .collect()
}

fn preview(arguments: &[PromptArgumentBody]) -> String {
    let mark = |argument: &PromptArgumentBody| if argument.required { "" } else { "?" };
    let parts = arguments.iter().map(|argument| format!("{}{}", argument.name, mark(argument)));
    parts.collect::<Vec<_>>().join(", ")
}
