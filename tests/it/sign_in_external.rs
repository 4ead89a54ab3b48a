//! Access tokens of another issuer (`JWT_ISSUER`) at the MCP endpoints.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::support::client::Events;
use crate::support::keys::{signed_jwt, signed_jwt_by, signed_jwt_with};
use crate::support::person::ISSUER;
use crate::support::{
    Agent, Answer, Behaviour, Fake, FakeProvider, SseAgent, TestApp, bearer, client, eventually,
};

async fn start() -> (TestApp, FakeProvider, Fake) {
    let issuer = FakeProvider::start().await;
    let app = TestApp::start_enterprise_with(|config| {
        issuer.issuer_settings(config);
        config.sign_in.admin_groups = vec!["root".to_owned()];
    })
    .await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    app.post("/api/v0/tool-groups", json!({"name": "g", "included_servers": ["s"]})).await.expect(201);
    (app, issuer, fake)
}

/// The claims of an access token for all endpoints, with changes.
fn claims(issuer: &FakeProvider, change: Value) -> Value {
    let now = issuer.clock.now_seconds();
    let mut claims = json!({"iss": issuer.issuer, "sub": "u-1", "aud": ISSUER, "iat": now, "exp": now + 300,
        "preferred_username": "ann", "client_id": "cursor"});
    for (name, value) in change.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

fn token(issuer: &FakeProvider, change: Value) -> String {
    signed_jwt(&claims(issuer, change))
}

async fn ask(app: &TestApp, token: &str, path: &str) -> Answer {
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    app.send_as(token, "POST", path, list).await
}

async fn users(app: &TestApp) -> Vec<Value> {
    app.get("/api/v0/users").await.expect(200).json().as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_works_with_a_token_of_the_issuer_where_it_is_for() {
    let (app, issuer, _fake) = start().await;
    let everywhere = token(&issuer, json!({}));
    for path in ["/mcp", "/v0/groups/g/mcp", "/v0/servers/s/mcp"] {
        ask(&app, &everywhere, path).await.expect(200);
    }
    let agent = Agent::connect_as(&app, "/mcp", &everywhere).await;
    assert_eq!(agent.call_text("s__echo", json!({"text": "hi"})).await, "hi");
    let found = users(&app).await;
    let ann = found.iter().find(|user| user["username"] == "ann").expect("created");
    assert_eq!((&ann["source"], &ann["role"]), (&json!("oidc"), &json!("user")));
    assert!(ann["last_seen_at"].is_string(), "{ann}");
    // The same account is the same user, by whatever name.
    let renamed =
        token(&issuer, json!({"preferred_username": "ann-smith", "aud": ["x", format!("{ISSUER}/")]}));
    ask(&app, &renamed, "/mcp").await.expect(200);
    assert_eq!(users(&app).await.len(), found.len());
    let one = token(&issuer, json!({"aud": format!("{ISSUER}/mcp")}));
    ask(&app, &one, "/mcp").await.expect(200);
    ask(&app, &one, "/v0/groups/g/mcp").await.expect(401).error();
    // The messages of a stream have an address of their own.
    let stream = token(&issuer, json!({"aud": format!("{ISSUER}/sse")}));
    let mut agent = SseAgent::connect_as(&app, "/sse", &stream).await;
    let answer = agent.call(json!(7), "s__echo", json!({"text": "hi"})).await;
    assert!(answer.to_string().contains("hi"), "{answer}");
    // Tokens of agents are for the MCP endpoints only, whoever they are of; static tokens work as before.
    let admin = token(&issuer, json!({"groups": ["root"], "sub": "u-2", "preferred_username": "bob"}));
    ask(&app, &admin, "/mcp").await.expect(200);
    app.send_as(&admin, "GET", "/api/v0/users", json!({})).await.expect(401).error();
    let client = app.create_client("agent", &["*"]).await;
    ask(&app, &client, "/mcp").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_or_deleted_user_is_out_whatever_the_token_says() {
    let (app, issuer, _fake) = start().await;
    let token = token(&issuer, json!({}));
    let mut stream = SseAgent::connect_as(&app, "/sse", &token).await;
    ask(&app, &token, "/mcp").await.expect(200);
    app.put("/api/v0/users/ann", json!({"disabled": true})).await.expect(200);
    while stream.next().await.is_some() {}
    for path in ["/mcp", "/v0/groups/g/mcp"] {
        ask(&app, &token, path).await.expect(401).error();
    }
    app.put("/api/v0/users/ann", json!({"disabled": false})).await.expect(200);
    ask(&app, &token, "/mcp").await.expect(200);
    let mut stream = SseAgent::connect_as(&app, "/sse", &token).await;
    app.delete("/api/v0/users/ann").await.expect(204);
    while stream.next().await.is_some() {}
    // Deleting only forgets people.
    ask(&app, &token, "/mcp").await.expect(200);
    assert!(users(&app).await.iter().any(|user| user["username"] == "ann"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_is_the_client_with_its_subject() {
    let (app, issuer, _fake) = start().await;
    let own = token(&issuer, json!({"sub": "app-1", "client_id": "app-1", "azp": "app-1"}));
    let refused = ask(&app, &own, "/mcp").await.expect(401);
    assert!(refused.headers["www-authenticate"].to_str().unwrap().contains("invalid_token"));
    let client = json!({"name": "ci", "allow_list": ["s__echo"], "jwt_subject": "app-1"});
    app.post("/api/v0/clients", client).await.expect(201);
    for kind in [
        json!({}),
        json!({"client_id": "x", "idtyp": "app"}),
        json!({"client_id": "x", "gty": "client-credentials"}),
    ] {
        let mut change = kind.clone();
        change["sub"] = json!("app-1");
        if kind == json!({}) {
            change["client_id"] = json!("app-1");
        }
        let agent = Agent::connect_as(&app, "/mcp", &token(&issuer, change)).await;
        assert_eq!(agent.tools().await, ["s__echo"], "{kind}");
    }
    // A person with the same subject is not that client, and applications never become users.
    let person = token(&issuer, json!({"sub": "app-1"}));
    assert!(Agent::connect_as(&app, "/mcp", &person).await.tools().await.len() > 1);
    let app_only = token(&issuer, json!({"sub": "app-2", "azp": "app-2"}));
    ask(&app, &app_only, "/mcp").await.expect(401).error();
    assert_eq!(users(&app).await.len(), 2);
    let second = json!({"name": "other", "allow_list": ["*"], "jwt_subject": "app-1"});
    app.post("/api/v0/clients", second).await.expect(409).error();
    // Another subject ends what runs under the one before.
    let mut stream = SseAgent::connect_as(&app, "/sse", &own).await;
    app.put("/api/v0/clients/ci", json!({"allow_list": ["*"], "jwt_subject": "app-2"})).await.expect(200);
    while stream.next().await.is_some() {}
    ask(&app, &own, "/mcp").await.expect(401).error();
    ask(&app, &app_only, "/mcp").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_are_not_for_this_gateway_are_refused() {
    let (app, issuer, _fake) = start().await;
    let now = issuer.clock.now_seconds();
    for change in [
        json!({"aud": "https://other.example"}),
        json!({"aud": format!("{ISSUER}.evil.example")}),
        json!({"aud": Value::Null}),
        json!({"iss": "https://other.example"}),
        json!({"exp": now - 61}),
        json!({"exp": Value::Null}),
        json!({"nbf": now + 120}),
        json!({"nonce": "n"}),
        json!({"at_hash": "h"}),
        json!({"typ": "ID"}),
        json!({"sub": ""}),
    ] {
        let refused = ask(&app, &token(&issuer, change.clone()), "/mcp").await;
        assert_eq!(refused.status, 401, "{change}");
        let challenge = refused.headers["www-authenticate"].to_str().unwrap().to_owned();
        let document = format!("resource_metadata=\"{ISSUER}/.well-known/oauth-protected-resource/mcp\"");
        assert!(
            challenge.contains(&document) && challenge.contains("error=\"invalid_token\""),
            "{challenge}"
        );
        refused.error();
    }
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let valid = claims(&issuer, json!({}));
    let unsigned = format!("{}.{}.", part(&json!({"alg": "none"})), part(&valid));
    let shared = signed_jwt_with("first", &json!({"alg": "HS256", "kid": "1"}), &valid);
    let logout = signed_jwt_with("first", &json!({"alg": "ES256", "kid": "1", "typ": "logout+jwt"}), &valid);
    let forged = signed_jwt_with("second", &json!({"alg": "ES256", "kid": "1"}), &valid);
    let changed = {
        let parts: Vec<_> = signed_jwt(&valid).split('.').map(str::to_owned).collect();
        format!("{}.{}.{}", parts[0], part(&claims(&issuer, json!({"sub": "u-2"}))), parts[2])
    };
    for wrong in [unsigned, shared, logout, forged, changed] {
        ask(&app, &wrong, "/mcp").await.expect(401).error();
    }
    assert_eq!(users(&app).await.len(), 1, "nobody was created");
    // Clocks may differ by a minute.
    let skewed = token(&issuer, json!({"exp": now - 20, "iat": now + 30, "nbf": now + 30}));
    ask(&app, &skewed, "/mcp").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_the_issuer_did_not_sign_is_a_guess() {
    let (app, issuer, _fake) = start().await;
    let now = issuer.clock.now_seconds();
    let valid = token(&issuer, json!({}));
    let expired = token(&issuer, json!({"exp": now - 3600}));
    let elsewhere = token(&issuer, json!({"aud": "https://other.example"}));
    // More than a burst of guesses.
    for _ in 0..200 {
        ask(&app, &expired, "/mcp").await.expect(401);
        ask(&app, &elsewhere, "/mcp").await.expect(401);
    }
    let forged = signed_jwt_with("second", &json!({"alg": "ES256", "kid": "1"}), &claims(&issuer, json!({})));
    let mut tried = 0;
    while ask(&app, &forged, "/mcp").await.status == 401 {
        tried += 1;
        assert!(tried < 5000, "nobody minds");
    }
    for _ in 0..20 {
        ask(&app, &expired, "/mcp").await.expect(401);
        ask(&app, &valid, "/mcp").await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_issuer_may_change_its_keys_and_be_down() {
    let issuer = FakeProvider::start().await;
    issuer.set_down(true);
    let app = TestApp::start_enterprise_with(|config| issuer.issuer_settings(config)).await;
    let first = token(&issuer, json!({}));
    let unknown = ask(&app, &first, "/mcp").await.expect(503);
    assert!(unknown.error().contains("tokens cannot be verified now"), "{}", unknown.text());
    let client = app.create_client("agent", &["*"]).await;
    ask(&app, &client, "/mcp").await.expect(200);
    issuer.set_down(false);
    issuer.clock.advance(Duration::from_secs(11));
    ask(&app, &first, "/mcp").await.expect(200);
    let second = signed_jwt_by("second", &claims(&issuer, json!({})));
    ask(&app, &second, "/mcp").await.expect(401);
    issuer.set_keys("second", &["first", "second"]);
    issuer.clock.advance(Duration::from_secs(11));
    ask(&app, &second, "/mcp").await.expect(200);
    ask(&app, &token(&issuer, json!({})), "/mcp").await.expect(200);
    // What is known counts while it is down.
    issuer.set_down(true);
    ask(&app, &signed_jwt_by("second", &claims(&issuer, json!({"jti": "2"}))), "/mcp").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_when_the_token_expires() {
    let (app, issuer, _fake) = start().await;
    // On a busy machine a token may expire before it is used; then the next one lasts longer.
    for left in [3, 20, 120] {
        let expiring = token(&issuer, json!({"exp": issuer.clock.now_seconds() - 60 + left}));
        let authorization = bearer(&expiring);
        let headers = [("authorization", authorization.as_str()), ("accept", "text/event-stream")];
        let (response, connection) = client::open(&app.address, "GET", "/sse", &headers, vec![]).await;
        if response.status() == 401 {
            continue;
        }
        let mut stream = Events::new((response, connection));
        while stream.next().await.is_some() {}
        ask(&app, &expiring, "/mcp").await.expect(401).error();
        return;
    }
    panic!("no token was accepted");
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_those_of_the_newest_token() {
    let (app, issuer, _fake) = start().await;
    let now = issuer.clock.now_seconds();
    let role = async || {
        let users = users(&app).await;
        users.iter().find(|user| user["username"] == "ann").unwrap()["role"].clone()
    };
    let before = token(&issuer, json!({"groups": ["root"], "iat": now - 60}));
    ask(&app, &before, "/mcp").await.expect(200);
    assert_eq!(role().await, "admin");
    // A token that says nothing about groups takes none away.
    ask(&app, &token(&issuer, json!({"iat": now - 30})), "/mcp").await.expect(200);
    assert_eq!(role().await, "admin");
    ask(&app, &token(&issuer, json!({"groups": []})), "/mcp").await.expect(200);
    assert_eq!(role().await, "user");
    // One of before works on, and gives no right back.
    ask(&app, &before, "/v0/groups/g/mcp").await.expect(200);
    assert_eq!(role().await, "user");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metadata_names_the_issuer_and_there_is_no_other_one() {
    let (app, issuer, _fake) = start().await;
    for path in ["", "/mcp", "/sse", "/v0/groups/g/mcp", "/v0/servers/s/mcp"] {
        let document = format!("/.well-known/oauth-protected-resource{path}");
        let found = client::request(&app.address, "GET", &document, &[], vec![]).await.expect(200).json();
        assert_eq!(found["authorization_servers"], json!([issuer.issuer]), "{path}");
        assert_eq!(found["resource"], format!("{ISSUER}{path}"));
    }
    for (method, path) in [
        ("GET", "/.well-known/oauth-authorization-server"),
        ("GET", "/authorize?response_type=code"),
        ("POST", "/token"),
        ("POST", "/register"),
        ("POST", "/revoke"),
    ] {
        client::request(&app.address, method, path, &[], vec![]).await.expect(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_an_audience_of_the_operator_only_that_one_counts() {
    let issuer = FakeProvider::start().await;
    let app = TestApp::start_enterprise_with(|config| {
        issuer.issuer_settings(config);
        config.sign_in.jwt.as_mut().unwrap().audience = Some("api://gate".to_owned());
        config.sign_in.allowed_groups = vec!["eng".to_owned()];
    })
    .await;
    let groups = json!(["eng"]);
    ask(&app, &token(&issuer, json!({"groups": groups})), "/mcp").await.expect(401);
    let right = token(&issuer, json!({"aud": "api://gate", "groups": groups}));
    ask(&app, &right, "/mcp").await.expect(200);
    // Only members of the allowed groups, also with a token that does not name any.
    let stranger = json!({"aud": "api://gate", "sub": "u-2", "preferred_username": "bob"});
    ask(&app, &token(&issuer, stranger), "/mcp").await.expect(401);
    let gone = token(&issuer, json!({"aud": "api://gate", "groups": ["sales"]}));
    ask(&app, &gone, "/mcp").await.expect(401);
    assert_eq!(users(&app).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_token_that_shows_that_somebody_left_counts_for_the_older_ones() {
    let issuer = FakeProvider::start().await;
    let app = TestApp::start_enterprise_with(|config| {
        issuer.issuer_settings(config);
        config.sign_in.allowed_groups = vec!["eng".to_owned()];
    })
    .await;
    let now = issuer.clock.now_seconds();
    let at = |iat: u64, groups: Value| {
        let mut change = json!({"iat": iat});
        if !groups.is_null() {
            change["groups"] = groups;
        }
        token(&issuer, change)
    };
    let old = at(now - 100, json!(["eng"]));
    let silent = at(now - 90, json!(null));
    let mut streams =
        [SseAgent::connect_as(&app, "/sse", &old).await, SseAgent::connect_as(&app, "/sse", &silent).await];
    ask(&app, &old, "/mcp").await.expect(200);
    // An older token says nothing about later.
    ask(&app, &at(now - 200, json!(["sales"])), "/mcp").await.expect(200);
    let gone = at(now - 50, json!(["sales"]));
    ask(&app, &gone, "/mcp").await.expect(401).error();
    for stream in &mut streams {
        while stream.next().await.is_some() {}
    }
    for refused in [&old, &silent, &gone, &at(now - 60, json!(["eng"])), &at(now - 10, json!(null))] {
        for path in ["/mcp", "/v0/groups/g/mcp"] {
            ask(&app, refused, path).await.expect(401).error();
        }
    }
    // Refused requests do not fill the audit.
    let ended = app.get("/api/v0/audit?action=user.end_credentials").await.expect(200).json();
    assert_eq!(ended["entries"], json!([]), "{ended}");
    // They come back.
    ask(&app, &at(now, json!(["eng", "sales"])), "/mcp").await.expect(200);
    ask(&app, &old, "/mcp").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_does_not_outlive_the_key_that_signed_it() {
    let (app, issuer, _fake) = start().await;
    let now = issuer.clock.now_seconds();
    let long = token(&issuer, json!({"exp": now + 30 * 24 * 3600}));
    ask(&app, &long, "/mcp").await.expect(200);
    let mut stream = SseAgent::connect_as(&app, "/sse", &long).await;
    // Known keys are read again when they are an hour old, and tokens are verified again after some minutes.
    issuer.set_keys("second", &["second"]);
    let second = |issuer: &FakeProvider| {
        let claims = claims(issuer, json!({"sub": "u-2", "preferred_username": "bob"}));
        signed_jwt_by("second", &claims)
    };
    ask(&app, &long, "/mcp").await.expect(200);
    issuer.clock.advance(Duration::from_secs(3600));
    eventually("the token is refused", async || {
        issuer.clock.advance(Duration::from_secs(360));
        ask(&app, &long, "/mcp").await.status == 401
    })
    .await;
    while stream.next().await.is_some() {}
    ask(&app, &second(&issuer), "/mcp").await.expect(200);
    // What is known counts while the issuer is down.
    let short = second(&issuer);
    ask(&app, &short, "/mcp").await.expect(200);
    issuer.set_down(true);
    issuer.clock.advance(Duration::from_secs(330));
    ask(&app, &short, "/mcp").await.expect(200);
}
