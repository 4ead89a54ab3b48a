//! Which user records belong to: they stay with a user who gets another name, and do not come with a name that is given again.

use serde_json::{Value, json};

use crate::support::client::{self, Events};
use crate::support::{Behaviour, Fake, TestApp, bearer, eventually};

const CALLS: &str = "/api/v0/calls";

async fn call(app: &TestApp, token: &str, text: &str) {
    let body = json!({ "name": "s__echo", "text": text });
    app.send_as(token, "POST", "/api/v0/tools/invoke", body).await.expect(200);
}

async fn calls(app: &TestApp, token: &str) -> Vec<Value> {
    let answer = app.send_as(token, "GET", CALLS, json!({})).await.expect(200).json();
    answer["calls"].as_array().unwrap().clone()
}

/// Makes a call, and returns the id of its record.
async fn recorded(app: &TestApp, token: &str, text: &str) -> String {
    let known = calls(app, token).await.len();
    call(app, token, text).await;
    eventually("the call is recorded", async || calls(app, token).await.len() > known).await;
    calls(app, token).await[0]["id"].as_str().unwrap().to_owned()
}

async fn follow(app: &TestApp, token: &str) -> Events {
    let authorization = bearer(token);
    let headers = [("authorization", authorization.as_str()), ("accept", "text/event-stream")];
    Events::new(client::open(&app.address, "GET", "/api/v0/calls/stream", &headers, Vec::new()).await)
}

async fn rename(app: &TestApp, from: &str, to: &str) {
    app.put(&format!("/api/v0/users/{from}"), json!({ "username": to })).await.expect(200);
}

async fn start() -> (TestApp, Fake) {
    let app = TestApp::start_enterprise().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("s", &fake).await;
    (app, fake)
}

#[tokio::test(flavor = "multi_thread")]
async fn records_stay_with_a_user_and_not_with_the_name() {
    let (app, _fake) = start().await;
    let (carl, eve) = (app.create_user("carl", "user").await, app.create_user("eve", "user").await);
    let id = recorded(&app, &carl, "private").await;
    rename(&app, "carl", "carl2").await;
    rename(&app, "eve", "carl").await;
    assert_eq!(calls(&app, &carl).await[0]["id"], *id);
    let path = format!("{CALLS}/{id}");
    app.send_as(&carl, "GET", &path, json!({})).await.expect(200);
    app.send_as(&carl, "GET", &format!("{CALLS}?principal=carl"), json!({})).await.expect(403);
    let own = app.send_as(&carl, "GET", &format!("{CALLS}?principal=carl2"), json!({})).await.expect(200);
    assert_eq!(own.json()["calls"][0]["id"], *id);
    assert_eq!(calls(&app, &eve).await, Vec::<Value>::new());
    app.send_as(&eve, "GET", &path, json!({})).await.expect(404);
    // Nor does somebody get the records of a user who was deleted.
    app.delete("/api/v0/users/carl2").await.expect(204);
    let other = app.create_user("carl2", "user").await;
    assert_eq!(calls(&app, &other).await, Vec::<Value>::new());
    app.send_as(&other, "GET", &path, json!({})).await.expect(404);
    app.get(&path).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_own_calls_stays_with_a_user_and_not_with_the_name() {
    let (app, _fake) = start().await;
    let carl = app.create_user("carl", "user").await;
    let mut events = follow(&app, &carl).await;
    rename(&app, "carl", "carl2").await;
    let other = app.create_user("carl", "user").await;
    recorded(&app, &other, "of the other").await;
    let id = recorded(&app, &carl, "own").await;
    let event = events.next().await.expect("the stream goes on");
    let seen: Value = serde_json::from_slice(&event.data).unwrap();
    assert_eq!((&seen["id"], &seen["principal"]), (&json!(id), &json!({ "kind": "user", "name": "carl2" })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_calls_ends_when_its_reader_gets_another_role() {
    let (app, _fake) = start().await;
    let admin = app.create_user("second", "admin").await;
    for role in ["user", "admin"] {
        let mut events = follow(&app, &admin).await;
        app.put("/api/v0/users/second", json!({ "role": role })).await.expect(200);
        assert!(events.next().await.is_none(), "nothing is sent to somebody who became {role}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_leads_nowhere_is_cut_in_its_record() {
    let (app, _fake) = start().await;
    let admin = app.create_user("second", "admin").await;
    let name = format!("s__{}", "ä".repeat(500_000));
    app.send_as(&admin, "POST", "/api/v0/tools/invoke", json!({ "name": name })).await.expect(404);
    eventually("the call is recorded", async || calls(&app, &admin).await.len() == 1).await;
    let records = calls(&app, &admin).await;
    assert_eq!(records[0]["name"].as_str().unwrap(), "ä".repeat(4096));
}
