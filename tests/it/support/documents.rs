//! An https server on loopback with documents that software publishes about itself.

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
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::keys::{private_key, stored};

/// Status and body by path.
type Documents = Arc<Mutex<HashMap<String, (u16, String)>>>;

/// An https server with documents by path.
pub struct DocumentServer {
    pub port: u16,
    documents: Documents,
}

impl DocumentServer {
    pub async fn start() -> Self {
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
        let documents = Documents::default();
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
    pub fn publish(&self, path: &str, status: u16, more: Value) -> String {
        let url = format!("https://localhost:{}{path}", self.port);
        let mut document = json!({ "client_id": url, "client_name": "Documented agent",
            "redirect_uris": ["https://localhost/cb", "http://localhost:1/cb"] });
        document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.documents.lock().unwrap().insert(path.to_owned(), (status, document.to_string()));
        url
    }

    /// Publishes anything else, and returns its URL.
    pub fn put(&self, path: &str, body: &Value) -> String {
        self.documents.lock().unwrap().insert(path.to_owned(), (200, body.to_string()));
        format!("https://localhost:{}{path}", self.port)
    }

    /// Takes everything back.
    pub fn clear(&self) {
        self.documents.lock().unwrap().clear();
    }
}
