//! `/register`, `/token` and `/revoke` with malformed and hostile input.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::support::person::{Person, Software, VERIFIER, challenge, encoded, tokens_in};
use crate::support::{Answer, TestApp, client};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

async fn post(app: &TestApp, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    client::request(&app.address, "POST", path, headers, body.as_bytes().to_vec()).await
}

/// Checks the form of an error, and returns its code.
fn code_of(answer: &Answer) -> String {
    let body = answer.json();
    let object = body.as_object().unwrap();
    assert!(object.len() == 2 && object["error_description"].is_string(), "{body}");
    assert_eq!(answer.headers["cache-control"], "no-store");
    object["error"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_that_is_wrong_says_so() {
    let app = TestApp::start_with_sign_in().await;
    let redirects = json!(["https://a.example/cb"]);
    for (metadata, code) in [
        (json!("x"), "invalid_client_metadata"),
        (json!([]), "invalid_client_metadata"),
        (json!({}), "invalid_redirect_uri"),
        (json!({ "redirect_uris": ["http://a.example/cb"] }), "invalid_redirect_uri"),
        (json!({ "redirect_uris": redirects, "grant_types": ["password"] }), "invalid_client_metadata"),
        (json!({ "redirect_uris": redirects, "client_name": {} }), "invalid_client_metadata"),
        (json!({ "redirect_uris": redirects, "token_endpoint_auth_method": "x" }), "invalid_client_metadata"),
        (
            json!({ "redirect_uris": [format!("https://a.example/{}", "x".repeat(1900))] }),
            "invalid_client_metadata",
        ),
    ] {
        let answer = post(&app, "/register", &[], &metadata.to_string()).await.expect(400);
        assert_eq!(code_of(&answer), code, "{metadata}");
    }
    assert_eq!(code_of(&post(&app, "/register", &[], "{").await.expect(400)), "invalid_client_metadata");
    assert_eq!(
        code_of(&post(&app, "/register", &[], &" ".repeat(70_000)).await.expect(413)),
        "invalid_request"
    );
    let some = json!({ "redirect_uris": ["http://a.example/cb", "cursor://x/cb", "javascript:alert(1)"] });
    let registered = post(&app, "/register", &[], &some.to_string()).await.expect(201).json();
    assert_eq!(registered["redirect_uris"], json!(["cursor://x/cb"]));
    assert_eq!(registered["token_endpoint_auth_method"], "client_secret_basic");
    assert!(registered["client_secret"].is_string() && registered["client_secret_expires_at"] == 0);
    assert!(registered["client_id"].as_str().unwrap().len() <= 2048);
    assert!(registered["client_id_issued_at"].as_i64().unwrap() > 1_700_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn registrations_are_limited_per_address() {
    let app = TestApp::start_enterprise_with(|config| {
        config.public_url = Some("https://gate.example.com".parse().unwrap());
        config.trust_proxy = true;
    })
    .await;
    let body = json!({ "redirect_uris": ["https://a.example/cb"] }).to_string();
    let register = async |source: &str| post(&app, "/register", &[("x-forwarded-for", source)], &body).await;
    let mut made = 0;
    let refused = loop {
        let answer = register("192.0.2.1").await;
        if answer.status == 429 {
            break answer;
        }
        answer.expect(201);
        made += 1;
        assert!(made < 1000, "nobody minds");
    };
    assert!(made >= 100, "{made}");
    assert_eq!(code_of(&refused), "temporarily_unavailable");
    assert!(refused.headers.contains_key("retry-after"));
    register("192.0.2.2").await.expect(201);
}

async fn signed_in() -> (TestApp, Person, Software) {
    let app = TestApp::start_with_sign_in().await;
    let person = app.sign_in_user("ann").await;
    let software = Software::register(&app, "https://agent.example/cb").await;
    (app, person, software)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mistake_at_the_token_endpoint_has_the_code_of_the_rfc() {
    let (app, person, software) = signed_in().await;
    let code = software.code(&app, &person, &[]).await;
    let id = software.client_id.as_str();
    let good = [
        ("grant_type", "authorization_code"),
        ("client_id", id),
        ("code", code.as_str()),
        ("redirect_uri", "https://agent.example/cb"),
        ("code_verifier", VERIFIER),
    ];
    let with = |name: &str, value: &str| {
        let pairs: Vec<_> =
            good.iter().map(|(key, old)| (*key, if *key == name { value } else { old })).collect();
        encoded(&pairs)
    };
    let other = Software::register(&app, "https://agent.example/cb").await;
    let fine = encoded(&good);
    for (body, status, expected) in [
        (String::new(), 400, "invalid_request"),
        (with("grant_type", ""), 400, "invalid_request"),
        (with("grant_type", "client_credentials"), 400, "unsupported_grant_type"),
        (with("grant_type", "refresh_token"), 400, "invalid_request"),
        (with("client_id", ""), 401, "invalid_client"),
        (with("client_id", "unknown"), 401, "invalid_client"),
        (with("client_id", "tgs_AAAA"), 401, "invalid_client"),
        (with("client_id", "https://agent.example/client.json"), 400, "invalid_grant"),
        (with("client_id", &other.client_id), 400, "invalid_grant"),
        (with("code", ""), 400, "invalid_request"),
        (with("code", "wrong"), 400, "invalid_grant"),
        (with("code", &format!("{code}x")), 400, "invalid_grant"),
        (with("redirect_uri", "https://agent.example/cb/"), 400, "invalid_grant"),
        (with("code_verifier", ""), 400, "invalid_request"),
        (with("code_verifier", "wrong"), 400, "invalid_grant"),
        (with("code_verifier", &challenge()), 400, "invalid_grant"),
        (format!("{fine}&code={code}"), 400, "invalid_request"),
        (format!("{fine}&unknown=a&unknown=b"), 400, "invalid_request"),
        (format!("{fine}&resource=https://evil.example"), 400, "invalid_target"),
        (format!("{fine}&client_secret=x"), 401, "invalid_client"),
        (format!("{fine}&client_assertion=x"), 400, "invalid_request"),
        ("x".repeat(40_000), 413, "invalid_request"),
    ] {
        let answer = post(&app, "/token", &[FORM], &body).await.expect(status);
        assert_eq!(code_of(&answer), expected, "{body}");
        assert_eq!(answer.headers.contains_key("www-authenticate"), status == 401);
    }
    for media in [None, Some("application/json"), Some("multipart/form-data"), Some("x-www-form-urlencoded")]
    {
        let headers: Vec<_> = media.iter().map(|media| ("content-type", *media)).collect();
        assert_eq!(code_of(&post(&app, "/token", &headers, &fine).await.expect(400)), "invalid_request");
    }
    // Nothing of this has used the code.
    let charset = [("content-type", "application/x-www-form-urlencoded; charset=UTF-8")];
    let (_, refresh) = tokens_in(&post(&app, "/token", &charset, &fine).await.expect(200));
    let theirs = other.refresh(&app, &refresh, &[]).await.expect(400);
    assert_eq!(code_of(&theirs), "invalid_grant");
    assert_eq!(code_of(&software.refresh(&app, "wrong", &[]).await.expect(400)), "invalid_grant");
    software.refresh(&app, &refresh, &[("scope", "mcp unknown")]).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn software_with_a_secret_must_prove_it() {
    let (app, person, _) = signed_in().await;
    for method in ["client_secret_basic", "client_secret_post"] {
        let metadata = json!({ "client_name": "Server", "redirect_uris": ["https://agent.example/cb"],
            "token_endpoint_auth_method": method });
        let software = Software::register_with(&app, metadata).await;
        let (id, secret) = (software.client_id.as_str(), software.secret.as_deref().unwrap());
        let basic = |id: &str, secret: &str| format!("Basic {}", STANDARD.encode(format!("{id}:{secret}")));
        let code = software.code(&app, &person, &[]).await;
        let fields =
            [("grant_type", "authorization_code"), ("code", code.as_str()), ("code_verifier", VERIFIER)];
        let body = encoded(&fields);
        let with_id = format!("{body}&{}", encoded(&[("client_id", id)]));
        assert_eq!(code_of(&post(&app, "/token", &[FORM], &with_id).await.expect(401)), "invalid_client");
        let wrong = format!("{with_id}&client_secret=wrong");
        assert_eq!(code_of(&post(&app, "/token", &[FORM], &wrong).await.expect(401)), "invalid_client");
        for header in [basic(id, "wrong"), basic("unknown", secret), "Basic !".to_owned(), basic(id, "")] {
            let answer = post(&app, "/token", &[FORM, ("authorization", &header)], &body).await.expect(401);
            assert_eq!(code_of(&answer), "invalid_client");
            assert!(answer.headers["www-authenticate"].to_str().unwrap().starts_with("Basic"));
        }
        let answer = match method {
            "client_secret_basic" => {
                post(&app, "/token", &[FORM, ("authorization", &basic(id, secret))], &body).await
            }
            _ => post(&app, "/token", &[FORM], &format!("{with_id}&client_secret={secret}")).await,
        };
        let (_, refresh) = tokens_in(&answer.expect(200));
        let refused = software.post(&app, "/revoke", &[("token", &refresh)]).await.expect(401);
        assert_eq!(code_of(&refused), "invalid_client");
        let revoke = encoded(&[("token", &refresh)]);
        post(&app, "/revoke", &[FORM, ("authorization", &basic(id, secret))], &revoke).await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revoking_ends_a_grant_and_an_unknown_token_is_no_error() {
    let (app, person, software) = signed_in().await;
    let (access, refresh) = software.tokens(&app, &person, &[]).await;
    let revoke = async |fields: &[(&str, &str)]| software.post(&app, "/revoke", fields).await;
    assert_eq!(code_of(&revoke(&[]).await.expect(400)), "invalid_request");
    assert_eq!(code_of(&revoke(&[("token", "a"), ("token", "b")]).await.expect(400)), "invalid_request");
    revoke(&[("token", "unknown"), ("token_type_hint", "whatever")]).await.expect(200);
    let none = post(&app, "/revoke", &[FORM], &encoded(&[("token", &refresh)])).await.expect(401);
    assert_eq!(code_of(&none), "invalid_client");
    // Other software cannot end it.
    let other = Software::register(&app, "https://other.example/cb").await;
    other.post(&app, "/revoke", &[("token", &refresh)]).await.expect(200);
    let (_, refresh) = tokens_in(&software.refresh(&app, &refresh, &[]).await.expect(200));
    revoke(&[("token", &access), ("token_type_hint", "access_token")]).await.expect(200);
    assert_eq!(code_of(&software.refresh(&app, &refresh, &[]).await.expect(400)), "invalid_grant");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_requests_for_tokens_are_counted() {
    let app = TestApp::start_with_sign_in().await;
    let software = Software::register(&app, "https://a.example/cb").await;
    for _ in 0..50 {
        let answer = software.redeem(&app, "tgc_wrong", &[]).await.expect(400);
        assert_eq!(code_of(&answer), "invalid_grant");
    }
    let unknown = Software { client_id: "unknown".to_owned(), secret: None, ..software };
    assert_eq!(code_of(&unknown.refresh(&app, "tgr_wrong", &[]).await.expect(401)), "invalid_client");
    // Sums are written once a minute, and at the end.
    let app = app.restart().await;
    let audit = app.get("/api/v0/audit?action=token.request").await.expect(200).json();
    let count = |target: &str| {
        let sums = audit["entries"].as_array().unwrap().iter().filter(|sum| sum["target"] == target);
        sums.map(|sum| sum["count"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((count("invalid_grant"), count("invalid_client")), (50, 1), "{audit}");
}
