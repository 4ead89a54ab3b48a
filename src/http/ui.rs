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

/// Makes a handler for a path that people type: it leads to the page of that name.
macro_rules! page {
    ($name:ident, $path:literal) => {
        /// Redirects to a page of the dashboard.
        #[utoipa::path(get, path = $path, tag = "dashboard pages", responses((status = 307)))]
        pub async fn $name() -> Redirect {
            // Relative, since the gateway may be behind a proxy that adds a path.
            Redirect::temporary(concat!("./#", $path))
        }
    };
}

page!(servers, "/servers");
page!(tools, "/tools");
page!(groups, "/groups");
page!(prompts, "/prompts");
page!(resources, "/resources");
page!(system, "/system");

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

fn find(face: &Face, path: &str, headers: &HeaderMap) -> HandlerResult<Response> {
    let missing = || ErrorResponse::not_here(format!("there is no file /{path}"));
    face.about.assets.respond(path, headers).ok_or_else(missing)
}
