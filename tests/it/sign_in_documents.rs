//! Software whose client id is the URL of its metadata document, with and without keys of its own.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::support::keys::{private_key, public_keys, signed_jwt, stored};
use crate::support::person::{ISSUER, Person, Software, parameter, tokens_in};
use crate::support::{Process, TestApp, bearer};

/// An https server with documents by path.
struct DocumentServer {
    port: u16,
    documents: Arc<Mutex<HashMap<String, (u16, String)>>>,
}

impl DocumentServer {
    async fn start() -> Self {
        let certificate = CertificateDer::from_pem_file(stored("first.cert.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], private_key())
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let documents: Arc<Mutex<HashMap<String, (u16, String)>>> = Arc::default();
        let served = documents.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, served) = (acceptor.clone(), served.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                        let found = served.lock().unwrap().get(request.uri().path()).cloned();
                        let (status, body) = found.unwrap_or((404, String::new()));
                        let response = Response::builder().status(status).header("location", "/good.json");
                        let response = response.body(Full::new(Bytes::from(body))).unwrap();
                        async move { Ok::<_, Infallible>(response) }
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { port, documents }
    }

    /// Publishes a document, and returns its URL. `more` adds to it or replaces fields.
    fn publish(&self, path: &str, status: u16, more: Value) -> String {
        let url = format!("https://localhost:{}{path}", self.port);
        let mut document = json!({ "client_id": url, "client_name": "Documented agent",
            "redirect_uris": ["https://localhost/cb", "http://localhost:1/cb"] });
        document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.documents.lock().unwrap().insert(path.to_owned(), (status, document.to_string()));
        url
    }
}

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
    server.documents.lock().unwrap().clear();
    hosted.refresh(&app, &refresh, &[]).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_break_a_rule_lead_to_a_page() {
    let (_process, app, person) = start().await;
    let server = DocumentServer::start().await;
    server.publish("/good.json", 200, json!({}));
    for url in [
        server.publish("/other.json", 200, json!({ "client_id": "https://localhost/good.json" })),
        server.publish("/nameless.json", 200, json!({ "client_name": null })),
        server.publish("/secret.json", 200, json!({ "client_secret": "x" })),
        server.publish("/post.json", 200, json!({ "token_endpoint_auth_method": "client_secret_post" })),
        server.publish("/nowhere.json", 200, json!({ "redirect_uris": ["http://evil.example/cb"] })),
        server.publish("/foreign.json", 200, json!({ "redirect_uris": ["https://evil.example/cb"] })),
        server.publish("/large.json", 200, json!({ "x": "x".repeat(70_000) })),
        server.publish("/moved.json", 302, json!({})),
        server.publish("/error.json", 500, json!({})),
        format!("https://localhost:{}/missing.json", server.port),
        format!("https://127.0.0.1:{}/good.json", server.port),
        format!("https://localhost:{}/x/../good.json", server.port),
        format!("http://localhost:{}/good.json", server.port),
        format!("https://localhost:{}/", server.port),
        "https://localhost:1/closed.json".to_owned(),
    ] {
        let asked = software(url.clone(), "https://localhost/cb");
        let page = person.open(&app, &format!("/authorize?{}", asked.query(&[]))).await.expect(400);
        assert!(page.text().contains("wrong client_id"), "{url}: {}", page.text());
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
