//! A gateway whose path to the database neither answers nor closes, while it and the others are in use.

use serde_json::json;

use super::gateways::Gateways;
use super::load::{Caller, Failure, Kind, Load};
use super::relay::Relay;
use super::support::database::{self, Database};
use super::support::{eventually, request};
use super::writes::Writes;

async fn with_relay() -> (Database, Relay) {
    let server = database::server().expect("TOOLGATE_TEST_POSTGRES is set");
    let database = Database::create(&server).await;
    let (_, address) = server.rsplit_once('@').expect("the URL names a user");
    (database, Relay::start(address).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_without_its_database_serves_calls_and_catches_up() {
    let (database, relay) = with_relay().await;
    let through_relay = relay.url(&database.url);
    let gateways = Gateways::start(&[&through_relay, &database.url, &database.url]).await;
    let [cut, one, other] = gateways.each.as_slice() else { panic!("there are three gateways") };
    let load = Load::start(&cut.app, &gateways.client);
    // One of these waits for the database at the moment of the cut.
    let writes = [Writes::start_at(&gateways, &cut.app), Writes::start_at(&gateways, &one.app)];
    for writes in &writes {
        writes.go_on().await;
    }
    relay.cut();
    cut.refuses_changes().await;
    load.goes_on().await;

    eventually("the others make changes", || async { one.create_group("meanwhile").await.status == 201 })
        .await;
    eventually("the others know of it", || other.has_group("meanwhile")).await;
    assert!(!cut.has_group("meanwhile").await);
    gateways.fake.set_tools(&["echo", "fresh"]);
    for gateway in [one, other] {
        eventually("another gateway reads the lists", || gateway.knows_tool("s__fresh")).await;
    }
    load.goes_on().await;

    relay.mend();
    eventually("it knows of the change", || cut.has_group("meanwhile")).await;
    eventually("it knows the new tool", || cut.knows_tool("s__fresh")).await;
    gateways.heal().await;
    load.goes_on().await;
    for writes in writes {
        writes.go_on().await;
        writes.check(&gateways).await;
    }
    assert!(load.failures().is_empty(), "{:?}", load.failures());
    assert_eq!(load.lost_sessions(), 0);
    load.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_nobody_confirms_are_not_denied() {
    let (database, relay) = with_relay().await;
    let url = relay.url(&database.url);
    let gateways = Gateways::start_with(&[&url], &[("STALE_RIGHTS_SEC", "8")]).await;
    let gateway = &gateways.each[0];
    let mut callers = Kind::ALL.map(|kind| Caller::new(kind, &gateway.app, &gateways.client));
    for caller in &mut callers {
        caller.call("s__echo", json!({ "text": "hi" })).await.expect("rights are confirmed");
    }
    relay.cut();
    gateway.becomes("503 stale").await;
    for caller in &mut callers {
        match caller.call("s__echo", json!({ "text": "hi" })).await {
            Err(Failure::Refused(503, _)) => {}
            other => panic!("{other:?}"),
        }
    }
    let unknown = [("authorization", "Bearer 0123456789abcdef")];
    request(&gateway.process.address, "GET", "/api/v0/servers", &unknown, Vec::new()).await.expect(503);
    relay.mend();
    gateway.becomes("200 ok").await;
    for caller in &mut callers {
        assert_eq!(
            caller.call("s__echo", json!({ "text": "hi" })).await.expect("rights are confirmed"),
            "hi"
        );
    }
    request(&gateway.process.address, "GET", "/api/v0/servers", &unknown, Vec::new()).await.expect(401);
}
