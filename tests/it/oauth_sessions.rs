//! Authorization from the browser: the gateway itself is the redirect URI, and the status of the session can be read,
//! also after a restart, until the session is deleted.

use std::time::Duration;

use serde_json::{Value, json};

use crate::oauth_register::protected;
use crate::support::provider::Rules;
use crate::support::{Answer, Behaviour, Fake, Provider, TestApp, eventually};

async fn add(app: &TestApp, fake: &Fake) -> Value {
    let input = json!({ "name": "web", "transport": "streamable_http", "url": fake.url() });
    app.post("/api/dashboard/servers", input).await.expect(202).json()["authorization_required"].clone()
}

async fn poll(app: &TestApp, session: &Value) -> Value {
    let id = session["session_id"].as_str().unwrap();
    let polled = app.get(&format!("/api/dashboard/oauth/session/{id}")).await.expect(200).json();
    let keys: Vec<_> = polled.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["error", "expires_at", "server_name", "session_id", "status"]);
    assert_eq!((&polled["session_id"], &polled["server_name"]), (&session["session_id"], &json!("web")));
    polled
}

/// The browser follows the redirect to the gateway.
async fn come_back(app: &TestApp, brought: &Value) -> Answer {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query
        .extend_pairs(brought.as_object().unwrap().iter().map(|(key, value)| (key, value.as_str().unwrap())));
    let answer = app.get(&format!("/api/dashboard/oauth/callback?{}", query.finish())).await;
    assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(answer.headers["referrer-policy"], "no-referrer");
    for secret in ["code", "state"].iter().filter_map(|key| brought[key].as_str()) {
        assert!(secret.len() < 8 || !answer.text().contains(secret), "{}", answer.text());
    }
    answer
}

async fn agree(provider: &Provider, session: &Value) -> Value {
    provider.visit(session["authorization_url"].as_str().unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_adds_a_server_that_wants_oauth() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules::default()).await;
    let session = add(&app, &fake).await;
    assert_eq!(poll(&app, &session).await["status"], "pending");
    let callback = format!("http://{}/api/dashboard/oauth/callback", app.address);
    let brought = agree(&provider, &session).await;
    assert_eq!(provider.asked("/authorize")[0].params["redirect_uri"], callback);
    let page = come_back(&app, &brought).await.expect(200);
    assert!(page.text().contains("Authorization successful"), "{}", page.text());
    let polled = poll(&app, &session).await;
    assert_eq!((&polled["status"], &polled["error"]), (&json!("completed"), &json!("")));
    assert_eq!(polled["expires_at"], session["expires_at"]);
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    let again = come_back(&app, &brought).await.expect(400);
    assert!(again.text().contains("Authorization failed"), "a code works once: {}", again.text());
    assert_eq!(poll(&app, &session).await["status"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_oauth_is_added_at_once() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let input = json!({
        "name": "web", "transport": "streamable_http", "url": fake.url(), "description": "d",
        "headers": { "X-Key": "planted" },
    });
    let added = app.post("/api/dashboard/servers", input.clone()).await.expect(201).json();
    let expected =
        json!({ "name": "web", "transport": "streamable_http", "enabled": true, "description": "d" });
    assert_eq!(added, expected);
    app.post("/api/dashboard/servers", input.clone()).await.expect(409);
    app.post("/api/dashboard/servers?force=true", input).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_is_on_the_page_and_nothing_on_it_is_markup() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules { denies: true, ..Rules::default() }).await;
    let session = add(&app, &fake).await;
    let brought = agree(&provider, &session).await;
    let page = come_back(&app, &brought).await.expect(400).text();
    assert!(page.contains("Authorization failed") && page.contains("access_denied"), "{page}");
    assert!(page.contains("&lt;not today&gt;") && !page.contains("<not today>"), "{page}");
    let polled = poll(&app, &session).await;
    assert_eq!(polled["status"], "failed");
    assert!(polled["error"].as_str().unwrap().contains("access_denied"), "{polled}");

    let script = "<script>alert(1)</script>";
    for brought in [
        json!({}),
        json!({ "code": "c" }),
        json!({ "state": "s" }),
        json!({ "code": "c", "state": script }),
        json!({ "state": "s", "error": script, "error_description": script }),
    ] {
        let page = come_back(&app, &brought).await.expect(400).text();
        assert!(page.contains("Authorization failed") && !page.contains("<script"), "{page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_issuer_fails_the_session() {
    let app = TestApp::start().await;
    let (fake, provider) =
        protected(Rules { iss: Some("https://evil.example".into()), ..Rules::default() }).await;
    let session = add(&app, &fake).await;
    let brought = agree(&provider, &session).await;
    let page = come_back(&app, &brought).await.expect(400).text();
    assert!(page.contains("issuer"), "{page}");
    assert_eq!(poll(&app, &session).await["status"], "failed");
    assert!(provider.asked("/token").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_survive_a_restart_in_every_state() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules { gives_secrets: true, ..Rules::default() }).await;
    let session = add(&app, &fake).await;
    let app = app.restart().await;
    assert_eq!(poll(&app, &session).await["status"], "pending");
    let brought = agree(&provider, &session).await;
    come_back(&app, &brought).await.expect(200);
    let app = app.restart().await;
    assert_eq!(poll(&app, &session).await["status"], "completed");
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_registration_replaces_one_that_waits() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules::default()).await;
    let first = add(&app, &fake).await;
    let second = add(&app, &fake).await;
    let polled = poll(&app, &first).await;
    assert_eq!(polled["status"], "failed");
    assert!(polled["error"].as_str().unwrap().contains("superseded"), "{polled}");
    come_back(&app, &agree(&provider, &first).await).await.expect(400);
    come_back(&app, &agree(&provider, &second).await).await.expect(200);
    assert_eq!(poll(&app, &second).await["status"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_expire_and_are_forgotten_after_as_long_again() {
    let life = Duration::from_millis(1500);
    let app = TestApp::start_with(|config| config.oauth_session_life = life).await;
    let (fake, provider) = protected(Rules::default()).await;
    let session = add(&app, &fake).await;
    let brought = agree(&provider, &session).await;
    eventually("the session expires", || async { poll(&app, &session).await["status"] == "expired" }).await;
    let page = come_back(&app, &brought).await.expect(400).text();
    assert!(page.contains("expired"), "{page}");
    let id = session["session_id"].as_str().unwrap().to_owned();
    let complete = format!("/api/v0/upstream_oauth/sessions/{id}/complete");
    assert!(app.post(&complete, brought.clone()).await.expect(400).error().contains("expired"));
    assert!(provider.asked("/token").is_empty());
    eventually("the session is forgotten", || async {
        app.get(&format!("/api/dashboard/oauth/session/{id}")).await.status == 404
    })
    .await;
    app.post(&complete, brought).await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_authorizes_again_with_its_own_callback() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules::default()).await;
    let session = add(&app, &fake).await;
    come_back(&app, &agree(&provider, &session).await).await.expect(200);
    provider.change(|rules| rules.revoked = true);
    fake.update(|behaviour| behaviour.bearer = Some("revoked".into()));
    app.invoke("web__echo", json!({ "text": "hi" })).await.expect(500);
    let answer = app.send("POST", "/api/dashboard/servers/web/reauthorize", &[], "").await.expect(202).json();
    let session = answer["authorization_required"].clone();
    come_back(&app, &agree(&provider, &session).await).await.expect(200);
    assert_eq!(poll(&app, &session).await["status"], "completed");
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    app.send("POST", "/api/dashboard/servers/nobody/reauthorize", &[], "").await.expect(404);
    app.get(&format!("/api/dashboard/oauth/session/{}", "0".repeat(64))).await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_public_gateway_is_its_own_metadata_document() {
    let app = TestApp::start_with(|config| {
        config.public_url = Some("https://gate.example/base/".parse().unwrap());
    })
    .await;
    let document = app.get("/client-metadata.json").await.expect(200).json();
    assert_eq!(document["client_id"], "https://gate.example/base/client-metadata.json");
    let callback = "https://gate.example/base/api/dashboard/oauth/callback";
    assert_eq!(document["redirect_uris"], json!([callback]));
    assert!(document["grant_types"].as_array().unwrap().contains(&json!("refresh_token")));
    let rules =
        Rules { metadata: json!({ "client_id_metadata_document_supported": true }), ..Rules::default() };
    let (fake, provider) = protected(rules).await;
    let session = add(&app, &fake).await;
    let brought = agree(&provider, &session).await;
    let asked = &provider.asked("/authorize")[0].params;
    assert_eq!((&asked["client_id"], &asked["redirect_uri"]), (&document["client_id"], &json!(callback)));
    assert!(provider.asked("/register").is_empty());
    come_back(&app, &brought).await.expect(200);

    TestApp::start().await.get("/client-metadata.json").await.expect(404);
}
