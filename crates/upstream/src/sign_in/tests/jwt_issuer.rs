//! Bearer JWTs of an external issuer.

use std::time::Duration;

use serde_json::{Value, json};

use super::fake_idp::{FakeIdp, START, clock};
use super::signer::{Signer, key_set};
use crate::Tls;
use crate::sign_in::{JwtIssuer, JwtProblem, JwtSubject, PersonClaims};
use model::WallClock;

const AUDIENCE: &str = "https://gate.example/mcp";

struct Scene {
    idp: FakeIdp,
    clock: WallClock,
    issuer: JwtIssuer,
}

impl Scene {
    async fn start(signer: &Signer) -> Self {
        let (idp, clock) = (FakeIdp::start(signer).await, clock());
        let issuer = JwtIssuer::new(&idp.url, PersonClaims::default(), Tls::default(), clock.clone());
        Self { idp, clock, issuer }
    }

    fn claims(&self, change: Value) -> Value {
        let mut claims =
            json!({"iss": self.idp.url, "sub": "u1", "aud": AUDIENCE, "exp": START + 300, "iat": START});
        for (name, value) in change.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
    }

    async fn verify(&self, token: &str) -> Result<JwtSubject, JwtProblem> {
        self.issuer.verify(token.as_bytes(), &[AUDIENCE.to_owned()]).await
    }
}

fn is_refused(result: &Result<JwtSubject, JwtProblem>) -> bool {
    matches!(result, Err(JwtProblem::Refused(_)))
}

fn is_forged(result: &Result<JwtSubject, JwtProblem>) -> bool {
    *result == Err(JwtProblem::Forged)
}

#[tokio::test]
async fn a_token_says_whom_it_is_about() {
    let signer = Signer::rs256("r");
    let scene = Scene::start(&signer).await;
    let claims = scene.claims(json!({"preferred_username": "ann", "groups": ["eng"], "azp": "cursor"}));
    let subject = scene.verify(&signer.sign(&claims)).await.unwrap();
    let expected = JwtSubject {
        subject: "u1".into(),
        groups: Some(vec!["eng".into()]),
        username: "ann".into(),
        is_app: false,
        issued_at: Some(START),
        counts_until: START + 360,
    };
    assert_eq!(subject, expected);
    let bare = scene.verify(&signer.sign(&scene.claims(json!({})))).await.unwrap();
    assert_eq!((bare.groups, bare.username.as_str()), (None, "u1"));
    let header = json!({"alg": "RS256", "kid": "r", "typ": "application/AT+JWT"});
    assert!(scene.verify(&signer.sign_as(&header, &scene.claims(json!({"typ": "Bearer"})))).await.is_ok());
    assert_eq!(scene.idp.asked("/keys").len(), 1);
    assert_eq!(scene.idp.asked("/.well-known/openid-configuration").len(), 1);
}

#[tokio::test]
async fn tokens_of_applications_are_known_as_such() {
    let signer = Signer::es256("e");
    let scene = Scene::start(&signer).await;
    for app in [
        json!({"idtyp": "app"}),
        json!({"gty": "client-credentials"}),
        json!({"client_id": "u1"}),
        json!({"azp": "u1"}),
    ] {
        let subject = scene.verify(&signer.sign(&scene.claims(app))).await.unwrap();
        assert!(subject.is_app && subject.subject == "u1");
    }
    let person = scene.claims(json!({"idtyp": "user", "gty": "password", "client_id": "x", "azp": "x"}));
    assert!(!scene.verify(&signer.sign(&person)).await.unwrap().is_app);
}

#[tokio::test]
async fn tokens_that_are_not_access_tokens_for_us_are_refused() {
    let signer = Signer::es256("e");
    let scene = Scene::start(&signer).await;
    for wrong in [
        json!({"aud": "https://gate.example"}),
        json!({"aud": Value::Null}),
        json!({"nonce": "n"}),
        json!({"at_hash": "h"}),
        json!({"typ": "ID"}),
        json!({"typ": "Refresh"}),
        json!({"typ": 7}),
        json!({"cnf": {"jkt": "k"}}),
        json!({"nbf": START + 61}),
        json!({"iat": START + 61}),
        json!({"sub": ""}),
        json!({"sub": Value::Null}),
        json!({"exp": Value::Null}),
        json!({"hasgroups": true}),
        json!({"groups": {"eng": {}}}),
    ] {
        let result = scene.verify(&signer.sign(&scene.claims(wrong.clone()))).await;
        assert!(is_refused(&result), "{wrong}: {result:?}");
    }
    for typ in ["logout+jwt", "secevent+jwt", "dpop+jwt"] {
        let header = json!({"alg": "ES256", "kid": "e", "typ": typ});
        assert!(is_refused(&scene.verify(&signer.sign_as(&header, &scene.claims(json!({})))).await));
    }
    let result = scene.issuer.verify(signer.sign(&scene.claims(json!({}))).as_bytes(), &[]).await;
    assert!(is_refused(&result));
}

#[tokio::test]
async fn foreign_and_expired_tokens_are_told_apart_from_forged_ones() {
    let signer = Signer::es256("e");
    let scene = Scene::start(&signer).await;
    let other = signer.sign(&scene.claims(json!({"iss": "https://other.example"})));
    for foreign in ["tga_abc", "", "a.b.c", &other, &scene.idp.url] {
        assert_eq!(scene.verify(foreign).await, Err(JwtProblem::Foreign), "{foreign}");
        assert!(!scene.issuer.looks_like_ours(foreign.as_bytes()));
    }
    // Nothing was asked for these.
    assert!(scene.idp.asked("/keys").is_empty());
    let token = signer.sign(&scene.claims(json!({})));
    assert!(scene.issuer.looks_like_ours(token.as_bytes()));
    assert!(scene.verify(&token).await.is_ok());
    scene.clock.advance(Duration::from_secs(359));
    assert!(scene.verify(&token).await.is_ok());
    scene.clock.advance(Duration::from_secs(1));
    assert_eq!(scene.verify(&token).await, Err(JwtProblem::Expired));
    let forged = Signer::es256("e").sign(&scene.claims(json!({})));
    assert_eq!(scene.verify(&forged).await, Err(JwtProblem::Forged));
}

#[tokio::test]
async fn an_unknown_key_is_looked_for_at_most_once_in_ten_seconds() {
    let (old, new) = (Signer::es256("old"), Signer::eddsa("new"));
    let scene = Scene::start(&old).await;
    let claims = scene.claims(json!({}));
    assert!(scene.verify(&old.sign(&claims)).await.is_ok());
    let token = new.sign(&claims);
    let all = futures_of(&scene, &token, 20).await;
    assert!(all.iter().all(is_forged));
    // The keys were fetched a moment ago.
    assert_eq!(scene.idp.asked("/keys").len(), 1);
    scene.clock.advance(Duration::from_secs(10));
    assert!(futures_of(&scene, &token, 20).await.iter().all(is_forged));
    assert_eq!(scene.idp.asked("/keys").len(), 2);
    scene.idp.answer("/keys", key_set(&[&old, &new]));
    assert!(is_forged(&scene.verify(&token).await));
    scene.clock.advance(Duration::from_secs(10));
    assert!(futures_of(&scene, &token, 20).await.iter().all(Result::is_ok));
    assert_eq!(scene.idp.asked("/keys").len(), 3);
    assert!(scene.verify(&old.sign(&claims)).await.is_ok());
}

async fn futures_of(scene: &Scene, token: &str, count: usize) -> Vec<Result<JwtSubject, JwtProblem>> {
    // Polled together on one task: all of them wait at the same time.
    let mut waiting: Vec<_> = (0..count).map(|_| Box::pin(scene.verify(token))).collect();
    let mut done = Vec::new();
    std::future::poll_fn(|context| {
        waiting.retain_mut(|verify| match verify.as_mut().poll(context) {
            std::task::Poll::Ready(result) => {
                done.push(result);
                false
            }
            std::task::Poll::Pending => true,
        });
        if waiting.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done
}

#[tokio::test]
async fn known_keys_stay_while_the_issuer_is_down() {
    let signer = Signer::es256("e");
    let scene = Scene::start(&signer).await;
    let claims = scene.claims(json!({"exp": START + 100_000}));
    let token = signer.sign(&claims);
    assert!(scene.verify(&token).await.is_ok());
    scene.idp.fail("/keys", 503, json!({}));
    scene.clock.advance(Duration::from_secs(7200));
    assert!(scene.verify(&token).await.is_ok());
    // A new key cannot be known now, which is no fault of the token.
    let unknown = Signer::es256("f").sign(&claims);
    scene.clock.advance(Duration::from_secs(10));
    assert!(matches!(scene.verify(&unknown).await, Err(JwtProblem::Unavailable(_))));
    assert!(scene.verify(&token).await.is_ok());
}

#[tokio::test]
async fn an_issuer_that_is_down_heals_by_itself() {
    let signer = Signer::es256("e");
    let scene = Scene::start(&signer).await;
    let token = signer.sign(&scene.claims(json!({})));
    scene.idp.fail("/.well-known/openid-configuration", 503, json!({}));
    assert!(matches!(scene.verify(&token).await, Err(JwtProblem::Unavailable(_))));
    scene.idp.publish(|_| {});
    // The failure is remembered for a moment.
    assert!(matches!(scene.verify(&token).await, Err(JwtProblem::Unavailable(_))));
    assert_eq!(scene.idp.asked("/.well-known/openid-configuration").len(), 1);
    scene.clock.advance(Duration::from_secs(10));
    assert!(scene.verify(&token).await.is_ok());
}

#[tokio::test]
async fn an_authorization_server_without_openid_is_an_issuer_too() {
    let signer = Signer::es256("e");
    let (idp, clock) = (FakeIdp::start(&signer).await, clock());
    let name = format!("{}/tenant", idp.url);
    let metadata = json!({"issuer": name, "jwks_uri": format!("{}/keys", idp.url)});
    idp.answer("/.well-known/oauth-authorization-server/tenant", metadata);
    let issuer = JwtIssuer::new(&name, PersonClaims::default(), Tls::default(), clock.clone());
    let claims = json!({"iss": name, "sub": "u1", "aud": ["x", AUDIENCE], "exp": START + 300});
    let result = issuer.verify(signer.sign(&claims).as_bytes(), &[AUDIENCE.to_owned()]).await;
    assert_eq!(result.unwrap().subject, "u1");
}
