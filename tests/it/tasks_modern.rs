//! Tasks of the extension of revision 2026-07-28 through the gateway.

use serde_json::{Value, json};

use crate::support::modern::{Post, SUBSCRIPTION_KEY};
use crate::support::{Behaviour, Fake, ModernAgent, TestApp, eventually};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

fn behaviour() -> Behaviour {
    let capabilities = json!({"extensions": {EXTENSION: {}}});
    let mut behaviour = Behaviour::of(json!({"era": "modern", "capabilities": capabilities}));
    behaviour.show_tools(&["job".into(), "finish_task".into(), "set_tools".into()]);
    behaviour
}

fn agent(app: &TestApp, path: &str) -> ModernAgent {
    ModernAgent::at(app, path).with(json!({"extensions": {EXTENSION: {}}}))
}

async fn start_job(agent: &ModernAgent, tool: &str, arguments: Value) -> String {
    let result = agent.call(tool, arguments).await;
    assert_eq!(result["resultType"], "task", "{result}");
    result["taskId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn ids_carry_the_server_on_endpoints_with_several_servers() {
    for transport in ["http", "stdio"] {
        let app = TestApp::start().await;
        let fake = Fake::start(behaviour()).await;
        match transport {
            "http" => app.register_http("s", &fake).await,
            _ => app.register_stdio("s", &behaviour()).await,
        };
        app.post("/api/v0/tool-groups", json!({"name": "g", "included_servers": ["s"]})).await.expect(201);
        for (number, (path, prefix)) in
            [("/mcp", "s__"), ("/v0/groups/g/mcp", "s__"), ("/v0/servers/s/mcp", "")].into_iter().enumerate()
        {
            let agent = agent(&app, path);
            let discovered = agent.result("server/discover", json!({})).await;
            assert_eq!(discovered["capabilities"]["extensions"][EXTENSION], json!({}), "{path}");
            assert_eq!(discovered["capabilities"].get("tasks"), None);
            let (own, tool) = (format!("a__{number}\u{e9}"), format!("{prefix}job"));
            let id = start_job(&agent, &tool, json!({"id": own, "ask": true})).await;
            assert_eq!(id, format!("{prefix}{own}"), "{transport} {path}");
            let got = agent.result("tasks/get", json!({"taskId": id})).await;
            assert_eq!((&got["taskId"], &got["status"]), (&json!(id), &json!("input_required")), "{got}");
            assert_eq!(got["inputRequests"]["colour"]["method"], "elicitation/create");
            let given = json!({"colour": {"action": "accept", "content": {"colour": "red"}}});
            let update = json!({"taskId": id, "inputResponses": given});
            assert_eq!(agent.result("tasks/update", update).await, json!({"resultType": "complete"}));
            let got = agent.result("tasks/get", json!({"taskId": id})).await;
            let said: Value =
                serde_json::from_str(got["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
            assert_eq!((&got["taskId"], &said), (&json!(id), &given));
            let other = start_job(&agent, &tool, json!({"id": format!("c{number}")})).await;
            agent.result("tasks/cancel", json!({"taskId": other})).await;
            assert_eq!(agent.result("tasks/get", json!({"taskId": other})).await["status"], "cancelled");
        }
        if transport == "http" {
            let names: Vec<_> =
                fake.seen_of("tasks/cancel").iter().map(|seen| seen.headers["mcp-name"].clone()).collect();
            assert_eq!(names, ["c0", "c1", "c2"], "the header has the server's own id");
        }
    }
}

#[tokio::test]
async fn what_is_no_id_of_a_visible_task_is_refused_and_sent_nowhere() {
    let app = TestApp::start().await;
    let fake = Fake::start(behaviour()).await;
    app.register_http("s", &fake).await;
    let agent = agent(&app, "/mcp");
    let id = start_job(&agent, "s__job", json!({"id": "one"})).await;
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        for odd in [json!("one"), json!("u__one"), json!(""), json!(7), json!(["s__one"]), json!(null)] {
            let (status, error) = agent.error(method, json!({"taskId": odd})).await;
            assert_eq!((status, &error["code"]), (200, &json!(-32602)), "{method} {odd}: {error}");
        }
        let message = agent.message(json!(1), method, json!({"taskId": id}));
        let other = Post::of(message.to_string()).replacing("mcp-name", "one");
        assert_eq!(agent.send(&other).await.expect(400).json()["error"]["code"], -32020);
        assert!(fake.seen_of(method).is_empty());
        // The server itself refuses clients that do not declare the extension.
        let (status, error) = ModernAgent::at(&app, "/mcp").error(method, json!({"taskId": id})).await;
        assert_eq!((status, &error["code"]), (400, &json!(-32021)), "{error}");
        fake.forget_seen();
    }
    for method in ["tasks/list", "tasks/result"] {
        let (status, error) = agent.error(method, json!({"taskId": id})).await;
        assert_eq!((status, &error["code"]), (404, &json!(-32601)), "{method}");
    }
    app.delete("/api/v0/servers/s").await.expect(204);
    assert_eq!(agent.error("tasks/get", json!({"taskId": id})).await.1["code"], -32602);
}

#[tokio::test]
async fn a_task_is_of_no_use_over_rest() {
    let app = TestApp::start().await;
    let fake = Fake::start(behaviour()).await;
    app.register_http("s", &fake).await;
    assert_eq!(app.call("s__job", json!({})).await, "done at once");
    let error = app.invoke("s__job", json!({"force": true})).await.expect(500).error();
    assert!(error.contains("the server answered with a task, which needs an MCP client"), "{error}");
}

#[tokio::test]
async fn listeners_are_told_of_exactly_the_tasks_that_they_asked_for() {
    for transport in ["http", "stdio"] {
        let app = TestApp::start().await;
        let fake = Fake::start(behaviour()).await;
        match transport {
            "http" => app.register_http("s", &fake).await,
            _ => app.register_stdio("s", &behaviour()).await,
        };
        let (everything, native) = (agent(&app, "/mcp"), agent(&app, "/v0/servers/s/mcp"));
        for id in ["one", "two"] {
            start_job(&native, "job", json!({"id": id})).await;
        }
        let wanted = json!({"taskIds": ["s__one", "s__gone", "one", "u__one"], "toolsListChanged": true});
        let (mut first, granted) = everything.listen(json!("a"), wanted).await;
        assert_eq!(granted, json!({"taskIds": ["s__one"], "toolsListChanged": true}), "{transport}");
        let (mut second, granted) =
            everything.listen(json!("b"), json!({"taskIds": ["s__one", "s__two"]})).await;
        assert_eq!(granted, json!({"taskIds": ["s__one", "s__two"]}));
        let (mut third, granted) = native.listen(json!(3), json!({"taskIds": ["two"]})).await;
        assert_eq!(granted, json!({"taskIds": ["two"]}));
        native.call("finish_task", json!({"id": "one"})).await;
        native.call("finish_task", json!({"id": "two"})).await;
        let expect = async |stream: &mut crate::support::mcp::Talk, id: &str, subscription: Value| {
            let notice = stream.expect("notifications/tasks").await;
            let params = &notice["params"];
            assert_eq!(
                (&params["taskId"], &params["status"]),
                (&json!(id), &json!("completed")),
                "{transport}"
            );
            assert_eq!(params["_meta"], json!({SUBSCRIPTION_KEY: subscription}));
            assert_eq!(params["result"]["content"][0]["text"], "done");
        };
        expect(&mut first, "s__one", json!("a")).await;
        expect(&mut second, "s__one", json!("b")).await;
        expect(&mut second, "s__two", json!("b")).await;
        expect(&mut third, "two", json!(3)).await;
        native.call("set_tools", json!({"names": ["job", "echo"]})).await;
        first.expect("notifications/tools/list_changed").await;
        drop((first, second, third));
        if transport == "http" {
            eventually("nobody is subscribed any more", async || {
                let last = fake.seen_of("subscriptions/listen").pop().unwrap();
                last.params["notifications"].get("taskIds").is_none()
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_listener_must_declare_the_extension_and_keep_to_the_limits() {
    let app = TestApp::start().await;
    let fake = Fake::start(behaviour()).await;
    app.register_http("s", &fake).await;
    let wanted = json!({"notifications": {"taskIds": ["s__one"]}});
    let (status, error) = ModernAgent::at(&app, "/mcp").error("subscriptions/listen", wanted).await;
    assert_eq!((status, &error["code"]), (400, &json!(-32021)));
    assert_eq!(error["data"], json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}}));
    let agent = agent(&app, "/mcp");
    for odd in [json!("s__one"), json!([5]), json!({"s__one": true}), json!(["x".repeat(9000)])] {
        let wanted = json!({"notifications": {"taskIds": odd}});
        assert_eq!(agent.error("subscriptions/listen", wanted).await.1["code"], -32602);
    }
    let uris: Vec<_> = (0..600).map(|number| format!("fake://item/{number}")).collect();
    let ids: Vec<_> = (0..600).map(|number| format!("s__{number}")).collect();
    let wanted = json!({"notifications": {"taskIds": ids, "resourceSubscriptions": uris}});
    assert_eq!(agent.error("subscriptions/listen", wanted).await.1["code"], -32602, "both count");
}
