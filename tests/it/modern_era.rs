//! Which requests count as modern, and the checks before a request is handled: their order, codes and statuses.

use serde_json::{Value, json};

use crate::support::mcp::BOTH;
use crate::support::modern::{CAPABILITIES_KEY, Post, VERSION, VERSION_KEY};
use crate::support::{Agent, Answer, Behaviour, Fake, ModernAgent, TestApp};

const PLACES: [&str; 3] = ["/mcp", "/v0/groups/g/mcp", "/v0/servers/s/mcp"];

async fn start() -> (TestApp, Fake) {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "modern"}))).await;
    app.register_http("s", &fake).await;
    app.post("/api/v0/tool-groups", json!({"name": "g", "included_servers": ["s"]})).await.expect(201);
    (app, fake)
}

/// A request with exactly this `_meta`.
fn list(meta: Value) -> String {
    json!({"jsonrpc": "2.0", "id": "l", "method": "tools/list", "params": {"_meta": meta}}).to_string()
}

fn marks(version: Value) -> Value {
    json!({VERSION_KEY: version, CAPABILITIES_KEY: {}})
}

#[track_caller]
fn assert_refused(answer: &Answer, status: u16, code: i64, what: &str) {
    assert_eq!(answer.status, status, "{what}: {}", answer.text());
    let message = answer.json();
    assert_eq!(message["error"]["code"], code, "{what}: {message}");
    assert!(!message["error"]["message"].as_str().unwrap().is_empty(), "{what}: {message}");
    assert_eq!(message["jsonrpc"], "2.0");
}

#[tokio::test]
async fn the_version_in_header_or_meta_makes_a_request_a_modern_one() {
    let (app, _fake) = start().await;
    let legacy = r#"{"jsonrpc":"2.0","id":"l","method":"tools/list"}"#;
    for path in PLACES {
        let agent = ModernAgent::at(&app, path);
        let works = agent.send(&Post::of(list(marks(json!(VERSION))))).await.expect(200).json();
        assert_eq!(works["result"]["resultType"], "complete");
        // Without either it is a legacy request, and that era does not have this method.
        for post in [Post::bare(legacy), Post::bare(legacy).adding("mcp-protocol-version", "2025-06-18")] {
            let answer = agent.send(&post).await.expect(200).json();
            assert!(answer["result"].get("tools").is_some(), "{path}: {answer}");
            assert!(answer["result"].get("resultType").is_none(), "{path}: {answer}");
        }
        for version in [VERSION, "1999-01-01", "2025-11-26", "x", ""] {
            let post = Post::bare(legacy).adding("mcp-protocol-version", version);
            assert_refused(&agent.send(&post).await, 400, -32602, version);
        }
        // Any value of the key is enough, whatever the header says.
        for value in [json!(5), json!(null), json!({}), json!([]), json!(true)] {
            for header in [None, Some("2025-11-25")] {
                let mut post = Post::bare(list(marks(value.clone())));
                if let Some(header) = header {
                    post = post.adding("mcp-protocol-version", header);
                }
                assert_refused(&agent.send(&post).await, 400, -32602, &format!("{value} {header:?}"));
            }
        }
        let meta_alone = Post::of(list(marks(json!(VERSION)))).without("mcp-protocol-version");
        assert_refused(&agent.send(&meta_alone).await, 400, -32020, "no header");
        let legacy_header = meta_alone.clone().adding("mcp-protocol-version", "2025-11-25");
        assert_refused(&agent.send(&legacy_header).await, 400, -32020, "a legacy header");
        let legacy_meta = Post::of(list(marks(json!("2025-11-25"))));
        assert_refused(&agent.send(&legacy_meta).await, 400, -32022, "a legacy version in both");
    }
}

#[tokio::test]
async fn a_version_that_is_said_twice_or_is_no_text_matches_nothing() {
    let (app, _fake) = start().await;
    let agent = ModernAgent::at(&app, "/mcp");
    let whole = Post::of(list(marks(json!(VERSION))));
    for second in [VERSION, "2025-11-25"] {
        let twice = whole.clone().adding("mcp-protocol-version", second);
        assert_refused(&agent.send(&twice).await, 400, -32020, second);
    }
    let first = Post::bare(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    let odd = first.adding("mcp-protocol-version", "2025-11-25é");
    assert_refused(&agent.send(&odd).await, 400, -32602, "no text");
}

#[tokio::test]
async fn the_session_of_a_modern_request_is_ignored() {
    let (app, _fake) = start().await;
    let legacy = Agent::connect(&app, "/mcp").await;
    for session in ["nonsense", legacy.session.as_str()] {
        let agent = ModernAgent::at(&app, "/mcp");
        let message = agent.message(json!(1), "tools/list", json!({}));
        let post = Post::of(message.to_string()).adding("mcp-session-id", session);
        let answer = agent.send(&post).await.expect(200);
        assert_eq!(answer.json()["result"]["resultType"], "complete");
        assert!(!answer.headers.contains_key("mcp-session-id"));
    }
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    app.send("POST", "/mcp", &[BOTH, ("mcp-session-id", "nonsense")], ping).await.expect(404);
}

#[tokio::test]
async fn methods_removed_by_the_revision_are_unknown() {
    let (app, fake) = start().await;
    fake.forget_seen();
    for path in PLACES {
        let agent = ModernAgent::at(&app, path);
        for method in [
            "initialize",
            "ping",
            "logging/setLevel",
            "resources/subscribe",
            "resources/unsubscribe",
            "no/such",
            "",
        ] {
            let params = json!({"uri": "fake://text", "level": "debug", "protocolVersion": "2025-11-25"});
            let mut message = agent.message(json!("id é"), method, params);
            if !method.starts_with("resources/") {
                message["params"].as_object_mut().unwrap().remove("uri");
            }
            let mut post = Post::of(message.to_string());
            if method.starts_with("resources/") {
                post = post.adding("mcp-name", "fake://text");
            }
            let answer = agent.send(&post).await;
            assert_refused(&answer, 404, -32601, &format!("{method} on {path}"));
            assert_eq!(answer.json()["id"], "id é");
            assert!(!answer.headers.contains_key("mcp-session-id"));
        }
    }
    assert!(fake.seen_of("initialize").is_empty() && fake.seen_of("ping").is_empty());
    assert!(fake.seen_of("resources/subscribe").is_empty());
}

#[tokio::test]
async fn modern_requests_must_be_posts() {
    let (app, _fake) = start().await;
    let legacy = Agent::connect(&app, "/mcp").await;
    for path in PLACES {
        for method in ["GET", "DELETE", "PUT", "PATCH"] {
            for version in [VERSION, "2099-01-01"] {
                let headers = [
                    ("accept", "text/event-stream"),
                    ("mcp-protocol-version", version),
                    ("mcp-session-id", legacy.session.as_str()),
                ];
                let answer = app.send(method, path, &headers, "").await.expect(405);
                assert_eq!(answer.headers["allow"], "POST", "{method} {path}");
                assert!(answer.error().contains("POST"));
            }
        }
    }
    legacy.request("ping", json!({})).await;
}

#[tokio::test]
async fn batches_notifications_and_responses_are_refused() {
    let (app, fake) = start().await;
    fake.forget_seen();
    let agent = ModernAgent::at(&app, "/mcp");
    let call = agent.message(json!(1), "tools/call", json!({"name": "s__echo"}));
    let batch = Post::bare(format!("[{call}]"));
    let marked = batch
        .clone()
        .adding("mcp-protocol-version", VERSION)
        .adding("mcp-method", "tools/call")
        .adding("mcp-name", "s__echo");
    assert_refused(&agent.send(&marked).await, 400, -32600, "a batch");
    // In revisions with batches, a batch must not contain a modern request.
    let answers = agent.send(&batch).await.expect(200).json();
    assert_eq!(answers[0]["error"]["code"], -32600, "{answers}");
    for body in [r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#]
    {
        let post = Post::bare(body).adding("mcp-protocol-version", VERSION);
        assert_refused(&agent.send(&post).await, 400, -32600, body);
    }
    for body in ["{", "", "nonsense"] {
        let post = Post::bare(body).adding("mcp-protocol-version", VERSION);
        assert_refused(&agent.send(&post).await, 400, -32700, body);
    }
    let twice = call.to_string().replace(r#""name":"s__echo""#, r#""name":"s__echo","name":"s__add""#);
    let post = Post::bare(twice).adding("mcp-protocol-version", VERSION).adding("mcp-method", "tools/call");
    assert_refused(&agent.send(&post.adding("mcp-name", "s__echo")).await, 400, -32600, "a key twice");
    let notice = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let taken = agent.send(&Post::bare(notice).adding("mcp-protocol-version", VERSION)).await.expect(202);
    assert!(taken.body.is_empty());
    assert!(fake.seen_of("tools/call").is_empty());
}

#[tokio::test]
async fn the_first_thing_that_is_wrong_decides() {
    let (app, fake) = start().await;
    fake.forget_seen();
    let agent = ModernAgent::at(&app, "/mcp");
    let request = |method: &str, meta: Value| {
        json!({"jsonrpc": "2.0", "id": "o", "method": method, "params": {"_meta": meta}}).to_string()
    };
    let (strange, old) = ("no/such", json!("2099-01-01"));
    // Each row also has the mistakes of the rows after it.
    let rows = [
        (Post::bare(r#"{"jsonrpc":"2.0","id":"o","method":"no/such"}"#), 400, -32602),
        (Post::bare(request(strange, json!({}))), 400, -32602),
        (Post::bare(request(strange, json!({CAPABILITIES_KEY: {}}))), 400, -32602),
        (Post::bare(request(strange, json!({VERSION_KEY: old}))), 400, -32602),
        (Post::bare(request(strange, json!({VERSION_KEY: old, CAPABILITIES_KEY: []}))), 400, -32602),
        (Post::of(request(strange, marks(old.clone()))).without("mcp-protocol-version"), 400, -32020),
        (Post::of(request(strange, marks(old.clone()))).replacing("mcp-method", "tools/list"), 400, -32020),
        (Post::of(request(strange, marks(old.clone()))), 400, -32022),
        (Post::of(request(strange, marks(json!(VERSION)))), 404, -32601),
    ];
    for (number, (post, status, code)) in rows.into_iter().enumerate() {
        // A header alone makes the first rows modern.
        let is_said = post.body.contains(VERSION_KEY);
        let post = if is_said { post } else { post.adding("mcp-protocol-version", "2099-01-01") };
        let answer = agent.send(&post).await;
        assert_refused(&answer, status, code, &format!("row {number}"));
        assert_eq!(answer.json()["id"], "o", "row {number}");
    }
    assert!(fake.seen().is_empty());
}

#[tokio::test]
async fn an_unsupported_version_gets_the_supported_ones() {
    let (app, _fake) = start().await;
    let agent = ModernAgent::at(&app, "/mcp");
    let discovered = agent.result("server/discover", json!({})).await;
    let supported = discovered["supportedVersions"].clone();
    assert_eq!(supported[0], VERSION);
    for version in ["2099-01-01", "2026-07-29", "", "x y", "2025-11-25"] {
        let answer = agent.send(&Post::of(list(marks(json!(version))))).await;
        assert_refused(&answer, 400, -32022, version);
        let data = answer.json()["error"]["data"].clone();
        assert_eq!(data, json!({"supported": supported, "requested": version}));
    }
}
