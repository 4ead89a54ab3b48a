//! In enterprise mode a client uses its own tasks only, at every endpoint and in both eras.

use serde_json::{Value, json};

use crate::support::{Agent, Behaviour, Fake, ModernAgent, TestApp, eventually};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

async fn register(app: &TestApp, era: &str) -> Fake {
    let capabilities = match era {
        "legacy" => json!({"tasks": {"list": {}, "cancel": {}}}),
        _ => json!({"extensions": {EXTENSION: {}}}),
    };
    let mut behaviour = Behaviour::of(json!({"era": era, "capabilities": capabilities}));
    behaviour.show_tools(&["job".into()]);
    let fake = Fake::start(behaviour).await;
    app.register_http("s", &fake).await;
    fake
}

fn job(tool: &str, id: &str) -> Value {
    json!({"name": tool, "arguments": {"id": id}, "task": {"ttl": 60_000}})
}

async fn ids(agent: &Agent) -> Vec<String> {
    agent.list("tasks/list", "tasks", "taskId").await
}

#[tokio::test]
async fn legacy_tasks_of_others_are_unknown_everywhere() {
    let app = TestApp::start_enterprise().await;
    let fake = register(&app, "legacy").await;
    let (anna, bob) = (app.create_client("anna", &["s"]).await, app.create_client("bob", &["s"]).await);
    let eve = app.create_client("eve", &[]).await;
    let agents = [Agent::connect_as(&app, "/mcp", &anna).await, Agent::connect_as(&app, "/mcp", &bob).await];
    let natives = [
        Agent::connect_as(&app, "/v0/servers/s/mcp", &anna).await,
        Agent::connect_as(&app, "/v0/servers/s/mcp", &bob).await,
    ];
    agents[0].request("tools/call", job("s__job", "annas")).await;
    natives[1].request("tools/call", job("job", "bobs")).await;
    assert_eq!(ids(&agents[0]).await, ["s__annas"]);
    assert_eq!(ids(&agents[1]).await, ["s__bobs"]);
    assert_eq!(ids(&natives[0]).await, ["annas"]);
    assert_eq!(ids(&natives[1]).await, ["bobs"]);
    // A member that servers ignore does not open the list.
    let sly = natives[0].request("tasks/list", json!({"taskId": "annas"})).await;
    assert_eq!(sly["result"]["tasks"].as_array().unwrap().len(), 1, "{sly}");
    fake.forget_seen();
    for method in ["tasks/get", "tasks/result", "tasks/update", "tasks/cancel"] {
        for (agent, foreign) in [(&agents[0], "s__bobs"), (&agents[1], "s__annas"), (&natives[0], "bobs")] {
            let error = agent.error(method, json!({"taskId": foreign})).await;
            let unknown = format!("unknown task: {foreign}");
            assert_eq!((&error["code"], &error["message"]), (&json!(-32602), &json!(unknown)), "{method}");
        }
        assert!(fake.seen_of(method).is_empty());
    }
    let related =
        json!({"name": "s__job", "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "s__bobs"}}});
    assert_eq!(agents[0].error("tools/call", related).await["code"], -32602);
    // Nobody learns of servers that it may not use.
    let blind = Agent::connect_as(&app, "/mcp", &eve).await;
    assert_eq!(blind.greeting["capabilities"].get("tasks"), None);
    assert_eq!(
        blind.error("tasks/get", json!({"taskId": "s__annas"})).await["message"],
        "unknown task: s__annas"
    );
    assert!(ids(&blind).await.is_empty());
    // Losing the server means losing its tasks.
    let got = agents[0].request("tasks/get", json!({"taskId": "s__annas"})).await;
    assert_eq!(got["result"]["taskId"], "s__annas");
    app.put("/api/v0/clients/anna", json!({"allow_list": []})).await.expect(200);
    assert_eq!(agents[0].error("tasks/get", json!({"taskId": "s__annas"})).await["code"], -32602);
    assert!(ids(&agents[0]).await.is_empty());
}

#[tokio::test]
async fn a_status_reaches_no_other_client() {
    let app = TestApp::start_enterprise().await;
    let fake = register(&app, "legacy").await;
    let (anna, bob) = (app.create_client("anna", &["*"]).await, app.create_client("bob", &["*"]).await);
    let (anna, bob) =
        (Agent::connect_as(&app, "/mcp", &anna).await, Agent::connect_as(&app, "/mcp", &bob).await);
    let (mut annas, mut bobs) = (anna.listen().await, bob.listen().await);
    anna.request("tools/call", job("s__job", "one")).await;
    bob.request("tools/call", job("s__job", "two")).await;
    eventually("the link hears the server", async || fake.open_streams() > 0).await;
    fake.finish_task("one", "done");
    fake.finish_task("two", "done");
    assert_eq!(annas.expect("notifications/tasks/status").await["params"]["taskId"], "s__one");
    assert_eq!(bobs.expect("notifications/tasks/status").await["params"]["taskId"], "s__two");
}

#[tokio::test]
async fn modern_tasks_of_others_are_unknown_and_not_granted() {
    let app = TestApp::start_enterprise().await;
    let fake = register(&app, "modern").await;
    let (anna, bob) = (app.create_client("anna", &["*"]).await, app.create_client("bob", &["*"]).await);
    let agent = |path: &str, token: &str| {
        ModernAgent::at(&app, path).with(json!({"extensions": {EXTENSION: {}}})).using(token)
    };
    let (annas, bobs) = (agent("/mcp", &anna), agent("/mcp", &bob));
    assert_eq!(annas.call("s__job", json!({"id": "one"})).await["taskId"], "s__one");
    assert_eq!(agent("/v0/servers/s/mcp", &bob).call("job", json!({"id": "two"})).await["taskId"], "two");
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let (_, error) = annas.error(method, json!({"taskId": "s__two"})).await;
        assert_eq!((&error["code"], &error["message"]), (&json!(-32602), &json!("unknown task: s__two")));
        assert!(fake.seen_of(method).is_empty());
    }
    let wanted = json!({"taskIds": ["s__one", "s__two"]});
    let (mut stream, granted) = annas.listen(json!(1), wanted.clone()).await;
    assert_eq!(granted, json!({"taskIds": ["s__one"]}));
    let (mut other, granted) = bobs.listen(json!(2), wanted).await;
    assert_eq!(granted, json!({"taskIds": ["s__two"]}));
    fake.finish_task("two", "done");
    fake.finish_task("one", "done");
    assert_eq!(stream.expect("notifications/tasks").await["params"]["taskId"], "s__one");
    assert_eq!(other.expect("notifications/tasks").await["params"]["taskId"], "s__two");
}
