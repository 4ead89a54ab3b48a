//! Messages with a thousand levels pass in both directions and through every face; deeper ones are refused by what they
//! are: a request by its id, an answer by the call that it belongs to.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::support::agent::{Agent, text_of};
use crate::support::cli::Cli;
use crate::support::mcp::BOTH;
use crate::support::modern::{CAPABILITIES_KEY, Post, VERSION, VERSION_KEY};
use crate::support::wires::{Server, Wire};
use crate::support::{Behaviour, Fake, ModernAgent, TestApp};

/// A value with this many levels, objects and arrays in turn.
fn nested(levels: usize) -> String {
    let (pairs, odd) = (levels / 2, levels % 2 == 1);
    let inner = if odd { "[]" } else { "1" };
    format!("{}{inner}{}", r#"{"a":["#.repeat(pairs), "]}".repeat(pairs))
}

/// A call whose arguments make it this deep: the message, its params and the arguments are three levels.
fn call(tool: &str, id: u64, levels: usize, meta: &str) -> String {
    let arguments = format!(r#"{{"x":{}}}"#, nested(levels - 3));
    format!(
        r#"{{"jsonrpc":"2.0","method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}{meta}}},"id":{id}}}"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_a_thousand_levels_arrives_and_a_deeper_one_is_refused_with_its_id() {
    let app = TestApp::start().await;
    let meta = format!(r#","_meta":{{"{VERSION_KEY}":"{VERSION}","{CAPABILITIES_KEY}":{{}}}}"#);
    for (wire, name) in [(Wire::HttpJson, "http"), (Wire::HttpModern, "modern"), (Wire::Stdio, "stdio")] {
        let server = Server::register(&app, wire, name, json!({})).await;
        let tool = server.tool("echo_args");
        let expected = format!(r#"{{"x":{}}}"#, nested(997));
        let agent = Agent::open(&app, "/mcp", json!({})).await;
        let modern = ModernAgent::at(&app, "/mcp");
        let post = |body: String| {
            let post = Post::bare(body).adding("mcp-protocol-version", VERSION);
            post.adding("mcp-method", "tools/call").adding("mcp-name", &tool)
        };
        assert_eq!(text_of(&agent.ask(&call(&tool, 1, 1000, "")).await[0]), expected, "{wire:?}");
        let answer = modern.send(&post(call(&tool, 1, 1000, &meta))).await.expect(200);
        assert_eq!(text_of(&answer.text()), expected, "{wire:?}");
        for levels in [1001, 100_000] {
            let legacy = agent.post(&call(&tool, 71, levels, "")).await;
            let modern = modern.send(&post(call(&tool, 71, levels, &meta))).await;
            for refused in [legacy, modern] {
                let error = refused.expect(400).json();
                assert_eq!((&error["id"], &error["error"]["code"]), (&json!(71), &json!(-32600)), "{error}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_a_batch_is_refused_alone() {
    let app = TestApp::start().await;
    let server = Server::register(&app, Wire::HttpJson, "s", json!({})).await;
    let tool = server.tool("echo_args");
    let batch = format!("[{},{}]", call(&tool, 1, 1000, ""), call(&tool, 2, 1001, ""));
    let answers = app.send("POST", "/mcp", &[BOTH], batch).await.expect(200).json();
    let text = answers[0]["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(text, format!(r#"{{"x":{}}}"#, nested(997)));
    assert_eq!((&answers[1]["id"], &answers[1]["error"]["code"]), (&json!(2), &json!(-32600)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_a_thousand_levels_arrives_and_a_deeper_one_fails_its_call() {
    let app = TestApp::start().await;
    for wire in Wire::ALL {
        let name = format!("{wire:?}");
        let server = Server::register(&app, wire, &name, json!({})).await;
        let agent = Agent::open(&app, "/mcp", json!({})).await;
        for (levels, ends_with_id) in [(1000, false), (1001, false), (1001, true)] {
            let content = nested(levels - 2);
            let members =
                format!(r#""jsonrpc":"2.0","result":{{"content":[],"structuredContent":{content}}}"#);
            let answer = match ends_with_id {
                true => format!(r#"{{{members},"id":$ID,"x":1}}"#),
                false => format!(r#"{{"id":$ID,{members}}}"#),
            };
            let params = json!({"name": server.tool("verbatim"), "arguments": {"answer": answer}});
            let call =
                json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params}).to_string();
            let came = agent.ask(&call).await.pop().unwrap();
            let body = json!({"name": server.tool("verbatim"), "answer": answer});
            let invoked = app.post("/api/v0/tools/invoke", body).await;
            if levels == 1000 {
                assert!(came.contains(&content), "{wire:?}: {came}");
                assert!(invoked.expect(200).text().contains(&content), "{wire:?}");
            } else {
                let error: Value = serde_json::from_str(&came).unwrap();
                assert_eq!(error["error"]["code"], -32603, "{wire:?}: {error}");
                assert!(error["error"]["message"].as_str().unwrap().contains("1,000 levels"), "{error}");
                invoked.expect(500);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_arguments_pass_over_rest() {
    let app = TestApp::start().await;
    for (wire, name) in [(Wire::HttpJson, "http"), (Wire::HttpModern, "modern"), (Wire::Stdio, "stdio")] {
        let server = Server::register(&app, wire, name, json!({})).await;
        let invoke = |levels: usize| {
            let value = nested(levels - 1);
            (format!(r#"{{"name":"{}","x":{value}}}"#, server.tool("echo_args")), value)
        };
        for levels in [900, 1000] {
            let (body, value) = invoke(levels);
            let answer = app.send("POST", "/api/v0/tools/invoke", &[], body).await.expect(200).json();
            assert_eq!(answer["content"][0]["text"], format!(r#"{{"x":{value}}}"#), "{wire:?}");
        }
        let refused = app.send("POST", "/api/v0/tools/invoke", &[], invoke(1001).0).await.expect(400);
        assert!(refused.error().contains("1,000 levels"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_definitions_are_listed_everywhere() {
    let app = TestApp::start().await;
    for era in ["legacy", "modern"] {
        let schema = format!(r#"{{"type":"object","properties":{{"x":{{"default":{}}}}}}}"#, nested(900));
        let tool = format!(r#"{{"name":"echo","inputSchema":{schema},"_meta":{{"a":{}}}}}"#, nested(900));
        let tools = Some(vec![RawValue::from_string(tool).unwrap()]);
        let fake = Fake::start(Behaviour { tools, ..Behaviour::of(json!({"era": era})) }).await;
        app.register_http(era, &fake).await;
        let agent = Agent::open(&app, "/mcp", json!({})).await;
        let list = agent.ask(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await.remove(0);
        assert!(list.contains(&schema) && list.contains(&format!(r#""name":"{era}__echo""#)), "{era}");
        assert!(app.get("/api/v0/tools").await.expect(200).text().contains(&schema), "{era}");
        let dashboard = app.get("/api/dashboard/tools").await.expect(200).text();
        assert!(dashboard.contains(&schema) && dashboard.contains(r#""input_preview":"x?: any""#), "{era}");
        assert_eq!(app.call(&format!("{era}__echo"), json!({"text": "hi"})).await, "hi");
        let cli = Cli::new(&app.address);
        assert!(cli.ok(&["list", "tools"]).await.contains(&format!("{era}__echo")));
        assert_eq!(cli.ok(&["invoke", &format!("{era}__echo"), "text=hi"]).await, "hi\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_describe_itself_at_any_depth() {
    let app = TestApp::start().await;
    let server = Server::register(&app, Wire::HttpJson, "s", json!({})).await;
    let deep = nested(900);
    let capabilities = format!(r#"{{"elicitation":{{}},"experimental":{{"x":{deep}}}}}"#);
    let hello = format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"2025-11-25",
            "capabilities":{capabilities},"clientInfo":{{"name":"deep","version":"1","x":{deep}}}}}}}"#
    );
    let answer = app.send("POST", "/mcp", &[BOTH], hello).await.expect(200);
    assert_eq!(answer.json()["result"]["protocolVersion"], "2025-11-25");
    let mut agent = Agent::open(&app, "/mcp", json!({})).await;
    agent.session = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
    let tool = server.tool("ask");
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool}});
    let mut events = agent.post_for_events(&call.to_string()).await;
    let asked = String::from_utf8(events.next().await.unwrap().data.to_vec()).unwrap();
    assert!(asked.contains("elicitation/create"), "{asked}");
}
