//! Tasks are not translated between the eras: clients of the other one get a clear error, and are not told that there are
//! tasks.

use serde_json::{Value, json};

use crate::support::{Agent, Behaviour, Fake, ModernAgent, TestApp};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

async fn register(app: &TestApp, era: &str) -> Fake {
    let tasks = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
    let capabilities = match era {
        "legacy" => json!({"tasks": tasks}),
        "both" => json!({"tasks": tasks, "extensions": {EXTENSION: {}}}),
        _ => json!({"extensions": {EXTENSION: {}, "a/b": {"c": 1}}}),
    };
    let mut behaviour = Behaviour::of(json!({"era": era, "capabilities": capabilities}));
    behaviour.show_tools(&["job".into()]);
    let fake = Fake::start(behaviour).await;
    app.register_http(era, &fake).await;
    fake
}

fn assert_refused(error: &Value, server: &str) {
    let (theirs, ours) =
        if server == "modern" { ("2026-07-28", "2025-11-25") } else { ("2025-11-25", "2026-07-28") };
    let sentence = format!(
        "the tasks of server {server:?} are those of revision {theirs}, which clients of revision {ours} cannot use"
    );
    assert_eq!((&error["code"], &error["message"]), (&json!(-32602), &json!(sentence)));
}

#[tokio::test]
async fn a_legacy_client_cannot_use_tasks_of_a_modern_server() {
    let app = TestApp::start().await;
    let fake = register(&app, "modern").await;
    for (path, prefix) in [("/mcp", "modern__"), ("/v0/servers/modern/mcp", "")] {
        let agent = Agent::connect_with(&app, path, json!({"extensions": {EXTENSION: {}}})).await;
        let declared = &agent.greeting["capabilities"];
        assert_eq!(
            (declared.get("tasks"), &declared["extensions"]),
            (None, &json!({"a/b": {"c": 1}})),
            "{path}"
        );
        fake.forget_seen();
        for task in [json!({"ttl": 1}), json!({}), json!(true)] {
            let call = json!({"name": format!("{prefix}job"), "arguments": {}, "task": task});
            assert_refused(&agent.error("tools/call", call).await, "modern");
        }
        for method in ["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"] {
            assert_refused(&agent.error(method, json!({"taskId": format!("{prefix}x")})).await, "modern");
        }
        assert!(fake.seen_of("tools/call").is_empty() && fake.seen_of("tasks/get").is_empty());
        // The client declared the extension, so the server makes a task of a plain call.
        let error = agent.error("tools/call", json!({"name": format!("{prefix}job"), "arguments": {}})).await;
        assert_eq!(error["code"], -32603);
        assert!(error["message"].as_str().unwrap().contains("the tasks of server \"modern\""), "{error}");
        let answer = Agent::connect(&app, path).await.call_text(&format!("{prefix}job"), json!({})).await;
        assert_eq!(answer, "done at once");
    }
    assert!(Agent::connect(&app, "/mcp").await.list("tasks/list", "tasks", "taskId").await.is_empty());
}

#[tokio::test]
async fn a_modern_client_cannot_use_tasks_of_a_legacy_server() {
    let app = TestApp::start().await;
    let fake = register(&app, "legacy").await;
    for (path, prefix) in [("/mcp", "legacy__"), ("/v0/servers/legacy/mcp", "")] {
        let legacy = Agent::connect(&app, path).await;
        let call = json!({"name": format!("{prefix}job"), "arguments": {"id": "one"}, "task": {}});
        let id = legacy.request("tools/call", call.clone()).await["result"]["task"]["taskId"].clone();
        assert_eq!(id, format!("{prefix}one"));
        let agent = ModernAgent::at(&app, path).with(json!({"extensions": {EXTENSION: {}}}));
        let declared = agent.result("server/discover", json!({})).await["capabilities"].clone();
        assert_eq!((declared.get("tasks"), declared["extensions"].get(EXTENSION)), (None, None), "{path}");
        fake.forget_seen();
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            assert_refused(&agent.error(method, json!({"taskId": id})).await.1, "legacy");
            assert!(fake.seen_of(method).is_empty());
        }
        assert_refused(&agent.error("tools/call", call).await.1, "legacy");
        assert!(fake.seen_of("tools/call").is_empty());
        let (_stream, granted) = agent.listen(json!(1), json!({"taskIds": [id]})).await;
        assert_eq!(granted, json!({}));
        assert_eq!(agent.call_text(&format!("{prefix}job"), json!({})).await, "done at once");
    }
}

#[tokio::test]
async fn each_era_uses_its_own_tasks_of_servers_of_both() {
    let app = TestApp::start().await;
    let (_legacy, _modern) = (register(&app, "legacy").await, register(&app, "modern").await);
    let _both = register(&app, "both").await;
    let agent = Agent::connect(&app, "/mcp").await;
    assert!(agent.greeting["capabilities"]["tasks"]["list"].is_object());
    let call = json!({"name": "both__job", "arguments": {"id": "one"}, "task": {}});
    assert_eq!(agent.request("tools/call", call).await["result"]["task"]["taskId"], "both__one");
    let modern = ModernAgent::at(&app, "/mcp").with(json!({"extensions": {EXTENSION: {}}}));
    assert_eq!(modern.call("both__job", json!({"id": "two"})).await["taskId"], "both__two");
    assert_eq!(
        agent.request("tasks/get", json!({"taskId": "both__one"})).await["result"]["taskId"],
        "both__one"
    );
    assert_eq!(modern.result("tasks/get", json!({"taskId": "both__two"})).await["taskId"], "both__two");
    assert_eq!(modern.error("tasks/get", json!({"taskId": "both__one"})).await.1["code"], -32602);
    assert_eq!(agent.list("tasks/list", "tasks", "taskId").await, ["both__one"]);
}
