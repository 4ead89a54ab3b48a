//! A lost call is retried if that is safe, at every door and over every wire. How links reconnect is in `upstream_heal`.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{Callers, Door, Said, Server, Tally, TestApp, Wire};

/// A caller at one door and its own server on one wire.
struct Pair {
    callers: Callers,
    door: Door,
    server: Server,
    /// For the messages of failed assertions.
    name: String,
}

impl Pair {
    async fn call(&self, tool: &str, arguments: Value) -> Said {
        self.callers.call(self.door, &self.server.tool(tool), arguments).await
    }

    /// Makes a call whose response must have its own text.
    async fn works(&self, tool: &str, mark: &str, mut arguments: Value) {
        (arguments["text"], arguments["mark"]) = (json!("hi"), json!(mark));
        let said = self.call(tool, arguments).await;
        assert_eq!(said, Said::Text("hi".into()), "{} {mark}", self.name);
    }
}

/// Runs a test for every door and wire, all at the same time. Each run returns the number of calls that it made, and the
/// gateway must have counted exactly those.
async fn over_every_pair<F: Future<Output = u64> + Send + 'static>(
    wires: &[Wire],
    behaviour: Value,
    test: impl Fn(Pair) -> F,
) {
    let app = Arc::new(TestApp::start_with(|config| config.telemetry = true).await);
    let callers = Callers::of(&app).await;
    let mut servers = JoinSet::new();
    for (wire, door) in wires.iter().flat_map(|wire| Door::ALL.map(|door| (*wire, door))) {
        let (app, behaviour, callers) = (app.clone(), behaviour.clone(), callers.clone());
        servers.spawn(async move {
            let name = format!("{wire:?}-{door:?}");
            let server = Server::register_with(&app, wire, &name, behaviour, json!({})).await;
            Pair { callers, door, server, name }
        });
    }
    let mut tests = JoinSet::new();
    for pair in servers.join_all().await {
        tests.spawn(test(pair));
    }
    let calls: u64 = tests.join_all().await.iter().sum();
    assert_eq!(Tally::of(&app).await.sum(), calls, "each call has one outcome, however often it was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_call_is_repeated_if_that_does_no_harm() {
    over_every_pair(&Wire::ALL, json!({}), async |pair| {
        pair.works("read_only", "reading", json!({"lose": 1})).await;
        assert_eq!(pair.server.ran("reading"), 2, "{}", pair.name);
        let said = pair.call("echo", json!({"lose": 1, "mark": "writing"})).await;
        assert!(matches!(said, Said::Error(_)), "{}: {said:?}", pair.name);
        assert_eq!(pair.server.ran("writing"), 1, "{}", pair.name);
        pair.works("echo", "after", json!({})).await;
        assert_eq!(pair.server.ran("after"), 1, "{}", pair.name);
        3
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_repeated_only_once() {
    over_every_pair(&Wire::ALL, json!({}), async |pair| {
        pair.works("vendor", "idempotent", json!({"lose": 1})).await;
        assert_eq!(pair.server.ran("idempotent"), 2, "{}", pair.name);
        let said = pair.call("read_only", json!({"lose": 5, "mark": "hopeless"})).await;
        assert!(matches!(said, Said::Error(_)), "{}: {said:?}", pair.name);
        assert_eq!(pair.server.ran("hopeless"), 2, "{}", pair.name);
        2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_session_is_opened_again_and_the_call_runs_once() {
    // Processes and servers of revision 2026-07-28 have no sessions.
    let wires = [Wire::HttpJson, Wire::HttpEvents, Wire::Sse];
    for behaviour in [json!({}), json!({"get_stream": false})] {
        over_every_pair(&wires, behaviour, async |pair| {
            pair.works("echo", "before", json!({})).await;
            pair.server.fake.as_ref().unwrap().drop_sessions();
            pair.works("echo", "other", json!({})).await;
            assert_eq!(pair.server.ran("other"), 1, "{}", pair.name);
            2
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_lost_together_with_its_session_is_repeated_in_a_new_one() {
    let wires = [Wire::HttpJson, Wire::HttpEvents, Wire::Sse];
    over_every_pair(&wires, json!({"get_stream": false}), async |pair| {
        pair.works("read_only", "reading", json!({"lose": 1, "forget": true})).await;
        assert_eq!(pair.server.ran("reading"), 2, "{}", pair.name);
        let said = pair.call("echo", json!({"lose": 1, "forget": true, "mark": "writing"})).await;
        assert!(matches!(said, Said::Error(_)), "{}: {said:?}", pair.name);
        assert_eq!(pair.server.ran("writing"), 1, "{}", pair.name);
        pair.works("echo", "after", json!({})).await;
        assert_eq!(pair.server.ran("after"), 1, "{}", pair.name);
        3
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_never_reached_its_server_is_sent_to_the_next_one() {
    // Without a stream on which the gateway would notice the loss before the call.
    let behaviour = json!({"get_stream": false, "delay_ms": {"initialize": 100}});
    over_every_pair(&Wire::ALL, behaviour, async |pair| {
        let died = match &pair.server.fake {
            // The state after a restart: no session, and closed connections.
            Some(fake) => {
                fake.drop_sessions();
                fake.cut_connections().await;
                0
            }
            None => {
                let said = pair.call("die", json!({"code": 3})).await;
                assert!(said.error().contains("exit status: 3"), "{}: {said:?}", pair.name);
                1
            }
        };
        pair.works("echo", "other", json!({})).await;
        assert_eq!(pair.server.ran("other"), 1, "{}", pair.name);
        died + 1
    })
    .await;
}
