//! Records of calls on several gateways: all are in one database, and whoever watches calls on one gateway sees those of all.

use serde_json::{Value, json};

use crate::pair;
use crate::support::client::{self, Events};
use crate::support::{Behaviour, Fake, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_all_gateways_are_listed_counted_and_streamed_on_each() {
    let (first, second) = pair().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    first.register_http("s", &fake).await;
    eventually("the other one knows the server", async || {
        second.get("/api/v0/servers/s").await.status == 200
    })
    .await;
    second.invoke("s__echo", json!({"text": "x"})).await.expect(200);
    let listed = async || first.get("/api/v0/calls").await.expect(200).json()["calls"].clone();
    eventually("the call is listed", async || listed().await.as_array().unwrap().len() == 1).await;
    let path = "/api/v0/calls/stream?outcome=tool_error";
    let mut events = Events::new(client::open(&first.address, "GET", path, &[], Vec::new()).await);
    // The first calls may end before the stream knows which are new.
    let mut seen: Vec<Value> = Vec::new();
    let call = async {
        loop {
            let known = listed().await.as_array().unwrap().len();
            second.invoke("s__fail", json!({})).await.expect(200);
            first.invoke("s__fail", json!({})).await.expect(200);
            let is_written = async || listed().await.as_array().unwrap().len() >= known + 2;
            eventually("both calls are written", is_written).await;
        }
    };
    let see = async {
        while seen.len() < 10 {
            let event = events.next().await.expect("the stream goes on");
            seen.push(serde_json::from_slice::<Value>(&event.data).unwrap());
        }
    };
    tokio::select! {
        () = see => {}
        () = call => unreachable!("calls go on"),
    }
    let mut ids: Vec<_> = seen.iter().map(|call| call["id"].as_str().unwrap().to_owned()).collect();
    let writers: std::collections::HashSet<_> = ids.iter().map(|id| id[16..].to_owned()).collect();
    assert_eq!(writers.len(), 2, "calls of both gateways are streamed: {ids:?}");
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), seen.len(), "each is streamed once");
    for app in [&first, &second] {
        let counted = async || {
            let rows = app.get("/api/v0/stats?by=tool").await.expect(200).json()["rows"].clone();
            let of = |key: &str| rows.as_array().unwrap().iter().find(|row| row["key"] == key).cloned();
            let listed = app.get("/api/v0/calls?name=fail&limit=1000").await.expect(200).json();
            let listed = listed["calls"].as_array().unwrap().len();
            of("s__fail").is_some_and(|row| row["calls"] == listed) && of("s__echo").is_some()
        };
        eventually("all are counted", counted).await;
    }
}
