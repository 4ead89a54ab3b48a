//! OAuth under failures: metadata that points to forbidden addresses, a failing store, a gateway that is killed.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{Connection, Executor, SqliteConnection};
use tempfile::TempDir;

use crate::oauth_register::{REDIRECT, complete, input, protected, register};
use crate::support::provider::Rules;
use crate::support::{Process, Provider, TestApp, eventually};

/// Changes the database directly, without the gateway.
async fn alter(database: &Path, sql: &'static str) {
    let address = format!("sqlite:{}", database.display());
    let mut connection = SqliteConnection::connect(&address).await.unwrap();
    connection.execute(sql).await.unwrap();
    connection.close().await.unwrap();
}

const REFUSE_GRANTS: &str = "CREATE TRIGGER refuse BEFORE UPDATE ON oauth_grants
    BEGIN SELECT RAISE(ABORT, 'not now'); END";
const ACCEPT_GRANTS: &str = "DROP TRIGGER refuse";

#[tokio::test(flavor = "multi_thread")]
async fn metadata_cannot_send_the_gateway_to_private_places() {
    let app = TestApp::start().await;
    let places =
        ["http://169.254.169.254/latest", "http://10.1.2.3/x", "http://[fd00::1]/x", "file:///etc/passwd"];
    for place in places {
        for key in ["token_endpoint", "registration_endpoint"] {
            let (fake, provider) =
                protected(Rules { metadata: json!({ key: place }), ..Rules::default() }).await;
            let error = app.post("/api/v0/servers", input(&fake)).await.expect(500).error();
            assert!(error.contains(place), "{key}: {error}");
            assert!(provider.asked("/register").is_empty());
        }
    }
    let (fake, _provider) = protected(Rules {
        metadata: json!({ "authorization_endpoint": "javascript:alert(1)" }),
        ..Rules::default()
    })
    .await;
    app.post("/api/v0/servers", input(&fake)).await.expect(500);
    for server in ["http://169.254.169.254", "http://10.1.2.3", "ftp://127.0.0.1"] {
        fake.update(|behaviour| behaviour.authorization_server = Some(server.into()));
        app.post("/api/v0/servers", input(&fake)).await.expect(500);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_to_another_origin_is_not_followed() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules::default()).await;
    // The other loopback name makes it another origin.
    let elsewhere = provider.issuer().replace("127.0.0.1", "localhost");
    provider.change(|rules| rules.redirects_metadata_to = Some(elsewhere));
    let error = app.post("/api/v0/servers", input(&fake)).await.expect(500).error();
    assert!(error.contains("redirect"), "{error}");
    assert!(provider.asked("/register").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_provider_ends_within_the_limit() {
    let app = TestApp::start_with(|config| config.init_timeout = Duration::from_secs(1)).await;
    let (fake, provider) =
        protected(Rules { token_delay: Duration::from_secs(60), ..Rules::default() }).await;
    let answer = app.post("/api/v0/servers", input(&fake)).await.expect(202).json();
    let session = answer["authorization_required"].clone();
    let brought = provider.visit(session["authorization_url"].as_str().unwrap()).await;
    complete(&app, &session, &brought).await.expect(500);
    app.get("/api/v0/servers/web").await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_grant_is_stored_before_it_is_used_and_storing_is_tried_again() {
    let app = TestApp::start_on_file().await;
    let (fake, provider) = protected(Rules::default()).await;
    register(&app, &provider, input(&fake)).await;
    alter(app.database(), REFUSE_GRANTS).await;
    fake.update(|behaviour| behaviour.bearer = Some("the old one is over".into()));
    let error = app.invoke("web__echo", json!({ "text": "hi" })).await.expect(500).error();
    assert!(error.contains("could not be stored") && !error.contains("authorization required"), "{error}");
    assert_eq!(fake.calls_of("echo"), 0, "what is not stored is not used");
    alter(app.database(), ACCEPT_GRANTS).await;
    eventually("calls work again", || async {
        app.invoke("web__echo", json!({ "text": "hi" })).await.status == 200
    })
    .await;
    assert_eq!(provider.tokens("refresh_token").len(), 1, "the grant that was given is the one that is used");
    let app = app.restart().await;
    fake.update(|behaviour| behaviour.bearer = Some("the old one is over".into()));
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
}

async fn authorize(process: &Process, provider: &Provider, input: &Value) -> u16 {
    let answer = process.post("/api/v0/servers", input).await.expect(202).json();
    let session = &answer["authorization_required"];
    let brought = provider.visit(session["authorization_url"].as_str().unwrap()).await;
    let id = session["session_id"].as_str().unwrap();
    process.post(&format!("/api/v0/upstream_oauth/sessions/{id}/complete"), &brought).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_dies_before_it_stored_a_renewed_grant_asks_for_authorization() {
    let (fake, provider) = protected(Rules::default()).await;
    let process = Process::start_in(TempDir::new().unwrap(), &[]).await;
    assert_eq!(authorize(&process, &provider, &input(&fake)).await, 201);
    alter(&process.folder.path().join("toolgate.db"), REFUSE_GRANTS).await;
    fake.update(|behaviour| behaviour.bearer = Some("the old one is over".into()));
    let call = json!({ "name": "web__echo", "text": "hi" });
    process.post("/api/v0/tools/invoke", &call).await.expect(500);
    process.signal(libc::SIGKILL);
    let (_, folder) = process.end().await;
    alter(&folder.path().join("toolgate.db"), ACCEPT_GRANTS).await;

    let process = Process::start_in(folder, &[]).await;
    eventually("the server asks for authorization", || async {
        let server = process.get("/api/v0/servers/web").await.expect(200).json();
        server["status"] == "failed"
            && server["status_reason"].as_str().unwrap().contains("authorization required")
    })
    .await;
    let error = process.post("/api/v0/tools/invoke", &call).await.expect(500).error();
    assert!(error.contains("authorization required"), "{error}");
    let body = json!({ "oauth_redirect_uri": REDIRECT });
    process.post("/api/v0/servers/web/reauthorize", &body).await.expect(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_dies_while_it_finishes_an_authorization_leaves_no_half_server() {
    let (fake, provider) = protected(Rules::default()).await;
    fake.update(|behaviour| behaviour.stall = vec!["tools/list".into()]);
    let process = Process::start_in(TempDir::new().unwrap(), &[]).await;
    let answer = process.post("/api/v0/servers", &input(&fake)).await.expect(202).json();
    let session = answer["authorization_required"].clone();
    let brought = provider.visit(session["authorization_url"].as_str().unwrap()).await;
    let id = session["session_id"].as_str().unwrap();
    let path = format!("/api/v0/upstream_oauth/sessions/{id}/complete");
    let finishing = crate::support::client::raw(
        &process.address,
        format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{brought}",
            brought.to_string().len()
        )
        .as_bytes(),
    )
    .await;
    eventually("the grant is there", || async { !fake.seen_of("tools/list").is_empty() }).await;
    process.signal(libc::SIGKILL);
    let (_, folder) = process.end().await;
    drop(finishing);

    fake.update(|behaviour| behaviour.stall = vec![]);
    let process = Process::start_in(folder, &[]).await;
    process.get("/api/v0/servers/web").await.expect(404);
    let polled = process.get(&format!("/api/dashboard/oauth/session/{id}")).await.expect(200).json();
    assert_eq!(polled["status"], "failed", "{polled}");
    assert_eq!(authorize(&process, &provider, &input(&fake)).await, 201);
    assert_eq!(process.call("web__echo", json!({ "text": "hi" })).await, "hi");
}
