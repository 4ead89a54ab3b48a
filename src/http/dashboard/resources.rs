//! The resources page: all resources of all servers, and reading one.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Home;
use super::empty_state::{EmptyState, nothing_offered};
use crate::http::Face;
use crate::http::access::CurrentPrincipal;
use crate::http::address::base_url;
use crate::http::api::resources::{self, ResourceContents, ResourceInput};
use crate::http::error::HandlerResult;
use crate::http::record::ResourceRecord;
use crate::http::reply::Json;
use crate::http::trail::Arrived;
use gateway::catalog::Catalog;

/// All resources, and the empty state if there are none.
#[derive(Serialize, ToSchema)]
pub struct DashboardResources<'a> {
    resources: Vec<DashboardResource<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    empty_state: Option<EmptyState>,
}

/// A resource with the state of its server.
#[derive(Serialize, ToSchema)]
pub struct DashboardResource<'a> {
    /// The server's own URI of the resource.
    uri: &'a str,
    #[schema(value_type = String)]
    name: &'a RawValue,
    /// The name of the server.
    server: &'a str,
    #[schema(value_type = String)]
    description: &'a RawValue,
    #[schema(value_type = String)]
    mime_type: &'a RawValue,
    /// Whether the server is enabled.
    enabled: bool,
    /// The transport of the server.
    transport: &'static str,
    /// The status of the server.
    server_status: &'static str,
}

/// Lists all resources, including those of disabled servers.
#[utoipa::path(get, path = "/api/dashboard/resources", tag = "dashboard",
    responses((status = 200, body = DashboardResources)))]
pub async fn list(State(face): State<Face>, headers: HeaderMap) -> Response {
    let catalog = face.gateway.catalog();
    let resources = records(&catalog);
    let empty_state = resources.is_empty().then(|| {
        let has_servers = catalog.entries().next().is_some();
        let description = "Resources are documents and other data that servers provide. None of the registered \
                           servers lists one.";
        nothing_offered(has_servers, &base_url(&face.settings, &headers), "No resources", description)
    });
    Json(DashboardResources { resources, empty_state }).into_response()
}

/// Reads a resource and returns its contents.
#[utoipa::path(post, path = "/api/dashboard/resources/read", tag = "dashboard",
    request_body = ResourceInput, responses((status = 200, body = ResourceContents)))]
pub async fn read(
    face: State<Face>,
    caller: CurrentPrincipal,
    arrived: Arrived,
    body: Bytes,
) -> HandlerResult<Response> {
    resources::read(face, caller, arrived, body).await
}

fn records(catalog: &Catalog) -> Vec<DashboardResource<'_>> {
    catalog
        .entries()
        .flat_map(|entry| {
            let home = Home::of(entry);
            entry.resources().map(move |resource| {
                let record = ResourceRecord::of(entry, resource);
                DashboardResource {
                    uri: record.uri,
                    name: record.name,
                    server: home.server,
                    description: record.description,
                    mime_type: record.mime_type,
                    enabled: record.enabled,
                    transport: home.transport,
                    server_status: home.server_status,
                }
            })
        })
        .collect()
}
