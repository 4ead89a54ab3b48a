//! The OpenAPI document, built from the `#[utoipa::path]` of the handlers and the access levels in the table of routes.

use axum::extract::State;
use axum::http::Method;
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::{OpenApi, ToSchema, openapi};

use super::Face;
use super::access::AccessLevel;
use super::reply::Written;

/// The body of every error response.
#[derive(Serialize, ToSchema)]
pub struct Problem {
    /// One sentence that says what is wrong and how to fix it.
    pub error: String,
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "toolgate",
        description = "A gateway for MCP servers: all tools at one address, for every AI agent."
    ),
    components(schemas(Problem))
)]
struct Base;

/// One operation of the document: a row of the table of routes.
pub struct Operation<'a> {
    pub method: &'a Method,
    pub path: &'a str,
    pub access: AccessLevel,
    /// The description at the handler; `None` for an MCP endpoint.
    pub description: Option<fn() -> openapi::OpenApi>,
}

/// Returns the OpenAPI document of all routes.
#[utoipa::path(get, path = "/api/v0/openapi.json", tag = "system",
    responses((status = 200, body = std::collections::HashMap<String, Value>)))]
pub async fn show(State(face): State<Face>) -> Written {
    Written(face.about.openapi.to_vec())
}

/// Builds the whole document as JSON.
pub fn document<'a>(operations: impl Iterator<Item = Operation<'a>> + Clone) -> Bytes {
    let mut document = Base::openapi();
    for description in operations.clone().filter_map(|operation| operation.description) {
        document.merge(description());
    }
    document.paths.paths =
        document.paths.paths.into_iter().map(|(path, item)| (plain(&path), item)).collect();
    let mut document = serde_json::to_value(document).expect("the document has string keys");
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    document["info"]["license"] = json!({ "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" });
    document["components"]["securitySchemes"] = json!({ "token": { "type": "http", "scheme": "bearer" } });
    for operation in operations {
        describe(&mut document, &operation);
    }
    document.to_string().into()
}

/// Adds id, access level and the error response, which descriptions at handlers leave out.
fn describe(document: &mut Value, row: &Operation<'_>) {
    let method = row.method.as_str().to_ascii_lowercase();
    let operation = &mut document["paths"][plain(row.path)][&method];
    if row.description.is_none() {
        *operation = conversation(row.path);
    }
    let words =
        row.path.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let id = std::iter::once(method.as_str()).chain(words).collect::<Vec<_>>().join("_");
    operation["operationId"] = json!(id);
    operation["x-access"] = json!(row.access.as_str());
    operation["security"] = match row.access {
        AccessLevel::Open | AccessLevel::Development => json!([]),
        AccessLevel::User | AccessLevel::Admin | AccessLevel::Client => json!([{ "token": [] }]),
    };
    for answer in operation["responses"].as_object_mut().into_iter().flat_map(|answers| answers.values_mut())
    {
        if answer.get("description").is_none() {
            answer["description"] = json!("Success");
        }
    }
    operation["responses"]["default"] = json!({
        "description": "An error, with a message that says what is wrong",
        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
    });
}

/// Converts a path of axum: OpenAPI has no `{*name}` for the rest of a path.
fn plain(path: &str) -> String {
    path.replace("{*", "{")
}

/// Describes an MCP endpoint.
fn conversation(path: &str) -> Value {
    let named = path.contains("{name}");
    let name = json!([{ "name": "name", "in": "path", "required": true, "schema": { "type": "string" } }]);
    json!({
        "tags": ["mcp"],
        "summary": "Model Context Protocol, for agents",
        "parameters": if named { name } else { json!([]) },
        "responses": { "200": { "description": "MCP messages" } },
    })
}
