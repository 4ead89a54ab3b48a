//! Rate limits of clients, users, servers and tools, through every door.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::mcp::BOTH;
use crate::support::modern::Post;
use crate::support::{
    Agent, Answer, Behaviour, Callers, Door, Fake, ModernAgent, Said, TestApp, bearer, eventually, refusals,
};

/// A limit that does not refill during a test.
fn burst(calls: u32) -> Value {
    json!({"calls_per_minute": 1, "burst": calls})
}

fn message(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

fn call(tool: &str) -> Value {
    message("tools/call", json!({"name": tool, "arguments": {"text": "hi", "a": 1, "b": 2}}))
}

/// Whether an MCP answer is a result; any other must be a complete refusal.
fn passed(answer: &Value) -> bool {
    if answer.get("result").is_some() {
        return true;
    }
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(429)), "{answer}");
    let wait = answer["error"]["data"]["retryAfterMs"].as_u64().unwrap();
    assert!((1..=60_000).contains(&wait), "{answer}");
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("the limit of 1 call per minute"),
        "{answer}"
    );
    false
}

/// Whether a REST answer is a success; any other must be a complete refusal.
fn succeeded(answer: &Answer) -> bool {
    if answer.status == 200 {
        return true;
    }
    assert_eq!(answer.status, 429, "{}", answer.text());
    let wait: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert!(answer.error().contains("call per minute"));
    false
}

async fn passes(app: &TestApp, token: &str, message: Value) -> bool {
    passed(&app.send_as(token, "POST", "/mcp", message).await.expect(200).json())
}

async fn start() -> (TestApp, Fake) {
    let app = TestApp::start_enterprise_with(|config| config.telemetry = true).await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    (app, fake)
}

async fn invoked(app: &TestApp, tool: &str) -> bool {
    succeeded(&app.invoke(tool, json!({"text": "hi", "a": 1, "b": 2})).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_burst_of_a_client_passes_and_then_nothing_reaches_the_server() {
    let (app, fake) = start().await;
    let body = json!({"name": "one", "allow_list": ["*"], "rate_limit": burst(3)});
    let one = app.post("/api/v0/clients", body).await.expect(201).json();
    assert_eq!(one["rate_limit"], burst(3));
    let one = one["access_token"].as_str().unwrap();
    let two = app.create_client("two", &["*"]).await;
    assert!(passes(&app, one, call("s__echo")).await);
    let prompt = message("prompts/get", json!({"name": "s__plain"}));
    assert!(passes(&app, one, prompt.clone()).await);
    let resource = message("resources/read", json!({"uri": "fake://text"}));
    assert!(passes(&app, one, resource.clone()).await);
    for refused in [call("s__echo"), call("s__add"), prompt, resource] {
        assert!(!passes(&app, one, refused.clone()).await, "{refused}");
    }
    assert!(!passed(
        &Agent::connect_as(&app, "/mcp", one).await.post(&call("s__echo")).await.expect(200).json()
    ));
    let modern = ModernAgent::at(&app, "/mcp");
    let params = json!({"name": "s__echo", "arguments": {"text": "hi"}});
    let post = Post::of(modern.message(json!(7), "tools/call", params).to_string());
    let answer = modern.send(&post.clone().adding("authorization", &bearer(one))).await.expect(200);
    assert!(!passed(&answer.json()));
    assert_eq!(fake.calls_of("echo"), 1);
    assert!(fake.seen_of("prompts/get").len() == 1 && fake.seen_of("resources/read").len() == 1);
    // Other methods, and what does not exist, are not counted or refused.
    for free in [message("tools/list", json!({})), message("ping", json!({}))] {
        assert!(passes(&app, one, free).await);
    }
    let unknown = app.send_as(one, "POST", "/mcp", call("s__unknown")).await.expect(200).json();
    assert_eq!(unknown["error"]["code"], -32602);
    // Another client has its own count.
    let answer = modern.send(&post.adding("authorization", &bearer(&two))).await.expect(200);
    assert!(passed(&answer.json()));
    assert_eq!(refusals(&app, "rate_limit").await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_limit_of_a_client_holds_at_once_and_a_missing_one_is_none() {
    let (app, _fake) = start().await;
    let token = app.create_client("one", &["*"]).await;
    let put = async |mut body: Value| {
        body["allow_list"] = Value::Null;
        app.put("/api/v0/clients/one", body).await.expect(200).json()
    };
    for _ in 0..5 {
        assert!(passes(&app, &token, call("s__echo")).await);
    }
    put(json!({"rate_limit": burst(1)})).await;
    assert!(passes(&app, &token, call("s__echo")).await && !passes(&app, &token, call("s__echo")).await);
    // Neither a larger burst nor a new token forgets the calls before.
    let token = "another-token-0123456789";
    put(json!({"rate_limit": burst(2), "access_token": token})).await;
    assert!(passes(&app, token, call("s__echo")).await && !passes(&app, token, call("s__echo")).await);
    let removed = put(json!({"description": "free"})).await;
    assert_eq!(removed.get("rate_limit"), None);
    for _ in 0..5 {
        assert!(passes(&app, token, call("s__echo")).await);
    }
    put(json!({"rate_limit": burst(2)})).await;
    assert!(!passes(&app, token, call("s__echo")).await);
    put(json!({"rate_limit": null})).await;
    assert!(passes(&app, token, call("s__echo")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_a_user_over_rest_are_limited_and_the_limit_survives_a_restart() {
    let (app, fake) = start().await;
    let body = json!({"username": "ada", "rate_limit": burst(3)});
    let ada = app.post("/api/v0/users", body).await.expect(201).json();
    assert_eq!(ada["rate_limit"], burst(3));
    let ada = ada["access_token"].as_str().unwrap();
    let bob = app.create_user("bob", "user").await;
    let calls = [
        ("/api/v0/tools/invoke", json!({"name": "s__echo", "text": "hi"})),
        ("/api/v0/prompts/render", json!({"name": "s__plain"})),
        ("/api/v0/resources/read", json!({"uri": "fake://text"})),
    ];
    let send = async |app: &TestApp, token: &str| {
        let mut done = 0;
        for (path, body) in &calls {
            done += u32::from(succeeded(&app.send_as(token, "POST", path, body.clone()).await));
        }
        done
    };
    assert_eq!((send(&app, ada).await, send(&app, ada).await, send(&app, &bob).await), (3, 0, 3));
    assert_eq!(fake.calls_of("echo"), 2);
    app.send_as(ada, "GET", "/api/v0/tools", Value::Null).await.expect(200);
    // A change of anything else must name the limit to keep it.
    let put = json!({"role": "admin", "rate_limit": burst(3)});
    app.put("/api/v0/users/ada", put).await.expect(200);
    assert_eq!(send(&app, ada).await, 0);

    let app = app.restart().await;
    let listed = app.get("/api/v0/users").await.expect(200).json();
    let expected = json!({"username": "ada", "role": "admin", "rate_limit": burst(3), "allow_list": ["*"]});
    assert_eq!(listed[0]["rate_limit"], burst(3), "{listed}");
    let whoami = app.send_as(ada, "GET", "/api/v0/users/whoami", Value::Null).await.expect(200).json();
    assert_eq!(whoami, expected);
    assert_eq!((send(&app, ada).await, send(&app, ada).await), (3, 0));
    let put = app.put("/api/v0/users/ada", json!({"username": "eve"})).await.expect(200).json();
    assert_eq!(put.get("rate_limit"), None);
    assert_eq!((send(&app, ada).await, send(&app, ada).await), (3, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_a_server_holds_for_all_callers_together_at_every_door() {
    let app = Arc::new(TestApp::start().await);
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    let input =
        json!({"name": "s", "transport": "streamable_http", "url": fake.url(), "rate_limit": burst(5)});
    assert_eq!(app.register(input).await["server"]["rate_limit"], burst(5));
    app.register_http("free", &fake).await;
    let callers = Callers::of(&app).await;
    for door in Door::ALL {
        assert_eq!(callers.text(door, "s__echo", json!({"text": "hi"})).await, "hi", "{door:?}");
    }
    for door in Door::ALL {
        let said = callers.call(door, "s__echo", json!({"text": "hi"})).await;
        assert!(
            matches!(&said, Said::Error(error) if error.contains("call per minute")),
            "{door:?}: {said:?}"
        );
        assert_eq!(callers.text(door, "free__echo", json!({"text": "hi"})).await, "hi", "{door:?}");
    }
    // A stream has a status while nothing is sent.
    let events = [("accept", "text/event-stream")];
    let body = json!({"name": "s__echo", "text": "hi"}).to_string();
    assert!(!succeeded(&app.send("POST", "/api/v0/tools/invoke", &events, body).await));
    assert_eq!(fake.calls_of("echo"), 10);
    let native = app.post("/v0/servers/s/mcp", call("echo")).await.expect(200).json();
    assert!(!passed(&native));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_of_a_batch_counts() {
    let (app, _fake) = start().await;
    let token = app.create_client("one", &["*"]).await;
    let put = json!({"allow_list": ["*"], "rate_limit": burst(3)});
    app.put("/api/v0/clients/one", put).await.expect(200);
    let batch =
        json!([call("s__echo"), call("s__add"), message("ping", json!({})), call("s__echo"), call("s__add")]);
    let headers = [BOTH, ("authorization", &bearer(&token))];
    let answers = app.send("POST", "/mcp", &headers, batch.to_string()).await.expect(200).json();
    let passed: Vec<_> = answers.as_array().unwrap().iter().map(passed).collect();
    assert_eq!(passed, [true, true, true, true, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_tool_has_its_own_count_and_a_refused_call_counts_nowhere() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    let limits = json!({"echo": burst(2), "*": burst(1)});
    app.register(
        json!({"name": "s", "transport": "streamable_http", "url": fake.url(), "rate_limit": burst(7),
        "tool_limits": limits}),
    )
    .await;
    assert_eq!(app.server("s").await["tool_limits"], limits);
    assert_eq!(app.get("/api/v0/server_configs").await.json()[0]["tool_limits"], limits);
    assert!(invoked(&app, "s__echo").await && invoked(&app, "s__echo").await);
    for _ in 0..5 {
        assert!(!invoked(&app, "s__echo").await);
    }
    assert!(invoked(&app, "s__add").await && !invoked(&app, "s__add").await);
    assert!(invoked(&app, "s__pid").await && !invoked(&app, "s__pid").await);
    // Prompts and resources are no tools. Seven calls are the limit of the server.
    let render = async || succeeded(&app.post("/api/v0/prompts/render", json!({"name": "s__plain"})).await);
    assert!(render().await && render().await && render().await && !render().await);
    assert_eq!((fake.calls_of("echo"), fake.calls_of("add")), (2, 1));

    // Changes of the server, and of the limits of other tools, keep the counts.
    let patch = async |body: Value| app.patch("/api/v0/servers/s", body).await.expect(200).json();
    let changed = patch(json!({"rate_limit": null, "description": "d"})).await;
    assert_eq!((changed["server"].get("rate_limit"), &changed["server"]["tool_limits"]), (None, &limits));
    assert!(render().await && !invoked(&app, "s__echo").await && !invoked(&app, "s__add").await);
    app.send("POST", "/api/v0/servers/s/disable", &[], "").await.expect(200);
    app.send("POST", "/api/v0/servers/s/enable", &[], "").await.expect(200);
    assert!(!invoked(&app, "s__echo").await);
    let again = json!({"name": "s", "transport": "sse", "url": fake.sse_url(), "tool_limits": limits});
    app.post("/api/v0/servers?force=true", again).await.expect(201);
    assert!(!invoked(&app, "s__echo").await);
    let changed = patch(json!({"tool_limits": {"echo": null, "p*": burst(2)}})).await;
    assert_eq!(changed["server"]["tool_limits"], json!({"*": burst(1), "p*": burst(2)}));
    assert!(!invoked(&app, "s__echo").await && !invoked(&app, "s__add").await);
    assert!(invoked(&app, "s__pid").await && !invoked(&app, "s__pid").await);
    patch(json!({"tool_limits": {"*": null}})).await;
    assert!(invoked(&app, "s__echo").await && invoked(&app, "s__add").await);

    // The limits survive a restart, and a removed server leaves nothing for the next of its name.
    let app = app.restart().await;
    assert_eq!(app.server("s").await["tool_limits"], json!({"p*": burst(2)}));
    assert!(invoked(&app, "s__pid").await && invoked(&app, "s__pid").await && !invoked(&app, "s__pid").await);
    let config = app.get("/api/v0/server_configs").await.json()[0].clone();
    app.delete("/api/v0/servers/s").await.expect(204);
    app.register(config).await;
    assert!(invoked(&app, "s__pid").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_a_server_does_not_list_share_the_count_of_their_pattern() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy", "tools": []}))).await;
    let input = json!({"name": "s", "transport": "streamable_http", "url": fake.url(),
        "tool_limits": {"hidden_*": burst(2), "hidden_1": burst(1)}});
    app.register(input).await;
    let code = async |tool: &str| {
        let answer = app.post("/mcp", call(&format!("s__{tool}"))).await.expect(200).json();
        answer["error"]["code"].as_i64().unwrap()
    };
    // The server knows none of them, but it decides.
    assert_eq!(
        (code("hidden_a").await, code("hidden_b").await, code("hidden_c").await),
        (-32602, -32602, 429)
    );
    assert_eq!((code("hidden_1").await, code("hidden_1").await), (-32602, 429));
    assert_eq!((code("free").await, code("free").await), (-32602, -32602));
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_calls_are_counted_by_principal_and_tool_until_either_is_gone() {
    let (app, fake) = start().await;
    app.register_http("t", &fake).await;
    let counted = async || {
        let metrics = app.get("/metrics").await.expect(200).text();
        let lines = metrics.lines().filter_map(|line| line.strip_prefix("toolgate_refused_calls_total"));
        let mut lines: Vec<_> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert!(counted().await.is_empty());
    let mut tokens = Vec::new();
    for name in ["one", "two"] {
        let body = json!({"name": name, "allow_list": ["*"], "rate_limit": burst(1)});
        let client = app.post("/api/v0/clients", body).await.expect(201).json();
        tokens.push(client["access_token"].as_str().unwrap().to_owned());
        let prompt = message("prompts/get", json!({"name": "s__plain"}));
        assert!(passes(&app, &tokens[tokens.len() - 1], prompt.clone()).await);
        for refused in [call("s__echo"), call("t__echo"), call("s__echo"), prompt] {
            assert!(!passes(&app, &tokens[tokens.len() - 1], refused).await);
        }
    }
    let of = |name: &str| {
        vec![
            format!("{{principal={name:?},server=\"s\",tool=\"\"}} 1"),
            format!("{{principal={name:?},server=\"s\",tool=\"echo\"}} 2"),
            format!("{{principal={name:?},server=\"t\",tool=\"echo\"}} 1"),
        ]
    };
    assert_eq!(counted().await, [of("one"), of("two")].concat());
    app.delete("/api/v0/clients/one").await.expect(204);
    assert_eq!(counted().await, of("two"));
    app.delete("/api/v0/servers/s").await.expect(204);
    eventually("the series of the server are gone", async || counted().await == of("two")[2..]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_limits_are_400_and_name_the_field() {
    let (app, fake) = start().await;
    app.create_client("one", &["*"]).await;
    app.create_user("ada", "user").await;
    let server = json!({"name": "n", "transport": "streamable_http", "url": fake.url()});
    for (limit, field) in [
        (json!(60), "rate_limit"),
        (json!({}), "rate_limit.calls_per_minute"),
        (json!({"calls_per_minute": 0}), "rate_limit.calls_per_minute"),
        (json!({"calls_per_minute": 1, "burst": 0}), "rate_limit.burst"),
        (json!({"calls_per_minute": 4_294_967_296_u64}), "rate_limit.calls_per_minute"),
        (json!({"calls_per_minute": 1, "seconds": 1}), "rate_limit.seconds"),
    ] {
        let with = |mut body: Value| {
            body["rate_limit"] = limit.clone();
            body
        };
        let mut tools = server.clone();
        tools["tool_limits"] = json!({"a*": limit});
        let refused = [
            (app.post("/api/v0/clients", with(json!({"name": "n"}))).await, ""),
            (app.put("/api/v0/clients/one", with(json!({}))).await, ""),
            (app.post("/api/v0/users", with(json!({"username": "n"}))).await, ""),
            (app.put("/api/v0/users/ada", with(json!({}))).await, ""),
            (app.post("/api/v0/servers", with(server.clone())).await, ""),
            (app.patch("/api/v0/servers/s", with(json!({}))).await, ""),
            (app.post("/api/v0/servers", tools).await, "tool_limits.a*"),
        ];
        for (answer, place) in refused {
            let field = if place.is_empty() { field.to_owned() } else { field.replace("rate_limit", place) };
            let error = answer.expect(400).error();
            assert!(error.contains(&format!("{field:?}")), "{limit}: {error}");
        }
    }
    let group = json!({"name": "g", "included_servers": ["s"], "rate_limit": burst(1)});
    assert!(app.post("/api/v0/tool-groups", group).await.expect(400).error().contains("rate_limit"));
}
