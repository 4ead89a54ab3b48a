//! A fake identity provider: an HTTP server on loopback that answers each path with what a test wants, and records what it
//! was asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::signer::{Signer, key_set};
use crate::Tls;
use model::WallClock;

/// 17 November 2026.
pub const START: u64 = 1_794_909_600;

pub struct FakeIdp {
    /// Its address, without a slash at the end.
    pub url: String,
    state: Arc<Mutex<FakeState>>,
    _server: JoinSet<()>,
}

#[derive(Default)]
struct FakeState {
    answers: HashMap<String, FakeAnswer>,
    requests: Vec<RecordedRequest>,
}

#[derive(Clone)]
pub struct FakeAnswer {
    status: u16,
    headers: String,
    body: String,
}

#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub path: String,
    /// In lower case.
    pub head: String,
    pub body: String,
}

/// A clock that stands still, so that tests can be exact.
pub fn clock() -> WallClock {
    WallClock::stopped_at(START)
}

impl FakeIdp {
    /// An OpenID provider with one key.
    pub async fn start(signer: &Signer) -> Self {
        let idp = Self::listen(None).await;
        idp.publish(|_| {});
        idp.answer("/keys", key_set(&[signer]));
        idp
    }

    /// A web server with TLS at `localhost`, and the settings that trust it.
    pub async fn start_with_tls() -> (Self, Tls) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/it/support/tls");
        let certificate = CertificateDer::from_pem_file(format!("{folder}/first.cert.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(format!("{folder}/first.key.pem")).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider.clone());
        let client = client.with_safe_default_protocol_versions().unwrap();
        let client = client.with_root_certificates(roots).with_no_client_auth();
        let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let server = server.unwrap().with_no_client_auth().with_single_cert(vec![certificate], key);
        let idp = Self::listen(Some(TlsAcceptor::from(Arc::new(server.unwrap())))).await;
        (idp, Tls::of(client))
    }

    async fn listen(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = match tls {
            Some(_) => format!("https://localhost:{port}"),
            None => format!("http://127.0.0.1:{port}"),
        };
        let state: Arc<Mutex<FakeState>> = Arc::default();
        let (served, mut server) = (state.clone(), JoinSet::new());
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (state, tls) = (served.clone(), tls.clone());
                connections.spawn(async move {
                    match tls {
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &state).await;
                            }
                        }
                        None => serve(stream, &state).await,
                    }
                });
            }
        });
        Self { url, state, _server: server }
    }

    /// Publishes metadata, changed by `change`.
    pub fn publish(&self, change: impl FnOnce(&mut Value)) {
        let url = &self.url;
        let mut metadata = json!({
            "issuer": url,
            "authorization_endpoint": format!("{url}/authorize?tenant=1"),
            "token_endpoint": format!("{url}/token"),
            "userinfo_endpoint": format!("{url}/userinfo"),
            "jwks_uri": format!("{url}/keys"),
        });
        change(&mut metadata);
        self.answer("/.well-known/openid-configuration", metadata);
    }

    pub fn answer(&self, path: &str, body: Value) {
        self.answer_with(path, 200, "", &body.to_string());
    }

    pub fn fail(&self, path: &str, status: u16, body: Value) {
        self.answer_with(path, status, "", &body.to_string());
    }

    /// `headers` are lines, each with its line end.
    pub fn answer_with(&self, path: &str, status: u16, headers: &str, body: &str) {
        let answer = FakeAnswer { status, headers: headers.to_owned(), body: body.to_owned() };
        self.state.lock().unwrap().answers.insert(path.to_owned(), answer);
    }

    /// What this path was asked so far.
    pub fn asked(&self, path: &str) -> Vec<RecordedRequest> {
        let state = self.state.lock().unwrap();
        state.requests.iter().filter(|request| request.path == path).cloned().collect()
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, state: &Mutex<FakeState>) {
    let mut received = Vec::new();
    let end = loop {
        if let Some(end) = received.windows(4).position(|part| part == b"\r\n\r\n") {
            break end + 4;
        }
        match stream.read_buf(&mut received).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    };
    let head = String::from_utf8_lossy(&received[..end]).into_owned();
    let length = head.to_ascii_lowercase();
    let length = length.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    while received.len() < end + length.unwrap_or(0) {
        match stream.read_buf(&mut received).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
    let path = head.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let body = String::from_utf8_lossy(&received[end..]).into_owned();
    let answer = {
        let mut state = state.lock().unwrap();
        let answer = state.answers.get(&path).cloned();
        state.requests.push(RecordedRequest { path, head, body });
        answer
    };
    let missing = FakeAnswer { status: 404, headers: String::new(), body: String::new() };
    let FakeAnswer { status, headers, body } = answer.unwrap_or(missing);
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    );
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
}
