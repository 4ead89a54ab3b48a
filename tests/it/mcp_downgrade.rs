//! What a legacy client gets of a modern server: nothing that only the modern era has.

use serde_json::{Value, json};

use crate::support::{Agent, Behaviour, Fake, ModernAgent, TestApp};

const QUALIFIED: &str = "toolgate://res/s/ZmFrZTovL3RleHQ";

async fn start(more: Value) -> (TestApp, Fake) {
    let app = TestApp::start().await;
    let mut behaviour = json!({"era": "modern"});
    behaviour.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let fake = Fake::start(Behaviour::of(behaviour)).await;
    app.register_http("s", &fake).await;
    (app, fake)
}

fn keys(result: &Value) -> Vec<&str> {
    result.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn no_result_has_members_of_the_modern_era() {
    let own = json!({"io.modelcontextprotocol/serverInfo": {"name": "x"}});
    let mixed = json!({"io.modelcontextprotocol/serverInfo": {"name": "x"}, "example.com/a": [1, 2]});
    let contents = json!([{"uri": "fake://text", "text": "a", "_meta": own.clone()}]);
    let results = json!({
        "plain": {"messages": [], "_meta": mixed},
        "fake://text": {"contents": contents, "_meta": own},
    });
    let (app, _fake) = start(json!({"results": results})).await;
    for (path, prefix) in [("/mcp", "s__"), ("/v0/servers/s/mcp", "")] {
        let agent = Agent::connect(&app, path).await;
        let called = agent.call(&format!("{prefix}echo"), json!({"text": "hi"})).await;
        assert_eq!(keys(&called["result"]), ["content"], "{called}");
        let rendered = agent.request("prompts/get", json!({"name": format!("{prefix}plain")})).await;
        assert_eq!(rendered["result"], json!({"messages": [], "_meta": {"example.com/a": [1, 2]}}));
        let read = agent.request("resources/read", json!({"uri": "fake://text"})).await;
        assert_eq!(read["result"], json!({ "contents": contents }), "{path}");
        let completed = agent
            .request(
                "completion/complete",
                json!({
                    "ref": {"type": "ref/prompt", "name": format!("{prefix}plain")},
                    "argument": {"name": "a", "value": "b"},
                }),
            )
            .await;
        assert_eq!(keys(&completed["result"]), ["completion"]);
    }
    // Modern clients still need them.
    let modern = ModernAgent::at(&app, "/mcp");
    assert_eq!(modern.result("resources/read", json!({"uri": "fake://text"})).await["ttlMs"], 60_000);
}

#[tokio::test]
async fn a_modern_servers_unknown_resource_has_the_legacy_code() {
    let (app, fake) = start(json!({})).await;
    let native = Agent::connect(&app, "/v0/servers/s/mcp").await;
    let error = native.error("resources/read", json!({"uri": "fake://nothing"})).await;
    assert_eq!(error["code"], -32002, "{error}");
    assert_eq!(
        (&error["message"], &error["data"]["uri"]),
        (&json!("Resource not found"), &json!("fake://nothing"))
    );
    // Other wrong parameters are no unknown resource.
    let everything = Agent::connect(&app, "/mcp").await;
    for (data, code) in [
        (json!({"uri": "fake://text"}), -32002),
        (json!({"uri": "fake://other"}), -32602),
        (json!({"parameter": "_meta"}), -32602),
    ] {
        let failure = json!({"code": -32602, "message": "no", "data": data});
        fake.update(|behaviour| _ = behaviour.fail.insert("resources/read".into(), failure.clone()));
        let error = everything.error("resources/read", json!({"uri": "fake://text"})).await;
        assert_eq!((&error["code"], &error["data"]), (&json!(code), &data), "{error}");
        let error = everything.error("resources/read", json!({"uri": QUALIFIED})).await;
        assert_eq!(error["code"], code, "{error}");
    }
    let (_, error) =
        ModernAgent::at(&app, "/mcp").error("resources/read", json!({"uri": "fake://text"})).await;
    assert_eq!(error["code"], -32602);
}

#[tokio::test]
async fn contents_carry_the_uri_that_was_asked_for() {
    for era in ["legacy", "modern"] {
        let (app, fake) = start(json!({"era": era})).await;
        let (legacy, modern) = (Agent::connect(&app, "/mcp").await, ModernAgent::at(&app, "/mcp"));
        for uri in [QUALIFIED, "fake://text"] {
            let read = legacy.request("resources/read", json!({"uri": uri})).await;
            assert_eq!(read["result"]["contents"][0]["uri"], uri, "{era}");
            assert_eq!(read["result"]["contents"][0]["text"], "content of fake://text");
            let read = modern.result("resources/read", json!({"uri": uri})).await;
            assert_eq!(read["contents"][0]["uri"], uri, "{era}");
        }
        assert!(fake.seen_of("resources/read").iter().all(|seen| seen.params["uri"] == "fake://text"));
    }
}
