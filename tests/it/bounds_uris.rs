//! The bound of URIs in requests. A qualified URI counts as the URI in it.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::support::{Agent, Behaviour, Fake, ModernAgent, TestApp, refusals};

const LIMIT: usize = 8192;

/// A URI of this length, plain and qualified.
fn uris(length: usize) -> [String; 2] {
    let plain = format!("fake://item/{}", "x".repeat(length - "fake://item/".len()));
    let qualified = format!("toolgate://res/s/{}", BASE64_URL_SAFE_NO_PAD.encode(&plain));
    [plain, qualified]
}

#[tokio::test]
async fn long_uris_are_refused_wherever_they_are_given() {
    let app = TestApp::start_with(|config| config.telemetry = true).await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    let mut refused = 0;
    for path in ["/mcp", "/v0/servers/s/mcp"] {
        let (agent, modern) = (Agent::connect(&app, path).await, ModernAgent::at(&app, path));
        for uri in uris(LIMIT) {
            let completion =
                json!({"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": "a", "value": "b"}});
            for (method, params) in [
                ("resources/read", json!({"uri": uri})),
                ("resources/subscribe", json!({"uri": uri})),
                ("resources/unsubscribe", json!({"uri": uri})),
                ("completion/complete", completion),
            ] {
                let answer = agent.request(method, params).await;
                assert!(answer.get("result").is_some(), "{path} {method}: {}", &answer.to_string()[..200]);
            }
        }
        fake.forget_seen();
        for uri in uris(LIMIT + 1).into_iter().chain(uris(1 << 20)) {
            let completion =
                json!({"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": "a", "value": "b"}});
            let check = |error: &Value| {
                assert_eq!(error["code"], -32602, "{path}");
                let message = error["message"].as_str().unwrap();
                assert!(message.contains("8192") && message.len() < 200, "{path}: {}", message.len());
            };
            for (method, params) in [
                ("resources/read", json!({"uri": uri})),
                ("resources/subscribe", json!({"uri": uri})),
                ("resources/unsubscribe", json!({"uri": uri})),
                ("completion/complete", completion.clone()),
            ] {
                check(&agent.error(method, params).await);
                refused += 1;
            }
            let wanted = json!({"notifications": {"resourceSubscriptions": ["fake://text", uri]}});
            check(&modern.error("subscriptions/listen", wanted).await.1);
            check(&modern.error("completion/complete", completion).await.1);
            refused += 2;
        }
        let reached = fake.seen().into_iter().filter(|seen| seen.method.contains('/')).count();
        assert_eq!(reached, 0);
    }
    for uri in uris(LIMIT + 1) {
        for path in ["/api/v0/resources/read", "/api/v0/resources/get", "/api/dashboard/resources/read"] {
            assert!(app.post(path, json!({"uri": uri})).await.expect(400).error().contains("8192"));
            refused += 1;
        }
    }
    for uri in uris(LIMIT) {
        app.post("/api/v0/resources/read", json!({"uri": uri})).await.expect(200);
        app.post("/api/v0/resources/get", json!({"uri": uri})).await.expect(404);
    }
    assert_eq!(refusals(&app, "uri_length").await, refused);
}
