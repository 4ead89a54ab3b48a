//! Messages of agents and servers arrive unchanged, with any number of concurrent calls.

use serde_json::{Value, json};

use crate::support::mcp::BOTH;
use crate::support::{Agent, Behaviour, Kinds, TestApp};

/// Key order, unknown keys, integers beyond 64 bits, `1.0`, `1e3`, escapes, blanks, text outside the BMP.
const ODD: &str = r#"{"zeta": 98765432109876543210,"alpha":1.0, "e":1e3,"E":-0.0,"x":{"b":[null,true,{"q":1e-7}],"a":"\u00e9\/\ud83d\ude00 😀"},"id":7,"name":"inner","":""}"#;

#[tokio::test(flavor = "multi_thread")]
async fn arguments_and_results_arrive_byte_for_byte_over_every_kind_of_link() {
    let app = TestApp::start().await;
    let result =
        format!(r#"{{"x-first":1.0,"messages":[],"_meta":{{"big":12345678901234567890123}},"odd":{ODD}}}"#);
    let behaviour = format!(r#"{{"results":{{"plain":{result}}}}}"#);
    let (servers, _fakes) = {
        let mut whole = Behaviour::default();
        whole.merge(&behaviour).unwrap();
        kinds(&app, &whole).await
    };
    for server in &servers {
        let call = format!(
            r#"{{"params": {{"arguments":{ODD},"x-vendor":{{"1":2.50}},"name":"{server}__echo_args"}}, "method":"tools/call","jsonrpc":"2.0","id":"a\u0062"}}"#
        );
        let answer = app.send("POST", "/mcp", &[BOTH], call).await.expect(200);
        assert!(answer.text().contains(r#""id":"a\u0062""#), "{server}: {}", answer.text());
        assert_eq!(answer.json()["result"]["content"][0]["text"], ODD, "{server}");
        let get = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{{"name":"{server}__plain"}}}}"#
        );
        let answer = app.send("POST", "/mcp", &[BOTH], get).await.expect(200).text();
        for part in [ODD, r#""x-first":1.0"#, r#""big":12345678901234567890123"#] {
            assert!(answer.contains(part), "{server}: {answer}");
        }
    }
}

async fn kinds(app: &TestApp, behaviour: &Behaviour) -> (Vec<String>, Vec<crate::support::Fake>) {
    let (mut servers, mut fakes) = (Vec::new(), Vec::new());
    for era in ["legacy", "modern"] {
        let mut behaviour = behaviour.clone();
        behaviour.merge(&json!({"era": era}).to_string()).unwrap();
        let fake = crate::support::Fake::start(behaviour.clone()).await;
        app.register_http(&format!("http-{era}"), &fake).await;
        app.register_stdio(&format!("stdio-{era}"), &behaviour).await;
        servers.extend([format!("http-{era}"), format!("stdio-{era}")]);
        if era == "legacy" {
            app.register_sse("sse", &fake).await;
            servers.push("sse".into());
        }
        fakes.push(fake);
    }
    (servers, fakes)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_calls_at_once_all_return_to_their_callers() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    for server in &kinds.servers {
        let agents = [Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await];
        let tool = format!("{server}__echo");
        let calls = (0..200).map(|number| {
            let (agent, tool) = (&agents[number % 2], &tool);
            async move {
                // Both use the same ids.
                let text = format!("for {number}");
                let mut talk = agent.begin_call(json!(number / 2), tool, json!({"text": text})).await;
                let answer = talk.answer().await;
                assert_eq!(answer["id"], json!(number / 2));
                assert_eq!(answer["result"]["content"][0]["text"], text);
            }
        });
        let mut set = Vec::new();
        for call in calls {
            set.push(Box::pin(call));
        }
        all(set).await;
    }
}

/// Runs all futures concurrently.
async fn all<F: Future<Output = ()>>(mut calls: Vec<std::pin::Pin<Box<F>>>) {
    std::future::poll_fn(|context| {
        calls.retain_mut(|call| call.as_mut().poll(context).is_pending());
        if calls.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_shared_process_messages_of_no_single_call_reach_no_client() {
    let app = TestApp::start().await;
    app.register_stdio("s", &Behaviour::of(json!({"era": "legacy"}))).await;
    let capabilities = json!({"elicitation": {}});
    let agents = [
        Agent::connect_with(&app, "/mcp", capabilities.clone()).await,
        Agent::connect_with(&app, "/mcp", capabilities).await,
    ];
    let slow = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params":
        {"name": "s__progress", "arguments": {"steps": 100_000, "ms": 5}, "_meta": {"progressToken": 1}}});
    let mut running = agents[0].begin(&slow).await;
    running.expect("notifications/progress").await;
    let said: Value = agents[1].call("s__ask", json!({})).await;
    assert!(said["result"]["content"][0]["text"].as_str().unwrap().contains("-32601"), "{said}");
    let mut talk = agents[1].begin_call(json!(1), "s__log", json!({})).await;
    assert!(talk.next().await.unwrap().get("result").is_some());
    running.expect("notifications/progress").await;
    agents[0].tell("notifications/cancelled", json!({"requestId": 1})).await;
}
