//! Documents of OAuth clients, and assertions that are signed with keys in them.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Value, json};
use url::Url;

use super::fake_idp::{FakeIdp, START, clock};
use super::signer::{Signer, key_set};
use crate::sign_in::{AssertionProblem, ClientDocuments, DocumentProblem, ProvenClient};
use model::WallClock;
use model::oauth::{ClientHosts, ClientKeys};

struct Scene {
    web: FakeIdp,
    clock: WallClock,
    documents: ClientDocuments,
}

impl Scene {
    async fn start(hosts: &[&str]) -> Self {
        let (web, tls) = FakeIdp::start_with_tls().await;
        let (clock, hosts) = (clock(), ClientHosts::parse(&hosts.join(", ")).unwrap());
        let documents = ClientDocuments::new(hosts, tls, clock.clone());
        Self { web, clock, documents }
    }

    fn url(&self, path: &str) -> Url {
        Url::parse(&format!("{}{path}", self.web.url)).unwrap()
    }

    async fn fetch(&self, path: &str) -> Result<(String, Duration), DocumentProblem> {
        let fetched = self.documents.fetch(&self.url(path), source()).await?;
        Ok((String::from_utf8(fetched.body.to_vec()).unwrap(), fetched.fresh_for))
    }
}

fn source() -> IpAddr {
    "192.0.2.7".parse().unwrap()
}

fn reason(result: Result<(String, Duration), DocumentProblem>) -> String {
    match result {
        Err(DocumentProblem::Unusable(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_document_is_cached_as_its_headers_say() {
    let scene = Scene::start(&["localhost"]).await;
    scene.web.answer_with("/client", 200, "cache-control: max-age=600\r\n", "one");
    assert_eq!(scene.fetch("/client").await.unwrap(), ("one".into(), Duration::from_secs(600)));
    scene.web.answer("/client", json!("two"));
    scene.clock.advance(Duration::from_secs(599));
    assert_eq!(scene.fetch("/client").await.unwrap(), ("one".into(), Duration::from_secs(1)));
    scene.clock.advance(Duration::from_secs(1));
    assert_eq!(scene.fetch("/client").await.unwrap(), ("\"two\"".into(), Duration::from_secs(300)));
    scene.web.answer("/client", json!("three"));
    scene.documents.forget(&scene.url("/client"));
    assert_eq!(scene.fetch("/client").await.unwrap().0, "\"three\"");
    assert_eq!(scene.web.asked("/client").len(), 3);
}

#[tokio::test]
async fn failures_are_not_cached_and_redirects_are_not_followed() {
    let scene = Scene::start(&["localhost"]).await;
    assert_eq!(reason(scene.fetch("/client").await), "HTTP status 404");
    scene.web.answer_with("/client", 302, &format!("location: {}\r\n", scene.url("/other")), "");
    assert_eq!(reason(scene.fetch("/client").await), "HTTP status 302");
    scene.web.answer_with("/client", 201, "", "{}");
    reason(scene.fetch("/client").await);
    scene.web.answer_with("/client", 200, "", &"x".repeat(64 * 1024 + 1));
    assert!(reason(scene.fetch("/client").await).contains("64 KiB"));
    scene.web.answer_with("/client", 200, "", &"x".repeat(64 * 1024));
    assert!(scene.fetch("/client").await.is_ok());
    assert!(scene.web.asked("/other").is_empty());
}

#[tokio::test]
async fn private_addresses_are_reached_only_if_their_host_is_named() {
    for hosts in [&[][..], &["*.localhost"], &["example.com"]] {
        let scene = Scene::start(hosts).await;
        // The log says why: strangers must not learn which names lead to private addresses.
        assert_eq!(reason(scene.fetch("/client").await), "its server cannot be reached");
        assert!(scene.web.asked("/client").is_empty());
        let port = scene.url("/").port().unwrap();
        for url in [
            format!("https://127.0.0.1:{port}/"),
            format!("https://[::1]:{port}/"),
            "https://10.0.0.1/".to_owned(),
            "https://169.254.169.254/latest".to_owned(),
        ] {
            let result = scene.documents.fetch(&Url::parse(&url).unwrap(), source()).await;
            assert!(matches!(result, Err(DocumentProblem::Unusable(_))), "{url}");
        }
    }
    // Naming one host opens no other, and nothing opens link-local addresses.
    let scene = Scene::start(&["localhost", "169.254.169.254"]).await;
    let port = scene.url("/").port().unwrap();
    for url in [
        format!("https://127.0.0.1:{port}/"),
        "https://169.254.169.254/latest".to_owned(),
        format!("http://localhost:{port}/"),
        format!("https://user@localhost:{port}/"),
    ] {
        let result = scene.documents.fetch(&Url::parse(&url).unwrap(), source()).await;
        assert!(matches!(result, Err(DocumentProblem::Unusable(_))), "{url}");
    }
}

#[tokio::test]
async fn one_source_causes_thirty_fetches_a_minute() {
    let scene = Scene::start(&["localhost"]).await;
    scene.web.answer("/kept", json!({}));
    assert!(scene.fetch("/kept").await.is_ok());
    for number in 1..30 {
        reason(scene.fetch(&format!("/{number}")).await);
    }
    assert_eq!(scene.fetch("/30").await.unwrap_err(), DocumentProblem::TooMany);
    assert!(scene.fetch("/kept").await.is_ok());
    let other = scene.documents.fetch(&scene.url("/30"), "192.0.2.8".parse().unwrap()).await;
    assert!(matches!(other, Err(DocumentProblem::Unusable(_))));
    scene.clock.advance(Duration::from_secs(60));
    reason(scene.fetch("/30").await);
}

fn client(audiences: &[String]) -> ProvenClient<'_> {
    ProvenClient { client_id: "https://agent.example/client", audiences }
}

fn assertion(change: Value) -> Value {
    let id = "https://agent.example/client";
    let mut claims =
        json!({"iss": id, "sub": id, "aud": "https://gate.example/token", "exp": START + 60, "jti": "1"});
    for (name, value) in change.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

#[tokio::test]
async fn an_assertion_is_about_the_client_and_for_us() {
    let scene = Scene::start(&[]).await;
    let audiences = ["https://gate.example".to_owned(), "https://gate.example/token".to_owned()];
    let signer = Signer::es256("e");
    let keys = ClientKeys::Inline(key_set(&[&signer]));
    let verify = async |token: &str| {
        scene.documents.verify_assertion(token.as_bytes(), &keys, &client(&audiences), source()).await
    };
    assert_eq!(verify(&signer.sign(&assertion(json!({})))).await, Ok(()));
    assert_eq!(verify(&signer.sign(&assertion(json!({"aud": ["https://gate.example"]})))).await, Ok(()));
    for wrong in [
        json!({"iss": "https://other.example/client"}),
        json!({"sub": "https://other.example/client"}),
        json!({"aud": "https://gate.example/register"}),
        json!({"aud": Value::Null}),
        json!({"exp": START - 60}),
        json!({"exp": START + 3661}),
        json!({"exp": Value::Null}),
        json!({"nbf": START + 61}),
    ] {
        let result = verify(&signer.sign(&assertion(wrong.clone()))).await;
        assert!(matches!(result, Err(AssertionProblem::Wrong(_))), "{wrong}: {result:?}");
    }
    let forged = Signer::es256("e").sign(&assertion(json!({})));
    assert_eq!(verify(&forged).await, Err(AssertionProblem::UnknownKey));
    assert!(matches!(verify("x").await, Err(AssertionProblem::Wrong(_))));
}

#[tokio::test]
async fn keys_of_a_client_are_fetched_again_for_a_new_one() {
    let scene = Scene::start(&["localhost"]).await;
    let audiences = ["https://gate.example/token".to_owned()];
    let (old, new) = (Signer::es256("old"), Signer::eddsa("new"));
    let keys = ClientKeys::At(scene.url("/keys").into());
    let verify = async |signer: &Signer| {
        let token = signer.sign(&assertion(json!({})));
        scene.documents.verify_assertion(token.as_bytes(), &keys, &client(&audiences), source()).await
    };
    assert!(matches!(verify(&old).await, Err(AssertionProblem::Unavailable(_))));
    scene.web.answer("/keys", key_set(&[&old]));
    assert_eq!(verify(&old).await, Ok(()));
    scene.web.answer("/keys", key_set(&[&new]));
    // Not again within ten seconds.
    assert_eq!(verify(&new).await, Err(AssertionProblem::UnknownKey));
    assert_eq!(scene.web.asked("/keys").len(), 2);
    scene.clock.advance(Duration::from_secs(10));
    assert_eq!(verify(&new).await, Ok(()));
    assert_eq!(verify(&old).await, Err(AssertionProblem::UnknownKey));
    assert_eq!(scene.web.asked("/keys").len(), 3);
}
