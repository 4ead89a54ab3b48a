//! On every endpoint a client sees exactly the servers on its allow list; all others get the same response as unknown
//! names.

use serde_json::{Value, json};

use crate::support::{Agent, Behaviour, Fake, SseAgent, TestApp, bearer, client, eventually};

const TEXT: &str = "fake://text";

/// Two servers with the same tools, one of each era, and a group of both.
async fn start() -> (TestApp, [Fake; 2]) {
    let app = TestApp::start_enterprise().await;
    let legacy = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    let modern = Fake::start(Behaviour::of(json!({"era": "modern"}))).await;
    app.register_http("mine", &legacy).await;
    app.register_http("other", &modern).await;
    let group = json!({"name": "g", "included_servers": ["mine", "other"], "included_prompts": ["*"],
        "included_resources": ["*"]});
    app.post("/api/v0/tool-groups", group).await.expect(201);
    (app, [legacy, modern])
}

/// The server prefixes of the full names in a list.
async fn servers_in(agent: &Agent, method: &str, member: &str) -> Vec<String> {
    let names = agent.list(method, member, "name").await;
    let mut servers: Vec<_> = names.iter().map(|name| name.split("__").next().unwrap().to_owned()).collect();
    servers.dedup();
    servers
}

fn qualified(server: &str) -> String {
    format!("toolgate://res/{server}/ZmFrZTovL3RleHQ")
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_have_what_is_allowed_and_nothing_else() {
    let (app, _fakes) = start().await;
    for (name, allow_list, expected) in [
        ("one", vec!["mine"], vec!["mine"]),
        ("all", vec!["*"], vec!["mine", "other"]),
        ("both", vec!["gone", "other", "mine"], vec!["mine", "other"]),
        ("none", vec![], vec![]),
        ("odd", vec!["min", "MINE", "mine__no_such_tool", "group:gone"], vec![]),
    ] {
        let token = app.create_client(name, &allow_list).await;
        for path in ["/mcp", "/v0/groups/g/mcp"] {
            if path != "/mcp" && expected.is_empty() {
                continue; // The group does not exist for this client.
            }
            let agent = Agent::connect_as(&app, path, &token).await;
            assert_eq!(servers_in(&agent, "tools/list", "tools").await, expected, "{name} {path}");
            assert_eq!(servers_in(&agent, "prompts/list", "prompts").await, expected, "{name} {path}");
            let uris = agent.list("resources/list", "resources", "uri").await;
            let templates = agent.list("resources/templates/list", "resourceTemplates", "uriTemplate").await;
            assert_eq!(uris.len(), 3 * expected.len(), "{name} {path}");
            assert_eq!(templates.len(), 2 * expected.len(), "{name} {path}");
            // A URI is ambiguous only for clients that see both servers.
            assert_eq!(uris.contains(&TEXT.to_owned()), expected.len() == 1, "{name} {path}: {uris:?}");
            let instructions = agent.greeting["instructions"].as_str().unwrap_or_default();
            for server in ["mine", "other"] {
                let is_named = instructions.contains(&format!("- {server}"));
                assert_eq!(is_named, expected.contains(&server), "{name} {path}: {instructions}");
            }
        }
        let mut sse = SseAgent::connect_as(&app, "/sse", &token).await;
        sse.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})).await;
        let tools = sse.next().await.unwrap()["result"]["tools"].clone();
        assert_eq!(tools.as_array().unwrap().is_empty(), expected.is_empty(), "{name}");
        for server in ["mine", "other"] {
            let path = format!("/v0/servers/{server}/mcp");
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
            let answer = app.send_as(&token, "POST", &path, body).await;
            assert_eq!(answer.status, if expected.contains(&server) { 200 } else { 404 }, "{name} {server}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_name_is_answered_exactly_like_an_unknown_one() {
    let (app, fakes) = start().await;
    let token = app.create_client("agent", &["mine", "absent"]).await;
    let requests = |server: &str| {
        let prompt = json!({"type": "ref/prompt", "name": format!("{server}__greet")});
        let resource = json!({"type": "ref/resource", "uri": qualified(server)});
        let argument = json!({"name": "who", "value": "a"});
        [
            ("tools/call", json!({"name": format!("{server}__echo"), "arguments": {}})),
            ("tools/call", json!({"name": format!("{server}__no_such_tool")})),
            ("prompts/get", json!({"name": format!("{server}__greet"), "arguments": {"who": "a"}})),
            ("resources/read", json!({"uri": qualified(server)})),
            ("resources/subscribe", json!({"uri": qualified(server)})),
            ("resources/unsubscribe", json!({"uri": qualified(server)})),
            ("completion/complete", json!({"ref": prompt, "argument": argument})),
            ("completion/complete", json!({"ref": resource, "argument": argument})),
        ]
    };
    // Both responses are identical except for the name.
    let said = |answer: &Value, server: &str| answer.to_string().replace(server, "<server>");
    for path in ["/mcp", "/v0/groups/g/mcp"] {
        let agent = Agent::connect_as(&app, path, &token).await;
        let mut sse = SseAgent::connect_as(&app, &path.replace("/mcp", "/sse"), &token).await;
        for ((method, foreign), (_, unknown)) in requests("other").into_iter().zip(requests("absent")) {
            let request = |params| json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
            let (foreign, unknown) = (request(foreign), request(unknown));
            let (first, second) = (agent.post(&foreign).await, agent.post(&unknown).await);
            assert_eq!(first.status, second.status, "{path} {method}");
            assert_eq!(said(&first.json(), "other"), said(&second.json(), "absent"), "{path} {method}");
            assert_eq!(first.json().get("error").is_some(), method != "resources/unsubscribe", "{method}");
            sse.send(&foreign).await;
            let first = sse.next().await.unwrap();
            sse.send(&unknown).await;
            let second = sse.next().await.unwrap();
            assert_eq!(said(&first, "other"), said(&second, "absent"), "{path} {method} over SSE");
        }
        // The same items of the allowed server exist.
        for (method, params) in
            requests("mine").into_iter().filter(|(_, params)| params["name"] != "mine__no_such_tool")
        {
            let answer = agent.request(method, params).await;
            assert!(answer.get("result").is_some(), "{path} {method}: {answer}");
        }
        // Both servers have this one, but only one of them exists for this client.
        let read = agent.request("resources/read", json!({"uri": TEXT})).await;
        assert_eq!(read["result"]["contents"][0]["uri"], TEXT, "{read}");
    }
    for method in ["GET", "POST", "DELETE", "PUT"] {
        for path in ["/v0/servers/NAME/mcp"] {
            let foreign =
                app.send_as(&token, method, &path.replace("NAME", "other"), json!({})).await.expect(404);
            let unknown =
                app.send_as(&token, method, &path.replace("NAME", "absent"), json!({})).await.expect(404);
            assert_eq!(said(&foreign.json(), "other"), said(&unknown.json(), "absent"), "{method} {path}");
        }
    }
    let reached = fakes[1].seen_of("tools/call").len() + fakes[1].seen_of("prompts/get").len();
    assert_eq!(reached + fakes[1].seen_of("resources/read").len(), 0, "nothing came through");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_star_or_a_name_also_allows_servers_registered_later() {
    let (app, fakes) = start().await;
    for (name, allow_list) in [("star", ["*"]), ("named", ["later"])] {
        let token = app.create_client(name, &allow_list).await;
        let agent = Agent::connect_as(&app, "/mcp", &token).await;
        let mut stream = agent.listen().await;
        app.register_http("later", &fakes[0]).await;
        stream.expect("notifications/tools/list_changed").await;
        assert!(agent.tools().await.contains(&"later__echo".to_owned()), "{name}");
        app.delete("/api/v0/servers/later").await.expect(204);
    }
    // A client that may not see it is not notified either.
    let token = app.create_client("quiet", &["mine"]).await;
    let agent = Agent::connect_as(&app, "/mcp", &token).await;
    let mut stream = agent.listen().await;
    app.register_http("later", &fakes[0]).await;
    app.delete("/api/v0/servers/mine").await.expect(204);
    stream.expect("notifications/tools/list_changed").await;
    stream.expect("notifications/prompts/list_changed").await;
    stream.expect("notifications/resources/list_changed").await;
    assert_eq!(agent.tools().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_allow_list_changes_open_sessions_at_once_and_notifies_them() {
    let (app, fakes) = start().await;
    let token = app.create_client("agent", &["mine"]).await;
    let bystander = app.create_client("bystander", &["mine"]).await;
    let change = async |allow_list: Value| {
        app.put("/api/v0/clients/agent", json!({"allow_list": allow_list})).await.expect(200);
    };
    for path in ["/mcp", "/v0/groups/g/mcp"] {
        change(json!(["mine"])).await;
        let agent = Agent::connect_as(&app, path, &token).await;
        let other = Agent::connect_as(&app, path, &bystander).await;
        let (mut stream, mut quiet) = (agent.listen().await, other.listen().await);
        let mut sse = SseAgent::connect_as(&app, &path.replace("/mcp", "/sse"), &token).await;
        assert!(agent.call("other__add", json!({})).await.get("error").is_some(), "{path}");
        change(json!(["other"])).await;
        assert_eq!(agent.call_text("other__add", json!({"a": 1, "b": 2})).await, "3", "{path}");
        assert_eq!(agent.error("tools/call", json!({"name": "mine__add"})).await["code"], -32602, "{path}");
        for list in ["tools", "prompts"] {
            stream.expect(&format!("notifications/{list}/list_changed")).await;
            assert_eq!(sse.next().await.unwrap()["method"], format!("notifications/{list}/list_changed"));
        }
        let answer = sse.call(json!(1), "other__add", json!({"a": 2, "b": 2})).await;
        assert_eq!(answer["result"]["content"][0]["text"], "4", "{path}");
        assert_eq!(servers_in(&agent, "tools/list", "tools").await, ["other"], "{path}");
        change(json!([])).await;
        if path == "/mcp" {
            assert_eq!(agent.tools().await, Vec::<String>::new(), "{path}");
        } else {
            // A group without anything for the client does not exist for it.
            agent.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})).await.expect(404).error();
        }
        assert_eq!(other.tools().await.len(), 38.min(other.tools().await.len()), "{path}");
        // No other client was notified.
        app.delete(&format!("/api/v0/servers/{}", "other")).await.expect(204);
        app.register_http("other", &fakes[1]).await;
        app.post("/api/v0/tools/disable?entity=mine__add", json!({})).await.expect(200);
        quiet.expect("notifications/tools/list_changed").await;
        app.post("/api/v0/tools/enable?entity=mine__add", json!({})).await.expect(200);
    }
    // The server's own endpoint disappears too.
    change(json!(["mine"])).await;
    let agent = Agent::connect_as(&app, "/v0/servers/mine/mcp", &token).await;
    let mut stream = agent.listen().await;
    change(json!(["other"])).await;
    agent.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})).await.expect(404).error();
    assert!(stream.next().await.is_none(), "its stream ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_of_resources_end_with_the_right_to_see_them() {
    let (app, fakes) = start().await;
    let token = app.create_client("agent", &["mine"]).await;
    let other = app.create_client("other", &["mine"]).await;
    let (agent, witness) =
        (Agent::connect_as(&app, "/mcp", &token).await, Agent::connect_as(&app, "/mcp", &other).await);
    let (mut stream, mut heard) = (agent.listen().await, witness.listen().await);
    for subscriber in [&agent, &witness] {
        assert_eq!(
            subscriber.request("resources/subscribe", json!({"uri": TEXT})).await["result"],
            json!({})
        );
    }
    eventually("the server can tell", async || fakes[0].open_streams() > 0).await;
    fakes[0].notify_resource_updated(TEXT);
    stream.expect("notifications/resources/updated").await;
    heard.expect("notifications/resources/updated").await;
    app.put("/api/v0/clients/agent", json!({"allow_list": ["other"]})).await.expect(200);
    for list in ["tools", "prompts"] {
        stream.expect(&format!("notifications/{list}/list_changed")).await;
    }
    fakes[0].notify_resource_updated(TEXT);
    heard.expect("notifications/resources/updated").await;
    app.put("/api/v0/clients/agent", json!({"allow_list": []})).await.expect(200);
    stream.expect("notifications/tools/list_changed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_belongs_to_the_client_that_opened_it() {
    let (app, _fakes) = start().await;
    let (mine, theirs) = (app.create_client("a", &["*"]).await, app.create_client("b", &["*"]).await);
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    for path in ["/mcp", "/v0/groups/g/mcp", "/v0/servers/mine/mcp"] {
        let agent = Agent::connect_as(&app, path, &mine).await;
        let authorization = bearer(&theirs);
        let headers = [("authorization", authorization.as_str()), ("mcp-session-id", agent.session.as_str())];
        for method in ["POST", "GET", "DELETE"] {
            let body = ping.clone().into_bytes();
            client::request(&app.address, method, path, &headers, body).await.expect(404).error();
        }
        client::request(&app.address, "POST", path, &headers[1..], ping.clone().into())
            .await
            .expect(401)
            .error();
        agent.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})).await.expect(200);
    }
    let sse = SseAgent::connect_as(&app, "/sse", &mine).await;
    app.send_as(&theirs, "POST", &sse.endpoint, json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
        .await
        .expect(404);
    let agent = Agent::connect_as(&app, "/mcp", &mine).await;
    let app = app.restart().await;
    let headers = [("authorization", &*bearer(&mine)), ("mcp-session-id", agent.session.as_str())];
    app.send("POST", "/mcp", &headers, ping.clone()).await.expect(200);
    let headers = [("authorization", &*bearer(&theirs)), ("mcp-session-id", agent.session.as_str())];
    app.send("POST", "/mcp", &headers, ping).await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_without_anything_for_a_client_is_like_an_unknown_one() {
    let (app, _fakes) = start().await;
    let group =
        json!({"name": "secret", "description": "about the other", "included_tools": ["other__echo"]});
    app.post("/api/v0/tool-groups", group).await.expect(201);
    let token = app.create_client("one", &["mine"]).await;
    let authorization = bearer(&token);
    let headers =
        [("authorization", authorization.as_str()), ("accept", "text/event-stream, application/json")];
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}});
    let answers = async |group: &str| {
        let mut answers = Vec::new();
        for (method, end) in [
            ("POST", "mcp"),
            ("GET", "mcp"),
            ("DELETE", "mcp"),
            ("GET", "sse"),
            ("POST", "message?sessionId=x"),
        ] {
            let path = format!("/v0/groups/{group}/{end}");
            let answer = app.send(method, &path, &headers, hello.to_string()).await.expect(404);
            answers.push(answer.text().replace(group, "GROUP"));
        }
        answers
    };
    assert_eq!(answers("secret").await, answers("unknown").await);
    // It appears and disappears with the right to one of its members.
    let allow = async |servers: Value| {
        app.put("/api/v0/clients/one", json!({"allow_list": servers})).await.expect(200);
    };
    allow(json!(["mine", "other"])).await;
    let agent = Agent::connect_as(&app, "/v0/groups/secret/mcp", &token).await;
    assert_eq!(agent.tools().await, ["other__echo"]);
    allow(json!(["mine"])).await;
    agent.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})).await.expect(404);
    assert_eq!(answers("secret").await, answers("unknown").await);
}
