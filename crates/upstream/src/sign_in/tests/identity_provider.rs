//! People who sign in with the identity provider, and what it may not get away with.

use std::collections::HashMap;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use url::Url;

use super::fake_idp::{FakeIdp, START, clock};
use super::signer::Signer;
use crate::Tls;
use crate::sign_in::{
    BegunSignIn, CallbackQuery, IdentityProvider, IdpProblem, IdpSettings, Person, PersonClaims, Recheck,
    SignInAttempt,
};
use model::{Secret, WallClock};

const DISCOVERY: &str = "/.well-known/openid-configuration";

struct Scene {
    idp: FakeIdp,
    clock: WallClock,
    signer: Signer,
    provider: IdentityProvider,
}

impl Scene {
    async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    async fn start_with(change: impl FnOnce(&mut IdpSettings)) -> Self {
        let signer = Signer::rs256("r");
        let (idp, clock) = (FakeIdp::start(&signer).await, clock());
        let mut settings = IdpSettings {
            issuer: idp.url.clone(),
            client_id: "gate way".into(),
            client_secret: Some(Secret::new("s:e+c")),
            scopes: None,
            claims: PersonClaims::default(),
            redirect_uri: "https://gate.example/login/callback".into(),
        };
        change(&mut settings);
        let provider = IdentityProvider::new(settings, Tls::default(), clock.clone());
        Self { idp, clock, signer, provider }
    }

    fn claims(&self, nonce: &str, change: Value) -> Value {
        let mut claims = json!({
            "iss": self.idp.url, "sub": "u1", "aud": "gate way", "exp": START + 300, "iat": START, "nonce": nonce,
            "preferred_username": "ann", "groups": ["eng", "ops"],
        });
        merge(&mut claims, change);
        claims
    }

    /// Begins, answers at the token endpoint with an ID token of these claims, and finishes.
    async fn sign_in(&self, change: Value) -> Result<Person, IdpProblem> {
        let begun = self.provider.begin().await?;
        let claims = self.claims(&begun.attempt.nonce, change);
        self.issue(json!({"id_token": self.signer.sign(&claims)}));
        self.provider.finish(&begun.attempt, good(&begun)).await
    }

    fn issue(&self, change: Value) {
        let mut answer = json!({"access_token": "at", "token_type": "Bearer", "refresh_token": "rt"});
        merge(&mut answer, change);
        self.idp.answer("/token", answer);
    }
}

fn merge(object: &mut Value, change: Value) {
    for (name, value) in change.as_object().unwrap() {
        object[name] = value.clone();
    }
}

fn good(begun: &BegunSignIn) -> CallbackQuery {
    CallbackQuery {
        code: Some(Secret::new("the-code")),
        state: Some(begun.attempt.state.clone()),
        ..CallbackQuery::default()
    }
}

fn pairs(text: &str) -> HashMap<String, String> {
    url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

fn lies(result: Result<Person, IdpProblem>) -> String {
    match result {
        Err(IdpProblem::Lies(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_person_signs_in() {
    let scene = Scene::start().await;
    let begun = scene.provider.begin().await.unwrap();
    let url = Url::parse(&begun.url).unwrap();
    let sent: HashMap<String, String> = url.query_pairs().into_owned().collect();
    assert!(begun.url.starts_with(&format!("{}/authorize?tenant=1&", scene.idp.url)));
    assert_eq!(sent["response_type"], "code");
    assert_eq!(sent["client_id"], "gate way");
    assert_eq!(sent["redirect_uri"], "https://gate.example/login/callback");
    assert_eq!(sent["scope"], "openid profile email");
    assert_eq!((&sent["state"], &sent["nonce"]), (&begun.attempt.state, &begun.attempt.nonce));
    assert_eq!(sent["code_challenge_method"], "S256");
    assert!(!sent.contains_key("resource") && sent.len() == 9);

    // What is kept survives as one text.
    let attempt = SignInAttempt::parse(begun.attempt.to_secret().expose()).unwrap();
    let claims = scene.claims(&begun.attempt.nonce, json!({}));
    scene.issue(json!({"id_token": scene.signer.sign(&claims)}));
    let person = scene.provider.finish(&attempt, good(&begun)).await.unwrap();
    let expected = Person {
        issuer: scene.idp.url.clone(),
        subject: "u1".into(),
        username: "ann".into(),
        groups: vec!["eng".into(), "ops".into()],
        refresh_token: Some(Secret::new("rt")),
    };
    assert_eq!(person, expected);
    let request = &scene.idp.asked("/token")[0];
    let form = pairs(&request.body);
    assert_eq!(form["grant_type"], "authorization_code");
    assert_eq!((form["code"].as_str(), form.len()), ("the-code", 4));
    assert_eq!(form["redirect_uri"], "https://gate.example/login/callback");
    assert_eq!(form["code_verifier"], begun.attempt.verifier.expose());
    let basic = BASE64_STANDARD.encode("gate+way:s%3Ae%2Bc");
    assert!(request.head.contains(&format!("authorization: Basic {basic}\r\n")), "{}", request.head);
    assert!(scene.idp.asked("/userinfo").is_empty());
    assert_eq!((scene.idp.asked(DISCOVERY).len(), scene.idp.asked("/keys").len()), (1, 1));
}

#[tokio::test]
async fn the_gateway_proves_itself_as_the_metadata_says() {
    let scene = Scene::start().await;
    scene.idp.publish(|metadata| {
        metadata["token_endpoint_auth_methods_supported"] = json!(["private_key_jwt", "client_secret_post"]);
    });
    scene.sign_in(json!({})).await.unwrap();
    let request = &scene.idp.asked("/token")[0];
    let form = pairs(&request.body);
    assert_eq!((form["client_id"].as_str(), form["client_secret"].as_str()), ("gate way", "s:e+c"));
    assert!(!request.head.contains("authorization:"));

    let scene = Scene::start_with(|settings| settings.client_secret = None).await;
    scene.sign_in(json!({})).await.unwrap();
    let request = &scene.idp.asked("/token")[0];
    let form = pairs(&request.body);
    assert_eq!(form["client_id"], "gate way");
    assert!(!form.contains_key("client_secret") && !request.head.contains("authorization:"));

    let scene = Scene::start().await;
    scene.idp.publish(|metadata| {
        metadata["token_endpoint_auth_methods_supported"] = json!(["private_key_jwt"]);
    });
    assert!(matches!(scene.sign_in(json!({})).await, Err(IdpProblem::Refused(_))));
    assert!(scene.idp.asked("/token").is_empty());
}

#[tokio::test]
async fn offline_access_is_asked_for_where_it_is_offered_unless_scopes_are_set() {
    let scope = |begun: BegunSignIn| pairs(begun.url.split_once('?').unwrap().1)["scope"].clone();
    let scene = Scene::start().await;
    scene.idp.publish(|metadata| metadata["scopes_supported"] = json!(["openid", "offline_access"]));
    assert_eq!(scope(scene.provider.begin().await.unwrap()), "openid profile email offline_access");
    let scene =
        Scene::start_with(|settings| settings.scopes = Some(vec!["openid".into(), "groups".into()])).await;
    scene.idp.publish(|metadata| metadata["scopes_supported"] = json!(["openid", "offline_access"]));
    assert_eq!(scope(scene.provider.begin().await.unwrap()), "openid groups");
}

#[tokio::test]
async fn an_answer_for_another_attempt_or_from_another_issuer_is_refused() {
    let scene = Scene::start().await;
    let begun = scene.provider.begin().await.unwrap();
    let with = |change: fn(&mut CallbackQuery)| {
        let mut query = good(&begun);
        change(&mut query);
        scene.provider.finish(&begun.attempt, query)
    };
    lies(with(|query| query.state = None).await);
    lies(with(|query| query.state = Some(String::new())).await);
    lies(with(|query| query.state = Some("x".repeat(43))).await);
    lies(with(|query| query.code = None).await);
    lies(with(|query| query.code = Some(Secret::new(""))).await);
    lies(with(|query| query.iss = Some("https://other.example".into())).await);
    // A forged error is not believed either.
    lies(
        with(|query| {
            query.iss = Some("https://other.example".into());
            query.error = Some("access_denied".into());
        })
        .await,
    );
    assert!(scene.idp.asked("/token").is_empty());

    let scene = Scene::start().await;
    let supported = "authorization_response_iss_parameter_supported";
    scene.idp.publish(|metadata| metadata[supported] = true.into());
    let begun = scene.provider.begin().await.unwrap();
    lies(scene.provider.finish(&begun.attempt, good(&begun)).await);
    let claims = scene.claims(&begun.attempt.nonce, json!({}));
    scene.issue(json!({"id_token": scene.signer.sign(&claims)}));
    let query = CallbackQuery { iss: Some(scene.idp.url.clone()), ..good(&begun) };
    assert!(scene.provider.finish(&begun.attempt, query).await.is_ok());
}

#[tokio::test]
async fn a_refusal_of_the_identity_provider_is_passed_on_in_one_line() {
    let scene = Scene::start().await;
    let begun = scene.provider.begin().await.unwrap();
    let refused = |error: &str, description: &str| {
        let query = CallbackQuery {
            code: None,
            error: Some(error.into()),
            error_description: Some(description.into()),
            ..good(&begun)
        };
        scene.provider.finish(&begun.attempt, query)
    };
    let Err(IdpProblem::Refused(text)) = refused("access_denied", "no\r\n\tway \u{1b}[0m").await else {
        panic!("it must be refused")
    };
    assert!(text.contains("(access_denied: no way [0m)"), "{text}");
    let Err(IdpProblem::Refused(text)) = refused(&"e".repeat(9000), &"d".repeat(9000)).await else {
        panic!("it must be refused")
    };
    assert!(text.chars().count() < 500);
    assert!(matches!(refused("temporarily_unavailable", "").await, Err(IdpProblem::Down(_))));
}

#[tokio::test]
async fn an_id_token_must_be_right_in_everything() {
    let scene = Scene::start().await;
    for wrong in [
        json!({"iss": "https://other.example"}),
        json!({"iss": format!("{}/", scene.idp.url)}),
        json!({"aud": "other"}),
        json!({"aud": ["gate way", "other"]}),
        json!({"aud": ["gate way", "other"], "azp": "other"}),
        json!({"nonce": "other"}),
        json!({"nonce": Value::Null}),
        json!({"exp": START - 60}),
        json!({"exp": Value::Null}),
        json!({"nbf": START + 61}),
        json!({"iat": START + 61}),
        json!({"sub": ""}),
    ] {
        let result = scene.sign_in(wrong.clone()).await;
        assert!(matches!(result, Err(IdpProblem::Lies(_))), "{wrong}: {result:?}");
    }
    assert!(scene.sign_in(json!({"aud": ["gate way", "other"], "azp": "gate way"})).await.is_ok());
    let begun = scene.provider.begin().await.unwrap();
    let claims = scene.claims(&begun.attempt.nonce, json!({}));
    let finish = || scene.provider.finish(&begun.attempt, good(&begun));
    scene.issue(json!({"id_token": Signer::es256("r").sign(&claims)}));
    lies(finish().await);
    let header = json!({"alg": "RS256", "kid": "r", "typ": "at+jwt"});
    scene.issue(json!({"id_token": scene.signer.sign_as(&header, &claims)}));
    lies(finish().await);
    scene.issue(json!({"id_token": "a.b.c"}));
    lies(finish().await);
    scene.issue(json!({}));
    assert!(matches!(finish().await, Err(IdpProblem::Refused(_))));
}

#[tokio::test]
async fn groups_come_from_userinfo_only_if_the_id_token_has_none() {
    let scene = Scene::start().await;
    scene.idp.answer("/userinfo", json!({"sub": "u1", "groups": "qa", "preferred_username": "other"}));
    let person = scene.sign_in(json!({"groups": Value::Null})).await.unwrap();
    assert_eq!((person.groups, person.username.as_str()), (vec!["qa".to_owned()], "ann"));
    let request = &scene.idp.asked("/userinfo")[0];
    assert!(request.head.contains("authorization: Bearer at\r\n"));
    assert_eq!(scene.sign_in(json!({"groups": []})).await.unwrap().groups.len(), 0);
    assert_eq!(scene.idp.asked("/userinfo").len(), 1);
    // The name is found there too, if the ID token has none.
    let bare = json!({"groups": Value::Null, "preferred_username": Value::Null});
    assert_eq!(scene.sign_in(bare).await.unwrap().username, "other");

    let without = json!({"groups": Value::Null});
    for stranger in [json!({"sub": "u2", "groups": ["admins"]}), json!({"groups": ["admins"]})] {
        scene.idp.answer("/userinfo", stranger);
        lies(scene.sign_in(without.clone()).await);
    }
    scene.idp.fail("/userinfo", 500, json!({}));
    assert!(matches!(scene.sign_in(without.clone()).await, Err(IdpProblem::Down(_))));
    scene.idp.answer_with("/userinfo", 200, "", "eyJhbGciOiJub25lIn0.e30.");
    assert!(matches!(scene.sign_in(without.clone()).await, Err(IdpProblem::Down(_))));

    let scene = Scene::start().await;
    scene.idp.publish(|metadata| metadata["userinfo_endpoint"] = Value::Null);
    assert_eq!(scene.sign_in(without).await.unwrap().groups.len(), 0);
}

#[tokio::test]
async fn groups_that_entra_left_out_are_a_clear_sentence() {
    let scene = Scene::start().await;
    let change = json!({"groups": Value::Null, "_claim_names": {"groups": "src1"}});
    let Err(IdpProblem::Refused(text)) = scene.sign_in(change).await else { panic!("it must be refused") };
    assert!(text.contains("too many"), "{text}");
    assert!(scene.idp.asked("/userinfo").is_empty());
}

#[tokio::test]
async fn an_identity_provider_that_is_down_heals() {
    let scene = Scene::start().await;
    scene.idp.fail(DISCOVERY, 502, json!({}));
    let down = |result: Result<BegunSignIn, IdpProblem>| matches!(result, Err(IdpProblem::Down(_)));
    assert!(down(scene.provider.begin().await));
    scene.idp.publish(|_| {});
    assert!(down(scene.provider.begin().await));
    scene.clock.advance(Duration::from_secs(10));
    assert!(scene.provider.begin().await.is_ok());
    // From now on, what is known counts, although it is refreshed after an hour.
    scene.idp.fail(DISCOVERY, 502, json!({}));
    scene.clock.advance(Duration::from_secs(3600));
    assert!(scene.provider.begin().await.is_ok());
    let nobody = Scene::start_with(|settings| settings.issuer = "http://127.0.0.1:1".into()).await;
    assert!(down(nobody.provider.begin().await));
}

#[tokio::test]
async fn metadata_of_somebody_else_is_refused() {
    let scene = Scene::start().await;
    let problem = |metadata: Value| {
        let (field, value) = metadata.as_object().unwrap().iter().next().unwrap();
        let (field, value) = (field.clone(), value.clone());
        scene.idp.publish(|metadata| metadata[field] = value);
        scene.clock.advance(Duration::from_secs(10));
        scene.provider.begin()
    };
    for other in [json!("https://other.example"), json!(format!("{}/", scene.idp.url)), Value::Null] {
        let result = problem(json!({"issuer": other})).await;
        assert!(matches!(result, Err(IdpProblem::Lies(ref text)) if text.contains("OIDC_ISSUER")));
    }
    for (name, url) in [
        ("token_endpoint", "http://idp.example/token"),
        ("jwks_uri", "file:///etc/passwd"),
        ("userinfo_endpoint", "https://user@idp.example/"),
        ("authorization_endpoint", "javascript:alert(1)"),
    ] {
        assert!(matches!(problem(json!({name: url})).await, Err(IdpProblem::Down(_))), "{name}");
    }
    let redirect = format!("location: {}/elsewhere\r\n", scene.idp.url);
    scene.idp.answer_with(DISCOVERY, 302, &redirect, "");
    scene.clock.advance(Duration::from_secs(10));
    assert!(scene.provider.begin().await.is_err());
    assert!(scene.idp.asked("/elsewhere").is_empty());
    scene.idp.answer_with(DISCOVERY, 200, "", &" ".repeat(1024 * 1024 + 1));
    scene.clock.advance(Duration::from_secs(10));
    assert!(matches!(scene.provider.begin().await, Err(IdpProblem::Down(_))));
}

#[tokio::test]
async fn errors_of_the_token_endpoint_say_what_to_change_and_repeat_no_secret() {
    let scene = Scene::start().await;
    let begun = scene.provider.begin().await.unwrap();
    let verifier = begun.attempt.verifier.expose().to_owned();
    let description = format!("code the-code, verifier {verifier}, secret s:e+c");
    let failing = async |status, error: &str| {
        scene.idp.fail("/token", status, json!({"error": error, "error_description": description}));
        scene.provider.finish(&begun.attempt, good(&begun)).await.unwrap_err()
    };
    for (status, error) in [(400, "invalid_grant"), (401, "invalid_client"), (400, "invalid_scope")] {
        let problem = failing(status, error).await;
        let text = problem.to_string();
        assert!(matches!(problem, IdpProblem::Refused(_)) && text.contains(error), "{text}");
        assert!(
            !["the-code", verifier.as_str(), "s:e+c"].iter().any(|secret| text.contains(secret)),
            "{text}"
        );
    }
    assert!(failing(401, "invalid_client").await.to_string().contains("OIDC_CLIENT_SECRET"));
    assert!(matches!(failing(500, "invalid_grant").await, IdpProblem::Down(_)));
    scene.idp.answer_with("/token", 200, "", "<html>");
    let problem = scene.provider.finish(&begun.attempt, good(&begun)).await.unwrap_err();
    assert!(matches!(problem, IdpProblem::Down(_)));
}

#[tokio::test]
async fn only_invalid_grant_means_that_a_person_may_not_go_on() {
    let scene = Scene::start().await;
    let refresh = Secret::new("old-rt");
    let check = || scene.provider.check_again(&refresh, "u1");
    let claims = scene.claims("", json!({"nonce": Value::Null, "groups": ["new"]}));
    scene.issue(json!({"id_token": scene.signer.sign(&claims), "refresh_token": "new-rt"}));
    let person = check().await.unwrap();
    assert_eq!((person.groups, person.refresh_token), (vec!["new".to_owned()], Some(Secret::new("new-rt"))));
    let form = pairs(&scene.idp.asked("/token")[0].body);
    assert_eq!((form["grant_type"].as_str(), form["refresh_token"].as_str()), ("refresh_token", "old-rt"));
    assert!(!form.contains_key("resource"));

    // Without an ID token, userinfo says who it is.
    scene.issue(json!({"refresh_token": Value::Null}));
    scene.idp.answer("/userinfo", json!({"sub": "u1", "groups": ["info"], "email": "a@x"}));
    let person = check().await.unwrap();
    assert_eq!((person.groups, person.refresh_token), (vec!["info".to_owned()], None));

    // If that does not have the groups, they are unknown, not none.
    scene.idp.answer("/userinfo", json!({"sub": "u1", "email": "a@x"}));
    assert!(matches!(check().await, Err(Recheck::NotNow { .. })));
    let claims = scene.claims("", json!({"nonce": Value::Null, "groups": Value::Null}));
    scene.issue(json!({"id_token": scene.signer.sign(&claims)}));
    assert_eq!(check().await.unwrap().groups.len(), 0);

    for (status, body) in [
        (400, json!({"error": "invalid_client"})),
        (401, json!({"error": "unauthorized_client"})),
        (400, json!({"error": "invalid_request", "error_description": "old-rt"})),
        (500, json!({"error": "invalid_grant"})),
        (404, json!({})),
    ] {
        scene.idp.fail("/token", status, body.clone());
        let Err(Recheck::NotNow { reason, refresh_token: None }) = check().await else { panic!("{body}") };
        assert!(!reason.contains("old-rt"), "{reason}");
    }
    scene.idp.fail("/token", 400, json!({"error": "invalid_grant", "error_description": "old-rt is over"}));
    let Err(Recheck::Refused(text)) = check().await else { panic!("it must be refused") };
    assert!(!text.contains("old-rt"), "{text}");
}

#[tokio::test]
async fn a_new_refresh_token_is_not_lost_if_the_rest_fails() {
    let scene = Scene::start().await;
    let refresh = Secret::new("old-rt");
    let other = scene.claims("", json!({"sub": "u2"}));
    for answer in [
        json!({"id_token": scene.signer.sign(&other)}),
        json!({"id_token": "broken"}),
        // Userinfo answers 404.
        json!({}),
    ] {
        scene.issue(json!({"refresh_token": "new-rt"}));
        let mut with_token = json!({"refresh_token": "new-rt"});
        merge(&mut with_token, answer);
        scene.issue(with_token);
        let result = scene.provider.check_again(&refresh, "u1").await;
        let Err(Recheck::NotNow { refresh_token, .. }) = result else { panic!("{result:?}") };
        assert_eq!(refresh_token, Some(Secret::new("new-rt")));
    }
}

#[tokio::test]
async fn a_check_says_what_to_change() {
    let scene = Scene::start().await;
    let date = |seconds: u64| {
        let time = std::time::UNIX_EPOCH + Duration::from_secs(seconds);
        format!("date: {}\r\n", httpdate::fmt_http_date(time))
    };
    let publish = |seconds: u64| {
        let url = &scene.idp.url;
        let metadata = json!({
            "issuer": url, "jwks_uri": format!("{url}/keys"), "authorization_endpoint": url, "token_endpoint": url,
        });
        scene.idp.answer_with(DISCOVERY, 200, &date(seconds), &metadata.to_string());
    };
    publish(scene.clock.now_seconds() + 60);
    let steps = scene.provider.check().await;
    assert!(steps.iter().all(|step| step.ok), "{steps:?}");
    assert_eq!(steps.iter().map(|step| step.step).collect::<Vec<_>>(), ["discovery", "keys", "clock"]);

    publish(scene.clock.now_seconds() + 90);
    let steps = scene.provider.check().await;
    assert!(!steps[2].ok && steps[2].text.contains("90 s behind"), "{steps:?}");
    publish(scene.clock.now_seconds() - 61);
    assert!(scene.provider.check().await[2].text.contains("61 s ahead"));

    scene.idp.answer("/keys", json!({"keys": [{"kty": "oct", "k": "AAAA"}]}));
    let steps = scene.provider.check().await;
    assert!(steps[0].ok && !steps[1].ok && steps[1].text.contains("RS256"), "{steps:?}");
    scene.idp.publish(|metadata| metadata["token_endpoint"] = Value::Null);
    assert!(!scene.provider.check().await[0].ok);
    scene.idp.publish(|metadata| metadata["issuer"] = "https://other.example".into());
    let steps = scene.provider.check().await;
    assert!(steps.iter().all(|step| !step.ok), "{steps:?}");
    assert!(steps[0].text.contains("OIDC_ISSUER"), "{steps:?}");
}
