//! A gateway that is killed loses no audit entry of a change that it answered, and no record that could already be read.

use serde_json::{Value, json};

use crate::support::app::stdio_input;
use crate::support::{Behaviour, Process, eventually};

async fn calls(gateway: &Process) -> Vec<Value> {
    gateway.get("/api/v0/calls").await.expect(200).json()["calls"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_gateway_keeps_what_it_answered() {
    let mut gateway = Process::start().await;
    gateway.post("/api/v0/servers", &stdio_input("s", &Behaviour::default())).await.expect(201);
    for round in 1..=4 {
        gateway.call("s__echo", json!({"text": "x"})).await;
        eventually("the call is recorded", async || calls(&gateway).await.len() == round).await;
        let known = calls(&gateway).await;
        let name = format!("g{round}");
        let group = json!({"name": name, "included_servers": ["s"]});
        gateway.post("/api/v0/tool-groups", &group).await.expect(201);
        gateway.signal(libc::SIGKILL);
        let (_, folder) = gateway.end().await;
        gateway = Process::start_in(folder, &[]).await;
        let entries = gateway.get("/api/v0/audit?action=group.create").await.expect(200).json();
        assert_eq!(entries["entries"].as_array().unwrap().len(), round, "{entries}");
        assert_eq!(entries["entries"][0]["target"], name, "{entries}");
        let verified = gateway.get("/api/v0/audit/verify").await.expect(200).json();
        assert_eq!(verified["ok"], true, "{verified}");
        assert_eq!(calls(&gateway).await, known);
    }
}
