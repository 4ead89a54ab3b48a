//! The tools page: all tools of all servers, including disabled ones; enabling, disabling and calling them.

use std::borrow::Cow;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::empty_state::{EmptyState, nothing_offered};
use super::{Home, SwitchInput, SwitchedItem};
use crate::http::Face;
use crate::http::access::{ChangedBy, CurrentPrincipal};
use crate::http::address::base_url;
use crate::http::api::tools::{InvokeRequest, run};
use crate::http::error::{ErrorResponse, HandlerResult};
use crate::http::extract::{Name, Query};
use crate::http::record::ToolRecord;
use crate::http::reply::Json;
use crate::http::trail::{Arrived, recorded};
use gateway::catalog::Catalog;
use model::deep_json;
use wire::walk;

/// All tools, and the empty state if there are none.
#[derive(Serialize, ToSchema)]
pub struct DashboardTools<'a> {
    tools: Vec<DashboardTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    empty_state: Option<EmptyState>,
}

/// A tool with the state of its server.
#[derive(Serialize, ToSchema)]
pub struct DashboardTool<'a> {
    /// The name that its server uses.
    name: &'a str,
    /// The full name, `<server>__<tool>`.
    canonical_name: String,
    /// The name of the server.
    server: &'a str,
    #[schema(value_type = String)]
    description: &'a RawValue,
    /// Whether both the tool and its server are enabled.
    enabled: bool,
    /// Whether the server is enabled.
    server_enabled: bool,
    /// The JSON Schema of the arguments.
    #[schema(value_type = std::collections::HashMap<String, Value>)]
    input_schema: &'a RawValue,
    /// The parameters in one line; optional ones have a question mark.
    input_preview: String,
    /// The server's hints about the behaviour of the tool.
    #[schema(value_type = std::collections::HashMap<String, Value>)]
    annotations: &'a RawValue,
    /// The transport of the server.
    transport: &'static str,
    /// The status of the server.
    server_status: &'static str,
}

/// Lists all tools, including disabled ones.
#[utoipa::path(get, path = "/api/dashboard/tools", tag = "dashboard", responses((status = 200, body = DashboardTools)))]
pub async fn list(State(face): State<Face>, headers: HeaderMap) -> Response {
    let catalog = face.gateway.catalog();
    let tools = records(&catalog);
    let empty_state = tools.is_empty().then(|| {
        let has_servers = catalog.entries().next().is_some();
        let description = "None of the registered servers offers a tool at the moment.";
        nothing_offered(has_servers, &base_url(&face.settings, &headers), "No tools", description)
    });
    Json(DashboardTools { tools, empty_state }).into_response()
}

/// Enables or disables a tool.
#[utoipa::path(patch, path = "/api/dashboard/tools/{name}/enabled", tag = "dashboard",
    params(("name" = String, Path, description = "The full name")),
    request_body = SwitchInput, responses((status = 200, body = SwitchedItem)))]
pub async fn switch(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
    body: Bytes,
) -> HandlerResult<Json<SwitchedItem>> {
    let SwitchInput { enabled } = SwitchInput::parse(&body)?;
    face.gateway.catalog().tool(&name)?;
    face.gateway.switch_tools(&name, enabled, &by).await?;
    Ok(Json(SwitchedItem { name, enabled }))
}

/// Calls a tool with the arguments in the body.
///
/// With `Accept: text/event-stream` the response streams progress, other notifications, requests for input, and then the
/// result.
#[utoipa::path(post, path = "/api/dashboard/tools/{name}/invoke", tag = "dashboard",
    params(
        ("name" = String, Path, description = "The full name"),
        ("log_level" = Option<String>, Query, description = "The minimum level of log messages in an event stream, such as `info`; if omitted, none are sent"),
    ),
    request_body = std::collections::HashMap<String, Value>,
    responses((status = 200, body = crate::http::api::tools::ToolResultBody)))]
pub async fn invoke(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    arrived: Arrived,
    Name(name): Name,
    query: Query,
    headers: HeaderMap,
    body: Bytes,
) -> HandlerResult<Response> {
    let trail = arrived.begin(&face, "tools/call", body.len());
    let checked = face.gateway.check_callable(caller.owner(), &name, &trail).map_err(ErrorResponse::from);
    let arguments = || match body.iter().all(u8::is_ascii_whitespace) {
        true => Ok(Cow::Borrowed(&b"{}"[..])),
        false => object(&body),
    };
    let call = checked.and_then(|()| Ok(InvokeRequest { name, arguments: arguments()?.into_owned() }));
    let result = match call {
        Ok(call) => run(face, caller, &query, &headers, call, &trail).await,
        Err(error) => Err(error),
    };
    Ok(recorded(result, trail))
}

/// Returns the JSON object in a body, byte for byte.
fn object(body: &Bytes) -> Result<Cow<'_, [u8]>, ErrorResponse> {
    let span = walk::whole(body)
        .map_err(|error| ErrorResponse::bad_request(format!("the body is not JSON: {error}")))?;
    match body.get(span.start) {
        Some(b'{') => Ok(Cow::Borrowed(&body[span])),
        Some(_) | None => {
            Err(ErrorResponse::bad_request("the body must be a JSON object: the arguments of the tool"))
        }
    }
}

fn records(catalog: &Catalog) -> Vec<DashboardTool<'_>> {
    let entries = catalog.entries_by_full_name().into_iter();
    entries
        .flat_map(|entry| {
            let home = Home::of(entry);
            entry.tools().map(move |tool| {
                let record = ToolRecord::of(entry, tool);
                DashboardTool {
                    name: &tool.name,
                    canonical_name: record.name,
                    server: home.server,
                    description: record.description,
                    enabled: record.enabled,
                    server_enabled: home.server_enabled,
                    input_schema: record.input_schema,
                    input_preview: preview(record.input_schema),
                    annotations: record.annotations,
                    transport: home.transport,
                    server_status: home.server_status,
                }
            })
        })
        .collect()
}

/// Summarizes the parameters of a tool, such as `path: string, limit?: integer`.
fn preview(schema: &RawValue) -> String {
    let schema = deep_json::parse(schema.get()).unwrap_or_default();
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let properties = schema.get("properties").and_then(Value::as_object);
    let parts = properties.into_iter().flatten().map(|(name, property)| {
        let mark = if required.contains(&name.as_str()) { "" } else { "?" };
        format!("{name}{mark}: {}", type_of(property))
    });
    parts.collect::<Vec<_>>().join(", ")
}

fn type_of(property: &Value) -> String {
    if property.get("enum").is_some() {
        return "enum".into();
    }
    match property.get("type") {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Array(names)) => {
            let names: Vec<_> =
                names.iter().filter_map(Value::as_str).filter(|name| *name != "null").collect();
            names.join(" or ")
        }
        Some(_) | None => "any".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_preview_names_every_parameter_with_its_type() {
        let schema = json!({ "required": ["a"], "properties": {
            "a": { "type": "string" }, "b": { "type": ["integer", "null"] }, "c": { "enum": [1] }, "d": true } });
        let preview = preview(&serde_json::value::to_raw_value(&schema).unwrap());
        assert_eq!(preview, "a: string, b?: integer, c?: enum, d?: any");
    }
}
