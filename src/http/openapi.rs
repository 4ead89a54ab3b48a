//! The OpenAPI document: shapes and answers come from the handlers, methods and access from the table of routes, and a
//! test holds the one against the other.

use axum::extract::State;
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::{OpenApi, ToSchema};

use super::reply::Written;
use super::{Face, api, client_metadata, dashboard, system, ui};

/// Every error.
#[derive(Serialize, ToSchema)]
pub struct Problem {
    /// One sentence that names the field and the way out.
    pub error: String,
}

#[derive(OpenApi)]
#[openapi(
    info(title = "toolgate", description = "One place where AI agents reach every tool."),
    components(schemas(Problem)),
    paths(
        system::health,
        system::ready,
        system::metadata,
        system::metrics,
        system::init,
        client_metadata::get,
        show,
        api::servers::list,
        api::servers::register,
        api::servers::get,
        api::servers::amend,
        api::servers::remove,
        api::servers::enable,
        api::servers::disable,
        api::servers::refresh,
        api::servers::reauthorize,
        api::servers::configs,
        api::oauth::complete,
        api::tools::list,
        api::tools::get,
        api::tools::invoke,
        api::tools::enable,
        api::tools::disable,
        api::prompts::list,
        api::prompts::get,
        api::prompts::render,
        api::prompts::enable,
        api::prompts::disable,
        api::resources::list,
        api::resources::templates,
        api::resources::get,
        api::resources::read,
        api::groups::list,
        api::groups::create,
        api::groups::get,
        api::groups::replace,
        api::groups::delete,
        api::groups::effective_tools,
        api::clients::list,
        api::clients::create,
        api::clients::replace,
        api::clients::delete,
        api::users::list,
        api::users::create,
        api::users::whoami,
        api::users::change,
        api::users::delete,
        dashboard::overview::show,
        dashboard::diagnostics::show,
        dashboard::events::stream,
        dashboard::servers::list,
        dashboard::servers::add,
        dashboard::servers::remove,
        dashboard::servers::switch,
        dashboard::servers::refresh,
        dashboard::oauth::reauthorize,
        dashboard::oauth::session,
        dashboard::oauth::callback_page,
        dashboard::tools::list,
        dashboard::tools::switch,
        dashboard::tools::invoke,
        dashboard::prompts::list,
        dashboard::prompts::switch,
        dashboard::prompts::render,
        dashboard::resources::list,
        dashboard::resources::read,
        dashboard::import::preview,
        dashboard::import::apply,
        dashboard::groups::list,
        dashboard::groups::create,
        dashboard::groups::get,
        dashboard::groups::replace,
        dashboard::groups::delete,
        ui::root,
        ui::index,
        ui::asset,
    )
)]
struct Handlers;

/// A row of the table of routes, as far as the document has to do with it.
pub struct Row {
    pub method: String,
    pub path: &'static str,
    pub access: &'static str,
}

/// This document.
#[utoipa::path(get, path = "/api/v0/openapi.json", tag = "system",
    responses((status = 200, body = std::collections::HashMap<String, Value>)))]
pub async fn show(State(face): State<Face>) -> Written {
    Written(face.about.openapi.to_vec())
}

/// The whole document. `endpoints` are those of agents, which no handler describes: what they speak is MCP.
pub fn document(rows: &[Row], endpoints: &[Row]) -> Bytes {
    let mut document = serde_json::to_value(Handlers::openapi()).expect("the document has string keys");
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    document["info"]["license"] = json!({ "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" });
    document["components"]["securitySchemes"] = json!({ "token": { "type": "http", "scheme": "bearer" } });
    for endpoint in endpoints {
        document["paths"][endpoint.path][&endpoint.method] = conversation(endpoint.path);
    }
    for row in rows.iter().chain(endpoints) {
        describe(&mut document, row);
    }
    document.to_string().into()
}

/// Adds what the table knows, and what holds for every route.
fn describe(document: &mut Value, row: &Row) {
    let operation = &mut document["paths"][plain(row.path)][&row.method];
    if !operation.is_object() {
        return;
    }
    let words =
        row.path.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let id = std::iter::once(row.method.as_str()).chain(words).collect::<Vec<_>>().join("_");
    operation["operationId"] = json!(id);
    operation["x-access"] = json!(row.access);
    operation["security"] = match row.access {
        "open" | "development" => json!([]),
        _ => json!([{ "token": [] }]),
    };
    for answer in operation["responses"].as_object_mut().into_iter().flat_map(|answers| answers.values_mut())
    {
        if answer.get("description").is_none() {
            answer["description"] = json!("Done");
        }
    }
    operation["responses"]["default"] = json!({
        "description": "What is wrong, in one sentence",
        "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
    });
}

/// axum writes a path that may have several parts with a star, OpenAPI has no such thing.
pub fn plain(path: &str) -> String {
    path.replace("{*", "{")
}

fn conversation(path: &str) -> Value {
    let named = path.contains("{name}");
    let name = json!([{ "name": "name", "in": "path", "required": true, "schema": { "type": "string" } }]);
    json!({
        "tags": ["mcp"],
        "summary": "Model Context Protocol, for agents",
        "parameters": if named { name } else { json!([]) },
        "responses": { "200": { "description": "Messages of the protocol" } },
    })
}
