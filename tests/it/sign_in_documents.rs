//! Software whose client id is the URL of its metadata document, with and without keys of its own.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::keys::{public_keys, signed_jwt, stored};
use crate::support::person::{ISSUER, Person, Software, parameter, tokens_in};
use crate::support::{DocumentServer, Process, TestApp, bearer};

/// A gateway that trusts the certificate of the tests.
async fn start() -> (Process, TestApp, Person) {
    let certificates = stored("first.cert.pem");
    let process = Process::start_in(
        TempDir::new().unwrap(),
        &[
            ("SERVER_MODE", "enterprise"),
            ("HOST", "127.0.0.1"),
            ("PUBLIC_URL", ISSUER),
            ("OAUTH_CLIENT_HOSTS", "localhost, *.example.com"),
            ("SSL_CERT_FILE", certificates.to_str().unwrap()),
        ],
    )
    .await;
    let mut app = TestApp::elsewhere(&process.address, None);
    let admin = app.post("/init", json!({})).await.expect(200).json();
    app.authorization = Some(bearer(admin["admin_access_token"].as_str().unwrap()));
    let person = app.sign_in_user("ann").await;
    (process, app, person)
}

fn software(client_id: String, redirect_uri: &str) -> Software {
    Software { client_id, secret: None, redirect_uri: redirect_uri.to_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_proves_its_host_on_the_way_of_an_agent() {
    let (_process, app, person) = start().await;
    let server = DocumentServer::start().await;
    let hosted = software(server.publish("/good.json", 200, json!({})), "https://localhost/cb");
    let page = person.open(&app, &format!("/authorize?{}", hosted.query(&[]))).await.expect(200).text();
    assert!(page.contains("Documented agent") && page.contains("Proven by localhost"), "{page}");
    assert!(!page.contains("class=\"note\""), "{page}");
    let (_, refresh) = hosted.tokens(&app, &person, &[]).await;
    // A program on the person's machine could use the same document.
    let local = software(hosted.client_id.clone(), "http://localhost:7000/cb");
    let page = person.open(&app, &format!("/authorize?{}", local.query(&[]))).await.expect(200).text();
    assert!(page.contains("but not proven") && page.contains("any program there"), "{page}");
    // The grant goes on without the document.
    server.clear();
    hosted.refresh(&app, &refresh, &[]).await.expect(200);
}

/// What the page says about a document that breaks a rule, and about one that the gateway does not get.
const WRONG: &str = "wrong client_id";
const NOT_FETCHED: &str = "The metadata document of the program that sent you here cannot be fetched";

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_break_a_rule_lead_to_a_page() {
    let (_process, app, person) = start().await;
    let server = DocumentServer::start().await;
    server.publish("/good.json", 200, json!({}));
    let published = |path: &str, status: u16, members: Value| server.publish(path, status, members);
    let at = |place: &str| format!("https://localhost:{}{place}", server.port);
    for (url, reason) in [
        (published("/other.json", 200, json!({ "client_id": "https://localhost/good.json" })), WRONG),
        (published("/nameless.json", 200, json!({ "client_name": null })), WRONG),
        (published("/secret.json", 200, json!({ "client_secret": "x" })), WRONG),
        (published("/post.json", 200, json!({ "token_endpoint_auth_method": "client_secret_post" })), WRONG),
        (published("/nowhere.json", 200, json!({ "redirect_uris": ["http://evil.example/cb"] })), WRONG),
        (published("/foreign.json", 200, json!({ "redirect_uris": ["https://evil.example/cb"] })), WRONG),
        (published("/large.json", 200, json!({ "x": "x".repeat(70_000) })), NOT_FETCHED),
        (published("/moved.json", 302, json!({})), NOT_FETCHED),
        (published("/error.json", 500, json!({})), NOT_FETCHED),
        (at("/missing.json"), NOT_FETCHED),
        (format!("https://127.0.0.1:{}/good.json", server.port), WRONG),
        (at("/x/../good.json"), WRONG),
        (format!("http://localhost:{}/good.json", server.port), WRONG),
        (at("/"), WRONG),
        ("https://localhost:1/closed.json".to_owned(), NOT_FETCHED),
    ] {
        let asked = software(url.clone(), "https://localhost/cb");
        let page = person.open(&app, &format!("/authorize?{}", asked.query(&[]))).await.expect(400);
        assert!(page.text().contains(reason), "{url}: {}", page.text());
        // What the network is like is nobody's business.
        assert!(!page.text().contains("error") && !page.text().contains("refused"), "{url}: {}", page.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn software_with_keys_signs_its_requests() {
    let (_process, app, person) = start().await;
    let server = DocumentServer::start().await;
    let keys = json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks": public_keys() });
    let asked = software(server.publish("/keys.json", 200, keys), "https://localhost/cb");
    let id = asked.client_id.clone();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let good = json!({ "iss": id, "sub": id, "aud": ISSUER, "exp": now + 60, "iat": now, "jti": "1" });
    let kind = ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
    let answer = person.decide(&app, &asked.query(&[]), "allow").await;
    let code = parameter(&answer, "code").unwrap();
    let redeem =
        async |assertion: &str| asked.redeem(&app, &code, &[kind, ("client_assertion", assertion)]).await;
    let refused = asked.redeem(&app, &code, &[]).await.expect(401).json();
    assert_eq!(refused["error"], "invalid_client");
    for (claim, value) in [
        ("aud", json!("https://evil.example")),
        ("sub", json!("https://evil.example/client.json")),
        ("iss", json!("https://evil.example/client.json")),
        ("exp", json!(now - 3600)),
        ("exp", json!(now + 100_000)),
        ("exp", json!(null)),
    ] {
        let mut claims = good.clone();
        claims[claim] = value;
        assert_eq!(
            redeem(&signed_jwt(&claims)).await.expect(401).json()["error"],
            "invalid_client",
            "{claims}"
        );
    }
    let signed = signed_jwt(&good);
    let (head, signature) = signed.rsplit_once('.').unwrap();
    for forged in [format!("{head}."), format!("{head}.{}", "A".repeat(signature.len())), "x.y.z".to_owned()]
    {
        redeem(&forged).await.expect(401);
    }
    let (_, refresh) = tokens_in(&redeem(&signed).await.expect(200));
    asked.refresh(&app, &refresh, &[]).await.expect(401);
    let mut audience = good.clone();
    audience["aud"] = json!([format!("{ISSUER}/token")]);
    let again = signed_jwt(&audience);
    asked.refresh(&app, &refresh, &[kind, ("client_assertion", &again)]).await.expect(200);
}
