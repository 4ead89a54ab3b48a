//! A gateway that is killed, and one that is told to stop, as processes under load.

use serde_json::json;

use super::gateways::Gateways;
use super::load::{CALLERS, Caller, Failure, Kind, Load};
use super::support::database::{self, Database};
use super::support::{Agent, TestApp, eventually};

async fn start() -> (Gateways, Database) {
    let server = database::server().expect("TOOLGATE_TEST_POSTGRES is set");
    let database = Database::create(&server).await;
    (Gateways::start(&[database.url.as_str(); 3]).await, database)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_gateway_costs_only_its_own_calls() {
    let (mut gateways, _database) = start().await;
    let client = gateways.client.clone();
    let killed = gateways.take(0);
    let load = Load::start(&gateways.all, &client);
    load.goes_on().await;
    let mut idle = Agent::connect_as(&killed.app, "/mcp", &client).await;

    let mut slow = Vec::new();
    for (kind, gateway) in
        Kind::ALL.map(|kind| (kind, &killed.app)).into_iter().chain([(Kind::Legacy, &gateways.each[0].app)])
    {
        let mut caller = Caller::new(kind, &killed.app, &client);
        if kind == Kind::Legacy {
            caller.call("s__echo", json!({ "text": "a session" })).await.expect("it opens a session");
        }
        // The last one has its session on the killed gateway, and calls through another one.
        caller.move_to(&gateway.address);
        slow.push(tokio::spawn(async move { caller.call("s__slow", json!({ "ms": 600_000 })).await }));
    }
    let running = slow.len() as u64;
    eventually("the calls run", || async { gateways.fake.calls_of("slow") == running }).await;
    gateways.fake.set_tools(&["echo", "slow", "fresh"]);

    killed.process.signal(libc::SIGKILL);
    assert_eq!(killed.process.end().await.0, None);
    for call in slow {
        match call.await.unwrap() {
            Err(Failure::Closed(_) | Failure::NoSession | Failure::Refused(500.., _)) => {}
            other => panic!("{other:?}"),
        }
    }
    load.goes_on().await;
    let failures = load.failures();
    // Each caller had at most one call there.
    assert!(
        failures.len() <= CALLERS && failures.iter().all(|failure| failure.contains("Closed")),
        "{failures:?}"
    );

    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    for gateway in &gateways.each {
        gateway.app.address.clone_into(&mut idle.address);
        idle.post(&ping).await.expect(404);
        let new = Agent::connect_as(&gateway.app, "/mcp", &client).await;
        assert_eq!(new.call_text("s__echo", json!({ "text": "new" })).await, "new");
    }
    for gateway in &gateways.each {
        eventually("another gateway reads the lists", || gateway.knows_tool("s__fresh")).await;
    }
    assert_eq!(load.failures().len(), failures.len(), "{:?}", load.failures());
    load.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_gateway_costs_no_call() {
    let (mut gateways, _database) = start().await;
    let client = gateways.client.clone();
    let stopped = gateways.take(0);
    let load = Load::start(&gateways.all, &client);
    load.goes_on().await;
    let mut slow = Vec::new();
    for kind in Kind::ALL {
        let mut caller = Caller::new(kind, &stopped.app, &client);
        slow.push(tokio::spawn(async move { caller.call("s__slow", json!({ "ms": 2_000 })).await }));
    }
    eventually("the calls run", || async { gateways.fake.calls_of("slow") == 3 }).await;

    stopped.process.signal(libc::SIGTERM);
    eventually("it says so", || async { is_draining(&stopped.app).await }).await;
    // As balancers do that look at `/ready`.
    gateways.all.balancer.as_ref().unwrap().remove(&stopped.process.address);
    for call in slow {
        assert_eq!(call.await.unwrap().expect("calls are finished"), "done");
    }
    assert_eq!(stopped.process.end().await.0, Some(0));
    load.goes_on().await;
    assert!(load.failures().is_empty(), "{:?}", load.failures());
    load.stop().await;
}

async fn is_draining(gateway: &TestApp) -> bool {
    let ready = gateway.get("/ready").await;
    ready.status == 503 && ready.json() == json!({ "status": "draining" })
}
