//! Registering servers that require OAuth, over REST: the authorization request, and how its result is handled.

use serde_json::{Value, json};
use url::Url;

use crate::support::provider::Rules;
use crate::support::{Answer, Behaviour, Fake, Provider, TestApp};

pub const REDIRECT: &str = "http://localhost:9/callback";

pub async fn protected(rules: Rules) -> (Fake, Provider) {
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    let provider = Provider::protecting(&fake, rules).await;
    (fake, provider)
}

pub fn input(fake: &Fake) -> Value {
    json!({ "name": "web", "transport": "streamable_http", "url": fake.url(), "oauth_redirect_uri": REDIRECT })
}

/// Registers a server and returns the pending session.
pub async fn ask(app: &TestApp, input: Value) -> Value {
    let answer = app.post("/api/v0/servers", input).await.expect(202).json();
    let object = answer.as_object().unwrap();
    assert_eq!(object.len(), 1, "{answer}");
    let required = answer["authorization_required"].clone();
    let keys: Vec<_> = required.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["authorization_url", "expires_at", "session_id"]);
    required
}

pub async fn complete(app: &TestApp, session: &Value, brought: &Value) -> Answer {
    let id = session["session_id"].as_str().unwrap();
    app.post(&format!("/api/v0/upstream_oauth/sessions/{id}/complete"), brought.clone()).await
}

/// Registers a server and goes through its authorization.
pub async fn register(app: &TestApp, provider: &Provider, input: Value) -> Value {
    let session = ask(app, input).await;
    let brought = provider.visit(session["authorization_url"].as_str().unwrap()).await;
    complete(app, &session, &brought).await.expect(201).json()["server"].clone()
}

fn query(url: &str) -> Value {
    let url = Url::parse(url).unwrap();
    url.query_pairs().map(|(key, value)| (key.into_owned(), Value::from(&*value))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_authorizes_a_server_and_it_works_from_then_on() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules::default()).await;
    let session = ask(&app, input(&fake)).await;
    assert_eq!(session["session_id"].as_str().unwrap().len(), 64);
    let sent = query(session["authorization_url"].as_str().unwrap());
    assert_eq!(sent["response_type"], "code");
    assert_eq!(sent["code_challenge_method"], "S256");
    assert_eq!(sent["redirect_uri"], REDIRECT);
    assert_eq!(sent["resource"], fake.url().trim_end_matches("/mcp"), "exactly as the server announced it");
    assert!(sent["state"].as_str().unwrap().len() >= 22, "128 bits at the least: {sent}");
    app.get("/api/v0/servers/web").await.expect(404);

    let brought = provider.visit(session["authorization_url"].as_str().unwrap()).await;
    let server = complete(&app, &session, &brought).await.expect(201).json()["server"].clone();
    assert_eq!((&server["name"], &server["status"]), (&json!("web"), &json!("connected")), "{server}");
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    let exchanged = &provider.tokens("authorization_code")[0].params;
    assert_eq!(exchanged["resource"], sent["resource"]);
    let registered = &provider.asked("/register")[0].params;
    assert_eq!(registered["application_type"], "native");
    assert_eq!(registered["redirect_uris"], json!([REDIRECT]));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_redirect_uri_the_error_has_a_code() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules::default()).await;
    let plain = json!({ "name": "web", "transport": "streamable_http", "url": fake.url() });
    let with_client = json!({
        "name": "web", "transport": "streamable_http", "url": fake.url(),
        "oauth_client_id": "me", "oauth_client_secret": "planted-secret",
    });
    for input in [plain, with_client] {
        let answer = app.post("/api/v0/servers", input).await.expect(400);
        assert_eq!(answer.headers["x-error-code"], "upstream_oauth_required");
        assert!(answer.error().contains("oauth_redirect_uri"), "{}", answer.error());
    }
    app.get("/api/v0/servers/web").await.expect(404);
    assert!(provider.asked("/token").is_empty() && provider.asked("/register").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_transport_over_http_can_be_authorized() {
    let app = TestApp::start().await;
    for era in ["legacy", "modern"] {
        let fake = Fake::start(Behaviour::of(json!({ "era": era }))).await;
        let provider = Provider::protecting(&fake, Rules::default()).await;
        let mut input = input(&fake);
        input["name"] = json!(era);
        register(&app, &provider, input).await;
        assert_eq!(app.call(&format!("{era}__echo"), json!({ "text": "hi" })).await, "hi");
    }
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    let provider = Provider::protecting(&fake, Rules::default()).await;
    let sse =
        json!({ "name": "s", "transport": "sse", "url": fake.sse_url(), "oauth_redirect_uri": REDIRECT });
    register(&app, &provider, sse).await;
    assert_eq!(app.call("s__echo", json!({ "text": "hi" })).await, "hi");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_registered_by_hand_is_used_as_it_is() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules { registers_clients: false, ..Rules::default() }).await;
    let error = app.post("/api/v0/servers", input(&fake)).await.expect(500).error();
    assert!(error.contains("oauth_client_id") && error.contains(provider.issuer()), "{error}");
    let mut by_hand = input(&fake);
    by_hand["oauth_client_id"] = json!("by-hand");
    by_hand["oauth_client_secret"] = json!("planted-secret");
    by_hand["oauth_scopes"] = json!(["read", "write"]);
    register(&app, &provider, by_hand).await;
    let asked = &provider.asked("/authorize")[0].params;
    assert_eq!((&asked["client_id"], &asked["scope"]), (&json!("by-hand"), &json!("read write")));
    let authorization = provider.tokens("authorization_code")[0].authorization.clone().unwrap();
    assert!(authorization.starts_with("Basic "), "{authorization}");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_credentials_need_no_person() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules { grants_to_machines: true, ..Rules::default() }).await;
    let mut machine = input(&fake);
    machine.as_object_mut().unwrap().remove("oauth_redirect_uri");
    machine["oauth_client_id"] = json!("robot");
    machine["oauth_client_secret"] = json!("planted-secret");
    let server = app.register(machine).await;
    assert_eq!(server["status"], "connected");
    let asked = &provider.tokens("client_credentials")[0];
    assert_eq!(asked.params["resource"], fake.url().trim_end_matches("/mcp"));
    // The next token is obtained in the same way, also after a restart.
    fake.update(|behaviour| behaviour.bearer = Some("the old one is over".into()));
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    let app = app.restart().await;
    fake.update(|behaviour| behaviour.bearer = Some("the old one is over".into()));
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    assert!(provider.asked("/authorize").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_redirect_must_belong_to_the_session() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules::default()).await;
    let session = ask(&app, input(&fake)).await;
    let brought = provider.visit(session["authorization_url"].as_str().unwrap()).await;
    for (missing, field) in
        [(json!({ "state": "s" }), "code"), (json!({ "code": "c" }), "state"), (json!({}), "state")]
    {
        let error = complete(&app, &session, &missing).await.expect(400).error();
        assert!(error.contains(field), "{error}");
    }
    let mut unknown = brought.clone();
    unknown["colour"] = json!("red");
    assert!(complete(&app, &session, &unknown).await.expect(400).error().contains("colour"));
    let mut forged = brought.clone();
    forged["state"] = json!("forged");
    assert!(complete(&app, &session, &forged).await.expect(400).error().contains("state"));
    let nobody = json!({ "session_id": "0".repeat(64) });
    complete(&app, &nobody, &brought).await.expect(404);
    assert!(provider.asked("/token").is_empty(), "nothing of it got that far");
    complete(&app, &session, &brought).await.expect(201);
    let error = complete(&app, &session, &brought).await.expect(400).error();
    assert!(error.contains("completed"), "a code works once: {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_issuer_must_be_the_one_that_was_asked() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules::default()).await;
    for iss in ["https://evil.example", ""] {
        provider.change(|rules| rules.iss = Some(iss.into()));
        let session = ask(&app, input(&fake)).await;
        let brought = provider.visit(session["authorization_url"].as_str().unwrap()).await;
        let error = complete(&app, &session, &brought).await.expect(400).error();
        assert!(error.contains("iss"), "{error}");
        complete(&app, &session, &brought).await.expect(400);
    }
    assert!(provider.asked("/token").is_empty());
    provider.change(|rules| rules.iss = Some(provider.issuer().to_owned()));
    register(&app, &provider, input(&fake)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_of_another_issuer_is_not_believed() {
    let app = TestApp::start().await;
    let (fake, provider) =
        protected(Rules { issuer: Some("https://evil.example".into()), ..Rules::default() }).await;
    let error = app.post("/api/v0/servers", input(&fake)).await.expect(500).error();
    assert!(error.contains("issuer"), "{error}");
    assert!(provider.asked("/register").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_person_fails_the_session_with_the_reason() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules { denies: true, ..Rules::default() }).await;
    let session = ask(&app, input(&fake)).await;
    let brought = provider.visit(session["authorization_url"].as_str().unwrap()).await;
    let error = complete(&app, &session, &brought).await.expect(400).error();
    assert!(error.contains("access_denied") && error.contains("<not today>"), "{error}");
    app.get("/api/v0/servers/web").await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_token_endpoint_leaves_nothing_behind() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules { token_failure: Some(503), ..Rules::default() }).await;
    let session = ask(&app, input(&fake)).await;
    let brought = provider.visit(session["authorization_url"].as_str().unwrap()).await;
    complete(&app, &session, &brought).await.expect(500).error();
    app.get("/api/v0/servers/web").await.expect(404);
    provider.change(|rules| rules.token_failure = None);
    register(&app, &provider, input(&fake)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replacing_a_server_waits_for_the_authorization_of_the_new_one() {
    let app = TestApp::start().await;
    let open = Fake::start(Behaviour::default()).await;
    app.register_http("web", &open).await;
    let (fake, provider) = protected(Rules::default()).await;
    app.post("/api/v0/servers", input(&fake)).await.expect(409);
    let answer = app.post("/api/v0/servers?force=true", input(&fake)).await.expect(202).json();
    let session = answer["authorization_required"].clone();
    assert_eq!(app.call("web__echo", json!({ "text": "old" })).await, "old");
    let brought = provider.visit(session["authorization_url"].as_str().unwrap()).await;
    complete(&app, &session, &brought).await.expect(201);
    assert_eq!(app.call("web__echo", json!({ "text": "new" })).await, "new");
    assert_eq!(fake.calls_of("echo"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_was_taken_meanwhile_is_a_conflict() {
    let app = TestApp::start().await;
    let (fake, provider) = protected(Rules::default()).await;
    let session = ask(&app, input(&fake)).await;
    let open = Fake::start(Behaviour::default()).await;
    app.register_http("web", &open).await;
    let brought = provider.visit(session["authorization_url"].as_str().unwrap()).await;
    complete(&app, &session, &brought).await.expect(409);
    assert_eq!(app.call("web__echo", json!({ "text": "hi" })).await, "hi");
    assert_eq!(open.calls_of("echo"), 1);
}
