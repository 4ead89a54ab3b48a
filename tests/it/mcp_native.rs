//! The endpoint of one server shows the server as it is: its order, its `_meta`, its capabilities. Endpoints with several
//! servers show what their servers have in common with the gateway, and the extensions of all of them.

use serde_json::{Value, json};

use crate::support::modern::SERVER_KEY;
use crate::support::{Agent, Behaviour, Fake, ModernAgent, TestApp};

const NATIVE: &str = "/v0/servers/s/mcp";
const LISTS: [(&str, &str, &str); 4] = [
    ("tools/list", "tools", "name"),
    ("prompts/list", "prompts", "name"),
    ("resources/list", "resources", "uri"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate"),
];

fn behaviour(era: &str) -> Value {
    let named = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
    let mut meta = json!({
        "initialize": {"example.com/hello": 1},
        "server/discover": {"example.com/hello": 1},
    });
    for (method, ..) in LISTS {
        meta[method] = json!({"example.com/list": method});
        if era == "modern" {
            meta[method][SERVER_KEY] = json!({"name": "other"});
        }
    }
    json!({
        "era": era, "page_size": 2, "meta": meta,
        "tools": named(&["zeta", "alpha", "mid"]),
        "prompts": named(&["q", "p"]),
        "resources": [{"uri": "x://z"}, {"uri": "x://a"}],
        "templates": [{"uriTemplate": "y://{z}"}, {"uriTemplate": "x://{a}"}],
        "capabilities": {"extensions": {"example.com/ui": {"mimeTypes": ["text/html"]}}, "tasks": {"list": {}}},
    })
}

async fn check(app: &TestApp, era: &str) {
    let (agent, modern) = (Agent::connect(app, NATIVE).await, ModernAgent::at(app, NATIVE));
    assert_eq!(agent.greeting["_meta"], json!({"example.com/hello": 1}), "{era}");
    let discovered = modern.result("server/discover", json!({})).await;
    let info = json!({"name": "fake", "title": "Fake upstream", "version": "1.2.3"});
    assert_eq!(discovered["_meta"], json!({"example.com/hello": 1, SERVER_KEY: info}), "{era}");
    for (of, capabilities) in
        [("legacy", &agent.greeting["capabilities"]), ("modern", &discovered["capabilities"])]
    {
        assert_eq!(capabilities["extensions"], json!({"example.com/ui": {"mimeTypes": ["text/html"]}}));
        // Clients of the other era cannot use its tasks.
        let tasks = (of == era).then(|| json!({"list": {}}));
        assert_eq!(capabilities.get("tasks"), tasks.as_ref(), "{era} {of}");
    }
    let orders: [&[&str]; 4] =
        [&["zeta", "alpha", "mid"], &["q", "p"], &["x://z", "x://a"], &["y://{z}", "x://{a}"]];
    for ((method, member, key), order) in LISTS.into_iter().zip(orders) {
        assert_eq!(agent.list(method, member, key).await, order, "{era}");
        assert_eq!(modern.list(method, member, key).await, order, "{era}");
        let legacy = agent.request(method, json!({})).await["result"].clone();
        assert_eq!(legacy["_meta"], json!({"example.com/list": method, "start": 0}), "{era} {method}");
        assert_eq!(legacy.as_object().unwrap().len(), 2, "{legacy}");
        let listed = modern.result(method, json!({})).await;
        let meta = json!({"example.com/list": method, "start": 0, SERVER_KEY: info});
        assert_eq!(listed["_meta"], meta, "{era} {method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_shown_in_its_own_order_and_with_its_own_meta_also_after_a_restart() {
    for era in ["legacy", "modern"] {
        let app = TestApp::start().await;
        let mut fake = Fake::start(Behaviour::of(behaviour(era))).await;
        app.register_http("s", &fake).await;
        check(&app, era).await;
        // Everything else is sorted, and has nothing of one server.
        let agent = Agent::connect(&app, "/mcp").await;
        assert_eq!(agent.tools().await, ["s__alpha", "s__mid", "s__zeta"]);
        assert!(agent.greeting.get("_meta").is_none());
        assert!(agent.request("tools/list", json!({})).await["result"].get("_meta").is_none());
        // What is stored is enough: the server is away when the gateway starts again.
        fake.stop().await;
        let app = app.restart().await;
        check(&app, era).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_with_several_servers_advertise_the_extensions_of_all() {
    let app = TestApp::start().await;
    let mut fakes = Vec::new();
    for (name, extensions) in [
        ("a", json!({"x/same": {"v": 1}, "x/other": {"v": 1}})),
        ("b", json!({"x/same": {"v": 1}, "x/other": {"v": 2}, "x/b": {}})),
        ("c", json!({"x/c": {}})),
    ] {
        let capabilities = json!({"extensions": extensions, "experimental": {name: {"on": true}}});
        let fake = Fake::start(Behaviour::of(json!({"capabilities": capabilities}))).await;
        app.register_http(name, &fake).await;
        fakes.push(fake);
    }
    app.post("/api/v0/tool-groups", json!({"name": "g", "included_servers": ["a", "b"]})).await.expect(201);
    let both = json!({"x/b": {}, "x/other": {}, "x/same": {"v": 1}});
    let mut all = both.clone();
    all["x/c"] = json!({});
    let on = json!({"on": true});
    for (path, extensions, experimental) in [
        ("/mcp", all, json!({"a": on, "b": on, "c": on})),
        ("/v0/groups/g/mcp", both, json!({"a": on, "b": on})),
    ] {
        let legacy = Agent::connect(&app, path).await.greeting["capabilities"].clone();
        let modern = ModernAgent::at(&app, path).result("server/discover", json!({})).await;
        for capabilities in [&legacy, &modern["capabilities"]] {
            assert_eq!(capabilities["extensions"], extensions, "{path}");
            assert_eq!(capabilities["experimental"], experimental, "{path}");
            assert_eq!(capabilities["tools"], json!({"listChanged": true}));
        }
    }
    app.post("/api/v0/servers/b/disable", json!({})).await.expect(200);
    let agent = Agent::connect(&app, "/v0/groups/g/mcp").await;
    let alone = json!({"x/same": {"v": 1}, "x/other": {"v": 1}});
    assert_eq!(agent.greeting["capabilities"]["extensions"], alone);
}
