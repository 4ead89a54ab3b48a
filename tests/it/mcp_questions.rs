//! Requests from servers to clients during a call, and the links they need.

use serde_json::{Value, json};

use crate::support::{Agent, Behaviour, Fake, Kinds, TestApp};

fn all() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {"listChanged": true}})
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_go_to_the_client_of_the_call_and_answers_come_back() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    let agents =
        [Agent::connect_with(&app, "/mcp", all()).await, Agent::connect_with(&app, "/mcp", all()).await];
    for server in kinds.servers.iter().filter(|server| server.ends_with("legacy")) {
        for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
            let arguments = json!({"method": method});
            let tool = format!("{server}__ask");
            // One after the other: on a shared process a question can be assigned to a call only if there is just one.
            for (number, agent) in agents.iter().enumerate() {
                let mut talk = agent.begin_call(json!("same"), &tool, arguments.clone()).await;
                let question = talk.expect(method).await;
                // The other client cannot answer it.
                agents[1 - number].reply(&question, json!({"colour": "wrong"})).await;
                agent.reply(&question, json!({"colour": number, "x": [1.0]})).await;
                let answer = talk.answer().await;
                assert_eq!(answer["id"], "same");
                let given: Value =
                    serde_json::from_str(answer["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
                assert_eq!(given, json!({"colour": number, "x": [1.0]}), "{server} {method}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_of_two_calls_at_once_are_told_apart_where_calls_have_streams() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    let agents =
        [Agent::connect_with(&app, "/mcp", all()).await, Agent::connect_with(&app, "/mcp", all()).await];
    let mut one = agents[0].begin_call(json!(1), "s__ask", json!({})).await;
    let mut two = agents[1].begin_call(json!(1), "s__ask", json!({})).await;
    let (first, second) = (one.expect("elicitation/create").await, two.expect("elicitation/create").await);
    agents[1].reply(&second, json!({"for": "two"})).await;
    agents[0].reply(&first, json!({"for": "one"})).await;
    assert_eq!(one.answer().await["result"]["content"][0]["text"], r#"{"for":"one"}"#);
    assert_eq!(two.answer().await["result"]["content"][0]["text"], r#"{"for":"two"}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_client_comes_back_as_such() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    let agent = Agent::connect_with(&app, "/mcp", all()).await;
    let mut talk = agent.begin_call(json!(1), "s__ask", json!({})).await;
    let question = talk.expect("elicitation/create").await;
    let error = json!({"code": -1, "message": "no", "data": {"why": "because"}});
    agent.post(&json!({"jsonrpc": "2.0", "id": question["id"], "error": error})).await.expect(202);
    let told: Value =
        serde_json::from_str(talk.answer().await["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(told, error);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_not_asked_for_what_it_did_not_declare() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    let plain = Agent::connect(&app, "/mcp").await;
    let roots = Agent::connect_with(&app, "/mcp", json!({"roots": {}})).await;
    for server in kinds.servers.iter().filter(|server| server.ends_with("legacy")) {
        for agent in [&plain, &roots] {
            for method in ["elicitation/create", "sampling/createMessage"] {
                let mut talk =
                    agent.begin_call(json!(1), &format!("{server}__ask"), json!({"method": method})).await;
                let answer = talk.next().await.unwrap();
                let said =
                    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
                assert!(said.contains("-32601"), "{server} {method}: {answer}");
            }
        }
        let said = plain.call_text(&format!("{server}__ask"), json!({"method": "roots/list"})).await;
        assert_eq!(said, r#"{"roots":[]}"#, "{server}");
    }
}

#[tokio::test]
async fn links_are_shared_by_those_who_declare_the_same() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    let sets =
        [json!({}), json!({"elicitation": {}}), json!({"elicitation": {}}), json!({"roots": {}}), json!({})];
    for capabilities in sets {
        let agent = Agent::connect_with(&app, "/mcp", capabilities).await;
        for _ in 0..2 {
            agent.call_text("s__echo", json!({"text": "x"})).await;
        }
    }
    assert_eq!(fake.sessions().len(), 3);
    let declared: Vec<_> =
        fake.seen_of("initialize").iter().map(|seen| seen.params["capabilities"].clone()).collect();
    assert_eq!(declared.len(), 3);
    assert_eq!(declared[0], json!({}));
    assert!(declared[1].get("elicitation").is_some() && declared[1].get("roots").is_none(), "{declared:?}");
    app.delete("/api/v0/servers/s").await.expect(204);
    assert_eq!(fake.deleted_sessions().len(), 3, "all links are closed with the server");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_has_at_most_four_processes_for_capability_sets() {
    let app = TestApp::start().await;
    app.register_stdio("s", &Behaviour::of(json!({"era": "legacy"}))).await;
    let sets = [
        json!({}),
        json!({"elicitation": {}}),
        json!({"sampling": {}}),
        json!({"roots": {}}),
        json!({"elicitation": {}, "sampling": {}}),
        json!({"elicitation": {}, "roots": {}}),
        all(),
    ];
    let mut processes = Vec::new();
    for capabilities in sets {
        let agent = Agent::connect_with(&app, "/mcp", capabilities).await;
        processes.push(agent.call_text("s__pid", json!({})).await);
    }
    let [none, elicitation, sampling, roots, rest @ ..] = &processes[..] else { unreachable!() };
    for process in rest {
        assert!([elicitation, sampling, roots].contains(&process) && process != none, "{processes:?}");
    }
    let mut distinct = processes.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), 4, "{processes:?}");
}
