//! Headers that repeat parts of a modern request's body: method, name or URI, and the arguments that a tool's schema
//! marks. If they do not match, the request is refused.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::support::modern::{Post, encode};
use crate::support::{Behaviour, Fake, ModernAgent, TestApp};

async fn start(era: &str) -> (TestApp, Fake) {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": era}))).await;
    app.register_http("s", &fake).await;
    app.post("/api/v0/tool-groups", json!({"name": "g", "included_servers": ["s"]})).await.expect(201);
    fake.forget_seen();
    (app, fake)
}

async fn assert_mismatch(agent: &ModernAgent, post: &Post, what: &str) {
    let answer = agent.send(post).await;
    assert_eq!(answer.status, 400, "{what}: {}", answer.text());
    assert_eq!(answer.json()["error"]["code"], -32020, "{what}: {}", answer.text());
}

async fn assert_taken(agent: &ModernAgent, post: &Post, what: &str) {
    let answer = agent.send(post).await;
    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    assert!(answer.json().get("result").is_some(), "{what}: {}", answer.text());
}

fn wrapped(value: &str) -> String {
    format!("=?base64?{}?=", BASE64_STANDARD.encode(value))
}

#[tokio::test]
async fn method_and_name_must_be_those_of_the_body() {
    let (app, fake) = start("modern").await;
    let agent = ModernAgent::at(&app, "/mcp");
    for (method, params, name) in [
        ("tools/call", json!({"name": "s__echo"}), "s__echo"),
        ("prompts/get", json!({"name": "s__plain"}), "s__plain"),
        ("resources/read", json!({"uri": "fake://text"}), "fake://text"),
    ] {
        let whole = Post::of(agent.message(json!(1), method, params).to_string());
        assert_taken(&agent, &whole, method).await;
        assert_taken(&agent, &whole.clone().replacing("mcp-name", &wrapped(name)), method).await;
        assert_taken(&agent, &whole.clone().replacing("mcp-method", &wrapped(method)), method).await;
        let ran = fake.seen_of(method).len();
        for (header, value) in [("mcp-method", method), ("mcp-name", name)] {
            assert_mismatch(&agent, &whole.clone().without(header), header).await;
            for wrong in ["", "other", &value.to_uppercase(), &format!("{value}x"), "=?base64?!?=", "é"] {
                let post = whole.clone().replacing(header, wrong);
                assert_mismatch(&agent, &post, &format!("{method} {header} {wrong}")).await;
            }
            // A header sent twice does not match either: other programs may read the first or the last.
            assert_mismatch(&agent, &whole.clone().adding(header, value), header).await;
            assert_mismatch(&agent, &whole.clone().adding(header, "other"), header).await;
        }
        assert_eq!(fake.seen_of(method).len(), ran, "nothing that was refused ran");
    }
    let list = Post::of(agent.message(json!(1), "tools/list", json!({})).to_string());
    assert_taken(&agent, &list, "a method without a name").await;
    assert_mismatch(&agent, &list.without("mcp-method"), "no method").await;
}

#[tokio::test]
async fn a_name_that_no_header_can_carry_travels_in_base64() {
    let (app, fake) = start("modern").await;
    let agent = ModernAgent::at(&app, "/mcp");
    for name in ["fake://item/é 😀", "fake://item/ ", "=?base64?eA==?=", "fake://item/\u{7f}\n"] {
        let params = json!({"uri": name});
        let post = Post::of(agent.message(json!(1), "resources/read", params).to_string())
            .replacing("mcp-name", &wrapped(name));
        let answer = agent.send(&post).await;
        assert_ne!(answer.json()["error"]["code"], -32020, "{name}: {}", answer.text());
    }
    let read = fake.seen_of("resources/read");
    assert_eq!(read[0].headers["mcp-name"], wrapped("fake://item/é 😀"), "and so to the server");
}

/// A call of the tool whose schema marks `region` and `limit`.
fn call(agent: &ModernAgent, tool: &str, arguments: &Value, headers: &[(&str, &str)]) -> Post {
    let params = json!({"name": tool, "arguments": arguments});
    let post = Post::of(agent.message(json!(1), "tools/call", params).to_string());
    headers.iter().fold(post, |post, (name, value)| post.adding(name, value))
}

#[tokio::test]
async fn marked_arguments_must_be_in_their_headers() {
    for era in ["modern", "legacy"] {
        let (app, fake) = start(era).await;
        for (path, tool) in
            [("/mcp", "s__region"), ("/v0/groups/g/mcp", "s__region"), ("/v0/servers/s/mcp", "region")]
        {
            let agent = ModernAgent::at(&app, path);
            let (region, limit) = ("mcp-param-region", "mcp-param-limit");
            let odd = encode("Århus 😀");
            assert!(odd.starts_with("=?base64?"));
            for (arguments, headers) in [
                (json!({}), vec![]),
                (json!({"region": null}), vec![]),
                (json!({"region": "eu", "limit": 5}), vec![(region, "eu"), (limit, "5")]),
                (json!({"region": "Århus 😀"}), vec![(region, odd.as_str())]),
                (json!({"region": "eu"}), vec![(region, "=?base64?ZXU=?=")]),
                (json!({"region": ""}), vec![(region, "")]),
                (json!({"limit": -42}), vec![(limit, "-42")]),
                (json!({"limit": 42}), vec![(limit, "42.0")]),
                (json!({"region": "eu"}), vec![(region, "eu"), ("mcp-param-unknown", "x")]),
            ] {
                let post = call(&agent, tool, &arguments, &headers);
                assert_taken(&agent, &post, &format!("{era} {path} {arguments}")).await;
            }
            let ran = fake.calls_of("region");
            for (arguments, headers) in [
                (json!({"region": "eu"}), vec![]),
                (json!({"region": "eu", "limit": 5}), vec![(region, "eu")]),
                (json!({"region": "eu"}), vec![(region, "us")]),
                (json!({"region": "eu"}), vec![(region, "EU")]),
                (json!({"region": "eu"}), vec![(region, "eu"), (region, "eu")]),
                (json!({"region": "eu"}), vec![(region, "=?base64?!?=")]),
                (json!({"region": "Århus"}), vec![(region, "Århus")]),
                (json!({"limit": 5}), vec![(limit, "6")]),
                (json!({"limit": 5}), vec![(limit, "5.5")]),
                (json!({}), vec![(region, "eu")]),
                (json!({"region": null}), vec![(region, "null")]),
                (json!({"region": {"a": 1}}), vec![(region, "x")]),
            ] {
                let post = call(&agent, tool, &arguments, &headers);
                assert_mismatch(&agent, &post, &format!("{era} {path} {arguments} {headers:?}")).await;
            }
            assert_eq!(fake.calls_of("region"), ran);
        }
        let last = fake.seen_of("tools/call").pop().unwrap();
        // The server gets headers made by the gateway, or none if it is a legacy server.
        assert_eq!(
            last.headers.get("mcp-param-region").map(String::as_str),
            (era == "modern").then_some("eu")
        );
        assert!(!last.headers.contains_key("mcp-param-unknown"));
    }
}

#[tokio::test]
async fn a_hidden_tool_reveals_nothing_through_its_headers() {
    let (app, _fake) = start("modern").await;
    app.post("/api/v0/tools/disable", json!({"entity": "s__region"})).await.expect(200);
    let agent = ModernAgent::at(&app, "/mcp");
    for tool in ["s__region", "s__nothing", "t__region"] {
        let post = call(&agent, tool, &json!({"region": "eu"}), &[]);
        let answer = agent.send(&post).await.expect(200).json();
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
}
