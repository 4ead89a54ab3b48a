//! The dashboard's API: the content of every list; enabling, disabling, calling, rendering and reading.

use serde_json::{Value, json};

use crate::support::app::stdio_input;
use crate::support::{Behaviour, Fake, TestApp, eventually};

fn keys(object: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = object.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

fn find<'a>(list: &'a Value, key: &str, name: &str) -> &'a Value {
    let found = list.as_array().unwrap().iter().find(|item| item[key] == name);
    found.unwrap_or_else(|| panic!("no {name} in {list}"))
}

async fn show(app: &TestApp, page: &str) -> Value {
    app.get(&format!("/api/dashboard/{page}")).await.expect(200).json()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_gateway_says_how_to_add_the_first_server() {
    let app = TestApp::start().await;
    for (page, key) in [
        ("servers", "servers"),
        ("tools", "tools"),
        ("prompts", "prompts"),
        ("resources", "resources"),
        ("tool-groups", "tool_groups"),
    ] {
        let body = show(&app, page).await;
        assert_eq!(body[key], json!([]), "{page}");
        assert_eq!(keys(&body["empty_state"]), ["commands", "description", "title"], "{page}");
        assert!(!body["empty_state"]["commands"].as_array().unwrap().is_empty(), "{page}");
    }
    let overview = show(&app, "overview").await;
    assert_eq!(overview["status"], "ok");
    assert_eq!(overview["mode"], "development");
    assert_eq!(overview["version"], format!("v{}", env!("CARGO_PKG_VERSION")));
    assert_eq!(overview["troubleshooting"], json!([]));
    assert_eq!((&overview["call_log"], &overview["records_problem"]), (&json!("summary"), &Value::Null));
    assert!(overview["empty_state"]["title"].is_string());
    let endpoint = &overview["endpoints"][0];
    assert_eq!(endpoint["url"], format!("http://{}/mcp", app.address));
    assert_eq!(keys(endpoint), ["label", "url"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_shown_with_their_state() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("web", &fake).await;
    let local = Behaviour::of(json!({ "stderr": ["ready", "listening"], "era": "modern" }));
    let mut input = stdio_input("local", &local);
    input["env"] = json!({ "B": "b", "A": "a" });
    input["description"] = json!("Runs here");
    app.register(input.clone()).await;
    let page = show(&app, "servers").await;
    assert!(page.get("empty_state").is_none());
    let server = find(&page["servers"], "name", "local");
    let expected = [
        "config_summary",
        "connection_summary",
        "enabled",
        "last_discovered_at",
        "name",
        "prompt_count",
        "protocol_version",
        "resource_count",
        "status",
        "status_reason",
        "stderr_tail",
        "tool_count",
        "transport",
        "updated_at",
    ];
    assert_eq!(keys(server), expected);
    assert_eq!(server["transport"], "stdio");
    assert_eq!(server["status"], "connected");
    assert_eq!(server["protocol_version"], "2026-07-28");
    assert_eq!(server["stderr_tail"], json!(["ready", "listening"]));
    assert_eq!(server["prompt_count"], 3);
    for time in ["last_discovered_at", "updated_at"] {
        let time = server[time].as_str().unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z') && time.contains('T'), "{time}");
    }
    let config = &server["config_summary"];
    let expected = [
        "argument_count",
        "command",
        "command_line",
        "description",
        "env_keys",
        "header_keys",
        "kind",
        "sanitized_summary",
        "session_mode",
        "target",
    ];
    assert_eq!(keys(config), expected);
    assert_eq!(config["command"], input["command"]);
    assert_eq!(config["argument_count"], input["args"].as_array().unwrap().len());
    assert_eq!(config["env_keys"], json!(["A", "B"]));
    assert_eq!(config["description"], "Runs here");
    assert_eq!(config["session_mode"], "stateless");
    let web = find(&page["servers"], "name", "web");
    assert_eq!(web["config_summary"]["target"], fake.url());
    assert_eq!(web["config_summary"]["kind"], "streamable_http");
    assert_eq!(web["stderr_tail"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_changed_and_what_is_not_named_stays() {
    let app = TestApp::start().await;
    let mut input = stdio_input("local", &Behaviour::default());
    // A shell, since the fake does not know such an argument.
    let words = [&input["command"]].into_iter().chain(input["args"].as_array().unwrap());
    let words: Vec<_> = words.map(|word| format!("'{}'", word.as_str().unwrap())).collect();
    let script = format!("exec {}", words.join(" "));
    input["command"] = json!("sh");
    input["args"] = json!(["-c", script, "--api-key", "hunter22"]);
    input["env"] = json!({ "KEPT": "old-kept", "GONE": "old-gone" });
    input["cwd"] = json!("/");
    input["max_concurrency"] = json!(4);
    input["rate_limit"] = json!({ "calls_per_minute": 600, "burst": 5 });
    input["tool_limits"] = json!({ "echo": { "calls_per_minute": 60 } });
    app.register(input.clone()).await;
    let summary =
        async || find(&show(&app, "servers").await["servers"], "name", "local")["config_summary"].clone();
    let line = summary().await["command_line"].as_str().unwrap().to_owned();
    assert!(line.ends_with("--api-key •••"), "{line}");
    assert!(line.starts_with("sh -c "), "{line}");

    let path = "/api/dashboard/servers/local";
    let details = app.get(path).await.expect(200).json();
    let expected = json!({
        "name": "local", "instructions": details["instructions"], "cwd": "/", "timeout_ms": 300_000,
        "max_concurrency": 4, "rate_limit": input["rate_limit"], "tool_limits": input["tool_limits"],
        "oauth_client_id": "", "oauth_scopes": [], "has_bearer_token": false, "has_oauth_client_secret": false,
        "has_hidden_url_parts": false,
    });
    assert_eq!(details, expected);
    app.get("/api/dashboard/servers/nobody").await.expect(404);

    let mut edited = input["args"].as_array().unwrap().clone();
    edited.pop();
    edited.extend([json!("•••"), json!("--verbose")]);
    let changes =
        json!({ "description": "new", "args": edited, "env": { "NEW": "new-value", "GONE": null } });
    let changed = app.patch(path, changes).await.expect(200).json();
    assert_eq!(
        changed,
        json!({ "name": "local", "transport": "stdio", "enabled": true, "description": "new" })
    );
    let stored = app.get("/api/v0/server_configs").await.expect(200).json()[0].clone();
    assert_eq!(stored["env"], json!({ "KEPT": "old-kept", "NEW": "new-value" }));
    assert_eq!(stored["cwd"], "/");
    let mut expected = input["args"].as_array().unwrap().clone();
    expected.push(json!("--verbose"));
    assert_eq!(stored["args"], json!(expected));

    let error = app.patch(path, json!({ "args": ["--other=•••"] })).await.expect(400).error();
    assert!(error.contains("args") && error.contains("--other"), "{error}");
    app.patch(path, json!({ "args": [7] })).await.expect(400);
    app.patch(path, json!({ "name": "other" })).await.expect(400);
    app.patch("/api/dashboard/servers/nobody", json!({})).await.expect(404);
    let shown =
        app.get("/api/dashboard/servers").await.expect(200).text() + &app.get(path).await.expect(200).text();
    for secret in ["hunter22", "old-kept", "new-value"] {
        assert!(!shown.contains(secret), "{secret} is in {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_added_switched_refreshed_and_removed() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let input = json!({ "name": "s", "transport": "streamable_http", "url": fake.url(), "description": "d" });
    let added = app.post("/api/dashboard/servers", input.clone()).await.expect(201).json();
    assert_eq!(
        added,
        json!({ "name": "s", "transport": "streamable_http", "enabled": true, "description": "d" })
    );
    app.post("/api/dashboard/servers", input.clone()).await.expect(409);
    app.post("/api/dashboard/servers?force=true", input.clone()).await.expect(201);
    app.post("/api/dashboard/servers?force=perhaps", input).await.expect(400);
    let error = app.post("/api/dashboard/servers", json!({ "name": "t" })).await.expect(400).error();
    assert!(error.contains("transport"), "{error}");

    let switch = "/api/dashboard/servers/s/enabled";
    for enabled in [false, false, true] {
        let answer = app.patch(switch, json!({ "enabled": enabled })).await.expect(200).json();
        assert_eq!(answer, json!({ "name": "s", "enabled": enabled }));
    }
    for body in [json!({}), json!({ "enabled": "yes" }), json!({ "enabled": true, "more": 1 }), json!([])] {
        app.patch(switch, body).await.expect(400);
    }
    app.patch("/api/dashboard/servers/nobody/enabled", json!({ "enabled": true })).await.expect(404);

    fake.set_tools(&["echo", "brand_new"]);
    let server = app.post("/api/dashboard/servers/s/refresh", json!({})).await.expect(200).json();
    assert_eq!(server["tool_count"], 2);
    app.post("/api/dashboard/servers/nobody/refresh", json!({})).await.expect(404);

    let answer = app.delete("/api/dashboard/servers/s").await.expect(200).json();
    assert_eq!(answer, json!({ "deleted": true }));
    app.delete("/api/dashboard/servers/s").await.expect(404);
    assert_eq!(app.tools("").await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_disabled_servers_are_shown_too() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("a", &fake).await;
    app.register_http("b", &fake).await;
    let page = show(&app, "tools").await;
    let tool = find(&page["tools"], "canonical_name", "a__add");
    let expected = [
        "annotations",
        "canonical_name",
        "description",
        "enabled",
        "input_preview",
        "input_schema",
        "name",
        "server",
        "server_enabled",
        "server_status",
        "transport",
    ];
    assert_eq!(keys(tool), expected);
    assert_eq!(tool["name"], "add");
    assert_eq!(tool["input_preview"], "a?: number, b?: number");
    assert_eq!(tool["server_status"], "connected");
    let named = find(&page["tools"], "canonical_name", "a__named");
    assert_eq!(named["input_preview"], "name: string");
    let vendor = app.get("/api/dashboard/tools").await.text();
    assert!(vendor.contains("98765432109876543210"), "schemas are passed on as they were written");

    let switch = "/api/dashboard/tools/a__add/enabled";
    let answer = app.patch(switch, json!({ "enabled": false })).await.expect(200).json();
    assert_eq!(answer, json!({ "name": "a__add", "enabled": false }));
    app.post("/api/v0/servers/b/disable", json!({})).await.expect(200);
    let page = show(&app, "tools").await;
    let state = |name: &str| {
        let tool = find(&page["tools"], "canonical_name", name);
        (tool["enabled"] == true, tool["server_enabled"] == true, tool["server_status"].clone())
    };
    assert_eq!(state("a__add"), (false, true, json!("connected")));
    assert_eq!(state("a__echo"), (true, true, json!("connected")));
    assert_eq!(state("b__echo"), (false, false, json!("disabled")));
    // A tool's own flag can be set while its server is disabled.
    let answer = app.patch("/api/dashboard/tools/b__echo/enabled", json!({ "enabled": true })).await;
    assert_eq!(answer.expect(200).json(), json!({ "name": "b__echo", "enabled": true }));
    app.patch("/api/dashboard/tools/a__nothing/enabled", json!({ "enabled": true })).await.expect(404);
    app.patch("/api/dashboard/tools/a/enabled", json!({ "enabled": true })).await.expect(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_called_with_its_arguments_as_the_body() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    let invoke = "/api/dashboard/tools/s__echo_args/invoke";
    let text = |answer: Value| answer["content"][0]["text"].as_str().unwrap().to_owned();
    for (body, told) in [
        (r#"{"name":"x","n":1.0}"#, r#"{"name":"x","n":1.0}"#),
        (r#" {"big":98765432109876543210} "#, r#"{"big":98765432109876543210}"#),
        ("", "{}"),
    ] {
        let answer = app.send("POST", invoke, &[], body).await.expect(200).json();
        assert_eq!(text(answer), told);
    }
    for body in ["[]", "7", "{", "null"] {
        app.send("POST", invoke, &[], body).await.expect(400);
    }
    app.post("/api/dashboard/tools/s__nothing/invoke", json!({})).await.expect(404);
    let failed = app.post("/api/dashboard/tools/s__fail/invoke", json!({})).await.expect(200).json();
    assert_eq!(failed["isError"], true);
    app.post("/api/dashboard/tools/s__rpc_error/invoke", json!({})).await.expect(500);

    let mut events =
        app.post_for_events("/api/dashboard/tools/s__progress/invoke", json!({ "steps": 2 })).await;
    let mut names = Vec::new();
    while let Some(event) = events.next().await {
        names.push(event.name.map(|name| name.to_string()).unwrap_or_default());
    }
    assert_eq!(names, ["progress", "progress", "result"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn recent_failures_are_remembered_with_their_reason() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    app.invoke("s__fail", json!({})).await.expect(200);
    app.invoke("s__rpc_error", json!({})).await.expect(500);
    app.invoke("s__echo", json!({})).await.expect(200);
    let agent = crate::support::Agent::connect(&app, "/mcp").await;
    agent.call("s__fail", json!({})).await;
    let failures = show(&app, "overview").await["recent_failures"].clone();
    let told: Vec<_> = failures.as_array().unwrap().iter().map(|failure| failure["tool"].clone()).collect();
    assert_eq!(told, ["s__fail", "s__rpc_error", "s__fail"]);
    assert_eq!(failures[0]["reason"], "it went wrong");
    assert_eq!(keys(&failures[0]), ["at", "reason", "server", "tool"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_are_shown_switched_and_rendered() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    let page = show(&app, "prompts").await;
    let prompt = find(&page["prompts"], "canonical_name", "s__greet");
    let expected = [
        "arguments",
        "arguments_preview",
        "canonical_name",
        "description",
        "enabled",
        "name",
        "server",
        "server_enabled",
        "server_status",
        "transport",
    ];
    assert_eq!(keys(prompt), expected);
    assert_eq!(prompt["arguments_preview"], "who, tone?");
    assert_eq!(prompt["arguments"][0]["required"], true);
    let switch = "/api/dashboard/prompts/s__greet/enabled";
    let answer = app.patch(switch, json!({ "enabled": false })).await.expect(200).json();
    assert_eq!(answer, json!({ "name": "s__greet", "enabled": false }));
    app.patch("/api/dashboard/prompts/s__no/enabled", json!({ "enabled": false })).await.expect(404);
    let render = "/api/dashboard/prompts/s__greet/render";
    let alone = app.post(render, json!({ "who": "Ada" })).await.expect(200).json();
    let wrapped = app.post(render, json!({ "arguments": { "who": "Ada" } })).await.expect(200).json();
    assert_eq!(alone, wrapped);
    assert!(alone["messages"][0]["content"]["text"].as_str().unwrap().contains("Ada"), "{alone}");
    for body in [json!({}), json!({ "who": 1 }), json!({ "arguments": { "who": 1 } })] {
        assert!(app.post(render, body).await.expect(400).error().contains("who"));
    }
    app.post("/api/dashboard/prompts/s__no/render", json!({})).await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_are_shown_and_read() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    let page = show(&app, "resources").await;
    let resource = find(&page["resources"], "uri", "fake://text");
    let expected =
        ["description", "enabled", "mime_type", "name", "server", "server_status", "transport", "uri"];
    assert_eq!(keys(resource), expected);
    assert_eq!(resource["mime_type"], "text/plain");
    let read = app.post("/api/dashboard/resources/read", json!({ "uri": "fake://text" })).await;
    assert!(read.expect(200).json()["contents"][0]["text"].is_string());
    app.post("/api/dashboard/resources/read", json!({ "uri": "fake://none" })).await.expect(404);
    app.post("/api/dashboard/resources/read", json!({})).await.expect(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_made_changed_and_deleted() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    let groups = "/api/dashboard/tool-groups";
    let input = json!({ "name": "g", "description": "few", "tools": ["s__echo", "s__add"] });
    let group = app.post(groups, input.clone()).await.expect(201).json();
    let expected = [
        "description",
        "excluded_tools",
        "included_prompts",
        "included_resources",
        "included_servers",
        "included_tools",
        "name",
        "sse_endpoint",
        "sse_message_endpoint",
        "streamable_http_endpoint",
        "tool_count",
        "tools",
    ];
    assert_eq!(keys(&group), expected);
    assert_eq!(group["tool_count"], 2);
    assert_eq!(keys(&group["tools"][0]), ["canonical_name", "description", "name", "server"]);
    assert_eq!(group["tools"][0]["canonical_name"], "s__add");
    assert_eq!(group["included_tools"], input["tools"]);
    assert_eq!(group["streamable_http_endpoint"], format!("http://{}/v0/groups/g/mcp", app.address));
    app.post(groups, input).await.expect(409);
    for (bad, field) in [
        (json!({ "name": "h", "tools": "s__echo" }), "tools"),
        (json!({ "name": "h", "tools": ["s__echo"], "included_tools": [] }), "tools"),
        (json!({ "name": "h", "tools": ["s__gone"] }), "included_tools"),
        (json!({ "name": "h" }), "included_tools"),
        (json!({ "tools": ["s__echo"] }), "name"),
    ] {
        let error = app.post(groups, bad).await.expect(400).error();
        assert!(error.contains(field), "{error}");
    }

    let one = format!("{groups}/g");
    let replaced = app.put(&one, json!({ "included_servers": ["s"], "excluded_tools": ["s__echo"] })).await;
    let replaced = replaced.expect(200).json();
    assert_eq!(replaced["description"], "");
    assert!(!replaced["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "echo"));
    assert_eq!(app.get(&one).await.expect(200).json(), replaced);
    assert_eq!(show(&app, "tool-groups").await["tool_groups"], json!([replaced]));
    app.put(&format!("{groups}/none"), json!({ "included_servers": ["s"] })).await.expect(404);
    app.get(&format!("{groups}/none")).await.expect(404);
    assert_eq!(app.delete(&one).await.expect(200).json(), json!({ "deleted": true }));
    app.delete(&one).await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_server_is_shown_on_the_overview() {
    let app = TestApp::start_with(|config| config.init_timeout = std::time::Duration::from_secs(2)).await;
    let mut fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("s", &fake).await;
    assert_eq!(show(&app, "overview").await["status"], "ok");
    fake.stop().await;
    app.invoke("s__echo", json!({})).await.expect(500);
    eventually("the overview tells", async || show(&app, "overview").await["status"] == "degraded").await;
    let overview = show(&app, "overview").await;
    let trouble = overview["troubleshooting"][0].as_str().unwrap();
    assert!(trouble.contains("\"s\"") && trouble.contains(&fake.url()), "{trouble}");
    let diagnostics = show(&app, "diagnostics").await;
    assert_eq!(diagnostics["troubleshooting_hints"][0], trouble);
    let expected = [
        "config_source",
        "database",
        "enabled_transports",
        "limits",
        "metrics_endpoint",
        "mode",
        "primary_endpoint",
        "prompt_count",
        "protocol_versions",
        "resource_count",
        "server_count",
        "tool_count",
        "tool_group_count",
        "troubleshooting_hints",
        "uptime_seconds",
        "version",
    ];
    assert_eq!(keys(&diagnostics), expected);
    assert_eq!(diagnostics["server_count"], 1);
    assert_eq!(diagnostics["primary_endpoint"], format!("http://{}/mcp", app.address));
}
