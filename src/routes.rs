//! Every route of the process on one page: method, path, who may use it, and the handler.
//! A row cannot exist without an access level.

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::handler::Handler;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};

use crate::http::api::{groups, oauth, prompts, resources, servers, tools};
use crate::http::error::Refusal;
use crate::http::{Face, client_metadata, dashboard, system};
use crate::mcp::{Place, Scope, Transport};

/// Who may use a route. In development mode nobody is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody, without a token.
    Open,
    /// Users of both roles.
    User,
    /// Users with the role `admin`.
    Admin,
    /// MCP clients.
    Client,
}

pub struct Route {
    pub method: Method,
    pub path: &'static str,
    pub access: Access,
    handler: MethodRouter<Face>,
}

/// The endpoints for agents. They answer to every method themselves and never see the router.
pub const MCP: [(&str, Access, Transport); 7] = [
    ("/mcp", Access::Client, Transport::Streamable),
    ("/sse", Access::Client, Transport::Sse),
    ("/message", Access::Client, Transport::Message),
    ("/v0/groups/{name}/mcp", Access::Client, Transport::Streamable),
    ("/v0/groups/{name}/sse", Access::Client, Transport::Sse),
    ("/v0/groups/{name}/message", Access::Client, Transport::Message),
    ("/v0/servers/{name}/mcp", Access::Client, Transport::Streamable),
];

/// What a path means to an agent; `None` for everything that is the router's.
pub fn mcp_place(path: &str) -> Option<Place> {
    MCP.iter().find_map(|(pattern, _, transport)| {
        let transport = *transport;
        let Some((before, after)) = pattern.split_once("{name}") else {
            return (path == *pattern).then_some(Place { transport, scope: Scope::Everything });
        };
        let name = path.strip_prefix(before)?.strip_suffix(after)?;
        // Names need no escapes, so an escaped one names nothing that exists.
        let name = Some(name).filter(|name| !name.is_empty() && !name.contains('/'))?.to_owned();
        let scope = if before.contains("groups") { Scope::Group(name) } else { Scope::Server(name) };
        Some(Place { transport, scope })
    })
}

pub fn table() -> Vec<Route> {
    use Access::{Admin, Open, User};
    vec![
        get("/health", Open, system::health),
        get("/metadata", Open, system::metadata),
        get("/metrics", Open, system::metrics),
        post("/init", Open, system::init),
        get(client_metadata::PATH, Open, client_metadata::get),
        get("/api/v0/servers", User, servers::list),
        post("/api/v0/servers", Admin, servers::register),
        get("/api/v0/servers/{name}", User, servers::get),
        patch("/api/v0/servers/{name}", Admin, servers::amend),
        delete("/api/v0/servers/{name}", Admin, servers::remove),
        post("/api/v0/servers/{name}/enable", Admin, servers::enable),
        post("/api/v0/servers/{name}/disable", Admin, servers::disable),
        post("/api/v0/servers/{name}/refresh", Admin, servers::refresh),
        post("/api/v0/servers/{name}/reauthorize", Admin, servers::reauthorize),
        post("/api/v0/upstream_oauth/sessions/{id}/complete", Admin, oauth::complete),
        get("/api/v0/server_configs", Admin, servers::configs),
        get("/api/v0/tools", User, tools::list),
        get("/api/v0/tool", User, tools::get),
        post("/api/v0/tools/invoke", User, tools::invoke),
        post("/api/v0/tools/enable", Admin, tools::enable),
        post("/api/v0/tools/disable", Admin, tools::disable),
        get("/api/v0/prompts", User, prompts::list),
        get("/api/v0/prompt", User, prompts::get),
        post("/api/v0/prompts/render", User, prompts::render),
        post("/api/v0/prompts/enable", Admin, prompts::enable),
        post("/api/v0/prompts/disable", Admin, prompts::disable),
        get("/api/v0/resources", User, resources::list),
        get("/api/v0/resource_templates", User, resources::templates),
        post("/api/v0/resources/get", User, resources::get),
        post("/api/v0/resources/read", User, resources::read),
        get("/api/v0/tool-groups", Admin, groups::list),
        post("/api/v0/tool-groups", Admin, groups::create),
        get("/api/v0/tool-groups/{name}", Admin, groups::get),
        put("/api/v0/tool-groups/{name}", Admin, groups::replace),
        delete("/api/v0/tool-groups/{name}", Admin, groups::delete),
        get("/api/v0/tool-groups/{name}/effective-tools", Admin, groups::effective_tools),
        post("/api/dashboard/servers", Open, dashboard::oauth::add),
        post("/api/dashboard/servers/{name}/reauthorize", Open, dashboard::oauth::reauthorize),
        get("/api/dashboard/oauth/session/{id}", Open, dashboard::oauth::session),
        get(dashboard::oauth::CALLBACK, Open, dashboard::oauth::callback_page),
    ]
}

/// The table as a service. What every request must pass stands before it, in `app::front`.
pub fn router(face: Face) -> Router {
    let mut router = Router::new();
    for route in table() {
        router = router.route(route.path, route.handler);
    }
    router
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_route)
        // Bodies were read within our limit; axum's own is smaller and answers without JSON.
        .layer(DefaultBodyLimit::disable())
        .with_state(face)
}

async fn unknown_route(request: Request) -> Response {
    Refusal::unknown_route(request.method().as_str(), request.uri().path()).into_response()
}

async fn wrong_method(request: Request) -> Response {
    Refusal::wrong_method(request.method().as_str(), request.uri().path()).into_response()
}

fn row<H, T>(method: Method, filter: MethodFilter, path: &'static str, access: Access, handler: H) -> Route
where
    H: Handler<T, Face>,
    T: 'static,
{
    Route { method, path, access, handler: on(filter, handler) }
}

macro_rules! verbs {
    ($($verb:ident $method:ident),*) => {$(
        fn $verb<H: Handler<T, Face>, T: 'static>(path: &'static str, access: Access, handler: H) -> Route {
            row(Method::$method, MethodFilter::$method, path, access, handler)
        }
    )*};
}

verbs!(get GET, post POST, put PUT, patch PATCH, delete DELETE);
