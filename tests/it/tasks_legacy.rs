//! Tasks of revision 2025-11-25 through the gateway: on endpoints with several servers ids carry the server, everywhere;
//! the endpoint of one server keeps them as they are.

use serde_json::{Value, json};

use crate::support::{Agent, Behaviour, Fake, SseAgent, TestApp, eventually};

const RELATED: &str = "io.modelcontextprotocol/related-task";
const TASKS: &str = r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#;

fn behaviour() -> Behaviour {
    let tasks: Value = serde_json::from_str(TASKS).unwrap();
    let mut behaviour = Behaviour::of(json!({"era": "legacy", "capabilities": {"tasks": tasks}}));
    behaviour.show_tools(&["job".into(), "echo".into(), "finish_task".into()]);
    behaviour
}

/// The params of a call that starts a task.
fn job(tool: &str, arguments: Value) -> Value {
    json!({"name": tool, "arguments": arguments, "task": {"ttl": 60_000}})
}

async fn start_job(agent: &Agent, tool: &str, arguments: Value) -> String {
    let answer = agent.request("tools/call", job(tool, arguments)).await;
    answer["result"]["task"]["taskId"].as_str().unwrap_or_else(|| panic!("no task: {answer}")).to_owned()
}

async fn ids(agent: &Agent) -> Vec<String> {
    agent.list("tasks/list", "tasks", "taskId").await
}

#[tokio::test]
async fn ids_carry_the_server_on_endpoints_with_several_servers() {
    for transport in ["http", "stdio", "sse"] {
        let app = TestApp::start().await;
        let fake = Fake::start(behaviour()).await;
        match transport {
            "http" => app.register_http("s", &fake).await,
            "sse" => app.register_sse("s", &fake).await,
            _ => app.register_stdio("s", &behaviour()).await,
        };
        app.post("/api/v0/tool-groups", json!({"name": "g", "included_servers": ["s"]})).await.expect(201);
        for (number, (path, prefix)) in
            [("/mcp", "s__"), ("/v0/groups/g/mcp", "s__"), ("/v0/servers/s/mcp", "")].into_iter().enumerate()
        {
            let place = format!("{transport} {path}");
            let agent = Agent::connect(&app, path).await;
            let declared: Value = serde_json::from_str(TASKS).unwrap();
            assert_eq!(agent.greeting["capabilities"]["tasks"], declared, "{place}");
            // The id itself contains what separates server and id.
            let (own, tool) = (format!("a__{number}\u{e9}\""), format!("{prefix}job"));
            let id = start_job(&agent, &tool, json!({"id": own})).await;
            assert_eq!(id, format!("{prefix}{own}"), "{place}");
            let got = agent.request("tasks/get", json!({"taskId": id})).await;
            assert_eq!((&got["result"]["taskId"], &got["result"]["status"]), (&json!(id), &json!("working")));
            assert!(ids(&agent).await.contains(&id), "{place}");
            agent.call_text(&format!("{prefix}finish_task"), json!({"id": own})).await;
            let result = agent.request("tasks/result", json!({"taskId": id})).await["result"].clone();
            assert_eq!(result["content"][0]["text"], "done", "{place}: {result}");
            assert_eq!(result["_meta"][RELATED]["taskId"], id, "{place}");
            assert_eq!(result["structuredContent"]["taskId"], own, "a result is not rewritten");
            let other = start_job(&agent, &tool, json!({"id": format!("c{number}")})).await;
            let cancelled = agent.request("tasks/cancel", json!({"taskId": other})).await["result"].clone();
            assert_eq!((&cancelled["taskId"], &cancelled["status"]), (&json!(other), &json!("cancelled")));
            let error = agent.error("tasks/get", json!({"taskId": format!("{prefix}never")})).await;
            assert_eq!(
                (&error["code"], &error["message"]),
                (&json!(-32602), &json!("Task not found")),
                "{place}"
            );
        }
    }
}

#[tokio::test]
async fn what_is_no_id_of_a_visible_task_is_refused_and_sent_nowhere() {
    let app = TestApp::start().await;
    let (fake, other) = (Fake::start(behaviour()).await, Fake::start(behaviour()).await);
    app.register_http("s", &fake).await;
    app.register_http("t", &other).await;
    app.post("/api/v0/tool-groups", json!({"name": "g", "included_tools": ["t__job"]})).await.expect(201);
    let agent = Agent::connect(&app, "/mcp").await;
    let id = start_job(&agent, "s__job", json!({"id": "one"})).await;
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        for odd in [
            json!("one"),
            json!("u__one"),
            json!("s_one"),
            json!(""),
            json!(7),
            json!(["s__one"]),
            json!(null),
        ] {
            let error = agent.error(method, json!({"taskId": odd})).await;
            assert_eq!(error["code"], -32602, "{method} {odd}: {error}");
        }
        assert_eq!(agent.error(method, json!({})).await["code"], -32602);
        assert!(fake.seen_of(method).is_empty() && other.seen_of(method).is_empty());
    }
    assert_eq!(agent.error("tasks/list", json!({"cursor": "x"})).await["code"], -32602);
    assert_eq!(agent.error("tasks/other", json!({"taskId": id})).await["code"], -32601);
    // A group shows the tasks of the servers whose tools it has.
    let group = Agent::connect(&app, "/v0/groups/g/mcp").await;
    assert_eq!(group.error("tasks/get", json!({"taskId": id})).await["code"], -32602);
    assert!(ids(&group).await.is_empty());
    assert_eq!(start_job(&group, "t__job", json!({"id": "two"})).await, "t__two");
    assert_eq!(ids(&group).await, ["t__two"]);
    assert_eq!(ids(&agent).await, ["s__one", "t__two"]);
    app.delete("/api/v0/servers/s").await.expect(204);
    assert_eq!(agent.error("tasks/get", json!({"taskId": id})).await["code"], -32602);
    assert_eq!(ids(&agent).await, ["t__two"]);
}

#[tokio::test]
async fn the_list_has_all_pages_of_all_servers_that_answer() {
    let app = TestApp::start().await;
    let (fake, broken) = (Fake::start(behaviour()).await, Fake::start(behaviour()).await);
    fake.update(|behaviour| behaviour.page_size = Some(2));
    broken.update(|behaviour| {
        behaviour.fail.insert("tasks/list".into(), json!({"code": -32603, "message": "no"}));
    });
    let silent = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    for (name, fake) in [("pages", &fake), ("broken", &broken), ("silent", &silent)] {
        app.register_http(name, fake).await;
    }
    let circular = Fake::start(behaviour()).await;
    circular.update(|behaviour| behaviour.circular = Some("tasks".into()));
    app.register_http("round", &circular).await;
    let mut agent = SseAgent::connect(&app, "/sse", json!({})).await;
    let mut expected: Vec<_> = (0..5).map(|number| format!("pages__{number}")).collect();
    for (number, name) in
        (0..5).map(|number| (number, "pages__job")).chain([(7, "broken__job"), (8, "round__job")])
    {
        let params = job(name, json!({"id": number.to_string()}));
        agent.send(&json!({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})).await;
        let answer = agent.answer(json!(number)).await;
        assert!(answer["result"]["task"]["taskId"].is_string(), "{answer}");
    }
    expected.push("round__8".into());
    agent.send(&json!({"jsonrpc": "2.0", "id": "l", "method": "tasks/list"})).await;
    let result = agent.answer(json!("l")).await["result"].clone();
    let listed: Vec<_> =
        result["tasks"].as_array().unwrap().iter().map(|task| task["taskId"].as_str().unwrap()).collect();
    assert_eq!(listed[..5], expected[..5]);
    assert!(listed[5..].iter().all(|id| *id == "round__8"), "{listed:?}");
    assert_eq!(result.get("nextCursor"), None);
    assert!(silent.seen_of("tasks/list").is_empty(), "it declares no such list");
    assert!(circular.seen_of("tasks/list").len() <= 2);
}

#[tokio::test]
async fn messages_during_a_call_name_tasks_as_the_client_knows_them() {
    let app = TestApp::start().await;
    let fake = Fake::start(behaviour()).await;
    app.register_http("s", &fake).await;
    app.register_stdio("p", &behaviour()).await;
    for server in ["s", "p"] {
        let agent = Agent::connect_with(&app, "/mcp", json!({"elicitation": {}})).await;
        let params =
            job(&format!("{server}__job"), json!({"id": "one", "notice": server == "s", "ask": true}));
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let mut talk = agent.begin(&call).await;
        let shown = format!("{server}__one");
        if server == "s" {
            assert_eq!(talk.expect("notifications/tasks/status").await["params"]["taskId"], shown);
            let log = talk.expect("notifications/message").await;
            assert_eq!(log["params"]["_meta"][RELATED]["taskId"], shown);
        }
        assert_eq!(talk.answer().await["result"]["task"]["taskId"], shown);
        // A question of the server reaches the call that waits for the task, among others in flight.
        let mut busy = agent.begin_call(json!(9), &format!("{server}__echo"), json!({"text": "x"})).await;
        busy.answer().await;
        let wait = json!({"jsonrpc": "2.0", "id": 2, "method": "tasks/result", "params": {"taskId": shown}});
        let mut talk = agent.begin(&wait).await;
        let question = talk.expect("elicitation/create").await;
        assert_eq!(question["params"]["_meta"][RELATED]["taskId"], shown, "{question}");
        let answer = json!({"action": "accept", "_meta": {RELATED: {"taskId": shown}}});
        agent.reply(&question, answer).await;
        let result = talk.answer().await["result"].clone();
        let told: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(told, json!({"action": "accept", "_meta": {RELATED: {"taskId": "one"}}}));
    }
}

#[tokio::test]
async fn a_caller_comes_back_to_the_link_that_has_its_task() {
    for settings in [json!({}), json!({"session_mode": "stateful"})] {
        let app = TestApp::start().await;
        let fake = Fake::start(behaviour()).await;
        let mut input = json!({"name": "s", "transport": "streamable_http", "url": fake.url()});
        input.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        app.register(input).await;
        let mut agents = Vec::new();
        for capabilities in [json!({}), json!({"sampling": {}}), json!({"elicitation": {}})] {
            agents.push(Agent::connect_with(&app, "/mcp", capabilities).await);
        }
        for (number, agent) in agents.iter().enumerate() {
            start_job(agent, "s__job", json!({"id": number.to_string()})).await;
        }
        for (number, agent) in agents.iter().enumerate() {
            let id = format!("s__{number}");
            let got = agent.request("tasks/get", json!({"taskId": id})).await;
            assert_eq!(got["result"]["taskId"], id, "{settings}: {got}");
            assert_eq!(ids(agent).await, [id]);
        }
    }
}

#[tokio::test]
async fn waiting_for_a_task_does_not_keep_others_from_the_server() {
    let app = TestApp::start().await;
    let fake = Fake::start(behaviour()).await;
    app.register(
        json!({"name": "s", "transport": "streamable_http", "url": fake.url(), "max_concurrency": 1}),
    )
    .await;
    let agent = Agent::connect(&app, "/mcp").await;
    let id = start_job(&agent, "s__job", json!({"id": "one"})).await;
    let wait = json!({"jsonrpc": "2.0", "id": 99, "method": "tasks/result", "params": {"taskId": id}});
    let waiting = async { agent.begin(&wait).await.answer().await["result"]["content"][0]["text"].clone() };
    let cancelling = async {
        eventually("the server has the request", async || !fake.seen_of("tasks/result").is_empty()).await;
        agent.request("tasks/cancel", json!({"taskId": id})).await["result"]["status"].clone()
    };
    assert_eq!(tokio::join!(waiting, cancelling), (json!("cancelled"), json!("cancelled")));
}

#[tokio::test]
async fn a_status_outside_of_calls_reaches_the_session_that_started_the_task() {
    for transport in ["http", "stdio", "sse"] {
        let app = TestApp::start().await;
        let fake = Fake::start(behaviour()).await;
        match transport {
            "http" => app.register_http("s", &fake).await,
            "sse" => app.register_sse("s", &fake).await,
            _ => app.register_stdio("s", &behaviour()).await,
        };
        // Another link to the same server, on which the same notice comes.
        let other = Agent::connect_with(&app, "/mcp", json!({"sampling": {}})).await;
        let mut bystander = other.listen().await;
        start_job(&other, "s__job", json!({"id": "other"})).await;
        let (agent, native) =
            (Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/v0/servers/s/mcp").await);
        let (mut stream, mut own) = (agent.listen().await, native.listen().await);
        start_job(&agent, "s__job", json!({"id": "one"})).await;
        start_job(&native, "job", json!({"id": "two"})).await;
        if transport == "http" {
            eventually("the links hear the server", async || fake.open_streams() >= 2).await;
        }
        for id in ["one", "two"] {
            native.call_text("finish_task", json!({"id": id})).await;
        }
        let told = stream.expect("notifications/tasks/status").await;
        assert_eq!(
            (&told["params"]["taskId"], &told["params"]["status"]),
            (&json!("s__one"), &json!("completed"))
        );
        let told = own.expect("notifications/tasks/status").await;
        assert_eq!(told["params"]["taskId"], "two", "{transport}");
        // Nobody else is told, and nobody twice: the next thing that they hear is something else.
        app.register_stdio("t", &behaviour()).await;
        for stream in [&mut stream, &mut bystander] {
            stream.expect("notifications/tools/list_changed").await;
        }
        let mut sse = SseAgent::connect(&app, "/sse", json!({})).await;
        let params = job("s__job", json!({"id": "three"}));
        sse.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})).await;
        sse.answer(json!(1)).await;
        native.call_text("finish_task", json!({"id": "three"})).await;
        let told = sse.next().await.unwrap();
        assert_eq!(
            (&told["method"], &told["params"]["taskId"]),
            (&json!("notifications/tasks/status"), &json!("s__three"))
        );
    }
}
