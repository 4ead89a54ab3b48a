//! `toolgate rotate-key` while gateways run.

use std::path::Path;

use model::Secret;
use serde_json::{Value, json};
use tokio::process::Command;
use toolgate::app::App;
use toolgate::config::Config;

use super::support::grants::{by, grant};
use super::support::process::{Ended, run};
use super::support::{Agent, Behaviour, Fake, TestApp, bearer, database, eventually};

async fn rotate(folder: &Path, config: &Config, current: &Secret, new: &Secret, more: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolgate"));
    command.args(["rotate-key", "--output", "json", "--new-key", new.expose()]).args(more);
    command.current_dir(folder).env_clear().env("DATABASE_URL", config.database.to_string());
    command.env("TOOLGATE_SECRET_KEY", current.expose());
    run(command).await
}

fn result(ended: &Ended) -> Value {
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

/// Waits until a gateway accepts a token.
async fn accepts(app: &TestApp, token: &str) {
    let authorization = bearer(token);
    eventually("the token works", || async {
        let headers = [("authorization", authorization.as_str())];
        app.send("GET", "/api/v0/servers", &headers, "").await.status == 200
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_is_replaced_while_gateways_run() {
    let mut config = None;
    let mut first = TestApp::start_enterprise_with(|own| config = Some(own.clone())).await;
    let config = config.unwrap();
    let (old, new) = (config.secret_key.clone().unwrap(), database::key());
    let mut second = TestApp::start_beside(&first).await;
    let folder = second.folder.path().to_owned();
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    first.register_http("s", &fake).await;
    let early = first.create_user("early", "user").await;
    let mut agent = Agent::connect_as(&first, "/mcp", &first.create_client("agent", &["s"]).await).await;

    let begun = result(&rotate(&folder, &config, &old, &new, &[]).await);
    assert_eq!(begun["finished"], json!(false), "{begun}");
    assert_eq!(begun["waiting_for"].as_array().unwrap().len(), 2, "{begun}");
    // The server, the admin, the user and the client, an entry of the audit for each of them, and the keys of the audit and of
    // checksums.
    assert_eq!((&begun["rows"], &begun["unreadable"]), (&json!(10), &json!([])), "{begun}");
    assert_eq!(agent.call_text("s__echo", json!({ "text": "old" })).await, "old");
    let between = first.create_user("between", "user").await;
    accepts(&second, &between).await;
    let too_early = rotate(&folder, &config, &old, &new, &["--finish"]).await;
    assert!(too_early.sentence().contains("gateways with the old key still run"), "{too_early:?}");

    let third = TestApp::start_beside_with(&first, |own| own.secret_key = Some(new.clone())).await;
    let late = third.create_user("late", "user").await;
    for gateway in [&first, &second, &third] {
        for token in [&early, &between, &late] {
            accepts(gateway, token).await;
        }
    }
    // The session was sealed under the old key, and its owner runs with that.
    agent.address.clone_from(&third.address);
    assert_eq!(agent.call_text("s__echo", json!({ "text": "through" })).await, "through");
    // Gateways with the old key still start.
    second.stop().await;
    let mut fourth = TestApp::start_beside(&first).await;
    accepts(&fourth, &late).await;

    first.stop().await;
    fourth.stop().await;
    let finished = result(&rotate(&folder, &config, &old, &new, &[]).await);
    assert_eq!((&finished["finished"], &finished["waiting_for"]), (&json!(true), &json!([])), "{finished}");
    for token in [&early, &between, &late] {
        accepts(&third, token).await;
    }
    let refused = App::build(&config).await.err().expect("the old key opens nothing").to_string();
    assert!(refused.contains("the secret key does not match this database"), "{refused}");
    let fifth = TestApp::start_beside_with(&first, |own| own.secret_key = Some(new.clone())).await;
    for token in [&early, &between, &late] {
        accepts(&fifth, token).await;
    }
    assert_eq!(fifth.call("s__echo", json!({ "text": "new" })).await, "new");
    let report = fifth.get("/api/v0/audit/verify").await.expect(200).json();
    // Both keys wrote entries: for four changes before, two meanwhile, and the begin and end of the rotation.
    assert_eq!((&report["ok"], &report["entries"]), (&json!(true), &json!(8)), "{report}");
    let again = result(&rotate(&folder, &config, &new, &new, &[]).await);
    assert_eq!((&again["finished"], &again["rows"]), (&json!(true), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_was_deleted_under_the_old_key_is_remembered_under_the_new_one() {
    let mut config = None;
    let mut first = TestApp::start_enterprise_with(|own| {
        own.public_url = Some("https://gate.example.com".parse().unwrap());
        config = Some(own.clone());
    })
    .await;
    let config = config.unwrap();
    let (old, new) = (config.secret_key.clone().unwrap(), database::key());
    let gone = first.create_user("gone", "user").await;
    first.delete("/api/v0/users/gone").await;
    let tokens = grant(&first, "admin", "").await;
    let folder = first.folder.path().to_owned();
    result(&rotate(&folder, &config, &old, &new, &[]).await);
    let second = TestApp::start_beside_with(&first, |own| own.secret_key = Some(new.clone())).await;
    // An access token that was made under the old key works under the new one, too.
    Agent::connect_as(&second, "/mcp", tokens.access.expose()).await;
    let renewed = second.gateway().renew_tokens(tokens.refresh.expose(), None, &by()).await.unwrap();
    Agent::connect_as(&first, "/mcp", renewed.access.expose()).await;
    first.stop().await;
    // More than the limit for wrong tokens; one that was valid a short time ago does not count.
    for _ in 0..450 {
        second.send_as(&gone, "GET", "/api/v0/servers", json!({})).await.expect(401);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_gateways_a_rotation_ends_when_it_is_told_to() {
    let mut config = None;
    let mut app = TestApp::start_enterprise_with(|own| config = Some(own.clone())).await;
    let config = config.unwrap();
    let (old, new) = (config.secret_key.clone().unwrap(), database::key());
    app.stop().await;
    let folder = app.folder.path().to_owned();
    let begun = result(&rotate(&folder, &config, &old, &new, &[]).await);
    assert_eq!((&begun["finished"], &begun["waiting_for"]), (&json!(false), &json!([])), "{begun}");
    let another = rotate(&folder, &config, &old, &database::key(), &[]).await;
    assert!(another.sentence().contains("by a different key than the one in --new-key"), "{another:?}");
    let finished = result(&rotate(&folder, &config, &new, &new, &["--finish"]).await);
    assert_eq!(finished["finished"], json!(true), "{finished}");
    assert!(App::build(&config).await.is_err());
    let app = TestApp::start_beside_with(&app, |own| own.secret_key = Some(new.clone())).await;
    app.get("/api/v0/users").await.expect(200);
}
