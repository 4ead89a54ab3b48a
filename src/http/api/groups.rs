//! `/api/v0/tool-groups`: tool groups, which are subsets of the tools with MCP endpoints of their own.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::Face;
use crate::http::access::ChangedBy;
use crate::http::address::base_url;
use crate::http::error::HandlerResult;
use crate::http::extract::{Name, json_object};
use crate::http::reply::{Created, Json, NoContent};
use model::Group;

/// The configuration of a tool group.
#[derive(Serialize, ToSchema)]
#[schema(as = Group)]
pub struct GroupBody<'a> {
    name: &'a str,
    description: &'a str,
    /// Full names of tools.
    included_tools: &'a [String],
    /// Names of servers, all of whose tools are included.
    included_servers: &'a [String],
    /// Full names of tools. Removed from the included tools.
    excluded_tools: &'a [String],
    /// Full names of prompts, or `*` for all prompts of the included servers.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    included_prompts: &'a [String],
    /// URIs of resources, or `*` for all resources of the included servers.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    included_resources: &'a [String],
}

impl<'a> From<&'a Group> for GroupBody<'a> {
    fn from(group: &'a Group) -> Self {
        Self {
            name: group.name.as_str(),
            description: &group.description,
            included_tools: &group.included_tools,
            included_servers: &group.included_servers,
            excluded_tools: &group.excluded_tools,
            included_prompts: &group.included_prompts,
            included_resources: &group.included_resources,
        }
    }
}

/// A tool group with the URLs of its MCP endpoints.
#[derive(Serialize, ToSchema)]
pub struct GroupWithEndpoints<'a> {
    #[serde(flatten)]
    group: GroupBody<'a>,
    #[serde(flatten)]
    endpoints: GroupEndpoints,
}

/// The URLs of the MCP endpoints of a tool group.
#[derive(Serialize, ToSchema)]
pub struct GroupEndpoints {
    /// The URL for clients that use streamable HTTP.
    streamable_http_endpoint: String,
    /// The URL for clients that use HTTP+SSE.
    sse_endpoint: String,
    /// The URL to which clients that use HTTP+SSE send messages.
    sse_message_endpoint: String,
}

impl GroupEndpoints {
    pub fn of(base: &str, group: &str) -> Self {
        let base = format!("{base}/v0/groups/{group}");
        Self {
            streamable_http_endpoint: format!("{base}/mcp"),
            sse_endpoint: format!("{base}/sse"),
            sse_message_endpoint: format!("{base}/message"),
        }
    }
}

/// The configuration of a tool group. It includes at least one tool or server.
// Only for the OpenAPI document: `model::group` parses the body.
#[derive(ToSchema)]
pub struct GroupInput {
    /// The name; ignored when a group is replaced.
    pub name: String,
    pub description: Option<String>,
    /// Full names of tools.
    pub included_tools: Option<Vec<String>>,
    /// Names of servers, all of whose tools are included.
    pub included_servers: Option<Vec<String>>,
    /// Full names of tools. Removed from the included tools.
    pub excluded_tools: Option<Vec<String>>,
    /// Full names of prompts, or `*` for all prompts of the included servers.
    pub included_prompts: Option<Vec<String>>,
    /// URIs of resources, or `*` for all resources of the included servers.
    pub included_resources: Option<Vec<String>>,
}

/// A tool group before and after its replacement.
#[derive(Serialize, ToSchema)]
pub struct ReplacedGroup<'a> {
    name: &'a str,
    old: GroupBody<'a>,
    new: GroupBody<'a>,
}

/// The tools that a group shows now.
#[derive(Serialize, ToSchema)]
pub struct EffectiveTools {
    /// Full names.
    tools: Vec<String>,
}

/// Lists all tool groups.
#[utoipa::path(get, path = "/api/v0/tool-groups", tag = "tool groups", responses((status = 200, body = [GroupBody])))]
pub async fn list(State(face): State<Face>) -> Response {
    let catalog = face.gateway.catalog();
    Json(catalog.groups().map(GroupBody::from).collect::<Vec<_>>()).into_response()
}

/// Returns a tool group.
#[utoipa::path(get, path = "/api/v0/tool-groups/{name}", tag = "tool groups",
    params(("name" = String, Path)), responses((status = 200, body = GroupWithEndpoints)))]
pub async fn get(State(face): State<Face>, headers: HeaderMap, Name(name): Name) -> HandlerResult<Response> {
    let catalog = face.gateway.catalog();
    Ok(Json(with_endpoints(&face, &headers, catalog.group(&name)?)).into_response())
}

/// Creates a tool group.
#[utoipa::path(post, path = "/api/v0/tool-groups", tag = "tool groups",
    request_body = GroupInput, responses((status = 201, body = GroupWithEndpoints)))]
pub async fn create(
    State(face): State<Face>,
    headers: HeaderMap,
    ChangedBy(by): ChangedBy,
    body: Bytes,
) -> HandlerResult<Response> {
    let group = face.gateway.create_group(json_object(&body)?, &by).await?;
    Ok(Created(with_endpoints(&face, &headers, &group)).into_response())
}

/// Replaces the whole configuration of a tool group.
#[utoipa::path(put, path = "/api/v0/tool-groups/{name}", tag = "tool groups", params(("name" = String, Path)),
    request_body = GroupInput, responses((status = 200, body = ReplacedGroup)))]
pub async fn replace(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
    body: Bytes,
) -> HandlerResult<Response> {
    // The error for a missing group comes before errors in the body.
    face.gateway.catalog().group(&name)?;
    let replaced = face.gateway.replace_group(&name, json_object(&body)?, &by).await?;
    let (old, new) = (GroupBody::from(&replaced.old), GroupBody::from(&replaced.new));
    Ok(Json(ReplacedGroup { name: new.name, old, new }).into_response())
}

/// Deletes a tool group.
#[utoipa::path(delete, path = "/api/v0/tool-groups/{name}", tag = "tool groups",
    params(("name" = String, Path)), responses((status = 204)))]
pub async fn delete(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
) -> HandlerResult<NoContent> {
    face.gateway.delete_group(&name, &by).await?;
    Ok(NoContent)
}

/// Lists exactly the tools that the endpoints of a group show now.
#[utoipa::path(get, path = "/api/v0/tool-groups/{name}/effective-tools", tag = "tool groups",
    params(("name" = String, Path)), responses((status = 200, body = EffectiveTools)))]
pub async fn effective_tools(
    State(face): State<Face>,
    Name(name): Name,
) -> HandlerResult<Json<EffectiveTools>> {
    let catalog = face.gateway.catalog();
    catalog.group(&name)?;
    Ok(Json(EffectiveTools { tools: catalog.effective_tools(&name) }))
}

fn with_endpoints<'a>(face: &Face, headers: &HeaderMap, group: &'a Group) -> GroupWithEndpoints<'a> {
    let endpoints = GroupEndpoints::of(&base_url(&face.settings, headers), group.name.as_str());
    GroupWithEndpoints { group: group.into(), endpoints }
}
