//! TLS to the program under test: a certificate for `localhost` with its key, and a client that trusts it.

use std::sync::{Arc, LazyLock};

use anyhow::{Context, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The certificate and its key, as PEM.
pub const CERTIFICATE: &[u8] = include_bytes!("../../tests/it/support/tls/first.cert.pem");
pub const KEY: &[u8] = include_bytes!("../../tests/it/support/tls/first.key.pem");

/// The error of a connection that ends during its handshake.
pub const NO_SESSION: &str = "no TLS session";

static CLIENT: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::from_pem_slice(CERTIFICATE));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
});

/// Makes a TLS session of a connection.
pub async fn connect(stream: TcpStream) -> Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("localhost")?;
    TlsConnector::from(CLIENT.clone()).connect(name, stream).await.context(NO_SESSION)
}
