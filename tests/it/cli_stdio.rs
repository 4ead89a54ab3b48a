//! `toolgate stdio`: messages of both eras through standard input and output, in front of a running gateway.

use serde_json::{Value, json};

use crate::support::bridge::{Bridge, modern, text};
use crate::support::cli::Cli;
use crate::support::{Behaviour, Fake, TestApp, eventually};

/// A gateway with a server of this era, and a bridge to it.
async fn start(era: &str, arguments: &[&str]) -> (TestApp, Fake, Bridge) {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": era}))).await;
    app.register_http("s", &fake).await;
    app.post("/api/v0/tool-groups", json!({"name": "g", "included_tools": ["s__add"]})).await.expect(201);
    let bridge = Bridge::start(Cli::new(&app.address).command(&[&["stdio"], arguments].concat()));
    (app, fake, bridge)
}

fn names(answer: &Value) -> Vec<&str> {
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("no list: {answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_a_handshake_lists_calls_and_leaves() {
    let (_app, _fake, mut bridge) = start("legacy", &[]).await;
    let greeting = bridge.shake_hands(json!({})).await;
    assert_eq!(greeting["protocolVersion"], "2025-11-25");
    let tools = bridge.request(json!(1), "tools/list", json!({})).await;
    assert!(names(&tools).contains(&"s__add"), "{tools}");
    let sum = bridge.call(json!("two"), "s__add", json!({"a": 2, "b": 3})).await;
    assert_eq!(text(&sum), "5");
    let error = bridge.call(json!(3), "s__nothing", json!({})).await;
    assert_eq!(error["error"]["code"], -32602);
    let log = bridge.log.clone();
    assert_eq!(bridge.finish().await, (Some(0), vec![]));
    assert_eq!(*log.lock().unwrap(), "", "nothing to say to people");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_handshake_lists_calls_and_leaves() {
    let (_app, _fake, mut bridge) = start("modern", &[]).await;
    bridge.send(&modern(json!(0), "server/discover", json!({}))).await;
    let found = bridge.answer(json!(0)).await;
    assert!(found["result"]["supportedVersions"].is_array(), "{found}");
    let call = |id: Value, tool: &str| {
        modern(id, "tools/call", json!({"name": tool, "arguments": {"a": 2, "b": 3}}))
    };
    bridge.send(&call(json!(1), "s__add")).await;
    assert_eq!(text(&bridge.answer(json!(1)).await), "5");
    bridge.send(&call(json!(2), "s__nothing")).await;
    assert_eq!(bridge.answer(json!(2)).await["error"]["code"], -32602);
    bridge.send(&modern(json!(3), "no/such", json!({}))).await;
    assert_eq!(bridge.answer(json!(3)).await["error"]["code"], -32601);
    let old = modern(json!(4), "tools/list", json!({})).to_string().replace("2026-07-28", "2099-01-01");
    bridge.send_text(&format!("{old}\n")).await;
    assert_eq!(bridge.answer(json!(4)).await["error"]["code"], -32022);
    assert_eq!(bridge.finish().await, (Some(0), vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_or_a_server_shows_only_its_own_tools() {
    let (app, _fake, mut all) = start("legacy", &["--group", "g"]).await;
    all.shake_hands(json!({})).await;
    assert_eq!(names(&all.request(json!(1), "tools/list", json!({})).await), ["s__add"]);
    let cli = Cli::new(&app.address);
    let mut native = Bridge::start(cli.command(&["stdio", "--server", "s"]));
    native.shake_hands(json!({})).await;
    assert!(names(&native.request(json!(1), "tools/list", json!({})).await).contains(&"add"));
    let mut missing = Bridge::start(cli.command(&["stdio", "--group", "nothing"]));
    let refused = missing.request(json!(1), "initialize", json!({"protocolVersion": "2025-11-25"})).await;
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("nothing"), "{refused}");
    assert_eq!(missing.finish().await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_arrive_byte_for_byte_on_one_line() {
    let (_app, _fake, mut bridge) = start("legacy", &[]).await;
    bridge.shake_hands(json!({})).await;
    let params = r#"{"name":"s__echo_args","arguments":{"z":1.0, "n":123456789012345678901,"é":"\u00e9"},"unknown":[1e2]}"#;
    let message =
        format!(r#"{{"unknown":0,"params":{params},"method":"tools/call","id":7,"jsonrpc":"2.0"}}"#);
    bridge.send_text(&format!("  {message}  \r\n\n")).await;
    let echoed = bridge.answer(json!(7)).await;
    assert_eq!(text(&echoed), r#"{"z":1.0, "n":123456789012345678901,"é":"\u00e9"}"#);
    let large = "x".repeat(3_000_000);
    let call = json!({"name": "s__echo_args", "arguments": {"large": large}});
    let echoed = bridge.request(json!(8), "tools/call", call).await;
    assert_eq!(text(&echoed).len(), large.len() + r#"{"large":""}"#.len());
    // More than a gateway accepts.
    let call = json!({"name": "s__echo_args", "arguments": {"large": large.repeat(2)}});
    let refused = bridge.request(json!(9), "tools/call", call).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("larger than"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_a_message_is_answered_with_an_error() {
    let (_app, _fake, mut bridge) = start("legacy", &[]).await;
    for (line, code, id) in [
        ("{\"jsonrpc\":", -32700, Value::Null),
        ("hello", -32700, Value::Null),
        ("42", -32600, Value::Null),
        (r#"{"jsonrpc":"1.0","id":5,"method":"ping"}"#, -32600, json!(5)),
        (r#"{"jsonrpc":"2.0","id":6,"method":"ping","Method":"x"}"#, -32600, json!(6)),
    ] {
        bridge.send_text(&format!("{line}\n")).await;
        let answer = bridge.next().await;
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), &id), "{line}: {answer}");
    }
    bridge.shake_hands(json!({})).await;
    assert_eq!(bridge.request(json!(1), "ping", json!({})).await["result"], json!({}), "it goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_asks_during_a_call_and_gets_the_answer() {
    let (_app, _fake, mut bridge) = start("legacy", &[]).await;
    bridge.shake_hands(json!({"elicitation": {}, "sampling": {}, "roots": {}})).await;
    for (id, method) in [(1, "elicitation/create"), (2, "sampling/createMessage"), (3, "roots/list")] {
        let params = json!({"name": "s__ask", "arguments": {"method": method}});
        bridge.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})).await;
        let question = bridge.expect(method).await;
        bridge.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"given": id}})).await;
        let given: Value = serde_json::from_str(text(&bridge.answer(json!(id)).await)).unwrap();
        assert_eq!(given, json!({"given": id}), "{method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_comes_before_the_answer_and_slow_calls_hold_nobody_up() {
    let (_app, fake, mut bridge) = start("legacy", &[]).await;
    bridge.shake_hands(json!({})).await;
    let slow = json!({"name": "s__slow", "arguments": {"ms": 600_000}});
    bridge.send(&json!({"jsonrpc": "2.0", "id": "slow", "method": "tools/call", "params": slow})).await;
    eventually("the slow call runs", async || fake.calls_of("slow") == 1).await;
    for id in 0..20 {
        let params = json!({"name": "s__add", "arguments": {"a": id, "b": 1}});
        bridge.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})).await;
    }
    let mut answered = Vec::new();
    for _ in 0..20 {
        let answer = bridge.next().await;
        let id = answer["id"].as_i64().unwrap();
        assert_eq!(text(&answer), (id + 1).to_string());
        answered.push(id);
    }
    answered.sort_unstable();
    assert_eq!(answered, (0..20).collect::<Vec<_>>());
    let params = json!({"name": "s__progress", "arguments": {"steps": 3}, "_meta": {"progressToken": "p"}});
    bridge.send(&json!({"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": params})).await;
    let progress = bridge.expect("notifications/progress").await;
    assert_eq!(progress["params"]["progressToken"], "p");
    bridge.answer(json!(99)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_of_either_era_ends_at_the_server_and_is_not_answered() {
    for era in ["legacy", "modern"] {
        let (_app, fake, mut bridge) = start(era, &[]).await;
        let params = json!({"name": "s__slow", "arguments": {"ms": 600_000}});
        if era == "legacy" {
            bridge.shake_hands(json!({})).await;
            bridge.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})).await;
        } else {
            bridge.send(&modern(json!(1), "tools/call", params)).await;
        }
        eventually("the call runs", async || fake.calls_of("slow") == 1).await;
        bridge.tell("notifications/cancelled", json!({"requestId": 1})).await;
        eventually("the call ends", async || fake.cancelled().len() == 1).await;
        let listed = match era {
            "legacy" => json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
            _ => modern(json!(2), "tools/list", json!({})),
        };
        bridge.send(&listed).await;
        assert_eq!(bridge.next().await["id"], 2, "no answer to the cancelled call");
        assert_eq!(bridge.finish().await, (Some(0), vec![]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_outside_of_calls_reach_clients_of_both_eras() {
    let (_app, fake, mut old) = start("legacy", &[]).await;
    old.shake_hands(json!({})).await;
    let uri = json!({"uri": "fake://text"});
    assert_eq!(old.request(json!(1), "resources/subscribe", uri.clone()).await["result"], json!({}));
    eventually("the stream is open", async || {
        fake.notify_resource_updated("fake://text");
        fake.open_streams() > 0
    })
    .await;
    old.expect("notifications/resources/updated").await;
    fake.set_tools(&["add"]);
    fake.notify_tools_changed();
    old.expect("notifications/tools/list_changed").await;

    let (_app, fake, mut new) = start("modern", &[]).await;
    let wishes =
        json!({"notifications": {"toolsListChanged": true, "resourceSubscriptions": ["fake://text"]}});
    new.send(&modern(json!("listen"), "subscriptions/listen", wishes)).await;
    let acknowledged = new.expect("notifications/subscriptions/acknowledged").await;
    assert_eq!(acknowledged["params"]["notifications"]["toolsListChanged"], true, "{acknowledged}");
    fake.set_tools(&["add"]);
    fake.notify_tools_changed();
    new.expect("notifications/tools/list_changed").await;
    fake.notify_resource_updated("fake://text");
    let updated = new.expect("notifications/resources/updated").await;
    assert_eq!(updated["params"]["uri"], "fake://text");
    new.tell("notifications/cancelled", json!({"requestId": "listen"})).await;
    new.send(&modern(json!(2), "tools/list", json!({}))).await;
    assert_eq!(names(&new.answer(json!(2)).await), ["s__add"]);
    assert_eq!(new.finish().await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_repeat_arguments_are_made_from_the_schema() {
    let app = TestApp::start().await;
    let schema =
        json!({"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}});
    let behaviour = json!({"era": "modern", "tools": [{"name": "headers", "inputSchema": schema}]});
    let fake = Fake::start(Behaviour::of(behaviour)).await;
    app.register_http("s", &fake).await;
    let mut bridge = Bridge::start(Cli::new(&app.address).command(&["stdio"]));
    for (id, region) in [(1, "eu"), (2, "Zürich")] {
        let params = json!({"name": "s__headers", "arguments": {"region": region}});
        bridge.send(&modern(json!(id), "tools/call", params)).await;
        let sent: Value = serde_json::from_str(text(&bridge.answer(json!(id)).await)).unwrap();
        assert!(sent["mcp-param-region"].is_string(), "{sent}");
    }
    assert_eq!(fake.calls_of("headers"), 2, "each call ran once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_the_revision_that_has_them_is_answered_as_one() {
    let (_app, _fake, mut bridge) = start("legacy", &[]).await;
    let params = json!({"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}});
    bridge.request(json!(0), "initialize", params).await;
    let ping = |id: u32| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    bridge.send(&json!([ping(1), ping(2)])).await;
    let answers = bridge.next().await;
    assert_eq!(answers.as_array().unwrap().len(), 2, "{answers}");
}
