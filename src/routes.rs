//! Every route of the process on one page: method, path, who may use it, and the handler.
//! A row cannot exist without an access level.

use std::collections::HashMap;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use bytes::Bytes;

use crate::http::api::{clients, groups, oauth, prompts, resources, servers, tools, users};
use crate::http::error::Refusal;
use crate::http::openapi::Row;
use crate::http::{Face, access, client_metadata, dashboard, guard, openapi, system, ui};
use mcp::{ClientTransport, EndpointPath, Scope};

pub use crate::http::access::Access;

pub struct Route {
    pub method: Method,
    pub path: &'static str,
    pub access: Access,
    handler: MethodRouter<Face>,
}

/// The endpoints for agents. They answer to every method themselves and never see the router.
pub const MCP: [(&str, Access, ClientTransport); 7] = [
    ("/mcp", Access::Client, ClientTransport::Streamable),
    ("/sse", Access::Client, ClientTransport::Sse),
    ("/message", Access::Client, ClientTransport::Message),
    ("/v0/groups/{name}/mcp", Access::Client, ClientTransport::Streamable),
    ("/v0/groups/{name}/sse", Access::Client, ClientTransport::Sse),
    ("/v0/groups/{name}/message", Access::Client, ClientTransport::Message),
    ("/v0/servers/{name}/mcp", Access::Client, ClientTransport::Streamable),
];

/// What an endpoint for agents answers to with anything but a refusal.
fn methods(transport: ClientTransport) -> &'static [Method] {
    match transport {
        ClientTransport::Streamable => &[Method::GET, Method::POST, Method::DELETE],
        ClientTransport::Sse => &[Method::GET],
        ClientTransport::Message => &[Method::POST],
    }
}

/// What a path means to an agent, and who may use it; `None` for everything that is the router's.
pub fn mcp_place(path: &str) -> Option<(EndpointPath, Access)> {
    MCP.iter().find_map(|(pattern, access, transport)| {
        let (access, transport) = (*access, *transport);
        let Some((before, after)) = pattern.split_once("{name}") else {
            return (path == *pattern)
                .then_some((EndpointPath { transport, scope: Scope::Everything }, access));
        };
        let name = path.strip_prefix(before)?.strip_suffix(after)?;
        // Names need no escapes, so an escaped one names nothing that exists.
        let name = Some(name).filter(|name| !name.is_empty() && !name.contains('/'))?.to_owned();
        let scope = if before.contains("groups") { Scope::Group(name) } else { Scope::Server(name) };
        Some((EndpointPath { transport, scope }, access))
    })
}

pub fn table() -> Vec<Route> {
    use Access::{Admin, Development, Open, User};
    vec![
        get("/health", Open, system::health),
        get("/ready", Open, system::ready),
        get("/metadata", Open, system::metadata),
        get("/metrics", Open, system::metrics),
        post("/init", Open, system::init),
        get("/api/v0/openapi.json", User, openapi::show),
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
        get("/api/v0/clients", Admin, clients::list),
        post("/api/v0/clients", Admin, clients::create),
        put("/api/v0/clients/{name}", Admin, clients::replace),
        delete("/api/v0/clients/{name}", Admin, clients::delete),
        get("/api/v0/users", Admin, users::list),
        post("/api/v0/users", Admin, users::create),
        get("/api/v0/users/whoami", User, users::whoami),
        put("/api/v0/users/{name}", Admin, users::change),
        delete("/api/v0/users/{name}", Admin, users::delete),
        get("/", Development, ui::root),
        get("/index.html", Development, ui::index),
        get("/assets/{*path}", Development, ui::asset),
        get("/api/dashboard/overview", Development, dashboard::overview::show),
        get("/api/dashboard/diagnostics", Development, dashboard::diagnostics::show),
        get("/api/dashboard/events", Development, dashboard::events::stream),
        get("/api/dashboard/servers", Development, dashboard::servers::list),
        post("/api/dashboard/servers", Development, dashboard::servers::add),
        delete("/api/dashboard/servers/{name}", Development, dashboard::servers::remove),
        patch("/api/dashboard/servers/{name}/enabled", Development, dashboard::servers::switch),
        post("/api/dashboard/servers/{name}/refresh", Development, dashboard::servers::refresh),
        post("/api/dashboard/servers/{name}/reauthorize", Development, dashboard::oauth::reauthorize),
        get("/api/dashboard/oauth/session/{id}", Development, dashboard::oauth::session),
        get(dashboard::oauth::CALLBACK, Development, dashboard::oauth::callback_page),
        get("/api/dashboard/tools", Development, dashboard::tools::list),
        patch("/api/dashboard/tools/{name}/enabled", Development, dashboard::tools::switch),
        post("/api/dashboard/tools/{name}/invoke", Development, dashboard::tools::invoke),
        get("/api/dashboard/prompts", Development, dashboard::prompts::list),
        patch("/api/dashboard/prompts/{name}/enabled", Development, dashboard::prompts::switch),
        post("/api/dashboard/prompts/{name}/render", Development, dashboard::prompts::render),
        get("/api/dashboard/resources", Development, dashboard::resources::list),
        post("/api/dashboard/resources/read", Development, dashboard::resources::read),
        post("/api/dashboard/import/preview", Development, dashboard::import::preview),
        post("/api/dashboard/import", Development, dashboard::import::apply),
        get("/api/dashboard/tool-groups", Development, dashboard::groups::list),
        post("/api/dashboard/tool-groups", Development, dashboard::groups::create),
        get("/api/dashboard/tool-groups/{name}", Development, dashboard::groups::get),
        put("/api/dashboard/tool-groups/{name}", Development, dashboard::groups::replace),
        delete("/api/dashboard/tool-groups/{name}", Development, dashboard::groups::delete),
    ]
}

/// The OpenAPI document of everything on this page.
pub fn openapi() -> Bytes {
    let row = |method: &Method, path, access: Access| Row {
        method: method.as_str().to_ascii_lowercase(),
        path,
        access: access.as_str(),
    };
    let rows: Vec<_> = table().iter().map(|route| row(&route.method, route.path, route.access)).collect();
    let endpoints = MCP.iter().flat_map(|(path, access, transport)| {
        methods(*transport).iter().map(|method| row(method, path, *access))
    });
    openapi::document(&rows, &endpoints.collect::<Vec<_>>())
}

/// The table as a service, each row behind its access level. What requests must pass before stands in `app::front`.
pub fn router(face: Face) -> Router {
    let mut router = Router::new();
    for route in table() {
        let pass = from_fn_with_state((face.clone(), route.access), access::pass);
        router = router.route(route.path, route.handler.route_layer(pass));
    }
    let of_path: HashMap<_, _> = table().iter().map(|route| (route.path, least(route.access))).collect();
    let wrong_method = move |State(face): State<Face>, request: Request| {
        let access = request.extensions().get::<MatchedPath>().and_then(|path| of_path.get(path.as_str()));
        wrong_method(face, access.copied().unwrap_or(Access::User), request)
    };
    router
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_route)
        // Bodies were read within our limit; axum's own is smaller and answers without JSON.
        .layer(DefaultBodyLimit::disable())
        .with_state(face)
}

async fn unknown_route(request: Request) -> Response {
    let (head, body) = request.into_parts();
    // No token is asked for here, so the size of the body is the first thing that matters.
    match guard::read_body(body).await {
        Ok(_) => Refusal::unknown_route(head.method.as_str(), head.uri.path()).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

/// Which methods a path answers to is for everybody who may use any of them.
fn least(access: Access) -> Access {
    match access {
        Access::User | Access::Admin => Access::User,
        Access::Open | Access::Client | Access::Development => access,
    }
}

async fn wrong_method(face: Face, access: Access, request: Request) -> Response {
    match face.receive(access, request).await {
        Ok(request) => Refusal::wrong_method(request.method().as_str(), request.uri().path()).into_response(),
        Err(refusal) => refusal.into_response(),
    }
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
