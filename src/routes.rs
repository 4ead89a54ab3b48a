//! The table of all routes: each handler with its access level. The method and path of a route are declared at its
//! handler, in the `#[utoipa::path]` that also describes it in the OpenAPI document.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use bytes::Bytes;
use tower::ServiceExt;
use utoipa::openapi::{HttpMethod, OpenApi};

use crate::http::api::{
    access as access_api, audit, calls, clients, grants, groups, idp_groups, logs, oauth, oauth_clients,
    prompts, resources, servers, tools, users,
};
use crate::http::error::ErrorResponse;
use crate::http::openapi::Operation;
use crate::http::{Face, access, body, client_metadata, dashboard, elsewhere, openapi, system, ui};
use crate::oauth::{authorize, check, login, metadata, provider_login, register, revoke, server, token};
use mcp::{ClientTransport, EndpointPath, Scope};

use crate::http::access::Entrance;

pub use crate::http::access::AccessLevel;

/// A handler with its access level. Method, path and description are read from its `#[utoipa::path]`.
pub struct HttpRoute {
    pub method: Method,
    pub path: String,
    pub access: AccessLevel,
    /// Whether the handler is described with a request body.
    takes_body: bool,
    /// Builds the description. Called when needed: with all its schemas it is large.
    description: fn() -> OpenApi,
    handler: MethodRouter<Face>,
}

/// An MCP endpoint. The router does not serve it: requests go straight to `mcp`, which handles every method.
#[derive(Clone, Copy)]
pub struct McpRoute {
    pub path: &'static str,
    pub access: AccessLevel,
    transport: ClientTransport,
    /// Makes the scope from the `{name}` in the path (empty if the path has none).
    scope: fn(String) -> Scope,
}

pub const MCP: [McpRoute; 7] = {
    use AccessLevel::Client;
    use ClientTransport::{Message, Sse, Streamable};
    const EVERYTHING: fn(String) -> Scope = |_| Scope::Everything;
    [
        mcp("/mcp", Client, Streamable, EVERYTHING),
        mcp("/sse", Client, Sse, EVERYTHING),
        mcp("/message", Client, Message, EVERYTHING),
        mcp("/v0/groups/{name}/mcp", Client, Streamable, Scope::Group),
        mcp("/v0/groups/{name}/sse", Client, Sse, Scope::Group),
        mcp("/v0/groups/{name}/message", Client, Message, Scope::Group),
        mcp("/v0/servers/{name}/mcp", Client, Streamable, Scope::Server),
    ]
};

/// Makes a row of the table. A handler without `#[utoipa::path]` does not compile here: that makes a type of its name, which
/// knows its method and path.
macro_rules! route {
    ($access:ident, $module:ident::$handler:ident) => {
        route!($access, $handler in [$module])
    };
    ($access:ident, $outer:ident::$inner:ident::$handler:ident) => {
        route!($access, $handler in [$outer::$inner])
    };
    ($access:ident, $handler:ident in [$($module:ident)::+]) => {{
        #[derive(utoipa::OpenApi)]
        #[openapi(paths($($module)::+::$handler))]
        struct Described;
        let description = <Described as utoipa::OpenApi>::openapi;
        pastey::paste! {
            HttpRoute::new::<$($module)::+::[<__path_ $handler>], _, _>(
                AccessLevel::$access,
                description,
                $($module)::+::$handler,
            )
        }
    }};
}

pub fn table() -> Vec<HttpRoute> {
    vec![
        route!(Open, system::health),
        route!(Open, system::ready),
        route!(Open, system::metadata),
        route!(Open, system::metrics),
        route!(Open, system::init),
        route!(User, openapi::show),
        route!(Open, client_metadata::get),
        route!(Open, metadata::everything),
        route!(Open, metadata::mcp),
        route!(Open, metadata::sse),
        route!(Open, metadata::group_mcp),
        route!(Open, metadata::group_sse),
        route!(Open, metadata::server_mcp),
        route!(Open, metadata::authorization_server),
        route!(Open, register::register),
        route!(Open, authorize::ask),
        route!(Open, authorize::decide),
        route!(Open, token::give),
        route!(Open, revoke::revoke),
        route!(Open, login::ask),
        route!(Open, login::sign_in),
        route!(Open, login::sign_out),
        route!(Open, provider_login::finish),
        route!(User, servers::list),
        route!(Admin, servers::register),
        route!(User, servers::get),
        route!(Admin, servers::amend),
        route!(Admin, servers::remove),
        route!(Admin, servers::enable),
        route!(Admin, servers::disable),
        route!(Admin, servers::refresh),
        route!(Admin, logs::show),
        route!(Admin, servers::reauthorize),
        route!(Admin, oauth::complete),
        route!(Admin, servers::configs),
        route!(User, tools::list),
        route!(User, tools::get),
        route!(Admin, tools::why),
        route!(User, tools::invoke),
        route!(User, tools::answer_input),
        route!(Admin, tools::enable),
        route!(Admin, tools::disable),
        route!(User, prompts::list),
        route!(User, prompts::get),
        route!(User, prompts::render),
        route!(Admin, prompts::enable),
        route!(Admin, prompts::disable),
        route!(User, resources::list),
        route!(User, resources::templates),
        route!(User, resources::get),
        route!(User, resources::read),
        route!(Admin, groups::list),
        route!(Admin, groups::create),
        route!(Admin, groups::get),
        route!(Admin, groups::replace),
        route!(Admin, groups::delete),
        route!(Admin, groups::effective_tools),
        route!(Admin, clients::list),
        route!(Admin, clients::create),
        route!(Admin, clients::replace),
        route!(Admin, clients::delete),
        route!(User, grants::list),
        route!(User, grants::delete),
        route!(Admin, oauth_clients::list),
        route!(Admin, oauth_clients::register),
        route!(Admin, oauth_clients::delete),
        route!(User, calls::list),
        route!(User, calls::stream),
        route!(User, calls::get),
        route!(Admin, calls::stats),
        route!(Admin, audit::list),
        route!(Admin, audit::verify),
        route!(Admin, users::list),
        route!(Admin, users::create),
        route!(User, users::whoami),
        route!(Admin, users::change),
        route!(Admin, users::delete),
        route!(Admin, idp_groups::list),
        route!(Admin, idp_groups::put),
        route!(Admin, idp_groups::delete),
        route!(User, access_api::explain),
        route!(Admin, check::show),
        route!(Development, ui::root),
        route!(Development, ui::index),
        route!(Development, ui::asset),
        route!(Development, ui::servers),
        route!(Development, ui::tools),
        route!(Development, ui::activity),
        route!(Development, ui::groups),
        route!(Development, ui::prompts),
        route!(Development, ui::resources),
        route!(Development, ui::system),
        route!(Development, dashboard::overview::show),
        route!(Development, dashboard::diagnostics::show),
        route!(Development, dashboard::events::stream),
        route!(Development, dashboard::servers::list),
        route!(Development, dashboard::servers::add),
        route!(Development, dashboard::server::get),
        route!(Development, dashboard::server::amend),
        route!(Development, dashboard::servers::remove),
        route!(Development, dashboard::servers::switch),
        route!(Development, dashboard::servers::refresh),
        route!(Development, dashboard::oauth::reauthorize),
        route!(Development, dashboard::oauth::session),
        route!(Development, dashboard::oauth::callback_page),
        route!(Development, dashboard::tools::list),
        route!(Development, dashboard::tools::switch),
        route!(Development, dashboard::tools::invoke),
        route!(Development, dashboard::prompts::list),
        route!(Development, dashboard::prompts::switch),
        route!(Development, dashboard::prompts::render),
        route!(Development, dashboard::resources::list),
        route!(Development, dashboard::resources::read),
        route!(Development, dashboard::import::preview),
        route!(Development, dashboard::import::apply),
        route!(Development, dashboard::groups::list),
        route!(Development, dashboard::groups::create),
        route!(Development, dashboard::groups::get),
        route!(Development, dashboard::groups::replace),
        route!(Development, dashboard::groups::delete),
    ]
}

const fn mcp(
    path: &'static str,
    access: AccessLevel,
    transport: ClientTransport,
    scope: fn(String) -> Scope,
) -> McpRoute {
    McpRoute { path, access, transport, scope }
}

impl HttpRoute {
    fn new<P, H, T>(access: AccessLevel, description: fn() -> OpenApi, handler: H) -> Self
    where
        P: utoipa::Path,
        H: Handler<T, Face>,
        T: 'static,
    {
        let method = match P::methods().first() {
            Some(HttpMethod::Get) => Method::GET,
            Some(HttpMethod::Post) => Method::POST,
            Some(HttpMethod::Put) => Method::PUT,
            Some(HttpMethod::Patch) => Method::PATCH,
            Some(HttpMethod::Delete) => Method::DELETE,
            _ => unreachable!("handlers are described with one of these methods"),
        };
        let filter = MethodFilter::try_from(method.clone()).expect("axum routes every method of OpenAPI");
        let takes_body = P::operation().request_body.is_some();
        Self { method, path: P::path(), access, takes_body, description, handler: on(filter, handler) }
    }
}

/// Returns the methods that an MCP endpoint supports.
fn methods(transport: ClientTransport) -> &'static [Method] {
    match transport {
        ClientTransport::Streamable => &[Method::GET, Method::POST, Method::DELETE],
        ClientTransport::Sse => &[Method::GET],
        ClientTransport::Message => &[Method::POST],
    }
}

/// Finds the MCP endpoint of a path, with its access level. Returns `None` for paths that the router serves.
pub fn find_endpoint(path: &str) -> Option<(EndpointPath, AccessLevel)> {
    MCP.iter().find_map(|route| {
        let name = match route.path.find('{') {
            _ if path == route.path => "",
            None => return None,
            // Names need no percent-encoding, so an encoded one cannot exist.
            Some(at) => {
                let (before, after) = (&route.path[..at], &route.path[at + "{name}".len()..]);
                let name = path.strip_prefix(before)?.strip_suffix(after)?;
                Some(name).filter(|name| !name.is_empty() && !name.contains('/'))?
            }
        };
        Some((
            EndpointPath { transport: route.transport, scope: (route.scope)(name.to_owned()) },
            route.access,
        ))
    })
}

/// Builds the OpenAPI document of all routes.
pub fn openapi() -> Bytes {
    let table = table();
    let described = table.iter().map(|route| Operation {
        method: &route.method,
        path: &route.path,
        access: route.access,
        description: Some(route.description),
    });
    // MCP endpoints have no handler with a description.
    let mcp = MCP.iter().flat_map(|route| {
        let McpRoute { path, access, .. } = *route;
        methods(route.transport).iter().map(move |method| Operation {
            method,
            path,
            access,
            description: None,
        })
    });
    openapi::document(described.chain(mcp))
}

/// The router of all routes, built for its first request: agents do not need it, and a start does not wait for it.
#[derive(Clone)]
pub struct LateRouter(Arc<LazyLock<Router, Box<dyn FnOnce() -> Router + Send>>>);

impl LateRouter {
    pub fn new(face: Face) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(|| router(face)))))
    }

    pub async fn answer(&self, request: Request) -> Response {
        let Ok(response) = LazyLock::force(&self.0).clone().oneshot(request).await;
        response
    }
}

/// Builds the router from the table. Each handler runs behind the check of its access level; the checks before that
/// are in `app::front`.
fn router(face: Face) -> Router {
    let mut router = Router::new();
    let mut of_path = HashMap::new();
    for route in table() {
        let entrance = Entrance { access: route.access, takes_body: route.takes_body };
        let pass = from_fn_with_state((face.clone(), entrance), access::pass);
        let handler = match face.gateway.is_shared() {
            true => route.handler.route_layer(from_fn_with_state(face.clone(), elsewhere::pass)),
            false => route.handler,
        };
        router = router.route(&route.path, handler.route_layer(pass));
        of_path.insert(route.path, least(route.access));
    }
    // Shared, since each route gets its own copy of the handler.
    let of_path = Arc::new(of_path);
    let wrong_method = move |State(face): State<Face>, request: Request| {
        let access = request.extensions().get::<MatchedPath>().and_then(|path| of_path.get(path.as_str()));
        wrong_method(face, access.copied().unwrap_or(AccessLevel::User), request)
    };
    router
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_route)
        // `access` reads bodies within our own limit; axum's limit is smaller and its error is not JSON.
        .layer(DefaultBodyLimit::disable())
        .with_state(face)
}

async fn unknown_route(State(face): State<Face>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    // There is no access check on this path, so the limit of the body is checked first.
    match body::drop_body(body, face.gateway.budgets()).await {
        Ok(()) => ErrorResponse::unknown_route(head.method.as_str(), head.uri.path()).into_response(),
        Err(error) => error.into_response(),
    }
}

/// Returns the level that a caller needs to learn which methods a path has: the lowest one of its kind.
fn least(access: AccessLevel) -> AccessLevel {
    match access {
        AccessLevel::User | AccessLevel::Admin => AccessLevel::User,
        AccessLevel::Open | AccessLevel::Client | AccessLevel::Development => access,
    }
}

async fn wrong_method(face: Face, access: AccessLevel, request: Request) -> Response {
    match face.receive(Entrance { access, takes_body: false }, request).await {
        Ok(request) => {
            let (method, path) = (request.method().as_str(), request.uri().path());
            let missing = server::missing(&face, path);
            missing.unwrap_or_else(|| ErrorResponse::wrong_method(method, path)).into_response()
        }
        Err(error) => error.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_described_handler_is_in_the_table() {
        fn described(folder: &Path) -> usize {
            let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            let count = |path: &Path| fs::read_to_string(path).unwrap().matches("#[utoipa::path(").count();
            entries.map(|path| if path.is_dir() { described(&path) } else { count(&path) }).sum()
        }
        let folders = ["src/http", "src/oauth"].map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join(name));
        assert_eq!(table().len(), folders.iter().map(|folder| described(folder)).sum::<usize>());
    }

    /// A body that is not described is not kept.
    #[test]
    fn every_handler_that_takes_a_body_is_described_with_one() {
        fn check(folder: &Path) {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    check(&path);
                    continue;
                }
                for handler in fs::read_to_string(&path).unwrap().split("#[utoipa::path(").skip(1) {
                    let (description, rest) = handler.split_once("pub async fn ").unwrap();
                    let signature = rest.split(" {\n").next().unwrap();
                    let takes_body = signature.contains("body: Bytes");
                    assert_eq!(
                        takes_body,
                        description.contains("request_body"),
                        "{}: {signature}",
                        path.display()
                    );
                }
            }
        }
        for name in ["src/http", "src/oauth"] {
            check(&Path::new(env!("CARGO_MANIFEST_DIR")).join(name));
        }
    }

    #[test]
    fn the_scope_of_an_agent_is_the_one_that_the_path_names() {
        let scope = |path: &str| find_endpoint(path).map(|(place, _)| place.scope);
        for path in ["/mcp", "/sse", "/message"] {
            assert_eq!(scope(path), Some(Scope::Everything), "{path}");
        }
        for path in ["/v0/groups/servers/mcp", "/v0/groups/servers/sse", "/v0/groups/servers/message"] {
            assert_eq!(scope(path), Some(Scope::Group("servers".into())), "{path}");
        }
        assert_eq!(scope("/v0/servers/groups/mcp"), Some(Scope::Server("groups".into())));
        for path in ["/", "/mcp/", "/v0/groups//mcp", "/v0/groups/a/b/mcp", "/v0/servers/a/sse"] {
            assert_eq!(scope(path), None, "{path}");
        }
    }
}
