//! The endpoints of groups and of single servers: what they show, and when they end.

use serde_json::{Value, json};

use crate::support::{Agent, Behaviour, Fake, SseAgent, TestApp};

async fn initialize(app: &TestApp, path: &str) -> u16 {
    crate::support::mcp::initialize(&app.address, path, "2025-11-25", json!({})).await.status
}

#[tokio::test]
async fn a_group_shows_and_serves_only_its_members() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("a", &fake).await;
    app.register_http("b", &fake).await;
    let group = json!({"name": "g", "description": "For tests", "included_tools": ["a__echo", "b__add"],
        "included_prompts": ["a__greet"], "included_resources": ["fake://blob"]});
    app.post("/api/v0/tool-groups", group).await.expect(201);
    let agent = Agent::connect(&app, "/v0/groups/g/mcp").await;
    assert_eq!(agent.tools().await, ["a__echo", "b__add"]);
    assert_eq!(agent.list("prompts/list", "prompts", "name").await, ["a__greet"]);
    assert_eq!(agent.list("resources/list", "resources", "uri").await.len(), 2);
    assert_eq!(agent.call_text("a__echo", json!({"text": "x"})).await, "x");
    for (method, params, code) in [
        ("tools/call", json!({"name": "a__add"}), -32602),
        ("tools/call", json!({"name": "echo"}), -32602),
        ("prompts/get", json!({"name": "a__plain"}), -32602),
        ("resources/read", json!({"uri": "fake://text"}), -32002),
        ("resources/subscribe", json!({"uri": "fake://text"}), -32002),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "a__plain"},
            "argument": {"name": "x", "value": "y"}}),
            -32602,
        ),
    ] {
        let error = agent.error(method, params).await;
        assert_eq!(error["code"], code, "{method}: {error}");
    }
    let said = agent.greeting["instructions"].as_str().unwrap();
    assert!(said.contains("For tests") && said.contains("- a") && said.contains("- b"), "{said}");
    for path in ["/v0/groups/none/mcp", "/v0/groups/none/sse", "/v0/servers/none/mcp"] {
        app.post(path, json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})).await.expect(404).error();
    }
}

#[tokio::test]
async fn a_server_is_itself_on_its_own_endpoint() {
    let app = TestApp::start().await;
    for (name, era) in [("old", "legacy"), ("new", "modern")] {
        let behaviour = json!({"era": era, "instructions": "Be careful.\nVery.",
            "server_info": {"name": "native", "version": "9", "x-vendor": {"kept": 1.0}}});
        let fake = Fake::start(Behaviour::of(behaviour)).await;
        app.register_http(name, &fake).await;
        let agent = Agent::connect(&app, &format!("/v0/servers/{name}/mcp")).await;
        assert_eq!(
            agent.greeting["serverInfo"],
            json!({"name": "native", "version": "9", "x-vendor": {"kept": 1.0}})
        );
        assert_eq!(agent.greeting["instructions"], "Be careful.\nVery.");
        let offered = json!({"tools": {"listChanged": true}, "logging": {}, "completions": {},
            "prompts": {"listChanged": true}, "resources": {"listChanged": true, "subscribe": true}});
        assert_eq!(agent.greeting["capabilities"], offered);
        assert!(agent.tools().await.contains(&"echo".to_owned()));
        assert_eq!(agent.call_text("echo", json!({"text": "x"})).await, "x");
        assert_eq!(agent.error("tools/call", json!({"name": format!("{name}__echo")})).await["code"], -32602);
        let prompt =
            agent.request("prompts/get", json!({"name": "greet", "arguments": {"who": "you"}})).await;
        assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "Hello, you!");
        let read = agent.request("resources/read", json!({"uri": "fake://item/7"})).await;
        assert_eq!(read["result"]["contents"][0]["text"], "content of fake://item/7");
        let argument = json!({"name": "who", "value": "wor"});
        let reference = json!({"type": "ref/prompt", "name": "greet"});
        let done =
            agent.request("completion/complete", json!({"ref": reference, "argument": argument})).await;
        assert_eq!(done["result"]["completion"]["values"], json!(["wor-completed"]), "{done}");
    }
}

#[tokio::test]
async fn a_disabled_or_removed_server_has_no_endpoint() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    let agent = Agent::connect(&app, "/v0/servers/s/mcp").await;
    let mut stream = agent.listen().await;
    app.post("/api/v0/servers/s/disable", json!({})).await.expect(200);
    assert_eq!(initialize(&app, "/v0/servers/s/mcp").await, 404);
    agent.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})).await.expect(404).error();
    assert!(stream.next().await.is_none());
    app.post("/api/v0/servers/s/enable", json!({})).await.expect(200);
    assert_eq!(initialize(&app, "/v0/servers/s/mcp").await, 200);
    app.delete("/api/v0/servers/s").await.expect(204);
    assert_eq!(initialize(&app, "/v0/servers/s/mcp").await, 404);
}

#[tokio::test]
async fn a_deleted_group_is_gone_at_once_and_its_streams_end() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    for name in ["g", "stays"] {
        app.post("/api/v0/tool-groups", json!({"name": name, "included_servers": ["s"]})).await.expect(201);
    }
    let agent = Agent::connect(&app, "/v0/groups/g/mcp").await;
    let other = Agent::connect(&app, "/v0/groups/stays/mcp").await;
    let (mut stream, mut others) = (agent.listen().await, other.listen().await);
    let mut sse = SseAgent::connect(&app, "/v0/groups/g/sse", json!({})).await;
    let silent = SseAgent::open(&app, "/v0/groups/g/sse").await;
    app.delete("/api/v0/tool-groups/g").await.expect(204);
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    agent.post(&ping).await.expect(404).error();
    app.post(&sse.endpoint, ping.clone()).await.expect(404).error();
    app.post(&silent.endpoint, ping.clone()).await.expect(404).error();
    for path in ["/v0/groups/g/mcp", "/v0/groups/g/sse", "/v0/groups/g/message"] {
        for method in ["GET", "POST", "DELETE", "PUT"] {
            app.send(method, path, &[], ping.to_string()).await.expect(404).error();
        }
    }
    assert!(stream.next().await.is_none());
    assert!(sse.next().await.is_none());
    app.delete("/api/v0/servers/s").await.expect(204);
    others.expect("notifications/tools/list_changed").await;
    other.post(&ping).await.expect(200);
}

#[tokio::test]
async fn instructions_name_the_servers_within_2000_characters() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"instructions": "# Heading\n\nmore"}))).await;
    let input = |name: &str, description: &str| {
        json!({"name": name, "transport": "streamable_http",
        "url": fake.url(), "description": description})
    };
    app.register(input("plain", "")).await;
    app.register(input("told", "Does this\nand that")).await;
    let said = |agent: &Agent| agent.greeting["instructions"].as_str().unwrap().to_owned();
    let agent = Agent::connect(&app, "/mcp").await;
    assert!(said(&agent).contains("- plain: Heading\n- told: Does this and that"), "{}", said(&agent));
    for number in 0..12 {
        app.register(input(&format!("server-{number}"), &"lång ".repeat(300))).await;
    }
    let group: Vec<Value> = (0..12).map(|number| json!(format!("server-{number}"))).collect();
    let group = json!({"name": "g", "description": "ü".repeat(3000), "included_servers": group});
    app.post("/api/v0/tool-groups", group).await.expect(201);
    for path in ["/mcp", "/v0/groups/g/mcp"] {
        let agent = Agent::connect(&app, path).await;
        assert!(said(&agent).chars().count() <= 2000, "{path}");
    }
}
