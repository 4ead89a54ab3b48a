//! The records held against the books of the callers: every call has a trace id of its own, by which its record is found.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::support::client;
use crate::support::modern::Post;
use crate::support::{
    Agent, Behaviour, Fake, ModernAgent, Server, SseAgent, TestApp, Wire, bearer, eventually,
};

/// What a caller saw of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Ok,
    ToolError,
    Error,
    /// It gave up, and cannot know whether its request had arrived.
    GaveUp,
}

impl Seen {
    /// Of a JSON-RPC response.
    fn of(response: &Value) -> Self {
        match &response["result"] {
            Value::Null => Seen::Error,
            result => Self::of_result(result),
        }
    }

    fn of_result(result: &Value) -> Self {
        if result["isError"] == true { Seen::ToolError } else { Seen::Ok }
    }

    fn allows(self, outcome: &str) -> bool {
        match self {
            Seen::Ok => outcome == "ok",
            Seen::ToolError => outcome == "tool_error",
            Seen::Error => ["upstream_error", "timed_out", "denied", "limited"].contains(&outcome),
            Seen::GaveUp => true,
        }
    }
}

/// Numbers that only look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

fn trace(number: u64) -> String {
    format!("{number:032x}")
}

fn traceparent(number: u64) -> String {
    format!("00-{}-00f067aa0ba902b7-01", trace(number))
}

/// A caller with a connection to each door.
struct Caller {
    app: Arc<TestApp>,
    legacy: Agent,
    modern: ModernAgent,
    sse: SseAgent,
}

impl Caller {
    async fn of(app: &Arc<TestApp>) -> Self {
        Self {
            app: app.clone(),
            legacy: Agent::connect(app, "/mcp").await,
            modern: ModernAgent::at(app, "/mcp"),
            sse: SseAgent::connect(app, "/sse", json!({})).await,
        }
    }

    async fn call(&mut self, door: u64, number: u64, tool: &str, arguments: &Value) -> Seen {
        let meta = json!({ "traceparent": traceparent(number) });
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        match door {
            0 => {
                let mut body = arguments.clone();
                body["name"] = json!(tool);
                let headers = [("traceparent", traceparent(number))];
                let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
                let answer = self.app.send("POST", "/api/v0/tools/invoke", &headers, body.to_string()).await;
                if answer.status == 200 { Seen::of_result(&answer.json()) } else { Seen::Error }
            }
            1 => Seen::of(&self.legacy.request("tools/call", params).await),
            2 => Seen::of(&self.modern.request("tools/call", params).await),
            _ => {
                let request =
                    json!({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params});
                self.sse.send(&request).await;
                Seen::of(&self.sse.answer(json!(number)).await)
            }
        }
    }
}

/// All records by their trace.
async fn records(app: &TestApp) -> HashMap<String, Vec<Value>> {
    let mut all: HashMap<String, Vec<Value>> = HashMap::new();
    let mut before = String::new();
    loop {
        let page = app.get(&format!("/api/v0/calls?limit=1000{before}")).await.expect(200).json();
        for record in page["calls"].as_array().unwrap() {
            let trace = record["trace_id"].as_str().expect("each call has a trace").to_owned();
            all.entry(trace).or_default().push(record.clone());
        }
        match page["next"].as_str() {
            Some(next) => before = format!("&before={next}"),
            None => return all,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_random_load_with_faults_each_call_has_the_record_that_its_caller_expects() {
    let app = Arc::new(
        TestApp::start_with(|config| (config.recording.rate, config.telemetry) = (100_000, true)).await,
    );
    let web = Server::register(&app, Wire::HttpJson, "web", json!({"timeout_ms": 2000})).await;
    let _stream = Server::register(&app, Wire::HttpModern, "stream", json!({"max_concurrency": 3})).await;
    let _pipe = Server::register(&app, Wire::Stdio, "pipe", json!({})).await;
    let (numbers, ended) = (Arc::new(AtomicU64::new(1)), Arc::new(Notify::new()));
    let mut callers = JoinSet::new();
    for seed in 1..=6 {
        let (app, numbers, ended) = (app.clone(), numbers.clone(), ended.clone());
        callers.spawn(async move {
            let mut dice = Dice(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed));
            let mut caller = Caller::of(&app).await;
            let mut book = Vec::new();
            for _ in 0..40 {
                let number = numbers.fetch_add(1, Ordering::Relaxed);
                let server = ["web", "stream", "pipe"][dice.below(3) as usize];
                let (tool, arguments) = match dice.below(8) {
                    0 => ("fail", json!({})),
                    1 => ("rpc_error", json!({})),
                    2 => ("nothing", json!({})),
                    3 => ("slow", json!({ "ms": dice.below(60) })),
                    4 if server == "pipe" => ("die", json!({"code": 1})),
                    _ => ("echo", json!({"text": "x"})),
                };
                let (tool, door) = (format!("{server}__{tool}"), dice.below(4));
                let call = caller.call(door, number, &tool, &arguments);
                let seen = match dice.below(10) {
                    // The SSE stream goes on after a request that was given up; its answer is skipped.
                    0 => {
                        let patience = Duration::from_millis(dice.below(20));
                        tokio::time::timeout(patience, call).await.unwrap_or(Seen::GaveUp)
                    }
                    _ => call.await,
                };
                book.push((number, tool, door, seen));
                ended.notify_one();
            }
            book
        });
    }
    let faults = async {
        loop {
            for change in [json!({"code": -1, "message": "no"}), json!(500), Value::Null] {
                web.fake.as_ref().unwrap().update(|behaviour| match change.is_null() {
                    true => behaviour.fail.clear(),
                    false => drop(behaviour.fail.insert("tools/call".into(), change.clone())),
                });
                // A few calls between two changes.
                for _ in 0..5 {
                    ended.notified().await;
                }
                for verb in ["disable", "enable"] {
                    app.post(&format!("/api/v0/servers/stream/{verb}"), json!({})).await;
                }
            }
        }
    };
    let books = tokio::select! {
        books = callers.join_all() => books,
        () = faults => unreachable!("faults go on"),
    };
    let book: Vec<_> = books.into_iter().flatten().collect();
    let certain = book.iter().filter(|(.., seen)| *seen != Seen::GaveUp).count();
    assert!(certain > 150, "{certain}");
    let is_complete = async || {
        let known = records(&app).await;
        book.iter().all(|(number, .., seen)| *seen == Seen::GaveUp || known.contains_key(&trace(*number)))
    };
    eventually("every call is recorded", is_complete).await;
    let known = records(&app).await;
    for (number, tool, door, seen) in &book {
        let of_call = known.get(&trace(*number)).map_or(&[][..], Vec::as_slice);
        let context = format!("{tool} at door {door} was {seen:?}: {of_call:?}");
        assert!(of_call.len() <= 1 && (*seen == Seen::GaveUp || of_call.len() == 1), "{context}");
        for record in of_call {
            let via = ["rest", "mcp", "mcp", "sse"][usize::try_from(*door).unwrap()];
            assert_eq!(record["via"], via, "{context}");
            assert!(seen.allows(record["outcome"].as_str().unwrap()), "{context}");
            assert!(tool.ends_with(record["name"].as_str().unwrap()), "{context}");
        }
    }
    assert_eq!(known.values().map(Vec::len).sum::<usize>(), known.len(), "no call is recorded twice");
    let stats = app.get("/api/v0/stats?by=principal").await.expect(200).json();
    assert_eq!(stats["rows"][0]["calls"], known.len(), "{stats}");
    let metrics = app.get("/metrics").await.expect(200).text();
    assert!(metrics.contains("toolgate_records_dropped_total 0"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn limited_and_revoked_calls_have_one_record() {
    let app = Arc::new(TestApp::start_enterprise().await);
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    let once = json!({"calls_per_minute": 1, "burst": 1});
    let limited = json!({"name": "limited", "allow_list": ["*"], "rate_limit": once});
    let token = app.post("/api/v0/clients", limited).await.expect(201).json()["access_token"].clone();
    let agent = Agent::connect_as(&app, "/mcp", token.as_str().unwrap()).await;
    agent.call("s__echo", json!({"text": "x"})).await;
    assert!(agent.call("s__echo", json!({"text": "x"})).await["error"].is_object());
    let of = async |name: &str| {
        let calls =
            app.get(&format!("/api/v0/calls?principal={name}")).await.expect(200).json()["calls"].clone();
        let outcome = |call: &Value| call["outcome"].as_str().unwrap().to_owned();
        calls.as_array().unwrap().iter().map(outcome).collect::<Vec<_>>()
    };
    eventually("both are recorded", async || of("limited").await == ["limited", "ok"]).await;

    let token = app.create_client("gone", &["*"]).await;
    let call = json!({"name": "s__slow", "arguments": {"ms": 60_000}});
    let message = ModernAgent::at(&app, "/mcp").message(json!(1), "tools/call", call.clone());
    let post = Post::of(message.to_string()).adding("authorization", &bearer(&token));
    let modern = ModernAgent::at(&app, "/mcp");
    let legacy = Agent::connect_as(&app, "/mcp", &token).await;
    let request = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": call});
    let revoking = async {
        eventually("both run", async || fake.calls_of("slow") == 2).await;
        app.delete("/api/v0/clients/gone").await.expect(204);
    };
    let (one, two, ()) = tokio::join!(modern.send(&post), legacy.post(&request), revoking);
    assert_eq!((one.status, two.status), (401, 401));
    eventually("both are recorded", async || of("gone").await == ["cancelled", "cancelled"]).await;
    // A token that is not valid makes no records.
    let refused = client::request(&app.address, "POST", "/mcp", &[("authorization", "Bearer x")], Vec::new());
    assert_eq!(refused.await.status, 401);
    assert_eq!(of("gone").await.len(), 2);
}
