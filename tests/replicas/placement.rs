//! A server with `"placement": "one"`: its processes run on one gateway, and the others reach them through it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::cluster;
use super::support::app::stdio_input;
use super::support::database::{self, Database};
use super::support::fake::recorded;
use super::support::process::{Process, is_alive};
use super::support::{Agent, Behaviour, ModernAgent, TestApp, eventually};

/// Enough requests that each gateway gets some.
const REQUESTS: usize = 7;

/// The pause between two attempts.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// Three gateways behind a balancer, one of which runs a server.
struct Placed {
    all: TestApp,
    gateways: Vec<TestApp>,
    folder: TempDir,
}

impl Placed {
    async fn start(behaviour: Value, settings: Value) -> Self {
        Self::on(cluster().await, behaviour, settings).await
    }

    async fn on((all, gateways): (TestApp, Vec<TestApp>), behaviour: Value, settings: Value) -> Self {
        let folder = TempDir::new().unwrap();
        let placed = Self { all, gateways, folder };
        placed.gateways[0].register(placed.input(behaviour, settings)).await;
        placed.wait_until_known().await;
        placed
    }

    /// The registration of a server that notes each of its processes.
    fn input(&self, behaviour: Value, settings: Value) -> Value {
        input(self.folder.path(), behaviour, settings)
    }

    async fn wait_until_known(&self) {
        for gateway in &self.gateways {
            eventually("the server is known", || async {
                let server = gateway.get("/api/v0/servers/s").await;
                server.status == 200 && server.json()["status"] == "connected"
            })
            .await;
        }
    }

    fn processes(&self) -> std::path::PathBuf {
        self.folder.path().join("processes")
    }

    fn journal(&self) -> std::path::PathBuf {
        self.folder.path().join("journal")
    }

    /// The processes that were started so far.
    fn started(&self) -> Vec<String> {
        lines(&self.processes())
    }

    fn running(&self) -> Vec<String> {
        self.started().into_iter().filter(|process| is_alive(process)).collect()
    }
}

/// The registration of a server that notes each of its processes in a folder.
fn input(folder: &Path, mut behaviour: Value, settings: Value) -> Value {
    behaviour["journal"] = json!(folder.join("journal"));
    let mut input = stdio_input("s", &Behaviour::of(behaviour));
    let processes = folder.join("processes");
    let noting = format!("echo $$ >> '{}'; exec \"$0\" \"$@\"", processes.display());
    let (program, args) = (input["command"].take(), input["args"].take());
    let args = [json!("-c"), json!(noting), program].into_iter().chain(args.as_array().unwrap().clone());
    input["command"] = json!("sh");
    input["args"] = args.collect();
    input["placement"] = json!("one");
    input.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    input
}

fn lines(file: &Path) -> Vec<String> {
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

async fn pid(gateway: &TestApp) -> String {
    gateway.call("s__pid", json!({})).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_serves_all_callers_of_all_gateways() {
    for era in ["legacy", "modern"] {
        let placed = Placed::start(json!({ "era": era }), json!({})).await;
        let process = pid(&placed.gateways[0]).await;
        let legacy = Agent::connect(&placed.all, "/mcp").await;
        let modern = ModernAgent::at(&placed.all, "/mcp");
        for _ in 0..REQUESTS {
            assert_eq!(pid(&placed.all).await, process);
            assert_eq!(legacy.call_text("s__pid", json!({})).await, process);
            assert_eq!(modern.call_text("s__pid", json!({})).await, process);
        }
        for gateway in &placed.gateways {
            assert_eq!(pid(gateway).await, process);
            let agent = Agent::connect(gateway, "/v0/servers/s/mcp").await;
            assert_eq!(agent.call_text("pid", json!({})).await, process);
            let record = gateway.server("s").await;
            assert_eq!((&record["status"], &record["placement"]), (&json!("connected"), &json!("one")));
            let read = gateway.post("/api/v0/resources/read", json!({ "uri": "fake://text" })).await;
            assert!(read.expect(200).json()["contents"].is_array());
            let body = json!({ "name": "s__plain", "arguments": {} });
            gateway.post("/api/v0/prompts/render", body).await.expect(200);
        }
        // A second one is started to find out whether a modern server also speaks the other era.
        let extra = if era == "modern" { 1 } else { 0 };
        assert_eq!(placed.started().len(), 1 + extra, "{era}");
        eventually("only one runs", || async { placed.running() == [process.clone()] }).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_is_hidden_from_agents_is_called_by_people_on_every_gateway() {
    let placed = Placed::start(json!({ "era": "legacy" }), json!({ "disabled_tools": ["pid"] })).await;
    for gateway in &placed.gateways {
        assert_eq!(pid(gateway).await, placed.started()[0]);
        let agent = Agent::connect(gateway, "/mcp").await;
        let error = agent.error("tools/call", json!({ "name": "s__pid" })).await;
        assert!(error["message"].as_str().unwrap().contains("s__pid"), "{error}");
        assert!(gateway.invoke("s__nothing", json!({})).await.status == 404);
        assert_eq!(
            gateway.invoke("s__rpc_error", json!({})).await.expect(500).error().matches("refused").count(),
            1
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_see_the_lists_for_their_capabilities_on_every_gateway() {
    let for_sampling = json!({ "sampling": [{ "name": "think", "inputSchema": { "type": "object" } }] });
    for era in ["legacy", "modern"] {
        let behaviour = json!({ "era": era, "tools_for": for_sampling, "page_size": 5 });
        let placed = Placed::start(behaviour, json!({})).await;
        for gateway in &placed.gateways {
            let (plain, capable) = match era {
                "legacy" => {
                    let capable = Agent::connect_with(gateway, "/mcp", json!({ "sampling": {} })).await;
                    (Agent::connect(gateway, "/mcp").await.tools().await, capable.tools().await)
                }
                _ => {
                    let agent = |capabilities| ModernAgent::at(gateway, "/mcp").with(capabilities);
                    let (plain, capable) = (agent(json!({})), agent(json!({ "sampling": {} })));
                    let list = async |agent: ModernAgent| agent.list("tools/list", "tools", "name").await;
                    (list(plain).await, list(capable).await)
                }
            };
            assert!(!plain.contains(&"s__think".to_owned()), "{era}");
            assert!(capable.contains(&"s__think".to_owned()), "{era}: {capable:?}");
            let missing: Vec<_> = plain.iter().filter(|tool| !capable.contains(tool)).collect();
            assert!(missing.is_empty(), "{era}: {missing:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_of_the_server_reach_the_caller_through_every_gateway() {
    let schema = json!({ "type": "object", "properties": { "x": { "type": "string" } } });
    let form =
        json!({ "method": "elicitation/create", "params": { "message": "m", "requestedSchema": schema } });
    for era in ["legacy", "modern"] {
        let placed = Placed::start(json!({ "era": era }), json!({})).await;
        for gateway in placed.gateways.iter().chain([&placed.all]) {
            let agent = Agent::connect_with(gateway, "/mcp", json!({ "elicitation": {} })).await;
            let mut talk = agent.begin_call(json!(1), "s__ask", json!({})).await;
            let question = talk.expect("elicitation/create").await;
            let given = json!({ "action": "accept", "content": { "colour": "red" } });
            agent.reply(&question, given).await;
            let answer = talk.answer().await;
            let text = answer["result"]["content"][0]["text"].as_str();
            assert!(text.is_some_and(|text| text.contains("red")), "{era}: {answer}");

            let agent = ModernAgent::at(gateway, "/mcp").with(json!({ "elicitation": { "form": {} } }));
            let mut params = match era {
                "legacy" => json!({ "name": "s__ask", "arguments": { "rounds": [[form.clone()]] } }),
                _ => json!({ "name": "s__ask", "arguments": {} }),
            };
            let asked = agent.result("tools/call", params.clone()).await;
            assert_eq!(asked["resultType"], "input_required", "{asked}");
            assert_ne!(asked["requestState"], "fake-state", "it is sealed");
            let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
            params["requestState"] = asked["requestState"].clone();
            params["inputResponses"] = json!({ key: { "action": "accept", "content": { "x": "blue" } } });
            let result = agent.result("tools/call", params).await;
            assert!(result.to_string().contains("blue"), "{era}: {result}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_and_cancellation_pass_through_every_gateway() {
    for era in ["legacy", "modern"] {
        let placed = Placed::start(json!({ "era": era }), json!({})).await;
        for (number, gateway) in placed.gateways.iter().enumerate() {
            let call = |id: &str, tool: &str, arguments: Value| {
                json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
                    "params": { "name": tool, "arguments": arguments, "_meta": { "progressToken": id } } })
            };
            let agent = Agent::connect(gateway, "/mcp").await;
            let mut talk = agent.begin(&call("p", "s__progress", json!({ "steps": 3 }))).await;
            for step in 1..=3 {
                let progress = talk.expect("notifications/progress").await;
                assert_eq!(
                    (&progress["params"]["progressToken"], &progress["params"]["progress"]),
                    (&json!("p"), &json!(step))
                );
            }
            assert_eq!(talk.answer().await["result"]["content"][0]["text"], "3 steps");

            let mark = format!("{era} {number}");
            let slow = call("c", "s__slow", json!({ "ms": 60_000, "mark": mark }));
            let held = agent.begin(&slow);
            let tell = async {
                eventually("the call runs", || async { recorded(&placed.journal(), "ran", &mark) == 1 })
                    .await;
                agent.tell("notifications/cancelled", json!({ "requestId": "c" })).await;
            };
            tokio::join!(held, tell);
            eventually("it is cancelled", || async { recorded(&placed.journal(), "cancelled", &mark) == 1 })
                .await;

            let mark = format!("modern {era} {number}");
            let modern = ModernAgent::at(gateway, "/mcp");
            let params = json!({ "name": "s__slow", "arguments": { "ms": 60_000, "mark": mark } });
            let held = modern.hold(&modern.message(json!(1), "tools/call", params)).await;
            eventually("the call runs", || async { recorded(&placed.journal(), "ran", &mark) == 1 }).await;
            drop(held);
            eventually("it is cancelled", || async { recorded(&placed.journal(), "cancelled", &mark) == 1 })
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribers_of_every_gateway_are_told_also_after_the_server_moved() {
    for era in ["legacy", "modern"] {
        let mut placed = Placed::start(json!({ "era": era }), json!({})).await;
        let mut streams = Vec::new();
        for gateway in &placed.gateways[1..] {
            let agent = Agent::connect(gateway, "/mcp").await;
            let stream = agent.listen().await;
            agent.request("resources/subscribe", json!({ "uri": "fake://text" })).await;
            let modern = ModernAgent::at(gateway, "/mcp");
            let wanted = json!({ "resourceSubscriptions": ["fake://text"] });
            let (talk, granted) = modern.listen(json!("sub"), wanted).await;
            assert!(granted.to_string().contains("fake://text"), "{granted}");
            streams.extend([stream, talk]);
        }
        for gateway in &placed.gateways {
            gateway.call("s__touch", json!({ "uri": "fake://text" })).await;
            for stream in &mut streams {
                let updated = stream.expect("notifications/resources/updated").await;
                assert_eq!(updated["params"]["uri"], "fake://text");
            }
        }
        let first = placed.started();
        placed.gateways.remove(0).stop().await;
        eventually("another gateway runs it", || async { placed.started().len() > first.len() }).await;
        // Each of them is subscribed again as soon as it is connected.
        for stream in &mut streams {
            let touching = async {
                loop {
                    placed.gateways[0].invoke("s__touch", json!({ "uri": "fake://text" })).await;
                    tokio::time::sleep(PAUSE).await;
                }
            };
            tokio::select! {
                _ = stream.expect("notifications/resources/updated") => {}
                () = touching => {}
            }
        }
        assert_eq!(placed.running().len(), 1, "{era}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_gateway_runs_the_server_when_its_gateway_stops() {
    let mut placed = Placed::start(json!({ "era": "legacy" }), json!({})).await;
    let before = pid(&placed.gateways[1]).await;
    let agent = Agent::connect(&placed.gateways[2], "/mcp").await;
    assert_eq!(agent.call_text("s__pid", json!({})).await, before);
    let mut leaving = placed.gateways.remove(0);
    placed.all.balancer.as_ref().unwrap().remove(&leaving.address);
    let has_stopped = Arc::new(AtomicBool::new(false));
    let calling = async {
        // Each call ends: with the response of the server, or with an error.
        while !has_stopped.load(Ordering::Relaxed) {
            for gateway in &placed.gateways {
                let answer = gateway.invoke("s__pid", json!({})).await;
                match answer.status {
                    200 => {}
                    500 => assert!(
                        answer.error().contains("server \"s\"") || answer.error().contains("s__pid"),
                        "{}",
                        answer.error()
                    ),
                    other => panic!("{other}: {answer:?}"),
                }
            }
        }
    };
    let stopping = async {
        leaving.stop().await;
        has_stopped.store(true, Ordering::Relaxed);
    };
    tokio::join!(calling, stopping);
    eventually("its process has ended", || async { !is_alive(&before) }).await;
    eventually("another gateway runs it", || async {
        placed.gateways[0].invoke("s__pid", json!({})).await.status == 200
    })
    .await;
    let after = pid(&placed.gateways[0]).await;
    assert_ne!(after, before);
    for _ in 0..REQUESTS {
        assert_eq!(pid(&placed.all).await, after);
    }
    assert_eq!(agent.call_text("s__pid", json!({})).await, after, "a session goes on");
    assert_eq!(placed.started(), [before, after], "no other process was started");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_gateway_runs_the_server_after_its_gateway_was_killed() {
    let (database, key) = (Database::create(&database::server().unwrap()).await, database::key());
    let variables = [("DATABASE_URL", database.url.as_str()), ("TOOLGATE_SECRET_KEY", key.expose())];
    let start = async || Process::start_in(TempDir::new().unwrap(), &variables).await;
    let (killed, others) = (start().await, [start().await, start().await]);
    let folder = TempDir::new().unwrap();
    let input = input(folder.path(), json!({ "era": "legacy" }), json!({}));
    killed.post("/api/v0/servers", &input).await.expect(201);
    for other in &others {
        eventually("the server is known", || async { other.get("/api/v0/servers/s").await.status == 200 })
            .await;
    }
    let before = others[0].call("s__pid", json!({})).await;
    killed.signal(libc::SIGKILL);
    killed.end().await;
    for other in &others {
        eventually("another gateway runs it", || async {
            let answer = other.post("/api/v0/tools/invoke", &json!({ "name": "s__pid" })).await;
            match answer.status {
                200 => answer.json()["content"][0]["text"] != before,
                500 => false,
                other => panic!("{other}: {answer:?}"),
            }
        })
        .await;
    }
    let after = others[0].call("s__pid", json!({})).await;
    assert_eq!(others[1].call("s__pid", json!({})).await, after);
    assert_eq!(lines(&folder.path().join("processes")), [before.clone(), after]);
    assert!(!is_alive(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_ends_is_started_again_for_all() {
    let placed = Placed::start(json!({ "era": "legacy" }), json!({})).await;
    let before = pid(&placed.gateways[1]).await;
    let _ = placed.gateways[2].invoke("s__die", json!({ "code": 3 })).await;
    eventually("it runs again", || async {
        let answer = placed.gateways[1].invoke("s__pid", json!({})).await;
        answer.status == 200 && answer.json()["content"][0]["text"] != before
    })
    .await;
    let after = pid(&placed.gateways[2]).await;
    for gateway in &placed.gateways {
        assert_eq!(pid(gateway).await, after);
    }
    assert_eq!(placed.running(), [after]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_concurrent_calls_holds_for_all_gateways_together() {
    let placed = Placed::start(json!({ "era": "legacy" }), json!({ "max_concurrency": 1 })).await;
    for (holder, other) in [(0, 1), (1, 2), (2, 0)] {
        let agent = Agent::connect_with(&placed.gateways[holder], "/mcp", json!({ "elicitation": {} })).await;
        let mut talk = agent.begin_call(json!(1), "s__ask", json!({})).await;
        let question = talk.expect("elicitation/create").await;
        let mark = format!("{holder} {other}");
        let waiting = placed.gateways[other].invoke("s__echo", json!({ "text": "hi", "mark": mark }));
        let answering = async {
            // What is not a call does not wait.
            let lists = Agent::connect_with(&placed.gateways[other], "/mcp", json!({ "roots": {} })).await;
            assert!(!lists.tools().await.is_empty());
            assert_eq!(recorded(&placed.journal(), "ran", &mark), 0, "it waits for the other call");
            agent.reply(&question, json!({ "action": "decline" })).await;
            talk.answer().await
        };
        let (waited, answered) = tokio::join!(waiting, answering);
        waited.expect(200);
        assert!(answered["result"].is_object(), "{answered}");
        assert_eq!(recorded(&placed.journal(), "ran", &mark), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_counts_each_call_once() {
    let limit = json!({ "rate_limit": { "calls_per_minute": 1, "burst": 30 } });
    let placed = Placed::start(json!({ "era": "modern" }), limit).await;
    let mut answered = 0;
    for number in 0..60 {
        let gateway = &placed.gateways[number % placed.gateways.len()];
        match gateway.invoke("s__echo", json!({ "text": "hi", "mark": "once" })).await.status {
            200 => answered += 1,
            429 => {}
            other => panic!("{other}"),
        }
    }
    assert!((27..=33).contains(&answered), "{answered} calls were answered");
    assert_eq!(recorded(&placed.journal(), "ran", "once"), answered);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_counted_by_the_gateway_that_got_it() {
    let first = TestApp::start_with(|config| config.telemetry = true).await;
    let cluster = TestApp::start_behind_balancer(first, 3).await;
    let placed = Placed::on(cluster, json!({ "era": "legacy" }), json!({})).await;
    for gateway in &placed.gateways {
        gateway.call("s__echo", json!({ "text": "hi" })).await;
        Agent::connect(gateway, "/mcp").await.call_text("s__echo", json!({ "text": "hi" })).await;
    }
    for gateway in &placed.gateways {
        let metrics = gateway.get("/metrics").await.expect(200).text();
        let counted = r#"toolgate_tool_calls_total{server="s",tool="echo",outcome="ok"} 2"#;
        assert!(metrics.contains(counted), "{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_session_has_a_process_of_its_own_on_the_one_gateway() {
    for era in ["legacy", "modern"] {
        let placed = Placed::start(json!({ "era": era }), json!({ "session_mode": "stateful" })).await;
        let (one, other) =
            (Agent::connect(&placed.all, "/mcp").await, Agent::connect(&placed.all, "/mcp").await);
        let (first, second) =
            (one.call_text("s__pid", json!({})).await, other.call_text("s__pid", json!({})).await);
        assert_ne!(first, second);
        for _ in 0..REQUESTS {
            assert_eq!(one.call_text("s__pid", json!({})).await, first);
            assert_eq!(other.call_text("s__pid", json!({})).await, second);
        }
        one.end().await.expect(204);
        eventually("its process ends", || async { !is_alive(&first) }).await;
        assert_eq!(other.call_text("s__pid", json!({})).await, second);

        let mut gateways = placed.gateways.into_iter();
        let (mut running, mut stopping) = (gateways.next().unwrap(), gateways.next().unwrap());
        let third = Agent::connect(&stopping, "/mcp").await.call_text("s__pid", json!({})).await;
        assert!(third != first && third != second && is_alive(&third));
        stopping.stop().await;
        eventually("the process ends with its session", || async { !is_alive(&third) }).await;
        running.stop().await;
        eventually("all processes end with their gateway", || async { !is_alive(&second) }).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_placement_changes_while_the_server_is_in_use() {
    let placed = Placed::start(json!({ "era": "legacy" }), json!({ "placement": "each" })).await;
    let pids = async || {
        let mut found = Vec::new();
        for gateway in &placed.gateways {
            found.push(pid(gateway).await);
        }
        found
    };
    let (first, agent) = (pids().await, Agent::connect(&placed.all, "/mcp").await);
    assert!(first[0] != first[1] && first[1] != first[2] && first[0] != first[2], "{first:?}");
    let is_over = AtomicBool::new(false);
    let calling = async {
        while !is_over.load(Ordering::Relaxed) {
            let answer = placed.all.invoke("s__pid", json!({})).await;
            assert!([200, 500].contains(&answer.status), "{answer:?}");
        }
    };
    let changing = async {
        for (gateway, placement, is_one) in [(1, "one", true), (2, "each", false), (0, "one", true)] {
            let changes = json!({ "placement": placement });
            placed.gateways[gateway].patch("/api/v0/servers/s", changes).await.expect(200);
            eventually(&format!("the placement is {placement}"), || async {
                let mut found = Vec::new();
                for gateway in &placed.gateways {
                    let answer = gateway.invoke("s__pid", json!({})).await;
                    if answer.status != 200 {
                        return false;
                    }
                    found.push(answer.json()["content"][0]["text"].as_str().unwrap().to_owned());
                }
                let same = found.iter().filter(|pid| **pid == found[0]).count();
                if is_one {
                    same == 3 && placed.running().len() == 1
                } else {
                    same == 1 && found[1] != found[2]
                }
            })
            .await;
            assert!(!agent.call_text("s__pid", json!({})).await.is_empty(), "a session goes on");
        }
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(calling, changing);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_disabled_runs_once_when_it_is_enabled_elsewhere() {
    let placed = Placed::start(json!({ "era": "legacy" }), json!({})).await;
    placed.gateways[1].post("/api/v0/servers/s/disable", json!({})).await.expect(200);
    eventually("its process ends", || async { placed.running().is_empty() }).await;
    let is_disabled = || async { placed.gateways[2].server("s").await["status"] == "disabled" };
    eventually("the other gateway knows it", is_disabled).await;
    placed.gateways[2].post("/api/v0/servers/s/enable", json!({})).await.expect(200);
    placed.wait_until_known().await;
    let process = pid(&placed.gateways[2]).await;
    for gateway in &placed.gateways {
        assert_eq!(pid(gateway).await, process);
    }
    assert_eq!(placed.running(), [process]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_whose_lease_was_taken_ends_its_process() {
    let placed = Placed::start(json!({ "era": "legacy" }), json!({})).await;
    let before = pid(&placed.gateways[2]).await;
    let input = placed.input(json!({ "era": "legacy" }), json!({ "description": "again" }));
    placed.gateways[1].post("/api/v0/servers?force=true", input).await.expect(201);
    eventually("the old process ends", || async { !is_alive(&before) }).await;
    eventually("the server runs elsewhere", || async {
        placed.gateways[2].invoke("s__pid", json!({})).await.status == 200
    })
    .await;
    let after = pid(&placed.gateways[2]).await;
    for gateway in &placed.gateways {
        assert_eq!(pid(gateway).await, after);
    }
    assert_eq!(placed.running(), [after]);
}
