//! A grant in use: it is refreshed in time, survives restarts, and is reported when it has ended.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use crate::oauth_register::{REDIRECT, complete, input, protected, register};
use crate::support::provider::Rules;
use crate::support::{Behaviour, Fake, Provider, TestApp, eventually, request};

/// Authorizes a registered server again.
async fn reauthorize(app: &TestApp, provider: &Provider) {
    let answer = app.post("/api/v0/servers/web/reauthorize", json!({})).await.expect(202).json();
    let session = answer["authorization_required"].clone();
    let brought = provider.visit(session["authorization_url"].as_str().unwrap()).await;
    complete(app, &session, &brought).await.expect(201);
}

async fn is(app: &TestApp, status: &str) -> bool {
    app.server("web").await["status"] == status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_calls_at_the_end_of_a_token_cause_one_refresh() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules::default()).await;
    register(&app, &provider, input(&fake)).await;
    provider.change(|rules| rules.token_delay = Duration::from_millis(300));
    fake.update(|behaviour| behaviour.bearer = Some("the old one is over".into()));
    let mut calls = JoinSet::new();
    for _ in 0..100 {
        let (address, body) = (app.address.clone(), json!({ "name": "web__echo", "text": "hi" }).to_string());
        calls.spawn(async move { request(&address, "POST", "/api/v0/tools/invoke", &[], body.into()).await });
    }
    for answer in calls.join_all().await {
        answer.expect(200);
    }
    assert_eq!(provider.tokens("refresh_token").len(), 1);
    assert_eq!(fake.calls_of("echo"), 100, "each call ran once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_goes_on_when_the_caller_leaves() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules::default()).await;
    register(&app, &provider, input(&fake)).await;
    provider.change(|rules| rules.token_delay = Duration::from_millis(500));
    fake.update(|behaviour| behaviour.bearer = Some("the old one is over".into()));
    let call = app.invoke_and_hold(&json!({ "name": "web__echo", "text": "hi" })).await;
    eventually("the renewal is under way", || async { provider.tokens("refresh_token").len() == 1 }).await;
    drop(call);
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    assert_eq!(provider.tokens("refresh_token").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_renewed_before_it_ends() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules { lifetime: Some(2), ..Rules::default() }).await;
    register(&app, &provider, input(&fake)).await;
    eventually("a token is renewed", || async {
        app.call("web__echo", json!({ "text": "hi" })).await;
        provider.tokens("refresh_token").len() > 1
    })
    .await;
    let refused = fake.seen_of("tools/call").len() as u64 - fake.calls_of("echo");
    assert_eq!(refused, 0, "no call met an old token");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_asks_for_no_more_than_was_granted() {
    let app = TestApp::start().await;
    let offered = vec!["offline_access".to_owned(), "read".to_owned()];
    let (fake, provider) = protected(Rules { scopes_supported: offered, ..Rules::default() }).await;
    register(&app, &provider, input(&fake)).await;
    let mut reader = input(&fake);
    (reader["name"], reader["oauth_scopes"]) = (json!("reader"), json!(["read"]));
    register(&app, &provider, reader).await;
    for server in ["web", "reader"] {
        fake.update(|behaviour| behaviour.bearer = Some("the old one is over".into()));
        assert_eq!(app.call(&format!("{server}__echo"), json!({ "text": "hi" })).await, "hi");
    }
    let renewed = provider.tokens("refresh_token");
    let scope = |index: usize| renewed[index].params.get("scope").cloned();
    assert_eq!((scope(0), scope(1)), (None, Some(json!("read offline_access"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_survive_a_restart_with_the_secret_of_the_client() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules { gives_secrets: true, ..Rules::default() }).await;
    register(&app, &provider, input(&fake)).await;
    let app = app.restart().await;
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    assert!(provider.tokens("refresh_token").is_empty(), "the token was still good");
    for _ in 0..2 {
        fake.update(|behaviour| behaviour.bearer = Some("the old one is over".into()));
        assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    }
    let app = app.restart().await;
    fake.update(|behaviour| behaviour.bearer = Some("the old one is over".into()));
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi", "rotated tokens were kept");
    let refreshes = provider.tokens("refresh_token");
    assert_eq!(refreshes.len(), 3);
    assert!(refreshes.iter().all(|asked| asked.authorization.as_ref().unwrap().starts_with("Basic ")));
    assert!(refreshes.iter().all(|asked| asked.params["resource"] == fake.url().trim_end_matches("/mcp")));
    assert_eq!(provider.asked("/register").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_grant_is_shown_and_reauthorizing_restores_the_server() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules::default()).await;
    register(&app, &provider, input(&fake)).await;
    app.send("POST", "/api/v0/tools/disable?entity=web__env", &[], "").await.expect(200);
    provider.change(|rules| rules.revoked = true);
    fake.update(|behaviour| behaviour.bearer = Some("revoked".into()));
    let error = app.invoke("web__echo", json!({ "text": "hi" })).await.expect(500).error();
    assert!(error.contains("authorization required"), "{error}");
    eventually("the server has failed", || is(&app, "failed")).await;
    let server = app.server("web").await;
    assert!(server["status_reason"].as_str().unwrap().contains("authorization required"), "{server}");
    let error = app.invoke("web__echo", json!({ "text": "hi" })).await.expect(500).error();
    assert!(error.contains("authorization required"), "{error}");
    assert!(app.tools("").await.contains(&"web__echo".to_owned()), "its tools stay listed");

    provider.change(|rules| rules.revoked = false);
    reauthorize(&app, &provider).await;
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    assert!(is(&app, "connected").await);
    assert_eq!(provider.asked("/register").len(), 2, "the client may be what was forgotten");
    let env = app.get("/api/v0/tool?name=web__env").await.expect(200).json();
    assert_eq!(env["enabled"], false, "what was switched off still is");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_temporary_failure_of_the_provider_does_not_end_the_grant() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules::default()).await;
    register(&app, &provider, input(&fake)).await;
    provider.change(|rules| rules.token_failure = Some(503));
    fake.update(|behaviour| behaviour.bearer = Some("the old one is over".into()));
    let error = app.invoke("web__echo", json!({ "text": "hi" })).await.expect(500).error();
    assert!(!error.contains("authorization required"), "{error}");
    provider.change(|rules| rules.token_failure = None);
    eventually("calls work again", || async {
        app.invoke("web__echo", json!({ "text": "hi" })).await.status == 200
    })
    .await;
    assert!(provider.asked("/authorize").len() == 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_without_a_refresh_token_is_used_until_it_is_refused() {
    let app = TestApp::start().await;
    let (fake, provider) =
        protected(Rules { refresh_tokens: false, lifetime: Some(1), ..Rules::default() }).await;
    register(&app, &provider, input(&fake)).await;
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    fake.update(|behaviour| behaviour.bearer = Some("the old one is over".into()));
    let error = app.invoke("web__echo", json!({ "text": "hi" })).await.expect(500).error();
    assert!(error.contains("authorization required"), "{error}");
    eventually("the server has failed", || is(&app, "failed")).await;
    reauthorize(&app, &provider).await;
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_scope_degrades_the_server_and_is_asked_for_with_the_others() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules::default()).await;
    let mut wanted = input(&fake);
    wanted["oauth_scopes"] = json!(["read"]);
    register(&app, &provider, wanted).await;
    fake.update(|behaviour| behaviour.wants_scope = Some("write".into()));
    let error = app.invoke("web__echo", json!({ "text": "hi" })).await.expect(500).error();
    assert!(error.contains("authorization required") && error.contains("write"), "{error}");
    eventually("the server is degraded", || is(&app, "degraded")).await;
    assert!(app.server("web").await["status_reason"].as_str().unwrap().contains("write"));
    reauthorize(&app, &provider).await;
    let asked = provider.asked("/authorize");
    assert_eq!(asked[1].params["scope"], "read write");
    assert_eq!(provider.asked("/register").len(), 1, "the same client serves again");
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    assert!(is(&app, "connected").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_authorization_server_gets_another_client_and_none_of_the_old_secrets() {
    let app = TestApp::start().await;
    let (fake, first) = protected(Rules { gives_secrets: true, ..Rules::default() }).await;
    register(&app, &first, input(&fake)).await;
    let second = Provider::protecting(&fake, Rules::default()).await;
    let error = app.invoke("web__echo", json!({ "text": "hi" })).await.expect(500).error();
    assert!(error.contains("authorization required"), "{error}");
    assert!(first.tokens("refresh_token").is_empty() && second.asked("/token").is_empty());
    reauthorize(&app, &second).await;
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    assert_eq!(second.asked("/register").len(), 1);
    let told = format!("{:?}", second.asked("/token"));
    assert!(!told.contains("planted-client-secret"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_servers_with_oauth_can_be_reauthorized() {
    let app = TestApp::start().await;
    let open = Fake::start(Behaviour::default()).await;
    app.register_http("open", &open).await;
    app.register_stdio("local", &Behaviour::default()).await;
    for name in ["open", "local"] {
        let path = format!("/api/v0/servers/{name}/reauthorize");
        let error = app.post(&path, json!({ "oauth_redirect_uri": REDIRECT })).await.expect(400).error();
        assert!(error.contains("OAuth"), "{error}");
    }
    app.post("/api/v0/servers/nobody/reauthorize", json!({})).await.expect(404);

    let (fake, provider) = protected(Rules { grants_to_machines: true, ..Rules::default() }).await;
    let mut machine = input(&fake);
    machine.as_object_mut().unwrap().remove("oauth_redirect_uri");
    machine["oauth_client_id"] = json!("robot");
    machine["oauth_client_secret"] = json!("planted-secret");
    app.register(machine).await;
    let answer = app.send("POST", "/api/v0/servers/web/reauthorize", &[], "").await.expect(400);
    assert_eq!(answer.headers["x-error-code"], "upstream_oauth_required");
    let nowhere = json!({ "oauth_redirect_uri": "nowhere" });
    let error = app.post("/api/v0/servers/web/reauthorize", nowhere).await.expect(400).error();
    assert!(error.contains("oauth_redirect_uri"), "{error}");
    let body = json!({ "oauth_redirect_uri": REDIRECT });
    app.post("/api/v0/servers/web/reauthorize", body).await.expect(202);
    assert!(provider.asked("/authorize").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_grant_is_changed_switched_and_replaced_without_a_person() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules::default()).await;
    register(&app, &provider, input(&fake)).await;
    app.patch("/api/v0/servers/web", json!({ "description": "d", "max_concurrency": 3 })).await.expect(200);
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    for switch in ["disable", "enable"] {
        app.send("POST", &format!("/api/v0/servers/web/{switch}"), &[], "").await.expect(200);
    }
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    app.post("/api/v0/servers?force=true", input(&fake)).await.expect(201);
    let app = app.restart().await;
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    assert_eq!(provider.asked("/authorize").len(), 1);
    app.delete("/api/v0/servers/web").await.expect(204);
    app.post("/api/v0/servers", input(&fake)).await.expect(202);
}
