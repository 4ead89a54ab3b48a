//! The dashboard's pages. Development mode only.

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{Redirect, Response};

use super::Face;
use super::error::{ErrorResponse, HandlerResult};

/// Returns the page of the dashboard.
#[utoipa::path(get, path = "/", tag = "dashboard pages",
    responses((status = 200, content_type = "text/html", body = String)))]
pub async fn root(face: State<Face>, headers: HeaderMap) -> HandlerResult<Response> {
    index(face, headers).await
}

/// Returns the page of the dashboard.
#[utoipa::path(get, path = "/index.html", tag = "dashboard pages",
    responses((status = 200, content_type = "text/html", body = String)))]
pub async fn index(State(face): State<Face>, headers: HeaderMap) -> HandlerResult<Response> {
    find(&face, "index.html", &headers)
}

/// Redirects to the page of that name: people type such paths.
#[utoipa::path(get, path = "/servers", tag = "dashboard pages", responses((status = 307)))]
pub async fn servers() -> Redirect {
    to_page("servers")
}

/// Redirects to the page of that name: people type such paths.
#[utoipa::path(get, path = "/tools", tag = "dashboard pages", responses((status = 307)))]
pub async fn tools() -> Redirect {
    to_page("tools")
}

/// Redirects to the page of that name: people type such paths.
#[utoipa::path(get, path = "/activity", tag = "dashboard pages", responses((status = 307)))]
pub async fn activity() -> Redirect {
    to_page("activity")
}

/// Redirects to the page of that name: people type such paths.
#[utoipa::path(get, path = "/groups", tag = "dashboard pages", responses((status = 307)))]
pub async fn groups() -> Redirect {
    to_page("groups")
}

/// Redirects to the page of that name: people type such paths.
#[utoipa::path(get, path = "/prompts", tag = "dashboard pages", responses((status = 307)))]
pub async fn prompts() -> Redirect {
    to_page("prompts")
}

/// Redirects to the page of that name: people type such paths.
#[utoipa::path(get, path = "/resources", tag = "dashboard pages", responses((status = 307)))]
pub async fn resources() -> Redirect {
    to_page("resources")
}

/// Redirects to the page of that name: people type such paths.
#[utoipa::path(get, path = "/system", tag = "dashboard pages", responses((status = 307)))]
pub async fn system() -> Redirect {
    to_page("system")
}

/// Returns a file that the page of the dashboard loads.
#[utoipa::path(get, path = "/assets/{*path}", tag = "dashboard pages", params(("path" = String, Path)),
    responses((status = 200, content_type = "*/*", body = String)))]
pub async fn asset(
    State(face): State<Face>,
    Path(path): Path<String>,
    headers: HeaderMap,
) -> HandlerResult<Response> {
    find(&face, &format!("assets/{path}"), &headers)
}

fn to_page(name: &str) -> Redirect {
    // Relative, since the gateway may be behind a proxy that adds a path.
    Redirect::temporary(&format!("./#/{name}"))
}

fn find(face: &Face, path: &str, headers: &HeaderMap) -> HandlerResult<Response> {
    let missing = || ErrorResponse::not_here(format!("there is no file /{path}"));
    face.about.assets.respond(path, headers).ok_or_else(missing)
}
