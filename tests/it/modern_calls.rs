//! Calls of modern clients to servers of both eras over every transport: results, errors, progress, logs.

use serde_json::{Value, json};

use crate::support::modern::{LEVEL_KEY, Post};
use crate::support::{Behaviour, Fake, Kinds, ModernAgent, TestApp};

async fn start(era: &str) -> (TestApp, Fake) {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": era}))).await;
    app.register_http("s", &fake).await;
    (app, fake)
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_renders_and_completions_reach_every_kind_of_server() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    for server in &kinds.servers {
        let native = format!("/v0/servers/{server}/mcp");
        for (path, prefix) in [("/mcp", format!("{server}__")), (native.as_str(), String::new())] {
            let agent = ModernAgent::at(&app, path);
            let echo = agent.call(&format!("{prefix}echo"), json!({"text": "hé 😀"})).await;
            let content = json!([{"type": "text", "text": "hé 😀"}]);
            assert_eq!(echo, json!({"content": content, "resultType": "complete"}), "{server} on {path}");
            let failed = agent.call(&format!("{prefix}fail"), json!({})).await;
            assert_eq!((&failed["isError"], &failed["resultType"]), (&json!(true), &json!("complete")));
            let weather = agent.call(&format!("{prefix}structured"), json!({"city": "Oslo"})).await;
            assert_eq!(weather["structuredContent"], json!({"city": "Oslo", "degrees": 21.5}));
            assert_eq!(weather["_meta"], json!({"example.com/k": 1}));
            let params = json!({"name": format!("{prefix}greet"), "arguments": {"who": "Ada"}});
            let greeting = agent.result("prompts/get", params).await;
            assert_eq!(greeting["messages"][0]["content"]["text"], "Hello, Ada!", "{server} on {path}");
            assert_eq!(greeting["resultType"], "complete");
            assert!(greeting.get("ttlMs").is_none() && greeting.get("cacheScope").is_none());
            let params = json!({"ref": {"type": "ref/prompt", "name": format!("{prefix}greet")},
                "argument": {"name": "who", "value": "A"}});
            let completed = agent.result("completion/complete", params).await;
            assert_eq!(completed["completion"]["values"], json!(["A-completed"]), "{server} on {path}");
            assert_eq!(completed["resultType"], "complete");
        }
        let native = ModernAgent::at(&app, &native);
        let params = json!({"ref": {"type": "ref/resource", "uri": "fake://item/{id}"},
            "argument": {"name": "id", "value": "1"}});
        assert_eq!(
            native.result("completion/complete", params).await["completion"]["values"][0],
            "1-completed"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reading_says_how_long_and_for_whom_it_is_good() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    for server in &kinds.servers {
        let agent = ModernAgent::at(&app, &format!("/v0/servers/{server}/mcp"));
        for uri in ["fake://text", "fake://item/7"] {
            let read = agent.result("resources/read", json!({"uri": uri})).await;
            assert_eq!(read["contents"][0]["text"], format!("content of {uri}"), "{server}");
            let ttl = if server.ends_with("modern") { 60_000 } else { 0 };
            assert_eq!((&read["ttlMs"], &read["cacheScope"]), (&json!(ttl), &json!("public")), "{server}");
            assert_eq!(read["resultType"], "complete", "{server}");
        }
    }
    let (app, fake) = start("modern").await;
    fake.update(|behaviour| behaviour.cache_scope = "private".into());
    let read = ModernAgent::at(&app, "/mcp").result("resources/read", json!({"uri": "fake://text"})).await;
    assert_eq!(read["cacheScope"], "private");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_resource_is_named_in_the_error() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    // Unknown to the gateway.
    let agent = ModernAgent::at(&app, "/mcp");
    let (status, error) = agent.error("resources/read", json!({"uri": "fake://nothing"})).await;
    assert_eq!((status, &error["code"]), (200, &json!(-32602)));
    assert_eq!(error["data"]["uri"], "fake://nothing");
    // Unknown to the server; a legacy server has another code for that.
    for server in &kinds.servers {
        let agent = ModernAgent::at(&app, &format!("/v0/servers/{server}/mcp"));
        let hide = json!({"templates": [{"uriTemplate": "gone://{id}", "name": "gone"}]});
        agent.call("set_behaviour", hide).await;
        app.post(&format!("/api/v0/servers/{server}/refresh"), json!({})).await.expect(200);
        let (status, error) = agent.error("resources/read", json!({"uri": "gone://x"})).await;
        assert_eq!((status, &error["code"]), (200, &json!(-32602)), "{server}: {error}");
        assert_eq!(error["message"], "Resource not found", "{server}");
        assert_eq!(error["data"], json!({"uri": "gone://x"}), "{server}");
        // With the name that the client used.
        let encoded = "Z29uZTovL3g";
        let qualified = format!("toolgate://res/{server}/{encoded}");
        let (_, error) = agent.error("resources/read", json!({"uri": qualified})).await;
        assert_eq!(error["code"], -32602, "{server}: {error}");
    }
}

#[tokio::test]
async fn unknown_and_disabled_names_are_all_alike() {
    let (app, fake) = start("modern").await;
    app.post("/api/v0/tools/disable", json!({"entity": "s__echo"})).await.expect(200);
    app.post("/api/v0/prompts/disable?entity=s__plain", json!({})).await.expect(200);
    fake.forget_seen();
    let agent = ModernAgent::at(&app, "/mcp");
    for (method, names) in [
        ("tools/call", ["s__echo", "s__nothing", "t__echo", "echo", "", "__echo"]),
        ("prompts/get", ["s__plain", "s__nothing", "t__plain", "plain", "", "__plain"]),
    ] {
        for name in names {
            let (status, error) = agent.error(method, json!({"name": name})).await;
            assert_eq!((status, &error["code"]), (200, &json!(-32602)), "{method} {name}: {error}");
        }
        for params in [json!({}), json!({"name": 7}), json!({"name": null})] {
            assert_eq!(agent.error(method, params).await.1["code"], -32602);
        }
    }
    assert_eq!(agent.error("resources/read", json!({})).await.1["code"], -32602);
    assert_eq!(agent.error("completion/complete", json!({})).await.1["code"], -32602);
    assert!(fake.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_servers_pass_with_code_message_and_data() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    for server in &kinds.servers {
        let agent = ModernAgent::at(&app, "/mcp");
        let (status, error) =
            agent.error("tools/call", json!({"name": format!("{server}__rpc_error")})).await;
        let data = json!({"hint": "ask again", "retry": false});
        assert_eq!(error, json!({"code": -32050, "message": "the tool refused", "data": data}), "{server}");
        assert_eq!(status, 200, "{server}");
        // A server's own endpoint passes on methods that the gateway does not know.
        let native = ModernAgent::at(&app, &format!("/v0/servers/{server}/mcp"));
        let (status, error) = native.error("vendor/method", json!({"x": 1})).await;
        assert_eq!((status, &error["code"]), (404, &json!(-32601)), "{server}");
        assert_eq!(error["message"], "Method not found: vendor/method", "{server}: said by the server");
    }
}

#[tokio::test]
async fn a_modern_servers_error_keeps_its_status_and_a_legacy_ones_has_none() {
    for (era, expected) in [("modern", 418), ("legacy", 200)] {
        let (app, fake) = start(era).await;
        fake.update(|behaviour| behaviour.show_tools(&["verbatim".into(), "ask".into()]));
        fake.notify_tools_changed();
        app.post("/api/v0/servers/s/refresh", json!({})).await.expect(200);
        let agent = ModernAgent::at(&app, "/mcp");
        let answer =
            r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32099,"message":"a teapot","data":[1.0]}}"#;
        let status = if era == "modern" { 418 } else { 200 };
        let arguments = json!({"answer": answer, "status": status});
        let (status, error) =
            agent.error("tools/call", json!({"name": "s__verbatim", "arguments": arguments})).await;
        assert_eq!(
            (status, error),
            (expected, json!({"code": -32099, "message": "a teapot", "data": [1.0]}))
        );
    }
}

#[tokio::test]
async fn a_missing_capability_is_reported_by_the_server() {
    for transport in ["http", "stdio"] {
        let app = TestApp::start().await;
        let behaviour = Behaviour::of(json!({"era": "modern"}));
        let fake = Fake::start(behaviour.clone()).await;
        match transport {
            "http" => app.register_http("s", &fake).await,
            _ => app.register_stdio("s", &behaviour).await,
        };
        let agent = ModernAgent::at(&app, "/mcp").with(json!({"sampling": {}}));
        let (status, error) = agent.error("tools/call", json!({"name": "s__ask"})).await;
        assert_eq!((status, &error["code"]), (400, &json!(-32021)), "{transport}: {error}");
        assert_eq!(error["data"], json!({"requiredCapabilities": {"elicitation": {}}}));
        let agent = agent.with(json!({"elicitation": {"form": {}}}));
        assert_eq!(agent.call("s__ask", json!({})).await["resultType"], "input_required");
    }
}

#[tokio::test]
async fn a_failing_server_is_an_internal_error_with_the_reason() {
    for era in ["legacy", "modern"] {
        let (app, mut fake) = start(era).await;
        let agent = ModernAgent::at(&app, "/mcp");
        let (status, error) = agent.error("tools/call", json!({"name": "s__hang_up"})).await;
        assert_eq!((status, &error["code"]), (200, &json!(-32603)), "{era}: {error}");
        assert!(error["message"].as_str().unwrap().contains("\"s\""), "{era}: {error}");
        app.patch("/api/v0/servers/s", json!({"timeout_ms": 700})).await.expect(200);
        let params = json!({"name": "s__slow", "arguments": {"ms": 60_000}});
        let (status, error) = agent.error("tools/call", params).await;
        assert_eq!((status, &error["code"]), (200, &json!(-32603)), "{era}: {error}");
        fake.stop().await;
        let (status, error) = agent.error("tools/call", json!({"name": "s__echo"})).await;
        assert_eq!((status, &error["code"]), (200, &json!(-32603)), "{era}: {error}");
        // Lists are still served.
        assert!(agent.list("tools/list", "tools", "name").await.contains(&"s__echo".to_owned()));
    }
}

fn with_meta(tool: String, arguments: Value, meta: Value) -> Value {
    json!({"name": tool, "arguments": arguments, "_meta": meta})
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_comes_with_the_clients_own_token_over_every_kind_of_link() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    let agent = ModernAgent::at(&app, "/mcp");
    for server in &kinds.servers {
        let tool = format!("{server}__progress");
        for (id, token) in [(json!("one"), json!("tok\"en")), (json!(7), json!(7)), (json!(-3), json!(0))] {
            let params = with_meta(tool.clone(), json!({"steps": 2}), json!({"progressToken": token}));
            let mut talk = agent.begin(&agent.message(id.clone(), "tools/call", params)).await;
            for step in 1..=2 {
                let notice = talk.expect("notifications/progress").await;
                assert_eq!(notice["params"]["progressToken"], token, "{server}");
                assert_eq!(notice["params"]["message"], format!("step {step}"), "{server}");
            }
            let answer = talk.next().await.unwrap();
            assert_eq!(answer["id"], id, "{server}");
            assert_eq!(answer["result"]["content"][0]["text"], "2 steps");
            assert_eq!(answer["result"]["resultType"], "complete", "{server}");
            assert!(talk.next().await.is_none());
        }
        let params = with_meta(tool.clone(), json!({"steps": 2}), json!({}));
        let talk = agent.begin(&agent.message(json!(1), "tools/call", params)).await;
        assert!(!talk.is_stream(), "{server}: nobody asked for progress");
        // A client that does not accept streams gets only the response; a client that accepts anything gets all messages.
        let params = with_meta(tool, json!({"steps": 2}), json!({"progressToken": 1}));
        let post = Post::of(agent.message(json!(1), "tools/call", params).to_string());
        let plain = agent.send(&post.clone().adding("accept", "application/json")).await.expect(200);
        assert_eq!(plain.headers["content-type"], "application/json", "{server}");
        assert_eq!(plain.json()["result"]["content"][0]["text"], "2 steps");
        let two =
            post.clone().adding("accept", "application/json").adding("accept", "Text/Event-Stream;q=0.5");
        assert_eq!(agent.send(&two).await.headers["content-type"], "text/event-stream", "{server}");
        let any = agent.send(&post.adding("accept", "*/*")).await.expect(200);
        assert_eq!(any.headers["content-type"], "text/event-stream", "{server}");
        assert_eq!(any.headers["cache-control"], "no-store");
        assert_eq!(any.headers["x-accel-buffering"], "no");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_come_only_if_asked_for_and_from_the_level_asked_for() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    let agent = ModernAgent::at(&app, "/mcp");
    for server in &kinds.servers {
        for (wanted, level, is_heard) in [
            (None, "emergency", false),
            (Some("debug"), "debug", true),
            (Some("warning"), "info", false),
            (Some("warning"), "warning", true),
            (Some("error"), "critical", true),
        ] {
            let meta = wanted.map_or(json!({}), |wanted| json!({LEVEL_KEY: wanted}));
            let data = json!({"of": server});
            let params = with_meta(format!("{server}__log"), json!({"level": level, "data": data}), meta);
            let mut talk = agent.begin(&agent.message(json!(1), "tools/call", params)).await;
            if is_heard {
                let notice = talk.expect("notifications/message").await;
                assert_eq!(notice["params"], json!({"level": level, "logger": "fake", "data": data}));
            }
            let answer = talk.next().await.unwrap();
            assert_eq!(answer["result"]["content"][0]["text"], "logged", "{server} {wanted:?} {level}");
        }
    }
    for level in [json!("loud"), json!("")] {
        let params = with_meta("http-modern__echo".into(), json!({}), json!({LEVEL_KEY: level}));
        let (status, error) = agent.error("tools/call", params).await;
        assert_eq!((status, &error["code"]), (200, &json!(-32602)), "{level}: {error}");
    }
}

#[tokio::test]
async fn legacy_servers_are_asked_for_the_level_that_a_request_wants() {
    let (app, fake) = start("legacy").await;
    let agent = ModernAgent::at(&app, "/mcp");
    let ask = async |level: &str| {
        let params = with_meta("s__echo".into(), json!({}), json!({LEVEL_KEY: level}));
        agent.result("tools/call", params).await;
    };
    let last = |fake: &Fake| fake.seen_of("logging/setLevel").last().map(|seen| seen.params["level"].clone());
    ask("notice").await;
    crate::support::eventually("it is told", async || last(&fake) == Some(json!("notice"))).await;
    ask("error").await;
    ask("info").await;
    crate::support::eventually("it is told", async || last(&fake) == Some(json!("info"))).await;
    assert_eq!(fake.seen_of("logging/setLevel").len(), 2, "nothing less verbose is asked for");
}
