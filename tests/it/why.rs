//! Why a caller cannot see a tool or a server: `GET /api/v0/tools/why` and `toolgate why`, compared with what callers see.

use serde_json::{Value, json};

use crate::support::cli::Cli;
use crate::support::{Agent, Behaviour, Fake, TestApp};

async fn why(app: &TestApp, query: &str) -> Value {
    app.get(&format!("/api/v0/tools/why?{query}")).await.expect(200).json()
}

/// The codes of all reasons; empty if it is visible.
async fn codes(app: &TestApp, query: &str) -> Vec<String> {
    let answer = why(app, query).await;
    let reasons = answer["reasons"].as_array().unwrap().clone();
    assert_eq!(answer["visible"], reasons.is_empty(), "{answer}");
    assert!(reasons.iter().all(|reason| !reason["message"].as_str().unwrap().is_empty()), "{answer}");
    reasons.iter().map(|reason| reason["code"].as_str().unwrap().to_owned()).collect()
}

async fn ready() -> (TestApp, Fake) {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("web", &fake).await;
    (app, fake)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_cause_has_its_code() {
    let (app, _fake) = ready().await;
    assert_eq!(codes(&app, "name=web__echo").await, [""; 0]);
    assert_eq!(codes(&app, "name=web").await, [""; 0]);
    assert_eq!(codes(&app, "name=nosuch").await, ["unknown_server"]);
    assert_eq!(codes(&app, "name=nosuch__echo").await, ["unknown_server"]);
    assert_eq!(codes(&app, "name=web__nosuch").await, ["unknown_tool"]);
    app.send("POST", "/api/v0/tools/disable?entity=web__echo", &[], "").await.expect(200);
    assert_eq!(codes(&app, "name=web__echo").await, ["tool_disabled"]);
    app.post("/api/v0/servers/web/disable", json!({})).await.expect(200);
    assert_eq!(codes(&app, "name=web__echo").await, ["server_disabled", "tool_disabled"]);
    assert_eq!(codes(&app, "name=web").await, ["server_disabled"]);
    app.get("/api/v0/tools/why").await.expect(400).error();
    app.get("/api/v0/tools/why?name=web&group=nosuch").await.expect(404).error();
    app.get("/api/v0/tools/why?name=web&client=nosuch").await.expect(403).error();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_hides_what_it_does_not_include() {
    let (app, fake) = ready().await;
    app.register_http("other", &fake).await;
    let group = json!({ "name": "dev", "included_servers": ["web"], "excluded_tools": ["web__add"] });
    app.post("/api/v0/tool-groups", group).await.expect(201);
    assert_eq!(codes(&app, "group=dev&name=web__echo").await, [""; 0]);
    assert_eq!(codes(&app, "group=dev&name=web").await, [""; 0]);
    assert_eq!(codes(&app, "group=dev&name=web__add").await, ["excluded_from_group"]);
    assert_eq!(codes(&app, "group=dev&name=other__echo").await, ["not_in_group"]);
    assert_eq!(codes(&app, "group=dev&name=other").await, ["not_in_group"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_endpoint_of_a_server_has_that_server_alone_under_its_own_names() {
    let (app, _fake) = ready().await;
    let dotted = json!({ "tools": [{ "name": "t".repeat(64), "inputSchema": { "type": "object" } }] });
    let other = Fake::start(Behaviour::of(dotted)).await;
    app.register_http("other", &other).await;
    let long = format!("other__{}", "t".repeat(64));
    assert_eq!(codes(&app, "server=web&name=web__echo").await, [""; 0]);
    assert_eq!(codes(&app, &format!("server=web&name={long}")).await, ["other_server"]);
    assert_eq!(why(&app, &format!("name={long}")).await["warnings"][0]["code"], "refused_name");
    let answer = why(&app, &format!("server=other&name={long}")).await;
    assert_eq!((&answer["server"], &answer["warnings"]), (&json!("other"), &json!([])), "{answer}");
    app.post("/api/v0/servers/web/disable", json!({})).await.expect(200);
    assert_eq!(codes(&app, "server=web&name=web__echo").await, ["server_disabled"]);
    app.get("/api/v0/tools/why?name=web&server=nosuch").await.expect(404).error();
    app.post("/api/v0/tool-groups", json!({ "name": "dev", "included_servers": ["web"] })).await.expect(201);
    app.get("/api/v0/tools/why?name=web&server=web&group=dev").await.expect(400).error();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_about_a_server_names_its_hidden_tools() {
    let (app, _fake) = ready().await;
    let all = why(&app, "name=web").await["tools"].clone();
    assert_eq!((&all["total"], &all["hidden"]), (&all["visible"], &json!([])), "{all}");
    app.send("POST", "/api/v0/tools/disable?entity=web__echo", &[], "").await.expect(200);
    let group = json!({ "name": "dev", "included_servers": ["web"], "excluded_tools": ["web__add"] });
    app.post("/api/v0/tool-groups", group).await.expect(201);
    let some = why(&app, "name=web&group=dev").await["tools"].clone();
    assert_eq!(some["visible"], json!(all["total"].as_u64().unwrap() - 2), "{some}");
    let hidden: Vec<_> = some["hidden"].as_array().unwrap().iter().collect();
    let causes: Vec<_> = hidden.iter().map(|tool| (&tool["name"], &tool["reasons"][0]["code"])).collect();
    let (add, echo) = (json!("web__add"), json!("web__echo"));
    assert_eq!(causes, [(&add, &json!("excluded_from_group")), (&echo, &json!("tool_disabled"))]);
    assert_eq!(why(&app, "name=web__echo").await["tools"], Value::Null, "only for a server");
    let said = Cli::new(&app.address).ok(&["why", "web"]).await;
    assert!(said.ends_with("✗ web__echo: the tool is disabled\n"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_failed_is_a_reason_only_while_nothing_is_known_of_it() {
    let (app, mut fake) = ready().await;
    let nowhere = json!({ "name": "new", "transport": "streamable_http", "url": "http://127.0.0.1:1/mcp",
        "keep_failed": true });
    app.register(nowhere).await;
    let answer = why(&app, "name=new__tool").await;
    assert_eq!(answer["reasons"][0]["code"], "server_failed");
    assert!(answer["reasons"][0]["message"].as_str().unwrap().contains("127.0.0.1:1"), "{answer}");
    fake.stop().await;
    app.post("/api/v0/servers/web/refresh", json!({})).await.expect(500);
    let answer = why(&app, "name=web__echo").await;
    assert_eq!(answer["visible"], true, "what is stored stays listed: {answer}");
    assert_eq!(answer["warnings"].as_array().unwrap().len(), 1, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_some_clients_refuse_is_mentioned() {
    let app = TestApp::start().await;
    let tools = json!({ "tools": [{ "name": "with.dot", "inputSchema": { "type": "object" } }] });
    let fake = Fake::start(Behaviour::of(tools)).await;
    app.register_http("web", &fake).await;
    let answer = why(&app, "name=web__with.dot").await;
    assert_eq!((&answer["visible"], &answer["warnings"][0]["code"]), (&json!(true), &json!("refused_name")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_is_what_clients_see() {
    let app = TestApp::start_enterprise().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    for server in ["one", "two", "off"] {
        app.register_http(server, &fake).await;
    }
    app.post("/api/v0/servers/off/disable", json!({})).await.expect(200);
    app.send("POST", "/api/v0/tools/disable?entity=one__add", &[], "").await.expect(200);
    let group = json!({ "name": "dev", "included_servers": ["two", "off"], "included_tools": ["one__echo"] });
    app.post("/api/v0/tool-groups", group).await.expect(201);
    let mut tokens = Vec::new();
    for (client, allowed) in [("all", json!(["*"])), ("first", json!(["one"])), ("none", json!([]))] {
        let input = json!({ "name": client, "allow_list": allowed });
        let created = app.post("/api/v0/clients", input).await.expect(201).json();
        tokens.push((client, created["access_token"].as_str().unwrap().to_owned()));
    }
    assert_eq!(codes(&app, "client=first&name=two__echo").await, ["not_allowed"]);
    assert_eq!(codes(&app, "client=none&group=dev&name=one__echo").await, ["group_hidden", "not_allowed"]);
    app.get("/api/v0/tools/why?name=one&client=nosuch").await.expect(404).error();
    for (client, token) in &tokens {
        for (path, group) in [("/mcp", ""), ("/v0/groups/dev/mcp", "&group=dev")] {
            let bearer = format!("Bearer {token}");
            let listed = match app.send("GET", path, &[("authorization", &bearer)], "").await.status {
                404 => Vec::new(),
                _ => Agent::connect_as(&app, path, token).await.tools().await,
            };
            for tool in ["one__echo", "one__add", "two__echo", "off__echo"] {
                let visible =
                    why(&app, &format!("name={tool}&client={client}{group}")).await["visible"] == true;
                assert_eq!(visible, listed.iter().any(|name| name == tool), "{client} {path} {tool}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_names_the_cause_and_the_way_out() {
    let (app, _fake) = ready().await;
    let cli = Cli::new(&app.address);
    assert_eq!(cli.ok(&["why", "web__echo"]).await, "\"web__echo\" is visible to agents.\n");
    cli.ok(&["disable", "tool", "web__echo"]).await;
    let said = cli.ok(&["why", "web__echo"]).await;
    let expected = "\"web__echo\" is not visible to agents.\n✗ the tool is disabled\n    toolgate enable tool web__echo\n";
    assert_eq!(said, expected);
    assert!(cli.ok(&["why", "web__ecko"]).await.contains("did you mean \"web__echo\"?"));
    cli.ok(&["create", "group", "dev", "--included-tools", "web__add"]).await;
    let said = cli.ok(&["why", "web__pid", "--group", "dev"]).await;
    assert!(said.contains("toolgate update group dev --included-tools \"web__add, web__pid\""), "{said}");
    assert_eq!(cli.json(&["why", "web__pid"]).await["visible"], true);
}
