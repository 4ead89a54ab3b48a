//! A deleted or replaced token stops working at once: streams end, calls fail, upstream sessions close.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::client::Events;
use crate::support::modern::Post;
use crate::support::{
    Agent, Behaviour, Fake, ModernAgent, Server, SseAgent, Tally, TestApp, Wire, bearer, client, eventually,
};

async fn start() -> (TestApp, Fake) {
    let app = TestApp::start_enterprise().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    app.post("/api/v0/tool-groups", json!({"name": "g", "included_servers": ["s"]})).await.expect(201);
    (app, fake)
}

/// The two ways to revoke a client's token.
async fn revoke(app: &TestApp, how: &str) {
    match how {
        "delete" => drop(app.delete("/api/v0/clients/agent").await.expect(204)),
        _ => {
            let change = json!({"allow_list": ["*"], "access_token": format!("new-token-{how}")});
            app.put("/api/v0/clients/agent", change).await.expect(200);
        }
    }
}

fn slow_call(tool: &str) -> Value {
    let params = json!({"name": tool, "arguments": {"ms": 60_000}});
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_in_flight_fail_and_are_cancelled_upstream() {
    let (app, fake) = start().await;
    for how in ["replace", "delete"] {
        for (path, tool) in
            [("/mcp", "s__slow"), ("/v0/groups/g/mcp", "s__slow"), ("/v0/servers/s/mcp", "slow")]
        {
            let said = format!("{how} {path}");
            let created = app.post("/api/v0/clients", json!({"name": "agent", "allow_list": ["*"]})).await;
            let token = created.expect(201).json()["access_token"].as_str().unwrap().to_owned();
            let agent = Agent::connect_as(&app, path, &token).await;
            let (cancelled, ran) = (fake.cancelled().len(), fake.calls_of("slow"));
            // With a session, and without one.
            let call = slow_call(tool);
            let waiting = agent.post(&call);
            let without = app.send_as(&token, "POST", path, slow_call(tool));
            let revoking = async {
                eventually("both calls run", async || fake.calls_of("slow") == ran + 2).await;
                revoke(&app, how).await;
            };
            let (waiting, without, ()) = tokio::join!(waiting, without, revoking);
            for answer in [waiting, without] {
                assert_eq!(answer.status, 401, "{said}: {}", answer.text());
                assert_eq!(answer.headers["www-authenticate"], "Bearer", "{said}");
                answer.expect(401).error();
            }
            eventually("the server need not go on", async || fake.cancelled().len() == cancelled + 2).await;
            agent.post(&slow_call(tool)).await.expect(401).error();
            if how != "delete" {
                app.delete("/api/v0/clients/agent").await.expect(204);
            }
        }
    }
}

/// Starts calls of a client at every MCP door, revokes its token and checks how the calls end.
async fn end_calls(app: &Arc<TestApp>, server: &Server, how: &str) {
    let token = app.create_client("agent", &["*"]).await;
    let before = Tally::of(app).await;
    let (mut answers, mut abandoned, mut streams, mut marks) =
        (JoinSet::new(), JoinSet::new(), Vec::new(), Vec::new());
    let mut params = |door: &str, path: &str, tool: &str| {
        marks.push(format!("{how}-{door}-{path}"));
        json!({"name": tool, "arguments": {"ms": 600_000, "mark": marks.last()}})
    };
    let call = |params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    for (path, tool) in [("/mcp", "s__slow"), ("/v0/groups/g/mcp", "s__slow"), ("/v0/servers/s/mcp", "slow")]
    {
        let (agent, message) =
            (Agent::connect_as(app, path, &token).await, call(params("session", path, tool)));
        answers.spawn(async move { agent.post(&message).await });
        let (agent, message) = (Agent::connect_as(app, path, &token).await, call(params("left", path, tool)));
        abandoned.spawn(async move { agent.post(&message).await });
        let (sender, bearer_of) = (app.clone(), token.clone());
        let message = call(params("sessionless", path, tool));
        answers.spawn(async move { sender.send_as(&bearer_of, "POST", path, message).await });
        let agent = ModernAgent::at(app, path);
        let message = agent.message(json!(1), "tools/call", params("modern", path, tool));
        let post = Post::of(message.to_string()).adding("authorization", &bearer(&token));
        answers.spawn(async move { agent.send(&post).await });
    }
    for path in ["/sse", "/v0/groups/g/sse"] {
        let agent = SseAgent::connect_as(app, path, &token).await;
        agent.send(&call(params("stream", path, "s__slow"))).await;
        streams.push(agent);
    }
    for mark in &marks {
        eventually(&format!("{mark} runs"), async || server.ran(mark) == 1).await;
    }
    // Disconnecting does not cancel a legacy call, so these continue although the client is gone.
    abandoned.shutdown().await;
    revoke(app, how).await;
    for answer in answers.join_all().await {
        answer.expect(401).error();
    }
    for stream in &mut streams {
        while let Some(message) = stream.next().await {
            assert!(message.get("method").is_some(), "{how}: no answer comes: {message}");
        }
    }
    for mark in &marks {
        eventually(&format!("{mark} is cancelled"), async || server.cancelled(mark) == 1).await;
    }
    let count = u64::try_from(marks.len()).unwrap();
    let after = Tally::reaches(app, before.sum() + count).await;
    assert_eq!(after.since(&before), [("s", "slow", "cancelled", count)], "{how}");
    if how != "delete" {
        app.delete("/api/v0/clients/agent").await.expect(204);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_end_at_every_mcp_door_and_over_every_wire() {
    let mut tests = JoinSet::new();
    for wire in Wire::ALL {
        tests.spawn(async move {
            let app = Arc::new(TestApp::start_enterprise_with(|config| config.telemetry = true).await);
            let server = Server::register(&app, wire, "s", json!({})).await;
            let group = json!({"name": "g", "included_servers": ["s"]});
            app.post("/api/v0/tool-groups", group).await.expect(201);
            for how in ["replace", "delete"] {
                end_calls(&app, &server, how).await;
            }
        });
    }
    tests.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_every_kind_end() {
    let (app, fake) = start().await;
    for how in ["replace", "delete"] {
        let token = app.create_client("agent", &["*"]).await;
        let stays = app.create_client(how, &["*"]).await;
        let unharmed = Agent::connect_as(&app, "/mcp", &stays).await;
        let mut goes_on = unharmed.listen().await;
        let mut streams = Vec::new();
        for path in ["/mcp", "/v0/groups/g/mcp", "/v0/servers/s/mcp"] {
            let agent = Agent::connect_as(&app, path, &token).await;
            streams.push(agent.listen().await);
        }
        let agent = Agent::connect_as(&app, "/mcp", &token).await;
        let params = json!({"name": "s__progress", "arguments": {"steps": 1000, "ms": 100}, "_meta": {"progressToken": 1}});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let mut progress = agent.begin(&call).await;
        progress.expect("notifications/progress").await;
        let mut old = [
            SseAgent::connect_as(&app, "/sse", &token).await,
            SseAgent::connect_as(&app, "/v0/groups/g/sse", &token).await,
        ];
        old[0].send(&slow_call("s__slow")).await;
        eventually("both calls run", async || fake.running_calls() == 2).await;
        revoke(&app, how).await;
        for stream in &mut streams {
            assert!(stream.next().await.is_none(), "{how}");
        }
        for stream in &mut old {
            assert!(stream.next().await.is_none(), "{how}: no answer comes");
        }
        while let Some(message) = progress.next().await {
            assert_eq!(message["method"], "notifications/progress", "{how}: no answer comes");
        }
        eventually("the server need not go on", async || fake.running_calls() == 0).await;
        app.post("/api/v0/tools/disable?entity=s__echo", json!({})).await.expect(200);
        goes_on.expect("notifications/tools/list_changed").await;
        app.post("/api/v0/tools/enable?entity=s__echo", json!({})).await.expect(200);
        if how != "delete" {
            app.delete("/api/v0/clients/agent").await.expect(204);
        }
    }
}

/// An agent with a session at a stateful server and a subscription; also the id of that upstream session.
async fn agent_that_holds_something(app: &TestApp, fake: &Fake) -> (Agent, String) {
    let stateful = json!({"name": "kept", "transport": "streamable_http", "url": fake.url(), "session_mode": "stateful"});
    app.register(stateful).await;
    let token = app.create_client("agent", &["*"]).await;
    let agent = Agent::connect_as(app, "/mcp", &token).await;
    let session = upstream_session(&agent).await;
    let uri = "toolgate://res/s/ZmFrZTovL3RleHQ";
    assert_eq!(agent.request("resources/subscribe", json!({"uri": uri})).await["result"], json!({}));
    (agent, session)
}

async fn upstream_session(agent: &Agent) -> String {
    let headers: Value = serde_json::from_str(&agent.call_text("kept__headers", json!({})).await).unwrap();
    headers["mcp-session-id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn upstream_sessions_and_subscriptions_go_with_the_client() {
    let (app, fake) = start().await;
    let (_agent, session) = agent_that_holds_something(&app, &fake).await;
    revoke(&app, "delete").await;
    eventually("its upstream session ends", async || fake.deleted_sessions().contains(&session)).await;
    eventually("nobody wants the resource", async || fake.seen_of("resources/unsubscribe").len() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_keeps_its_sessions_when_its_token_is_replaced() {
    let (app, fake) = start().await;
    let (mut agent, session) = agent_that_holds_something(&app, &fake).await;
    revoke(&app, "replace").await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    agent.post(&ping).await.expect(401).error();
    agent.use_token("new-token-replace");
    agent.post(&ping).await.expect(200);
    assert_eq!(upstream_session(&agent).await, session, "what it holds is still its own");
    assert!(fake.deleted_sessions().is_empty() && fake.seen_of("resources/unsubscribe").is_empty());
    let other = app.create_client("other", &["*"]).await;
    agent.use_token(&other);
    agent.post(&ping).await.expect(404).error();
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_groups_and_servers_are_kept_but_a_stream_is_a_session_that_ends() {
    let (app, _fake) = start().await;
    let token = app.create_client("agent", &["*"]).await;
    let mut kept = Vec::new();
    for path in ["/mcp", "/v0/groups/g/mcp", "/v0/servers/s/mcp"] {
        kept.push(Agent::connect_as(&app, path, &token).await);
    }
    let mut streams = Vec::new();
    for path in ["/sse", "/v0/groups/g/sse"] {
        streams.push(SseAgent::connect_as(&app, path, &token).await);
    }
    revoke(&app, "replace").await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    for agent in &mut kept {
        agent.post(&ping).await.expect(401).error();
        agent.use_token("new-token-replace");
        agent.post(&ping).await.expect(200);
    }
    for mut stream in streams {
        assert!(stream.next().await.is_none(), "{}", stream.endpoint);
        app.send_as(&token, "POST", &stream.endpoint, ping.clone()).await.expect(401).error();
        eventually("its session has ended", async || {
            app.send_as("new-token-replace", "POST", &stream.endpoint, ping.clone()).await.status == 404
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_holder_of_the_same_token_gets_nothing_of_the_earlier_one() {
    let (app, _fake) = start().await;
    let body = |name: &str| json!({"name": name, "allow_list": ["*"], "access_token": "the-same-token"});
    app.post("/api/v0/clients", body("first")).await.expect(201);
    let agent = Agent::connect_as(&app, "/mcp", "the-same-token").await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    agent.post(&ping).await.expect(200);
    app.delete("/api/v0/clients/first").await.expect(204);
    agent.post(&ping).await.expect(401).error();
    app.post("/api/v0/clients", body("second")).await.expect(201);
    agent.post(&ping).await.expect(404).error();
    app.delete("/api/v0/clients/second").await.expect(204);
    app.post("/api/v0/clients", body("first")).await.expect(201);
    agent.post(&ping).await.expect(404).error();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_keeps_the_token_ends_nothing() {
    let (app, fake) = start().await;
    let token = app.create_client("agent", &["*"]).await;
    let agent = Agent::connect_as(&app, "/mcp", &token).await;
    let mut stream = agent.listen().await;
    let params = json!({"name": "s__slow", "arguments": {"ms": 500}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let changing = async {
        eventually("the call runs", async || fake.calls_of("slow") == 1).await;
        let same = json!({"allow_list": ["*"], "description": "new", "access_token": token});
        app.put("/api/v0/clients/agent", same).await.expect(200);
    };
    let (answer, ()) = tokio::join!(agent.post(&call), changing);
    assert_eq!(answer.expect(200).json()["result"]["content"][0]["text"], "done");
    app.post("/api/v0/tools/disable?entity=s__echo", json!({})).await.expect(200);
    stream.expect("notifications/tools/list_changed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_deleted_user_fail_and_their_streams_end() {
    let (app, fake) = start().await;
    for how in ["delete", "replace"] {
        let token = app.create_user("user", "user").await;
        let (cancelled, ran) = (fake.cancelled().len(), fake.calls_of("slow"));
        let body = json!({"name": "s__slow", "ms": 60_000});
        let waiting = app.send_as(&token, "POST", "/api/v0/tools/invoke", body.clone());
        let authorization = bearer(&token);
        let headers = [("authorization", authorization.as_str()), ("accept", "text/event-stream")];
        let stream =
            client::open(&app.address, "POST", "/api/v0/tools/invoke", &headers, body.to_string().into());
        let mut events = Events::new(stream.await);
        let revoking = async {
            eventually("both calls run", async || fake.calls_of("slow") == ran + 2).await;
            match how {
                "delete" => drop(app.delete("/api/v0/users/user").await.expect(204)),
                _ => {
                    app.put("/api/v0/users/user", json!({"access_token": "another-token"})).await.expect(200);
                }
            }
        };
        let (waiting, ()) = tokio::join!(waiting, revoking);
        waiting.expect(401).error();
        assert!(events.next().await.is_none(), "{how}: no result comes");
        eventually("the server need not go on", async || fake.cancelled().len() == cancelled + 2).await;
        app.send_as(&token, "GET", "/api/v0/tools", json!({})).await.expect(401);
    }
}
