//! Random interleavings of parking, resuming, expiry, disconnecting, revocation and restarts of the server and the gateway:
//! whatever happens, an answer reaches only its own call, and nothing is left behind.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::modern::Post;
use crate::support::{Behaviour, Fake, ModernAgent, TestApp, bearer, client, eventually};

/// The places of the server: they must all be free in the end.
const PLACES: usize = 12;
/// How many calls are left waiting at most, so that there is a place for the next one.
const MOST_PARKED: usize = 5;
const STEPS: usize = 90;

/// A small generator: the same seed gives the same steps.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// A call that waits for input, as its client knows it.
#[derive(Clone)]
struct Parked {
    client: usize,
    params: Value,
    mark: String,
    asked: Value,
}

struct World {
    app: TestApp,
    fake: Fake,
    tokens: Vec<String>,
    parked: Vec<Parked>,
    calls: usize,
    resumed: usize,
}

impl World {
    async fn start() -> Self {
        let app = TestApp::start_enterprise_with(|config| {
            config.limits.answer_time = Duration::from_secs(6);
            config.telemetry = true;
        })
        .await;
        let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
        let mut stdio = crate::support::app::stdio_input("stdio", &Behaviour::of(json!({"era": "legacy"})));
        // On a process that several clients share, a question cannot be tied to one of their calls.
        stdio["session_mode"] = json!("stateful");
        app.register(stdio).await;
        app.register(json!({
            "name": "http", "transport": "streamable_http", "url": fake.url(), "max_concurrency": PLACES,
            "timeout_ms": 3000,
        }))
        .await;
        let mut tokens = Vec::new();
        for name in ["a", "b"] {
            tokens.push(app.create_client(name, &["http", "stdio"]).await);
        }
        Self { app, fake, tokens, parked: Vec::new(), calls: 0, resumed: 0 }
    }

    fn agent(&self) -> ModernAgent {
        ModernAgent::at(&self.app, "/mcp").with(json!({"elicitation": {}}))
    }

    fn post(&self, client: usize, params: &Value) -> Post {
        let message = self.agent().message(json!(self.calls), "tools/call", params.clone());
        Post::of(message.to_string()).adding("authorization", &bearer(&self.tokens[client]))
    }

    async fn send(&self, client: usize, params: &Value) -> Value {
        let answer = self.agent().send(&self.post(client, params)).await;
        match serde_json::from_slice(&answer.body) {
            Ok(message) => message,
            Err(_) => answer
                .text()
                .lines()
                .find_map(|line| line.strip_prefix("data: "))
                .map_or(json!({}), |data| serde_json::from_str(data).unwrap()),
        }
    }

    fn call(&mut self, server: &str) -> (Value, String) {
        self.calls += 1;
        let mark = format!("mark {}", self.calls);
        let schema = json!({"type": "object", "properties": {}});
        let question =
            json!({"method": "elicitation/create", "params": {"message": mark, "requestedSchema": schema}});
        let arguments = json!({"rounds": [[question]], "mark": mark});
        (json!({"name": format!("{server}__ask"), "arguments": arguments}), mark)
    }

    async fn park(&mut self, client: usize, server: &str) {
        let (params, mark) = self.call(server);
        let answer = self.send(client, &params).await;
        let asked = answer["result"].clone();
        if asked["resultType"] != "input_required" {
            // The server is being restarted, or all its places are taken.
            assert!(answer.get("error").is_some() || asked["isError"] == true, "{answer}");
            return;
        }
        let requests = asked["inputRequests"].as_object().unwrap();
        assert!(requests.values().all(|request| request["params"]["message"] == mark.as_str()), "{asked}");
        self.parked.push(Parked { client, params, mark, asked });
    }

    /// Answers a parked call as a client; the result, if there is one, is that of the call.
    async fn resume(&self, client: usize, parked: &Parked) -> bool {
        let mut params = parked.params.clone();
        let key = parked.asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
        params["requestState"] = parked.asked["requestState"].clone();
        params["inputResponses"] = json!({key: {"action": "accept", "content": {"mark": parked.mark}}});
        let answer = self.send(client, &params).await;
        let Some(result) = answer.get("result") else { return false };
        assert_eq!(client, parked.client, "another client's state was accepted: {answer}");
        let told: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(
            told[0][0]["content"]["mark"],
            parked.mark.as_str(),
            "the answer of another call: {answer}"
        );
        true
    }

    async fn step(&mut self, random: &mut Random) {
        let client = random.below(2);
        match random.below(12) {
            0..=3 if self.parked.len() < MOST_PARKED => {
                self.park(client, ["http", "http", "stdio"][random.below(3)]).await
            }
            0..=6 if !self.parked.is_empty() => {
                let parked = self.parked.swap_remove(random.below(self.parked.len()));
                // Of two at once, and of any number later, at most one succeeds.
                let (one, two) =
                    tokio::join!(self.resume(parked.client, &parked), self.resume(parked.client, &parked));
                assert!(!(one && two), "a state was used twice");
                assert!(!self.resume(parked.client, &parked).await, "a state was used again");
                self.resumed += usize::from(one || two);
            }
            7 if !self.parked.is_empty() => {
                let parked = self.parked[random.below(self.parked.len())].clone();
                assert!(!self.resume(1 - parked.client, &parked).await);
            }
            8 => {
                // Leaves before the answer, at any moment.
                let (params, _) = self.call("http");
                let post = self.post(client, &params);
                drop(
                    tokio::time::timeout(
                        Duration::from_millis(random.below(80) as u64),
                        self.agent().send(&post),
                    )
                    .await,
                );
            }
            9 if random.below(3) == 0 => {
                let name = ["a", "b"][client];
                self.app.delete(&format!("/api/v0/clients/{name}")).await.expect(204);
                self.tokens[client] = self.app.create_client(name, &["http", "stdio"]).await;
            }
            10 => match random.below(2) {
                0 => self.fake.drop_sessions(),
                _ => self.fake.drop_connections(),
            },
            11 if random.below(4) == 0 => {
                let stopped = std::mem::replace(&mut self.app, TestApp::start().await);
                self.app = stopped.restart().await;
            }
            _ => {}
        }
    }

    async fn metric(&self, name: &str) -> u64 {
        let metrics = self.app.get("/metrics").await.expect(200).text();
        let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
    }
}

async fn run(seed: u64) {
    let (mut world, mut random) = (World::start().await, Random(seed));
    // Each client has a link of its own to each server, which stays.
    for (client, server) in [(0, "http"), (0, "stdio"), (1, "http"), (1, "stdio")] {
        world.park(client, server).await;
        let parked = world.parked.pop().unwrap();
        assert!(world.resume(client, &parked).await);
    }
    let before = world.metric("toolgate_runtime_tasks").await;
    for _ in 0..STEPS {
        world.step(&mut random).await;
    }
    assert!(world.resumed > 0, "no call was resumed");
    // The rest expires.
    eventually("nothing is parked", async || world.metric("toolgate_calls_parked").await == 0).await;
    // Not a task is left for any of the calls; a few serve connections that rest.
    let most = before + 16;
    eventually("the tasks of all calls have ended", async || {
        world.metric("toolgate_runtime_tasks").await <= most
    })
    .await;
    // All places are free, and there are not more of them than before.
    world.parked.clear();
    eventually("the server is connected", async || world.app.server("http").await["status"] == "connected")
        .await;
    for _ in 0..PLACES {
        world.park(0, "http").await;
    }
    assert_eq!(world.parked.len(), PLACES, "a place is lost");
    let (params, _) = world.call("http");
    let waits = tokio::time::timeout(Duration::from_millis(300), world.send(0, &params)).await;
    assert!(waits.is_err(), "a place was given back twice: {waits:?}");
    let parked = world.parked.pop().unwrap();
    assert!(world.resume(0, &parked).await);
    client::request(&world.app.address, "GET", "/health", &[], Vec::new()).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_and_their_answers_never_mix_and_nothing_is_left() {
    run(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_and_their_answers_never_mix_in_another_order() {
    run(20_261_116).await;
}
