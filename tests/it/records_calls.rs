//! Every call that was asked for has exactly one record, at every door and whatever happened to it.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::modern::Post;
use crate::support::{
    Agent, Behaviour, Callers, Door, Fake, ModernAgent, Server, TestApp, Wire, bearer, eventually,
};

/// The records that fit a query, newest first.
async fn records(app: &TestApp, query: &str) -> Vec<Value> {
    let answer = app.get(&format!("/api/v0/calls?limit=1000&{query}")).await.expect(200).json();
    answer["calls"].as_array().unwrap().clone()
}

/// The one record that was added to those that are known.
async fn recorded(app: &TestApp, known: usize) -> Value {
    let mut all = Vec::new();
    eventually("the call is recorded", async || records(app, "").await.len() > known).await;
    all.extend(records(app, "").await);
    assert_eq!(all.len(), known + 1, "one call has one record: {all:?}");
    all.swap_remove(0)
}

fn via(door: Door) -> &'static str {
    match door {
        Door::Rest | Door::RestEvents => "rest",
        Door::Legacy | Door::Modern => "mcp",
        Door::Sse => "sse",
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_outcome_at_every_door_is_one_record() {
    let app = Arc::new(TestApp::start().await);
    let server = Server::register(&app, Wire::HttpJson, "s", json!({})).await;
    let _late = Server::register(&app, Wire::HttpJson, "late", json!({ "timeout_ms": 1500 })).await;
    let callers = Callers::of(&app).await;
    let mut known = 0;
    for door in Door::ALL {
        for (tool, arguments, outcome) in [
            ("s__echo", json!({ "text": "hi" }), "ok"),
            ("s__fail", json!({}), "tool_error"),
            ("s__rpc_error", json!({}), "upstream_error"),
            ("late__slow", json!({ "ms": 60_000 }), "timed_out"),
            ("s__nothing", json!({}), "denied"),
        ] {
            let context = format!("{door:?} {tool}");
            callers.call(door, tool, arguments).await;
            let record = recorded(&app, known).await;
            known += 1;
            assert_eq!(record["outcome"], outcome, "{context}: {record}");
            assert_eq!(record["via"], via(door), "{context}: {record}");
            assert_eq!(record["method"], "tools/call", "{context}");
            assert_eq!(record["principal"], json!({ "kind": "anonymous", "name": "anonymous" }), "{context}");
            let is_found = outcome != "denied";
            let (server, name) = tool.split_once("__").unwrap();
            let expected = (json!(server), name);
            assert_eq!((record["server"].clone(), record["name"].as_str().unwrap()), expected, "{context}");
            assert_eq!(record["attempts"], u32::from(is_found), "{context}");
            assert_eq!(
                record["error"].is_null(),
                ["ok", "tool_error"].contains(&outcome),
                "{context}: {record}"
            );
            assert!(record["request_bytes"].as_u64().unwrap() > 10, "{context}: {record}");
            assert!(record["response_bytes"].as_u64().unwrap() > 10, "{context}: {record}");
            let time = |key: &str| record[key].as_f64().unwrap();
            let sum = time("upstream_ms") + time("queue_ms") + time("input_ms") + time("gateway_ms");
            assert!((time("duration_ms") - sum).abs() < 0.01, "{context}: {record}");
            assert!(time("gateway_ms") > 0.0, "{context}: {record}");
            if outcome == "timed_out" {
                assert!(time("upstream_ms") > 1000.0, "{context}: {record}");
            }
        }
        let mark = format!("{door:?}");
        let begun = callers.begin(door, "s__slow", json!({ "ms": 60_000, "mark": mark })).await;
        eventually("it runs", async || server.ran(&mark) == 1).await;
        begun.give_up().await;
        let record = recorded(&app, known).await;
        known += 1;
        assert_eq!((&record["outcome"], &record["name"]), (&json!("cancelled"), &json!("slow")), "{door:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_refused_before_it_is_sent_has_a_record() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("s", &fake).await;
    let agent = Agent::connect(&app, "/mcp").await;
    agent.error("tools/call", json!({ "name": "s__echo", "requestState": "raw" })).await;
    let modern = ModernAgent::at(&app, "/mcp");
    let message = modern.message(json!(1), "tools/call", json!({ "name": "s__echo", "arguments": {} }));
    let mismatch = Post::of(message.to_string()).replacing("mcp-name", "s__add");
    assert_eq!(modern.send(&mismatch).await.status, 400);
    eventually("both are recorded", async || records(&app, "").await.len() == 2).await;
    let mut reasons = Vec::new();
    for record in records(&app, "").await {
        let at = (&record["outcome"], &record["server"], &record["name"], &record["attempts"]);
        assert_eq!(at, (&json!("denied"), &json!("s"), &json!("echo"), &json!(0)), "{record}");
        reasons.push(record["error"].as_str().unwrap().to_owned());
    }
    assert!(
        reasons[1].contains("requestState") && reasons[0].to_lowercase().contains("mcp-name"),
        "{reasons:?}"
    );
    let stats = app.get("/api/v0/stats?by=tool").await.expect(200).json();
    assert_eq!(
        (&stats["rows"][0]["key"], &stats["rows"][0]["calls"]),
        (&json!("s__echo"), &json!(2)),
        "{stats}"
    );
    assert!(fake.seen_of("tools/call").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_and_resources_are_calls_and_lists_are_not() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("s", &fake).await;
    let agent = Agent::connect(&app, "/mcp").await;
    for list in ["tools/list", "prompts/list", "resources/list", "ping"] {
        agent.request(list, json!({})).await;
    }
    let resources = agent.request("resources/list", json!({})).await["result"]["resources"].clone();
    let prompts = agent.request("prompts/list", json!({})).await["result"]["prompts"].clone();
    let (uri, prompt) = (&resources[0]["uri"], &prompts[0]["name"]);
    agent.request("resources/read", json!({ "uri": uri })).await;
    let record = recorded(&app, 0).await;
    assert_eq!((&record["method"], &record["server"]), (&json!("resources/read"), &json!("s")), "{record}");
    assert_eq!((&record["name"], &record["outcome"]), (uri, &json!("ok")));
    agent.request("prompts/get", json!({ "name": prompt, "arguments": {} })).await;
    let record = recorded(&app, 1).await;
    assert_eq!(record["method"], "prompts/get");
    assert_eq!(format!("s__{}", record["name"].as_str().unwrap()), *prompt.as_str().unwrap());
    app.post("/api/v0/resources/read", json!({ "uri": uri })).await.expect(200);
    let record = recorded(&app, 2).await;
    assert_eq!((&record["via"], &record["name"]), (&json!("rest"), uri));
    app.post("/api/v0/prompts/render", json!({ "name": "s__nothing" })).await.expect(404);
    let record = recorded(&app, 3).await;
    assert_eq!((&record["outcome"], &record["name"]), (&json!("denied"), &json!("nothing")));
    assert_eq!(record["server"], "s");
    app.invoke("none__nothing", json!({})).await.expect(404);
    let record = recorded(&app, 4).await;
    assert_eq!((&record["server"], &record["name"]), (&Value::Null, &json!("none__nothing")));
    app.post("/api/dashboard/tools/s__echo/invoke", json!({ "text": "x" })).await.expect(200);
    let record = recorded(&app, 5).await;
    assert_eq!((&record["via"], &record["outcome"]), (&json!("dashboard"), &json!("ok")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_names_its_caller_and_users_see_only_their_own() {
    let app = TestApp::start_enterprise().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("s", &fake).await;
    let token = app.create_client("agent", &["s"]).await;
    let made =
        app.post("/api/v0/users", json!({ "username": "ann", "role": "user" })).await.expect(201).json();
    let user = bearer(made["access_token"].as_str().unwrap());
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let modern = ModernAgent::at(&app, "/mcp");
    let message = modern.message(json!(1), "tools/call", json!({ "name": "s__echo", "arguments": {} }));
    let post = Post::of(message.to_string()).adding("authorization", &bearer(&token));
    let post = post.adding("traceparent", &format!("00-{trace}-00f067aa0ba902b7-01"));
    assert_eq!(modern.send(&post).await.status, 200);
    let record = recorded(&app, 0).await;
    assert_eq!(record["principal"], json!({ "kind": "client", "name": "agent" }));
    assert_eq!((&record["trace_id"], &record["client_era"]), (&json!(trace), &json!("modern")));
    assert_eq!(record["server_era"], "legacy");
    assert!(!record["agent"].as_str().unwrap().is_empty());
    let body = json!({ "name": "s__echo", "text": "x" }).to_string();
    let headers = [("authorization", user.as_str())];
    app.send("POST", "/api/v0/tools/invoke", &headers, body).await.expect(200);
    let record = recorded(&app, 1).await;
    assert_eq!(record["principal"], json!({ "kind": "user", "name": "ann" }));
    let own = app.send("GET", "/api/v0/calls", &headers, "").await.expect(200).json();
    assert_eq!(own["calls"].as_array().unwrap().len(), 1, "{own}");
    assert_eq!(own["calls"][0]["id"], record["id"]);
    app.send("GET", "/api/v0/calls?principal=agent", &headers, "").await.expect(403);
    let foreign = records(&app, "principal=agent").await[0]["id"].as_str().unwrap().to_owned();
    app.send("GET", &format!("/api/v0/calls/{foreign}"), &headers, "").await.expect(404);
    app.get(&format!("/api/v0/calls/{foreign}")).await.expect(200);
    app.send("GET", "/api/v0/stats", &headers, "").await.expect(403);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_filtered_and_paged_and_wrong_filters_named() {
    let app = Arc::new(TestApp::start().await);
    let _one = Server::register(&app, Wire::HttpJson, "one", json!({})).await;
    let _two = Server::register(&app, Wire::HttpJson, "two", json!({})).await;
    let callers = Callers::of(&app).await;
    for _ in 0..3 {
        callers.call(Door::Rest, "one__echo", json!({})).await;
        callers.call(Door::Legacy, "two__fail", json!({})).await;
        callers.call(Door::Modern, "two__rpc_error", json!({})).await;
    }
    eventually("all are recorded", async || records(&app, "").await.len() == 9).await;
    let all = records(&app, "").await;
    let ids: Vec<_> = all.iter().map(|record| record["id"].as_str().unwrap()).collect();
    assert!(ids.is_sorted_by(|newer, older| newer > older), "{ids:?}");
    let middle = all[4]["at"].as_str().unwrap();
    for (query, count) in [
        ("server=one", 3),
        ("server=two", 6),
        ("name=fail", 3),
        ("outcome=tool_error", 3),
        ("outcome=ok&server=two", 0),
        ("via=rest", 3),
        ("via=mcp", 6),
        ("principal=anonymous", 9),
        ("principal=nobody", 0),
        ("q=REFUSED", 3),
        ("q=one", 3),
        ("q=%25", 0),
        ("since=2099-01-01T00:00:00Z", 0),
        ("until=2099-01-01T00:00:00%2B02:00", 9),
    ] {
        assert_eq!(records(&app, query).await.len(), count, "{query}");
    }
    let until = records(&app, &format!("until={middle}")).await.len();
    assert!((5..=9).contains(&until), "{until}");
    let (mut seen, mut before) = (Vec::new(), String::new());
    loop {
        let page = app.get(&format!("/api/v0/calls?limit=4{before}")).await.expect(200).json();
        seen.extend(
            page["calls"].as_array().unwrap().iter().map(|call| call["id"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => before = format!("&before={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ids);
    for (query, field) in [
        ("outcome=fine", "outcome"),
        ("via=tv", "via"),
        ("since=yesterday", "since"),
        ("until=2026-02-30T00:00:00Z", "until"),
        ("since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "until"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("before=x", "before"),
        ("sever=one", "sever"),
    ] {
        let error = app.get(&format!("/api/v0/calls?{query}")).await.expect(400).error();
        assert!(error.contains(field), "{query}: {error}");
    }
    app.get("/api/v0/calls/nothing").await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_streamed_as_they_end() {
    let app = Arc::new(TestApp::start().await);
    let _s = Server::register(&app, Wire::HttpJson, "s", json!({})).await;
    let callers = Callers::of(&app).await;
    let mut events = app.events("/api/v0/calls/stream?outcome=tool_error").await;
    for _ in 0..2 {
        callers.call(Door::Rest, "s__echo", json!({})).await;
        callers.call(Door::Legacy, "s__fail", json!({})).await;
        let event = events.next().await.expect("a call");
        let call: Value = serde_json::from_slice(&event.data).unwrap();
        assert_eq!(event.name.as_deref(), Some("call"));
        assert_eq!((&call["name"], &call["outcome"]), (&json!("fail"), &json!("tool_error")));
    }
    app.get("/api/v0/calls/stream?outcome=fine").await.expect(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_and_results_are_kept_only_if_asked_for() {
    use gateway::recorder::CallLog;
    for (calls, is_kept) in [(CallLog::Summary, false), (CallLog::Full, true)] {
        let app = Arc::new(TestApp::start_with(|config| config.recording.calls = calls).await);
        let _s = Server::register(&app, Wire::HttpJson, "s", json!({})).await;
        let callers = Callers::of(&app).await;
        for (known, door) in Door::ALL.into_iter().enumerate() {
            let mark = format!("mark-{door:?}");
            callers.text(door, "s__echo", json!({ "text": mark })).await;
            let record = recorded(&app, known).await;
            assert!(!record.to_string().contains(&mark), "{record}");
            let id = record["id"].as_str().unwrap();
            let whole = app.get(&format!("/api/v0/calls/{id}")).await.expect(200).json();
            assert_eq!(whole["arguments"]["text"] == mark, is_kept, "{door:?}: {whole}");
            assert_eq!(whole["result"].to_string().contains(&mark), is_kept, "{door:?}: {whole}");
        }
        let large = "x".repeat(100_000);
        callers.text(Door::Rest, "s__echo", json!({ "text": large })).await;
        let record = recorded(&app, Door::ALL.len()).await;
        let whole = app.get(&format!("/api/v0/calls/{}", record["id"].as_str().unwrap())).await.json();
        let kept = whole["arguments"].as_str().map_or(0, str::len);
        assert_eq!(kept, if is_kept { 64 * 1024 } else { 0 });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_recorded_if_records_are_off() {
    use gateway::recorder::CallLog;
    let app = TestApp::start_with(|config| config.recording.calls = CallLog::Off).await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    app.invoke("s__echo", json!({ "text": "x" })).await.expect(200);
    let overview = app.get("/api/dashboard/overview").await.expect(200).json();
    assert_eq!((&overview["call_log"], &overview["records_problem"]), (&json!("off"), &Value::Null));
    // What was recorded would be in the database when the gateway has stopped.
    let app = app.restart_with(|config| config.recording.calls = CallLog::Summary).await;
    assert!(records(&app, "").await.is_empty());
    let stats = app.get("/api/v0/stats").await.expect(200).json();
    assert_eq!((&stats["rows"], &stats["total"]["calls"]), (&json!([]), &json!(0)));
    app.invoke("s__echo", json!({ "text": "x" })).await.expect(200);
    eventually("calls are recorded now", async || records(&app, "").await.len() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_rate_calls_are_counted_but_have_no_record() {
    let app = Arc::new(TestApp::start_with(|config| config.recording.rate = 1).await);
    let _s = Server::register(&app, Wire::HttpJson, "s", json!({})).await;
    let callers = Callers::of(&app).await;
    for _ in 0..60 {
        callers.text(Door::Legacy, "s__echo", json!({ "text": "x" })).await;
    }
    let counted =
        async || app.get("/api/v0/stats?by=tool").await.expect(200).json()["rows"][0]["calls"] == 60;
    eventually("all are counted", counted).await;
    let kept = records(&app, "").await.len();
    assert!((1..60).contains(&kept), "{kept}");
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_are_those_of_the_records() {
    let app = Arc::new(TestApp::start().await);
    let _s = Server::register(&app, Wire::HttpJson, "s", json!({})).await;
    let _other = Server::register(&app, Wire::HttpJson, "other", json!({})).await;
    let callers = Callers::of(&app).await;
    for step in 0..40 {
        callers.call(Door::Legacy, "s__slow", json!({ "ms": step * 2 })).await;
        if step % 4 == 0 {
            callers.call(Door::Rest, "s__fail", json!({})).await;
            callers.call(Door::Modern, "other__echo", json!({ "text": "x" })).await;
        }
    }
    eventually("all are recorded", async || records(&app, "").await.len() == 60).await;
    let all = records(&app, "").await;
    for window in ["1h", "24h", "7d", "30d"] {
        let stats = async |query: &str| {
            app.get(&format!("/api/v0/stats?window={window}&{query}")).await.expect(200).json()
        };
        let tools = stats("by=tool&server=s").await;
        let rows = tools["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2, "{tools}");
        assert_eq!(
            (&rows[0]["key"], &rows[0]["calls"], &rows[0]["errors"]),
            (&json!("s__slow"), &json!(40), &json!(0))
        );
        assert_eq!(
            (&rows[1]["key"], &rows[1]["calls"], &rows[1]["errors"]),
            (&json!("s__fail"), &json!(10), &json!(10))
        );
        let slow: Vec<_> = all.iter().filter(|record| record["name"] == "slow").collect();
        let sorted = |key: &str| {
            let mut times: Vec<f64> = slow.iter().map(|record| record[key].as_f64().unwrap()).collect();
            times.sort_by(f64::total_cmp);
            times
        };
        for (told, key, rank) in [
            ("p50_ms", "duration_ms", 20),
            ("p95_ms", "duration_ms", 38),
            ("p99_ms", "duration_ms", 40),
            ("gateway_p50_ms", "gateway_ms", 20),
        ] {
            let (told, exact) = (rows[0][told].as_f64().unwrap(), sorted(key)[rank - 1]);
            assert!((told / exact - 1.0).abs() < 0.05, "{told} instead of {exact}");
        }
        let bytes = |record: &&Value| {
            record["request_bytes"].as_u64().unwrap() + record["response_bytes"].as_u64().unwrap()
        };
        assert_eq!(rows[0]["bytes"], slow.iter().map(bytes).sum::<u64>());
        let servers = stats("by=server").await;
        let keys: Vec<_> = servers["rows"].as_array().unwrap().iter().map(|row| &row["key"]).collect();
        assert_eq!(keys, ["s", "other"]);
        let series = servers["series"].as_array().unwrap();
        assert_eq!(series.len(), 60);
        assert_eq!(series.iter().map(|point| point["calls"].as_u64().unwrap()).sum::<u64>(), 60);
        let total = &servers["total"];
        assert_eq!((&total["calls"], &total["errors"]), (&json!(60), &json!(10)));
        let row = |at: usize, key: &str| servers["rows"][at][key].as_f64().unwrap();
        let (low, high) = (row(1, "p95_ms").min(row(0, "p95_ms")), row(1, "p95_ms").max(row(0, "p95_ms")));
        assert!((low..=high).contains(&total["p95_ms"].as_f64().unwrap()), "{servers}");
        let callers = stats("by=principal").await;
        assert_eq!(
            (&callers["rows"][0]["key"], &callers["rows"][0]["calls"]),
            (&json!("anonymous"), &json!(60))
        );
    }
    for (query, field) in [
        ("by=color", "by"),
        ("window=2h", "window"),
        ("by=principal&server=s", "server"),
        ("by=server&principal=x", "principal"),
        ("by=server&name=x", "name"),
        ("until=x", "until"),
    ] {
        let error = app.get(&format!("/api/v0/stats?{query}")).await.expect(400).error();
        assert!(error.contains(field), "{query}: {error}");
    }
}
