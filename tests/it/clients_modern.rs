//! Clients of revision 2026-07-28 with tokens: the same views, responses and revocation as for legacy clients.

use serde_json::{Value, json};

use crate::support::client::Events;
use crate::support::{Answer, Behaviour, Fake, TestApp, bearer, client, eventually};

const VERSION: &str = "2026-07-28";
const TEXT: &str = "fake://text";

/// A client that sends a token with each request.
struct Modern<'a> {
    app: &'a TestApp,
    path: &'a str,
    authorization: String,
}

impl<'a> Modern<'a> {
    fn new(app: &'a TestApp, path: &'a str, token: &str) -> Self {
        Self { app, path, authorization: bearer(token) }
    }

    fn message(method: &str, mut params: Value) -> (Vec<u8>, String) {
        let name =
            params.get("name").or(params.get("uri")).and_then(Value::as_str).unwrap_or_default().to_owned();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "modern", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        (body.to_string().into_bytes(), name)
    }

    fn headers<'h>(&'h self, method: &'h str, name: &'h str) -> Vec<(&'h str, &'h str)> {
        let mut headers = vec![
            ("authorization", self.authorization.as_str()),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", VERSION),
            ("mcp-method", method),
        ];
        headers.extend((!name.is_empty()).then_some(("mcp-name", name)));
        headers
    }

    async fn post(&self, method: &str, params: Value) -> Answer {
        let (body, name) = Self::message(method, params);
        client::request(&self.app.address, "POST", self.path, &self.headers(method, &name), body).await
    }

    async fn listen(&self, wishes: Value) -> Events {
        let (body, _) = Self::message("subscriptions/listen", json!({"notifications": wishes}));
        let headers = self.headers("subscriptions/listen", "");
        Events::new(client::open(&self.app.address, "POST", self.path, &headers, body).await)
    }

    /// The server prefixes of the listed names, and the `cacheScope` of the list.
    async fn servers(&self) -> (Vec<String>, Value) {
        let result = self.post("tools/list", json!({})).await.expect(200).json()["result"].clone();
        let names = result["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap());
        let mut servers: Vec<_> = names.map(|name| name.split("__").next().unwrap().to_owned()).collect();
        servers.dedup();
        (servers, result["cacheScope"].clone())
    }
}

async fn next(events: &mut Events) -> Option<Value> {
    let event = tokio::time::timeout(std::time::Duration::from_secs(15), events.next());
    Some(serde_json::from_slice(&event.await.expect("something comes")?.data).unwrap())
}

async fn start() -> (TestApp, [Fake; 2]) {
    let app = TestApp::start_enterprise().await;
    let legacy = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    let modern = Fake::start(Behaviour::of(json!({"era": "modern"}))).await;
    app.register_http("mine", &legacy).await;
    app.register_http("other", &modern).await;
    let group = json!({"name": "g", "included_servers": ["mine", "other"], "included_resources": ["*"]});
    app.post("/api/v0/tool-groups", group).await.expect(201);
    (app, [legacy, modern])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_modern_client_sees_what_its_allow_list_says() {
    let (app, _fakes) = start().await;
    let token = app.create_client("agent", &["mine"]).await;
    let user = app.create_user("user", "user").await;
    for path in ["/mcp", "/v0/groups/g/mcp"] {
        let agent = Modern::new(&app, path, &token);
        assert_eq!(agent.servers().await, (vec!["mine".into()], json!("private")), "{path}");
        let discovered = agent.post("server/discover", json!({})).await.expect(200).json();
        assert_eq!(discovered["result"]["cacheScope"], "private");
        let instructions = discovered["result"]["instructions"].as_str().unwrap();
        assert!(instructions.contains("- mine") && !instructions.contains("other"), "{instructions}");
        // Both servers have this URI, but one of them does not exist for this client.
        agent.post("resources/read", json!({"uri": TEXT})).await.expect(200);
        let said = |answer: &Answer, server: &str| (answer.status, answer.text().replace(server, "<server>"));
        let qualified = |server: &str| format!("toolgate://res/{server}/ZmFrZTovL3RleHQ");
        for (method, of) in [
            (
                "tools/call",
                Box::new(|server: &str| json!({"name": format!("{server}__add"), "arguments": {}}))
                    as Box<dyn Fn(&str) -> Value>,
            ),
            (
                "prompts/get",
                Box::new(|server: &str| json!({"name": format!("{server}__greet"), "arguments": {}})),
            ),
            ("resources/read", Box::new(move |server: &str| json!({"uri": qualified(server)}))),
        ] {
            let (foreign, unknown) =
                (agent.post(method, of("other")).await, agent.post(method, of("absent")).await);
            assert!(foreign.json().get("error").is_some(), "{path} {method}: {}", foreign.text());
            assert_eq!(said(&foreign, "other"), said(&unknown, "absent"), "{path} {method}");
        }
        Modern::new(&app, path, &user).post("tools/list", json!({})).await.expect(401).error();
        Modern::new(&app, path, "garbage-garbage").post("tools/list", json!({})).await.expect(401).error();
    }
    let (foreign, unknown) = (
        Modern::new(&app, "/v0/servers/other/mcp", &token)
            .post("tools/list", json!({}))
            .await
            .expect(404)
            .error(),
        Modern::new(&app, "/v0/servers/absent/mcp", &token)
            .post("tools/list", json!({}))
            .await
            .expect(404)
            .error(),
    );
    assert_eq!(foreign.replace("other", "absent"), unknown);
    Modern::new(&app, "/v0/servers/mine/mcp", &token).post("tools/list", json!({})).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn listening_follows_the_allow_list_and_ends_with_the_token() {
    let (app, fakes) = start().await;
    for how in ["replace", "delete"] {
        let token = app.create_client("agent", &["mine"]).await;
        let agent = Modern::new(&app, "/mcp", &token);
        let foreign = "toolgate://res/other/ZmFrZTovL3RleHQ";
        let wishes = json!({"toolsListChanged": true, "resourceSubscriptions": [TEXT, foreign]});
        let mut events = agent.listen(wishes).await;
        let first = next(&mut events).await.unwrap();
        let granted = &first["params"]["notifications"];
        assert_eq!(granted, &json!({"toolsListChanged": true, "resourceSubscriptions": [TEXT]}), "{first}");
        eventually("the server can tell", async || fakes[0].open_streams() > 0).await;
        fakes[0].notify_resource_updated(TEXT);
        assert_eq!(next(&mut events).await.unwrap()["method"], "notifications/resources/updated");
        app.put("/api/v0/clients/agent", json!({"allow_list": ["other"]})).await.expect(200);
        assert_eq!(next(&mut events).await.unwrap()["method"], "notifications/tools/list_changed");
        assert_eq!(agent.servers().await.0, ["other"]);
        match how {
            "delete" => drop(app.delete("/api/v0/clients/agent").await.expect(204)),
            _ => {
                app.put("/api/v0/clients/agent", json!({"access_token": "another-token"})).await.expect(200);
            }
        }
        while let Some(message) = next(&mut events).await {
            assert!(message.get("method").is_none(), "{how}: nothing is told any more: {message}");
        }
        agent.post("tools/list", json!({})).await.expect(401).error();
        app.delete("/api/v0/clients/agent").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_revoked_modern_client_fail_and_its_upstream_sessions_close() {
    let (app, fakes) = start().await;
    let kept = json!({"name": "kept", "transport": "streamable_http", "url": fakes[0].url(), "session_mode": "stateful"});
    app.register(kept).await;
    let token = app.create_client("agent", &["*"]).await;
    let agent = Modern::new(&app, "/mcp", &token);
    let called =
        agent.post("tools/call", json!({"name": "kept__headers", "arguments": {}})).await.expect(200).json();
    let headers: Value =
        serde_json::from_str(called["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
    let session = headers["mcp-session-id"].as_str().unwrap().to_owned();
    let slow = |tool: &str| json!({"name": tool, "arguments": {"ms": 60_000}});
    let revoking = async {
        eventually("the calls run", async || fakes.iter().all(|fake| fake.calls_of("slow") == 1)).await;
        app.delete("/api/v0/clients/agent").await.expect(204);
    };
    let calls = (agent.post("tools/call", slow("mine__slow")), agent.post("tools/call", slow("other__slow")));
    let (first, second, ()) = tokio::join!(calls.0, calls.1, revoking);
    for answer in [first, second] {
        answer.expect(401).error();
    }
    eventually("the servers need not go on", async || {
        fakes[0].cancelled().len() == 1 && fakes[0].deleted_sessions().contains(&session)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn people_and_agents_have_upstream_sessions_of_their_own() {
    let (app, fakes) = start().await;
    let kept = json!({"name": "kept", "transport": "streamable_http", "url": fakes[0].url(), "session_mode": "stateful"});
    app.register(kept).await;
    let session = async |answer: Answer| {
        let text = answer.expect(200).json();
        let text =
            text.pointer("/result/content/0/text").or(text.pointer("/content/0/text")).cloned().unwrap();
        let headers: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
        headers["mcp-session-id"].as_str().unwrap().to_owned()
    };
    let (ada, bob) = (app.create_user("ada", "user").await, app.create_user("bob", "user").await);
    let agent = app.create_client("agent", &["*"]).await;
    let as_user = |token: String| {
        let app = &app;
        async move { app.send_as(&token, "POST", "/api/v0/tools/invoke", json!({"name": "kept__headers"})).await }
    };
    let as_agent = || async {
        Modern::new(&app, "/mcp", &agent)
            .post("tools/call", json!({"name": "kept__headers", "arguments": {}}))
            .await
    };
    let of_ada = session(as_user(ada.clone()).await).await;
    let of_bob = session(as_user(bob.clone()).await).await;
    let of_agent = session(as_agent().await).await;
    assert!(of_ada != of_bob && of_bob != of_agent && of_ada != of_agent);
    assert_eq!(session(as_user(ada).await).await, of_ada);
    assert_eq!(session(as_agent().await).await, of_agent);
    app.delete("/api/v0/users/ada").await.expect(204);
    eventually("the session of the deleted user ends", async || {
        fakes[0].deleted_sessions() == [of_ada.clone()]
    })
    .await;
    assert_eq!(session(as_user(bob).await).await, of_bob);
}
