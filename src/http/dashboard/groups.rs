//! The groups page: every group with the tools it shows at the moment; creating, changing and deleting groups.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::Deleted;
use super::empty_state::{EmptyState, no_groups};
use crate::http::Face;
use crate::http::access::ChangedBy;
use crate::http::address::base_url;
use crate::http::api::groups::GroupEndpoints;
use crate::http::error::{ErrorResponse, HandlerResult};
use crate::http::extract::{Name, json_object};
use crate::http::record::ToolRecord;
use crate::http::reply::{Created, Json};
use gateway::catalog::{Catalog, Entry};
use model::{FieldError, Tool};

/// Limits of the list of groups: tools per group, and the total size after which further groups list no tools. All
/// tools of a group are in the response for that group.
const LISTED_TOOLS: usize = 100;
const LIST_BYTES: usize = 1024 * 1024;

/// All tool groups, and the empty state if there are none.
#[derive(Serialize, ToSchema)]
pub struct DashboardGroups<'a> {
    tool_groups: Vec<DashboardGroup<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    empty_state: Option<EmptyState>,
}

/// A tool group with the tools that it shows now.
#[derive(Serialize, ToSchema)]
pub struct DashboardGroup<'a> {
    name: &'a str,
    description: &'a str,
    /// The number of tools that the group shows now.
    tool_count: usize,
    /// The tools that the group shows now; a list of groups has only the first of them.
    tools: Vec<DashboardGroupTool<'a>>,
    /// Full names of tools.
    included_tools: &'a [String],
    /// Names of servers, all of whose tools are included.
    included_servers: &'a [String],
    /// Full names of tools. Removed from the included tools.
    excluded_tools: &'a [String],
    /// Full names of prompts, or `*` for all prompts of the included servers.
    included_prompts: &'a [String],
    /// URIs of resources, or `*` for all resources of the included servers.
    included_resources: &'a [String],
    #[serde(flatten)]
    endpoints: GroupEndpoints,
}

/// A tool that a group shows.
#[derive(Serialize, ToSchema)]
pub struct DashboardGroupTool<'a> {
    /// The name that its server uses.
    name: &'a str,
    /// The full name, `<server>__<tool>`.
    canonical_name: String,
    /// The name of the server.
    server: &'a str,
    #[schema(value_type = String)]
    description: &'a RawValue,
}

/// Lists all tool groups.
#[utoipa::path(get, path = "/api/dashboard/tool-groups", tag = "dashboard",
    responses((status = 200, body = DashboardGroups)))]
pub async fn list(State(face): State<Face>, headers: HeaderMap) -> Response {
    let catalog = face.gateway.catalog();
    let base = base_url(&face.settings, &headers);
    let (mut tool_groups, mut bytes) = (Vec::new(), 0);
    for group in catalog.groups() {
        // Computing a group visits every tool, so let other tasks run in between.
        tokio::task::yield_now().await;
        let most = if bytes < LIST_BYTES { LISTED_TOOLS } else { 0 };
        let group = DashboardGroup::of(&catalog, group, &base, most);
        bytes += group.tools.iter().map(DashboardGroupTool::size).sum::<usize>();
        tool_groups.push(group);
    }
    let empty_state = tool_groups.is_empty().then(|| no_groups(&base));
    Json(DashboardGroups { tool_groups, empty_state }).into_response()
}

/// Returns a tool group.
#[utoipa::path(get, path = "/api/dashboard/tool-groups/{name}", tag = "dashboard",
    params(("name" = String, Path)), responses((status = 200, body = DashboardGroup)))]
pub async fn get(State(face): State<Face>, headers: HeaderMap, Name(name): Name) -> HandlerResult<Response> {
    show(&face, &headers, &name, Json)
}

/// Creates a tool group. `tools` is accepted as another name of `included_tools`.
#[utoipa::path(post, path = "/api/dashboard/tool-groups", tag = "dashboard",
    request_body = crate::http::api::groups::GroupInput, responses((status = 201, body = DashboardGroup)))]
pub async fn create(
    State(face): State<Face>,
    headers: HeaderMap,
    ChangedBy(by): ChangedBy,
    body: Bytes,
) -> HandlerResult<Response> {
    let group = face.gateway.create_group(configuration(&body)?, &by).await?;
    show(&face, &headers, group.name.as_str(), Created)
}

/// Replaces the whole configuration of a tool group.
#[utoipa::path(put, path = "/api/dashboard/tool-groups/{name}", tag = "dashboard", params(("name" = String, Path)),
    request_body = crate::http::api::groups::GroupInput, responses((status = 200, body = DashboardGroup)))]
pub async fn replace(
    State(face): State<Face>,
    headers: HeaderMap,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
    body: Bytes,
) -> HandlerResult<Response> {
    face.gateway.catalog().group(&name)?;
    face.gateway.replace_group(&name, configuration(&body)?, &by).await?;
    show(&face, &headers, &name, Json)
}

/// Deletes a tool group; its endpoints stop working at once.
#[utoipa::path(delete, path = "/api/dashboard/tool-groups/{name}", tag = "dashboard",
    params(("name" = String, Path)), responses((status = 200, body = Deleted)))]
pub async fn delete(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
) -> HandlerResult<Json<Deleted>> {
    face.gateway.delete_group(&name, &by).await?;
    Ok(Json(Deleted::YES))
}

fn show<'a, R: IntoResponse + 'a>(
    face: &Face,
    headers: &HeaderMap,
    name: &str,
    reply: impl FnOnce(Value) -> R,
) -> HandlerResult<Response> {
    let catalog = face.gateway.catalog();
    let group =
        DashboardGroup::of(&catalog, catalog.group(name)?, &base_url(&face.settings, headers), usize::MAX);
    let group = serde_json::to_value(&group).expect("a group has string keys and no failing parts");
    Ok(reply(group).into_response())
}

fn configuration(body: &Bytes) -> Result<Map<String, Value>, ErrorResponse> {
    let mut body = json_object(body)?;
    if let Some(tools) = body.remove("tools").filter(|tools| !tools.is_null()) {
        if body.get("included_tools").is_some_and(|tools| !tools.is_null()) {
            return Err(
                FieldError::new("tools", "is the same as \"included_tools\"; give one of them").into()
            );
        }
        if !tools.as_array().is_some_and(|tools| tools.iter().all(Value::is_string)) {
            return Err(
                FieldError::new("tools", "must be an array of strings, the full names of tools").into()
            );
        }
        body.insert("included_tools".into(), tools);
    }
    Ok(body)
}

impl DashboardGroupTool<'_> {
    /// Estimates the size as JSON.
    fn size(&self) -> usize {
        const FRAME: usize = 60;
        FRAME + self.canonical_name.len() * 2 + self.description.get().len()
    }
}

impl<'a> DashboardGroup<'a> {
    /// Returns the record of a group, with at most `most` of its tools.
    fn of(catalog: &'a Catalog, group: &'a model::Group, base: &str, most: usize) -> Self {
        let seen = catalog.tools_in(group.name.as_str());
        let tool = |(entry, tool): &(&'a Arc<Entry>, &'a Tool)| DashboardGroupTool {
            name: &tool.name,
            canonical_name: entry.name().qualify(&tool.name),
            server: entry.name().as_str(),
            description: ToolRecord::of(entry, tool).description,
        };
        Self {
            name: group.name.as_str(),
            description: &group.description,
            tool_count: seen.len(),
            tools: seen.iter().take(most).map(tool).collect(),
            included_tools: &group.included_tools,
            included_servers: &group.included_servers,
            excluded_tools: &group.excluded_tools,
            included_prompts: &group.included_prompts,
            included_resources: &group.included_resources,
            endpoints: GroupEndpoints::of(base, group.name.as_str()),
        }
    }
}
