//! Calls of agents over every kind of link: progress, logs, cancelling.

use serde_json::{Value, json};

use crate::support::mcp::BOTH;
use crate::support::{Agent, Behaviour, Fake, Kinds, SseAgent, TestApp, eventually, nested_uris};

async fn legacy() -> (TestApp, Fake) {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    (app, fake)
}

fn call(id: Value, tool: &str, arguments: Value, token: Option<Value>) -> Value {
    let mut params = json!({"name": tool, "arguments": arguments});
    if let Some(token) = token {
        params["_meta"] = json!({"progressToken": token, "example.com/kept": 1});
    }
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_comes_with_the_clients_own_token_over_every_kind_of_link() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    let agent = Agent::connect(&app, "/mcp").await;
    for server in &kinds.servers {
        for (id, token) in [(json!("one"), json!("tok\"en")), (json!(7), json!(7)), (json!(-3), json!(0))] {
            let tool = format!("{server}__progress");
            let request = call(id.clone(), &tool, json!({"steps": 2}), Some(token.clone()));
            let mut talk = agent.begin(&request).await;
            for step in 1..=2 {
                let notice = talk.expect("notifications/progress").await;
                assert_eq!(notice["params"]["progressToken"], token, "{server}");
                assert_eq!(notice["params"]["progress"], step);
                assert_eq!(notice["params"]["message"], format!("step {step}"));
            }
            let answer = talk.next().await.unwrap();
            assert_eq!(answer["id"], id, "{server}");
            assert_eq!(answer["result"]["content"][0]["text"], "2 steps");
            assert!(talk.next().await.is_none());
        }
        // Progress was not requested, so only the response comes.
        let talk = agent.begin(&call(json!(1), &format!("{server}__progress"), json!({}), None)).await;
        assert!(!talk.is_stream(), "{server}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clients_with_the_same_ids_and_tokens_are_isolated() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    for server in &kinds.servers {
        let agents = [Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await];
        let run = async |agent: &Agent, steps: u64| {
            let tool = format!("{server}__progress");
            let request = call(json!(1), &tool, json!({"steps": steps, "ms": 5}), Some(json!("t")));
            let mut talk = agent.begin(&request).await;
            for step in 1..=steps {
                let notice = talk.expect("notifications/progress").await;
                assert_eq!(notice["params"]["total"], steps, "{server}");
                assert_eq!(notice["params"]["progress"], step, "{server}");
            }
            assert_eq!(talk.answer().await["result"]["content"][0]["text"], format!("{steps} steps"));
        };
        tokio::join!(run(&agents[0], 8), run(&agents[1], 12));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_reaches_the_one_server_that_runs_the_call_with_its_own_id() {
    let app = TestApp::start().await;
    let fakes = [
        Fake::start(Behaviour::of(json!({"era": "legacy"}))).await,
        Fake::start(Behaviour::of(json!({"era": "legacy"}))).await,
    ];
    app.register_http("http", &fakes[0]).await;
    app.register_sse("sse", &fakes[1]).await;
    let (agent, other) = (Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await);
    for (round, server) in ["http", "sse"].into_iter().enumerate() {
        let fake = &fakes[round];
        let slow = call(json!("c"), &format!("{server}__slow"), json!({"ms": 60_000}), None);
        let short = call(json!("c"), &format!("{server}__slow"), json!({"ms": 700}), None);
        let cancel = async {
            eventually("both run", async || fake.calls_of("slow") == 2).await;
            // An unknown id, a number instead of a string, and a cancellation by another client have no effect.
            agent.tell("notifications/cancelled", json!({"requestId": "d"})).await;
            agent.tell("notifications/cancelled", json!({"requestId": 1})).await;
            agent.tell("notifications/cancelled", json!({"requestId": "c", "reason": "enough"})).await;
            eventually("it is cancelled", async || fake.cancelled().len() == 1).await;
        };
        let (mut ours, mut theirs, ()) = tokio::join!(agent.begin(&slow), other.begin(&short), cancel);
        assert!(ours.next().await.is_none(), "nothing is said to a call that was cancelled");
        assert_eq!(theirs.answer().await["result"]["content"][0]["text"], "done");
        assert_eq!(fake.cancelled().len(), 1);
        let sent = fake.seen_of("tools/call");
        let long = sent.iter().find(|seen| seen.params["arguments"]["ms"] == 60_000).unwrap();
        assert_eq!(fake.seen_of("notifications/cancelled")[0].params["requestId"], long.id);
    }
    assert!(fakes[0].seen_of("notifications/cancelled").len() == 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_cancelled_by_its_id_however_that_is_written() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    let agent = Agent::connect(&app, "/mcp").await;
    let slow = call(json!("c"), "s__slow", json!({"ms": 60_000}), None);
    let cancel = async {
        eventually("it runs", async || fake.calls_of("slow") == 1).await;
        let notice =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\u0063"}}"#;
        let session = ("mcp-session-id", agent.session.as_str());
        app.send("POST", "/mcp", &[BOTH, session], notice).await.expect(202);
        eventually("it is cancelled", async || fake.cancelled().len() == 1).await;
    };
    let (mut talk, ()) = tokio::join!(agent.begin(&slow), cancel);
    assert!(talk.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_works_over_processes_and_modern_servers() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    let agent = Agent::connect(&app, "/mcp").await;
    for server in &kinds.servers {
        let tool = format!("{server}__progress");
        let request = call(json!(5), &tool, json!({"steps": 100_000, "ms": 10}), Some(json!(5)));
        let mut talk = agent.begin(&request).await;
        talk.expect("notifications/progress").await;
        agent.tell("notifications/cancelled", json!({"requestId": 5})).await;
        while let Some(message) = talk.next().await {
            assert_eq!(message["method"], "notifications/progress", "{server}");
        }
        eventually("it is cancelled", async || {
            agent.call_text(&format!("{server}__cancelled"), json!({})).await != "[]"
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnecting_is_not_cancelling() {
    let (app, fake) = legacy().await;
    let agent = Agent::connect(&app, "/mcp").await;
    // Before the first response, and in the middle of a stream.
    let silent = call(json!(1), "s__slow", json!({"ms": 1000}), None);
    tokio::select! {
        biased;
        () = eventually("it runs", async || fake.running_calls() == 1) => {}
        _ = agent.begin(&silent) => panic!("it has no response yet"),
    }
    let mut talk =
        agent.begin(&call(json!(2), "s__progress", json!({"steps": 20, "ms": 10}), Some(json!(2)))).await;
    talk.expect("notifications/progress").await;
    drop(talk);
    eventually("both run to their end", async || fake.running_calls() == 0).await;
    assert_eq!(fake.calls_of("slow"), 1);
    assert!(fake.cancelled().is_empty() && fake.seen_of("notifications/cancelled").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_go_to_the_call_that_caused_them_if_it_wants_them() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    let (loud, quiet) = (Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await);
    for (agent, level) in [(&loud, "debug"), (&quiet, "error")] {
        assert_eq!(agent.request("logging/setLevel", json!({"level": level})).await["result"], json!({}));
    }
    for server in &kinds.servers {
        let tool = format!("{server}__log");
        for (agent, level, is_heard) in
            [(&loud, "debug", true), (&quiet, "warning", false), (&quiet, "critical", true)]
        {
            let data = json!({"of": server, "big": 1});
            let mut talk = agent.begin_call(json!(1), &tool, json!({"level": level, "data": data})).await;
            if is_heard {
                let notice = talk.expect("notifications/message").await;
                assert_eq!(notice["params"], json!({"level": level, "logger": "fake", "data": data}));
            }
            let answer = talk.next().await.unwrap();
            assert_eq!(answer["result"]["content"][0]["text"], "logged", "{server} {level}");
        }
    }
}

#[tokio::test]
async fn servers_are_asked_for_the_most_verbose_level_also_after_a_restart() {
    let (app, mut fake) = legacy().await;
    let agents = [Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await];
    let last = |fake: &Fake| fake.seen_of("logging/setLevel").last().map(|seen| seen.params["level"].clone());
    agents[0].request("logging/setLevel", json!({"level": "warning"})).await;
    eventually("it is told", async || last(&fake) == Some(json!("warning"))).await;
    agents[1].request("logging/setLevel", json!({"level": "info"})).await;
    eventually("it is told", async || last(&fake) == Some(json!("info"))).await;
    agents[0].request("logging/setLevel", json!({"level": "alert"})).await;
    agents[0].call("s__echo", json!({})).await;
    assert_eq!(last(&fake), Some(json!("info")));
    fake.forget_seen();
    fake.restart().await;
    eventually("it is told again", async || {
        agents[0].call("s__echo", json!({})).await;
        last(&fake) == Some(json!("info"))
    })
    .await;
}

#[tokio::test]
async fn modern_servers_get_their_marks_and_headers_from_a_legacy_session() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "modern"}))).await;
    app.register_http("s", &fake).await;
    let agent = Agent::connect_with(&app, "/mcp", json!({"elicitation": {"form": {}}, "x": {}})).await;
    agent.request("logging/setLevel", json!({"level": "notice"})).await;
    let arguments = json!({"region": "Århus", "limit": 5});
    let request = call(json!(1), "s__region", arguments, Some(json!("mine")));
    assert!(agent.begin(&request).await.answer().await.get("result").is_some());
    let seen = fake.seen_of("tools/call").pop().unwrap();
    assert_eq!(seen.headers["mcp-name"], "region");
    assert_eq!(seen.headers["mcp-param-limit"], "5");
    assert!(!seen.headers.contains_key("mcp-session-id"));
    let meta = &seen.params["_meta"];
    assert_eq!(meta["example.com/kept"], 1);
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "agent");
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["version"], "7.0");
    assert_eq!(
        meta["io.modelcontextprotocol/clientCapabilities"],
        json!({"elicitation": {"form": {}}, "x": {}})
    );
    assert_eq!(meta["io.modelcontextprotocol/logLevel"], "notice");
    fake.forget_seen();
    assert_eq!(agent.request("ping", json!({})).await["result"], json!({}));
    assert!(fake.seen_of("ping").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_not_read_is_closed_and_nobody_else_notices() {
    let (app, fake) = legacy().await;
    let agent = Agent::connect(&app, "/v0/servers/s/mcp").await;
    let unread = agent.listen().await;
    let mut read = SseAgent::connect(&app, "/sse", json!({})).await;
    // Long URIs, each a part of the one before: an update of the last one is an update of all.
    let uris = nested_uris();
    let last = uris.last().unwrap();
    for uri in &uris {
        agent.request("resources/subscribe", json!({"uri": uri})).await;
    }
    // Updates that come faster than they are delivered are merged; a client that reads them all sets the pace.
    let reader = Agent::connect(&app, "/v0/servers/s/mcp").await;
    let mut heard = reader.listen().await;
    reader.request("resources/subscribe", json!({"uri": last})).await;
    for round in 0..150 {
        fake.notify_resource_updated(last);
        heard.expect("notifications/resources/updated").await;
        let answer = read.call(json!(round), "s__echo", json!({"text": "still here"})).await;
        assert_eq!(answer["result"]["content"][0]["text"], "still here");
    }
    let mut unread = unread;
    let mut count = 0;
    while unread.next().await.is_some() {
        count += 1;
    }
    assert!(count < 150 * uris.len(), "the stream was never closed");
    // The session continues with a new stream.
    let mut again = agent.listen().await;
    fake.notify_resource_updated(last);
    again.expect("notifications/resources/updated").await;
}
