//! People who sign in at an identity provider.

use std::sync::{Arc, Mutex};

use axum::routing::{get, post};
use serde_json::{Value, json};
use toolgate::config::OidcClient;
use url::Url;

use crate::support::keys::{public_keys, signed_jwt};
use crate::support::person::{ISSUER, Person, Software, hidden, parameter};
use crate::support::{Answer, TestApp};

fn json_answer(value: &Value) -> impl axum::response::IntoResponse + use<> {
    ([("content-type", "application/json")], value.to_string())
}

/// An OpenID provider that lets everybody in as whoever `claims` says.
#[derive(Clone)]
struct FakeProvider {
    issuer: String,
    claims: Arc<Mutex<Value>>,
}

impl FakeProvider {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let provider = Self { issuer: issuer.clone(), claims: Arc::default() };
        let claims = provider.claims.clone();
        let metadata = json!({ "issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"),
            "response_types_supported": ["code"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"] });
        let token = move || {
            let claims = claims.lock().unwrap().clone();
            async move {
                json_answer(
                    &json!({ "access_token": "a", "token_type": "Bearer", "id_token": signed_jwt(&claims) }),
                )
            }
        };
        let router = axum::Router::new()
            .route("/.well-known/openid-configuration", get(|| async move { json_answer(&metadata) }))
            .route("/keys", get(|| async { json_answer(&public_keys()) }))
            .route("/token", post(token));
        tokio::spawn(async move { axum::serve(listener, router).await });
        provider
    }

    /// Who signs in next, in the attempt to which a response has sent the browser.
    fn answer(&self, sent: &Answer, subject: &str, name: &str, groups: &[&str]) {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let nonce = parameter(sent, "nonce").unwrap();
        *self.claims.lock().unwrap() = json!({ "iss": self.issuer, "aud": "gateway", "sub": subject, "nonce": nonce,
            "iat": now, "exp": now + 300, "preferred_username": name, "groups": groups });
    }
}

async fn start(allowed_groups: &[&str]) -> (TestApp, FakeProvider) {
    let provider = FakeProvider::start().await;
    let (issuer, groups) =
        (provider.issuer.clone(), allowed_groups.iter().map(|group| (*group).to_owned()).collect());
    let app = TestApp::start_enterprise_with(|config| {
        config.public_url = Some(Url::parse(ISSUER).unwrap());
        config.sign_in.oidc =
            Some(OidcClient { issuer, client_id: "gateway".to_owned(), client_secret: None, scopes: None });
        config.sign_in.allowed_groups = groups;
    })
    .await;
    (app, provider)
}

/// Goes to the identity provider and comes back as this person.
async fn sign_in(
    app: &TestApp,
    provider: &FakeProvider,
    person: &mut Person,
    who: (&str, &str, &[&str]),
    next: &str,
) -> Answer {
    let sent = person.send(app, "/login", &[("next", next)]).await.expect(303);
    person.keep_cookie(&sent);
    provider.answer(&sent, who.0, who.1, who.2);
    let state = parameter(&sent, "state").unwrap();
    let answer = person.open(app, &format!("/login/callback?code=c&state={state}")).await;
    person.keep_cookie(&answer);
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_works_for_somebody_who_signs_in_at_the_provider() {
    let (app, provider) = start(&[]).await;
    let software = Software::register(&app, "https://agent.example/cb").await;
    let mut person = Person::default();
    // Our page comes first: it names the agent, and nothing was sent to the provider yet.
    let page = person.open(&app, &format!("/authorize?{}", software.query(&[]))).await.expect(200);
    assert!(page.text().contains("Test agent") && page.text().contains("Sign in with 127.0.0.1"));
    assert!(!page.text().contains("type=\"password\"") && !page.headers.contains_key("set-cookie"));
    let next = hidden(&page, "next");
    let sent = person.send(&app, "/login", &[("next", &next)]).await.expect(303);
    let location = sent.headers["location"].to_str().unwrap();
    assert!(location.starts_with(&format!("{}/authorize?", provider.issuer)), "{location}");
    assert_eq!(parameter(&sent, "redirect_uri").unwrap(), format!("{ISSUER}/login/callback"));
    assert_eq!(parameter(&sent, "code_challenge_method").as_deref(), Some("S256"));
    assert!(parameter(&sent, "resource").is_none() && parameter(&sent, "nonce").is_some());
    let back = sign_in(&app, &provider, &mut person, ("s-1", "ann", &["eng"]), &next).await.expect(303);
    assert_eq!(back.headers["location"], next);
    assert!(!person.cookie.as_deref().unwrap().contains("sign-in"), "the attempt is gone");
    let (access, _) = software.tokens(&app, &person, &[]).await;
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    app.send_as(&access, "POST", "/mcp", list).await.expect(200);
    let whoami = person.open(&app, "/api/v0/users/whoami").await.expect(200).json();
    assert_eq!(whoami["username"], "ann");
    // The same account is the same user, whatever it is called; another one gets another name.
    let mut again = Person::default();
    sign_in(&app, &provider, &mut again, ("s-1", "ann-smith", &["ops"]), "").await.expect(303);
    assert!(again.open(&app, "/login").await.text().contains("<strong>ann</strong>"));
    let mut other = Person::default();
    sign_in(&app, &provider, &mut other, ("s-2", "ann", &[]), "").await.expect(303);
    assert!(other.open(&app, "/login").await.text().contains("<strong>ann-2</strong>"));
    let users = app.get("/api/v0/users").await.expect(200).json();
    let sources: Vec<_> =
        users.as_array().unwrap().iter().map(|user| (&user["username"], &user["source"])).collect();
    assert!(sources.contains(&(&json!("ann-2"), &json!("oidc"))), "{users}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_counts_once_and_only_in_the_browser_that_asked() {
    let (app, provider) = start(&[]).await;
    let mut person = Person::default();
    let sent = person.send(&app, "/login", &[]).await.expect(303);
    provider.answer(&sent, "s-1", "ann", &[]);
    let state = parameter(&sent, "state").unwrap();
    let path = format!("/login/callback?code=c&state={state}");
    // Another browser, another state, another issuer.
    let stranger = Person::default().open(&app, &path).await.expect(400);
    assert!(stranger.text().contains("another browser"), "{}", stranger.text());
    person.keep_cookie(&sent);
    for wrong in [
        "/login/callback?code=c&state=x",
        "/login/callback?code=c",
        &format!("{path}&iss=https://evil.example"),
    ] {
        let refused = person.open(&app, wrong).await.expect(400);
        assert!(refused.text().contains("You are not signed in"));
    }
    let denied = person.open(&app, &format!("/login/callback?error=access_denied&state={state}")).await;
    assert!(denied.status == 403 || denied.status == 400, "{}", denied.text());
    let fine = person.open(&app, &path).await.expect(303);
    person.keep_cookie(&fine);
    person.open(&app, &path).await.expect(400);
    assert!(person.open(&app, "/login").await.text().contains("<strong>ann</strong>"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_members_of_allowed_groups_sign_in_and_nobody_who_is_disabled() {
    let (app, provider) = start(&["eng"]).await;
    let mut person = Person::default();
    let refused = sign_in(&app, &provider, &mut person, ("s-1", "ann", &["sales"]), "").await.expect(403);
    assert!(refused.text().contains("no group that may use this gateway"));
    sign_in(&app, &provider, &mut person, ("s-1", "ann", &["sales", "eng"]), "").await.expect(303);
    person.open(&app, "/api/v0/users/whoami").await.expect(200);
    // Whoever left the group loses everything at the next sign-in.
    let mut again = Person::default();
    sign_in(&app, &provider, &mut again, ("s-1", "ann", &[]), "").await.expect(403);
    person.open(&app, "/api/v0/users/whoami").await.expect(401);
    app.put("/api/v0/users/ann", json!({ "disabled": true })).await.expect(200);
    let refused = sign_in(&app, &provider, &mut again, ("s-1", "ann", &["eng"]), "").await.expect(403);
    assert!(refused.text().contains("disabled your account"), "{}", refused.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_down_is_a_clear_page() {
    let app = TestApp::start_enterprise_with(|config| {
        config.public_url = Some(Url::parse(ISSUER).unwrap());
        let issuer = "http://127.0.0.1:1".to_owned();
        config.sign_in.oidc =
            Some(OidcClient { issuer, client_id: "gateway".to_owned(), client_secret: None, scopes: None });
    })
    .await;
    let page = Person::default().send(&app, "/login", &[]).await.expect(503);
    assert!(page.text().contains("You are not signed in") && page.text().contains("Try again"));
}
