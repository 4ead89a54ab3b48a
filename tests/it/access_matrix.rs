//! Requests every route with every kind of token, in both modes, and compares the tables of docs/api.md with the routes.

use std::collections::BTreeSet;

use http_body_util::BodyExt;
use serde_json::json;
use toolgate::routes::{self, AccessLevel};

use crate::support::grants::grant;
use crate::support::person::ISSUER;
use crate::support::{Answer, TestApp, bearer, client};

/// The methods used on MCP endpoints.
const MCP_METHODS: [&str; 3] = ["GET", "POST", "DELETE"];

/// Method, path with names filled in, and access level of every route.
fn every_route() -> Vec<(String, String, AccessLevel)> {
    let fill = |path: &str| path.replace("{name}", "nobody").replace("{id}", "nobody");
    let rows = routes::table().into_iter();
    let rest = rows.map(|route| (route.method.to_string(), fill(&route.path), route.access));
    let mcp = routes::MCP
        .into_iter()
        .flat_map(|route| MCP_METHODS.map(|method| (method.to_owned(), fill(route.path), route.access)));
    rest.chain(mcp).collect()
}

/// The status and, for errors, the sentence. Streams are not read.
async fn ask(app: &TestApp, method: &str, path: &str, authorization: Option<&str>) -> (u16, String) {
    // Each request has another `X-Forwarded-For` address, so that the limit of wrong tokens is never reached.
    let source = format!(
        "2001:db8::{:x}",
        path.bytes().fold(method.len(), |sum, byte| sum * 31 % 65521 + usize::from(byte))
    );
    let mut headers = vec![("x-forwarded-for", source.as_str())];
    headers.extend(authorization.map(|value| ("authorization", value)));
    let (response, _connection) = client::open(&app.address, method, path, &headers, b"{}".to_vec()).await;
    let (head, body) = response.into_parts();
    let has_challenge =
        head.headers.get("www-authenticate").is_some_and(|value| value.as_bytes().starts_with(b"Bearer"));
    assert_eq!(head.status == 401, has_challenge, "{method} {path}");
    if !matches!(head.status.as_u16(), 401 | 403 | 404) {
        return (head.status.as_u16(), String::new());
    }
    let body = body.collect().await.unwrap().to_bytes();
    let answer = Answer { status: head.status.as_u16(), headers: head.headers, body };
    (answer.status, answer.error())
}

/// Whether the request reached its handler.
fn passed(status: u16, sentence: &str) -> bool {
    !matches!(status, 401 | 403 | 429) && !sentence.starts_with("there is no route")
}

struct Callers {
    user: String,
    admin: String,
    client: String,
    /// The access token of software that acts for an admin.
    agent: String,
    /// Callers with an invalid token, and callers without a token.
    strangers: Vec<Option<String>>,
}

async fn callers(app: &TestApp) -> Callers {
    let gone_user = app.create_user("gone", "admin").await;
    let gone_client = app.create_client("gone", &["*"]).await;
    app.delete("/api/v0/users/gone").await.expect(204);
    app.delete("/api/v0/clients/gone").await.expect(204);
    let user = app.create_user("user", "user").await;
    let malformed = [user.clone(), format!("Basic {user}"), "Bearer".into(), format!("Bearer{user}")];
    let wrong = ["garbage-garbage", &gone_user, &gone_client].map(|token| Some(bearer(token)));
    Callers {
        user: bearer(&user),
        admin: bearer(&app.create_user("boss", "admin").await),
        client: bearer(&app.create_client("agent", &["*"]).await),
        agent: bearer(grant(app, "admin", "").await.access.expose()),
        strangers: malformed.map(Some).into_iter().chain(wrong).chain([None]).collect(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_enterprise_mode_every_route_enforces_its_access_level() {
    let app = TestApp::start_enterprise_with(|config| {
        config.trust_proxy = true;
        config.public_url = Some(ISSUER.parse().unwrap());
    })
    .await;
    let callers = callers(&app).await;
    for (method, path, access) in every_route() {
        for (who, authorization) in [
            ("user", &callers.user),
            ("admin", &callers.admin),
            ("client", &callers.client),
            ("agent of an admin", &callers.agent),
        ] {
            let (status, sentence) = ask(&app, &method, &path, Some(authorization)).await;
            let said = format!("{method} {path} ({access:?}) by {who}: {status} {sentence}");
            match (access, who) {
                (AccessLevel::Development, _) => {
                    assert!(status == 404 && !passed(status, &sentence), "{said}")
                }
                (AccessLevel::Admin, "user") => {
                    assert!(status == 403 && sentence.contains("admin"), "{said}")
                }
                (AccessLevel::Open, _)
                | (AccessLevel::User, "user" | "admin")
                | (AccessLevel::Admin, "admin")
                | (AccessLevel::Client, "client" | "agent of an admin") => {
                    assert!(passed(status, &sentence), "{said}")
                }
                (AccessLevel::User | AccessLevel::Admin | AccessLevel::Client, _) => {
                    assert_eq!(status, 401, "{said}")
                }
            }
        }
        for stranger in &callers.strangers {
            let (status, sentence) = ask(&app, &method, &path, stranger.as_deref()).await;
            let said = format!("{method} {path} ({access:?}) with {stranger:?}: {status} {sentence}");
            match access {
                AccessLevel::Open => assert!(passed(status, &sentence), "{said}"),
                AccessLevel::Development => assert!(status == 404 && !passed(status, &sentence), "{said}"),
                AccessLevel::User | AccessLevel::Admin | AccessLevel::Client => {
                    assert_eq!(status, 401, "{said}");
                    assert!(sentence.contains("Authorization: Bearer"), "{said}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn before_initialization_only_open_routes_answer() {
    let app = TestApp::start_with(|config| config.mode = model::Mode::Enterprise).await;
    for (method, path, access) in every_route().into_iter().filter(|(_, path, _)| path != "/init") {
        for authorization in [None, Some("Bearer garbage-garbage")] {
            let (status, sentence) = ask(&app, &method, &path, authorization).await;
            let said = format!("{method} {path} ({access:?}): {status} {sentence}");
            match access {
                AccessLevel::Open => assert!(passed(status, &sentence), "{said}"),
                AccessLevel::Development => assert!(status == 404 && !passed(status, &sentence), "{said}"),
                AccessLevel::User | AccessLevel::Admin | AccessLevel::Client => {
                    assert!(status == 403 && sentence.contains("server is not initialized"), "{said}");
                }
            }
        }
    }
    for path in ["/nothing", "/.well-known/oauth-protected-resource", "/", "/index.html", "/assets/app.js"] {
        app.get(path).await.expect(404).error();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_development_mode_no_token_is_needed_and_there_are_no_users() {
    let app = TestApp::start().await;
    for (method, path, _) in every_route() {
        for authorization in [None, Some("Bearer garbage-garbage"), Some("Basic x")] {
            let (status, sentence) = ask(&app, &method, &path, authorization).await;
            let said = format!("{method} {path} with {authorization:?}: {status} {sentence}");
            let nouns = ["users", "clients", "grants", "oauth-clients", "idp-groups", "access/"];
            if nouns.iter().any(|noun| path.starts_with(&format!("/api/v0/{noun}"))) {
                assert!(status == 403 && sentence.contains("only allowed in enterprise mode"), "{said}");
            } else {
                assert!(passed(status, &sentence), "{said}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_routes_need_no_token_and_wrong_methods_do() {
    let app = TestApp::start_enterprise().await;
    let user = app.create_user("user", "user").await;
    let client = app.create_client("agent", &["*"]).await;
    for path in
        ["/nothing", "/api/v0/nothing", "/api/dashboard/overview", "/", "/.well-known/x", "/v0/groups/g"]
    {
        let answer = client::request(&app.address, "GET", path, &[], Vec::new()).await.expect(404);
        assert!(answer.error().contains(path), "{path}");
    }
    for (path, allowed) in [("/api/v0/tools", "GET,HEAD"), ("/api/v0/clients/x", "DELETE,PUT")] {
        client::request(&app.address, "TRACE", path, &[], Vec::new()).await.expect(401).error();
        app.send_as(&client, "TRACE", path, json!({})).await.expect(401).error();
        let answer = app.send_as(&user, "TRACE", path, json!({})).await.expect(405);
        let mut named: Vec<_> = answer.headers["allow"].to_str().unwrap().split(',').collect();
        named.sort_unstable();
        assert_eq!(named.join(","), allowed);
    }
    client::request(&app.address, "TRACE", "/health", &[], Vec::new()).await.expect(405).error();
    client::request(&app.address, "PUT", "/mcp", &[], Vec::new()).await.expect(401).error();
    app.send_as(&client, "PUT", "/mcp", json!({})).await.expect(405).error();
    client::request(&app.address, "HEAD", "/api/v0/tools", &[], Vec::new()).await.expect(401);
    app.send_as(&user, "HEAD", "/api/v0/tools", json!({})).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_size_of_a_body_is_checked_after_the_token_and_before_everything_else() {
    let app = TestApp::start_enterprise().await;
    let big = vec![b' '; 4 * 1024 * 1024 + 1];
    let user = app.create_user("user", "user").await;
    let agent = app.create_client("agent", &[]).await;
    let send = async |path: &str, token: Option<&str>| {
        let authorization = token.map(bearer);
        let headers: Vec<_> = authorization.iter().map(|value| ("authorization", value.as_str())).collect();
        client::request(&app.address, "POST", path, &headers, big.clone()).await.status
    };
    for path in ["/api/v0/tools/invoke", "/api/v0/servers", "/mcp", "/v0/groups/nobody/mcp"] {
        assert_eq!(send(path, None).await, 401, "{path}");
        assert_eq!(send(path, Some("garbage-garbage")).await, 401, "{path}");
    }
    assert_eq!(send("/api/v0/servers", Some(&user)).await, 403);
    assert_eq!(send("/api/v0/tools/invoke", Some(&user)).await, 413);
    assert_eq!(send("/api/v0/tools", Some(&user)).await, 413);
    for path in ["/mcp", "/v0/groups/nobody/mcp", "/v0/servers/nobody/mcp", "/message"] {
        assert_eq!(send(path, Some(&agent)).await, 413, "{path}");
    }
    assert_eq!(send("/init", None).await, 413);
    assert_eq!(send("/nothing", None).await, 413);
}

#[test]
fn the_tables_of_the_page_match_the_routes() {
    let word = |access: AccessLevel| match access {
        AccessLevel::Open => "open",
        AccessLevel::User => "user",
        AccessLevel::Admin => "admin",
        AccessLevel::Client => "client",
        AccessLevel::Development => "development",
    };
    let (development, rest): (Vec<_>, Vec<_>) =
        routes::table().into_iter().partition(|route| route.access == AccessLevel::Development);
    for route in development {
        let path = route.path.as_str();
        let is_typed = matches!(
            path,
            "/activity" | "/servers" | "/tools" | "/groups" | "/prompts" | "/resources" | "/system"
        );
        let is_page = matches!(path, "/" | "/index.html") || path.starts_with("/assets/") || is_typed;
        assert!(is_page || route.path.starts_with("/api/dashboard/"), "{}", route.path);
    }
    let rest = rest
        .into_iter()
        .map(|route| format!("{} {} {}", route.method, nameless(&route.path), word(route.access)));
    let mcp =
        routes::MCP.into_iter().map(|route| format!(" {} {}", nameless(route.path), word(route.access)));
    let of_code: BTreeSet<_> = rest.chain(mcp).collect();
    let of_page = documented();
    assert_eq!(of_code.difference(&of_page).collect::<Vec<_>>(), Vec::<&String>::new(), "not in docs/api.md");
    assert_eq!(
        of_page.difference(&of_code).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "only in docs/api.md"
    );
}

/// The path with each parameter replaced by `:`, in either notation.
fn nameless(path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let segment = |part: &str| match part.starts_with([':', '{']) {
        true => ":".to_owned(),
        false => part.to_owned(),
    };
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

/// Rows of the page's tables that begin with a path, as `method path access`. A second path in a row may omit the part
/// that it shares with the first. Routes of the dashboard have no column for the access level.
fn documented() -> BTreeSet<String> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/api.md")).unwrap();
    let mut rows = BTreeSet::new();
    let sections = page.split("\n## ").filter(|section| !section.starts_with("Dashboard\n"));
    for line in sections.flat_map(str::lines).filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let (mut method, mut first) = ("", "");
        for code in cells[1].split('`').skip(1).step_by(2) {
            let (of, path) = code.split_once(' ').unwrap_or((method, code));
            if !path.starts_with('/') {
                continue;
            }
            let parent = first.rsplit_once('/').map_or("", |(parent, _)| parent);
            let whole = if first.is_empty() || code.contains(' ') {
                path.to_owned()
            } else {
                format!("{parent}{path}")
            };
            rows.insert(format!("{of} {} {}", nameless(&whole), cells[2]));
            if first.is_empty() {
                (method, first) = (of, path);
            }
        }
    }
    rows
}
