//! Only one gateway reads the lists of a server. The others connect to it when a caller needs it.

use std::collections::BTreeSet;

use serde_json::json;

use super::cluster;
use super::starting::{Place, stop};
use super::support::{Agent, Behaviour, Fake, TestApp, eventually};

async fn knows(app: &TestApp, tool: &str) -> bool {
    app.tools("").await.iter().any(|known| known == tool)
}

/// The sessions in which a server was asked for its tools. On a busy machine, one may read them twice.
fn readers(fake: &Fake) -> BTreeSet<String> {
    fake.seen_of("tools/list").iter().map(|seen| seen.headers["mcp-session-id"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_gateway_connects_and_the_others_when_they_are_called() {
    let (_all, gateways) = cluster().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    gateways[0].register_http("s", &fake).await;
    for gateway in &gateways {
        eventually("the tools are known", || knows(gateway, "s__echo")).await;
        let server = gateway.server("s").await;
        assert_eq!((&server["status"], &server["status_reason"]), (&json!("connected"), &json!("")));
        Agent::connect(gateway, "/mcp").await.tools().await;
    }
    assert_eq!(fake.sessions().len(), 1, "only one gateway is connected");
    for gateway in &gateways {
        assert_eq!(gateway.call("s__echo", json!({ "text": "hi" })).await, "hi");
    }
    assert_eq!(fake.sessions().len(), gateways.len(), "each gateway that was called is connected");
    assert_eq!(readers(&fake).len(), 1, "and only one has read the lists");
}

/// Which arguments those are is in the lists, which only one gateway has read.
#[tokio::test(flavor = "multi_thread")]
async fn every_gateway_repeats_arguments_in_headers() {
    let (_all, gateways) = cluster().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "modern" }))).await;
    gateways[0].register_http("s", &fake).await;
    let own = json!({ "name": "own", "transport": "streamable_http", "url": fake.url(), "session_mode": "stateful" });
    gateways[0].register(own).await;
    for gateway in &gateways {
        for tool in ["s__region", "own__region"] {
            eventually("the tools are known", || knows(gateway, tool)).await;
            gateway.call(tool, json!({ "region": "norrl\u{e5}nd" })).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_ends_leaves_its_servers_to_the_others() {
    let (_all, mut gateways) = cluster().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    gateways[0].register_http("s", &fake).await;
    for gateway in &gateways {
        eventually("the tools are known", || knows(gateway, "s__echo")).await;
    }
    gateways.remove(0).stop().await;
    eventually("another gateway reads the lists", || async { readers(&fake).len() == 2 }).await;
    fake.set_tools(&["fresh"]);
    fake.notify_tools_changed();
    for gateway in &gateways {
        eventually("the new tool is known", || knows(gateway, "s__fresh")).await;
    }
    assert_eq!(readers(&fake).len(), 2, "by one of the two");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_a_server_is_the_same_on_all_gateways() {
    let (_all, gateways) = cluster().await;
    let mut fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    gateways[0].register_http("s", &fake).await;
    let status_everywhere = async |status: &str| {
        for gateway in &gateways {
            eventually(&format!("the server is {status}"), || async {
                let server = gateway.get("/api/v0/servers/s").await;
                server.status == 200 && server.json()["status"] == status
            })
            .await;
        }
    };
    status_everywhere("connected").await;
    fake.stop().await;
    status_everywhere("failed").await;
    fake.restart().await;
    status_everywhere("connected").await;
    gateways[1].post("/api/v0/servers/s/disable", json!({})).await.expect(200);
    status_everywhere("disabled").await;
    gateways[2].post("/api/v0/servers/s/enable", json!({})).await.expect(200);
    status_everywhere("connected").await;
    assert_eq!(gateways[0].call("s__echo", json!({ "text": "hi" })).await, "hi");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_only_a_called_gateway_hears_of_counts_everywhere() {
    let (_all, gateways) = cluster().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    gateways[0].register_http("s", &fake).await;
    eventually("the tools are known", || knows(&gateways[1], "s__echo")).await;
    gateways[1].call("s__echo", json!({ "text": "hi" })).await;
    // The server tells of it only in the answer to this call.
    let changing = json!({ "names": ["echo", "fresh"], "own_stream": true });
    gateways[1].call("s__set_tools", changing).await;
    for gateway in &gateways {
        eventually("the new tool is known", || knows(gateway, "s__fresh")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_was_killed_is_replaced_by_the_next_one_at_its_address() {
    const READER: &str = "SELECT CAST(slot AS TEXT) FROM leases JOIN replicas USING (instance)";
    let place = Place::new().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    let killed = place.start().await;
    let input = json!({ "name": "s", "transport": "streamable_http", "url": fake.url() });
    killed.post("/api/v0/servers", &input).await.expect(201);
    assert_eq!(place.strings(READER).await, ["1"]);
    let port = killed.address.rsplit(':').next().unwrap().to_owned();
    killed.signal(libc::SIGKILL);
    killed.end().await;
    let next = place.start_with(&[("PORT", &port)]).await;
    assert_eq!(place.strings(READER).await, ["2"], "the slot of the first one is named by its sessions");
    eventually("the lists are read again", || async { fake.seen_of("tools/list").len() >= 2 }).await;
    stop(next).await;
}

/// The slots of the gateways that are alive.
const ALIVE: &str = "SELECT CAST(slot AS TEXT) FROM replicas
    WHERE seen_at > EXTRACT(EPOCH FROM clock_timestamp()) * 1000 - 15000 ORDER BY slot";

#[tokio::test(flavor = "multi_thread")]
async fn the_time_without_a_database_counts_for_nobody() {
    const LONG_AGO: &str = "UPDATE replicas SET seen_at = seen_at - 20000 RETURNING CAST(slot AS TEXT)";
    let place = Place::new().await;
    let (late, early) = (place.start().await, place.start().await);
    late.signal(libc::SIGSTOP);
    assert_eq!(place.strings(LONG_AGO).await.len(), 2);
    eventually("a gateway uses the database again", || async { !place.strings(ALIVE).await.is_empty() })
        .await;
    assert_eq!(place.strings(ALIVE).await, ["1", "2"], "the other one is expected too");
    late.signal(libc::SIGCONT);
    stop(late).await;
    stop(early).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_that_have_the_same_address_by_mistake_both_count() {
    let place = Place::new().await;
    let shared = [("INTERNAL_URL", "http://gateways.example:8080")];
    let (first, second) = (place.start_with(&shared).await, place.start_with(&shared).await);
    eventually("both count", || async { place.strings(ALIVE).await == ["1", "2"] }).await;
    stop(first).await;
    stop(second).await;
}
