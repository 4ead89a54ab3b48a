//! `server/discover` and the lists for modern clients: the same content as for all clients, with `ttlMs` and
//! `cacheScope`.

use serde_json::{Value, json};

use crate::support::modern::{Post, SERVER_KEY, VERSION};
use crate::support::{Agent, Behaviour, Fake, ModernAgent, TestApp, eventually};

const LISTS: [(&str, &str); 4] = [
    ("tools/list", "tools"),
    ("prompts/list", "prompts"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
];

async fn start(behaviours: &[(&str, Value)]) -> (TestApp, Vec<Fake>) {
    let app = TestApp::start().await;
    let mut fakes = Vec::new();
    for (name, behaviour) in behaviours {
        let fake = Fake::start(Behaviour::of(behaviour.clone())).await;
        app.register_http(name, &fake).await;
        fakes.push(fake);
    }
    (app, fakes)
}

async fn group(app: &TestApp, name: &str, servers: &[&str]) {
    let group = json!({"name": name, "description": "Only the best", "included_servers": servers,
        "included_prompts": ["*"], "included_resources": ["*"]});
    app.post("/api/v0/tool-groups", group).await.expect(201);
}

/// `ttlMs` and `cacheScope` of a result.
fn caching(result: &Value) -> (u64, &str) {
    let ttl = result["ttlMs"].as_u64().unwrap_or_else(|| panic!("no ttlMs: {result}"));
    (ttl, result["cacheScope"].as_str().unwrap_or_else(|| panic!("no cacheScope: {result}")))
}

#[tokio::test]
async fn every_endpoint_says_what_it_is() {
    let (app, _fakes) = start(&[("m", json!({"era": "modern"})), ("l", json!({"era": "legacy"}))]).await;
    group(&app, "g", &["m", "l"]).await;
    for path in ["/mcp", "/v0/groups/g/mcp", "/v0/servers/m/mcp", "/v0/servers/l/mcp"] {
        let result = ModernAgent::at(&app, path).result("server/discover", json!({})).await;
        assert_eq!(result["resultType"], "complete", "{path}");
        let versions = result["supportedVersions"].as_array().unwrap();
        assert_eq!((versions.len(), &versions[0]), (5, &json!(VERSION)), "{path}");
        // What a legacy client gets from the same endpoint.
        let legacy = Agent::connect(&app, path).await.greeting;
        assert_eq!(result["_meta"][SERVER_KEY], legacy["serverInfo"], "{path}");
        assert_eq!(result["capabilities"], legacy["capabilities"], "{path}");
        assert_eq!(result["instructions"], legacy["instructions"], "{path}");
        let expected = if path == "/v0/servers/m/mcp" { 60_000 } else { 5000 };
        assert_eq!(caching(&result), (expected, "public"), "{path}");
    }
    let native = ModernAgent::at(&app, "/v0/servers/m/mcp").result("server/discover", json!({})).await;
    assert_eq!(native["_meta"][SERVER_KEY]["name"], "fake");
    assert_eq!(native["instructions"], "Fake instructions.");
    let grouped = ModernAgent::at(&app, "/v0/groups/g/mcp").result("server/discover", json!({})).await;
    assert!(grouped["instructions"].as_str().unwrap().starts_with("Only the best"));
}

#[tokio::test]
async fn lists_are_those_of_everybody_with_their_lifetimes() {
    let (app, _fakes) = start(&[("m", json!({"era": "modern"})), ("l", json!({"era": "legacy"}))]).await;
    group(&app, "g", &["m"]).await;
    for path in ["/mcp", "/v0/groups/g/mcp", "/v0/servers/m/mcp", "/v0/servers/l/mcp"] {
        let (modern, legacy) = (ModernAgent::at(&app, path), Agent::connect(&app, path).await);
        for (method, member) in LISTS {
            let (ours, theirs) =
                (modern.result(method, json!({})).await, legacy.request(method, json!({})).await);
            assert_eq!(ours[member], theirs["result"][member], "{method} on {path}");
            assert!(!ours[member].as_array().unwrap().is_empty(), "{method} on {path}");
            assert_eq!(ours["resultType"], "complete");
            assert!(ours.get("nextCursor").is_none());
            assert!(ours["_meta"][SERVER_KEY]["name"].is_string());
            let expected = if ["/mcp", "/v0/servers/l/mcp"].contains(&path) { 5000 } else { 60_000 };
            assert_eq!(caching(&ours), (expected, "public"), "{method} on {path}");
            let (status, error) = modern.error(method, json!({"cursor": "x"})).await;
            assert_eq!((status, &error["code"]), (200, &json!(-32602)), "{method} on {path}");
        }
    }
}

#[tokio::test]
async fn the_shortest_ttl_and_the_strictest_cache_scope_win() {
    let modern = |ttl: u64, scope: &str, more: Value| {
        let mut behaviour = json!({"era": "modern", "ttl_ms": ttl, "cache_scope": scope});
        behaviour.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        behaviour
    };
    let nothing = json!({"prompts": [], "resources": [], "templates": []});
    let (app, fakes) = start(&[
        ("long", modern(90_000, "public", json!({}))),
        ("short", modern(1234, "public", nothing.clone())),
        ("secret", modern(70_000, "private", nothing)),
        ("never", modern(0, "public", json!({"tools": [], "resources": [], "templates": []}))),
    ])
    .await;
    for (name, servers) in
        [("both", &["long", "short"][..]), ("private", &["long", "secret"]), ("one", &["long"])]
    {
        group(&app, name, servers).await;
    }
    let at = |path: &str| ModernAgent::at(&app, path);
    let of = async |path: &str, method: &str| at(path).result(method, json!({})).await;
    assert_eq!(caching(&of("/mcp", "tools/list").await), (1234, "private"));
    assert_eq!(caching(&of("/mcp", "server/discover").await), (0, "private"));
    // Servers without items in a list do not affect its lifetime.
    assert_eq!(caching(&of("/mcp", "prompts/list").await), (0, "public"));
    assert_eq!(caching(&of("/mcp", "resources/list").await), (90_000, "public"));
    assert_eq!(caching(&of("/v0/groups/both/mcp", "tools/list").await), (1234, "public"));
    assert_eq!(caching(&of("/v0/groups/both/mcp", "server/discover").await), (1234, "public"));
    assert_eq!(caching(&of("/v0/groups/private/mcp", "tools/list").await), (70_000, "private"));
    assert_eq!(caching(&of("/v0/groups/one/mcp", "tools/list").await), (90_000, "public"));
    assert_eq!(caching(&of("/v0/servers/secret/mcp", "tools/list").await), (70_000, "private"));
    // A later value of a server applies from then on.
    fakes[0].update(|behaviour| behaviour.ttl_ms = 500);
    app.post("/api/v0/servers/long/refresh", json!({})).await.expect(200);
    eventually("the new time is known", async || {
        caching(&of("/v0/groups/one/mcp", "tools/list").await) == (500, "public")
    })
    .await;
}

#[tokio::test]
async fn an_empty_gateway_has_empty_lists() {
    let app = TestApp::start().await;
    let agent = ModernAgent::at(&app, "/mcp");
    for (method, member) in LISTS {
        let result = agent.result(method, json!({})).await;
        assert_eq!(result[member], json!([]), "{method}");
        assert_eq!(caching(&result), (5000, "public"));
    }
    assert_eq!(caching(&agent.result("server/discover", json!({})).await), (5000, "public"));
}

#[tokio::test]
async fn what_does_not_exist_is_404_before_anything_else() {
    let (app, _fakes) = start(&[("s", json!({"era": "modern"}))]).await;
    group(&app, "g", &["s"]).await;
    app.delete("/api/v0/tool-groups/g").await.expect(204);
    app.post("/api/v0/servers/s/disable", json!({})).await.expect(200);
    for path in ["/v0/groups/g/mcp", "/v0/groups/never/mcp", "/v0/servers/s/mcp", "/v0/servers/never/mcp"] {
        let agent = ModernAgent::at(&app, path);
        let post = Post::of(agent.message(json!(1), "server/discover", json!({})).to_string());
        assert!(agent.send(&post).await.expect(404).error().contains("does not exist"), "{path}");
        let post = Post::bare("nonsense").adding("mcp-protocol-version", VERSION);
        agent.send(&post).await.expect(404).error();
    }
}
