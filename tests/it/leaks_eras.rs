//! What one era has must not pass in the other, and no spelling of a method passes the checks of another.

use serde_json::{Value, json};

use crate::support::mcp::BOTH;
use crate::support::modern::Post;
use crate::support::{Agent, Behaviour, Fake, ModernAgent, SseAgent, TestApp};

const PLACES: [&str; 3] = ["/mcp", "/v0/groups/g/mcp", "/v0/servers/s/mcp"];

async fn start(era: &str) -> (TestApp, Fake) {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": era}))).await;
    app.register_http("s", &fake).await;
    app.post("/api/v0/tool-groups", json!({"name": "g", "included_servers": ["s"]})).await.expect(201);
    app.post("/api/v0/tools/disable", json!({"entity": "s__echo"})).await.expect(200);
    (app, fake)
}

fn request(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

#[tokio::test]
async fn fields_of_rounds_are_refused_from_legacy_callers() {
    for era in ["legacy", "modern"] {
        let (app, fake) = start(era).await;
        fake.forget_seen();
        for path in PLACES {
            let agent = Agent::connect(&app, path).await;
            let tool = if path.contains("servers") { "add" } else { "s__add" };
            for (key, value) in [
                ("requestState", json!("raw")),
                ("requestState", json!({})),
                ("requestState", Value::Null),
                ("inputResponses", json!({"a": {}})),
                ("inputResponses", json!([1])),
            ] {
                for (method, mut params) in [
                    ("tools/call", json!({"name": tool})),
                    ("prompts/get", json!({"name": "plain"})),
                    ("vendor/method", json!({})),
                    ("tools/list", json!({})),
                ] {
                    params[key] = value.clone();
                    let error = agent.error(method, params.clone()).await;
                    assert_eq!(error["code"], -32602, "{path} {method} {params}: {error}");
                    assert!(error["message"].as_str().unwrap().contains(key), "{error}");
                    let alone = app.send("POST", path, &[BOTH], request(method, params).to_string()).await;
                    assert_eq!(alone.json()["error"]["code"], -32602);
                }
            }
        }
        assert!(fake.seen_of("tools/call").is_empty() && fake.seen_of("vendor/method").is_empty());
    }
}

#[tokio::test]
async fn a_method_in_another_case_is_unknown_everywhere() {
    for era in ["legacy", "modern"] {
        let (app, fake) = start(era).await;
        fake.forget_seen();
        for path in PLACES {
            let (agent, modern) = (Agent::connect(&app, path).await, ModernAgent::at(&app, path));
            for method in ["TOOLS/CALL", "Tools/call", "tools/LIST", "Initialize", "tasks/Get", "Vendor/X"] {
                let is_known = method != "Vendor/X";
                if !is_known && !path.contains("servers") {
                    continue;
                }
                let params = json!({"name": "echo", "arguments": {}});
                let legacy = agent.error(method, params.clone()).await;
                assert_eq!(legacy["code"], -32601, "{path} {method}: {legacy}");
                let (status, error) = modern.error(method, params.clone()).await;
                assert_eq!((status, &error["code"]), (404, &json!(-32601)), "{path} {method}: {error}");
                if is_known {
                    let batch = json!([request(method, params)]).to_string();
                    let answers = app.send("POST", path, &[BOTH], batch).await.expect(200).json();
                    assert_eq!(answers[0]["error"]["code"], -32601, "{answers}");
                }
            }
            let notice = json!({"jsonrpc": "2.0", "method": "Notifications/Cancelled"});
            let refused = agent.post(&notice).await.expect(400).json();
            assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!(-32601), &Value::Null));
            let post = Post::bare(notice.to_string()).adding("mcp-protocol-version", "2026-07-28");
            assert_eq!(modern.send(&post).await.expect(400).json()["error"]["code"], -32601);
        }
        let mut sse = SseAgent::connect(&app, "/sse", json!({})).await;
        sse.send(&request("TOOLS/CALL", json!({"name": "s__echo"}))).await;
        assert_eq!(sse.answer(json!(1)).await["error"]["code"], -32601);
        let notice = json!({"jsonrpc": "2.0", "method": "NOTIFICATIONS/initialized"}).to_string();
        app.send("POST", &sse.endpoint, &[], notice).await.expect(400);
        let reached: Vec<_> = fake.seen().into_iter().map(|seen| seen.method).collect();
        assert!(
            reached
                .iter()
                .all(|method| *method == method.to_lowercase() || method == "Vendor/X" || method == "GET"),
            "{reached:?}"
        );
    }
}
