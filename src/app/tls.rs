//! TLS for clients: the certificate and its key, read from files at the start and again whenever these change.

use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use budget::Budget;

use super::stream::{ClientStream, RecordCounter};
use crate::config::TlsFiles;

/// Interval of the check whether the files have changed.
const LOOK: Duration = Duration::from_secs(5);

/// Accepts TLS connections with the current certificate.
pub struct Tls {
    acceptor: TlsAcceptor,
    files: TlsFiles,
    current: Arc<Current>,
    provider: Arc<CryptoProvider>,
}

/// The certificate that new connections get. The content of the files is kept to notice changes.
#[derive(Debug)]
struct Current(RwLock<(Arc<CertifiedKey>, Arc<Contents>)>);

type Contents = [Result<Vec<u8>, String>; 2];

impl Tls {
    /// Reads the files. The error names the one that is wrong.
    pub fn load(files: &TlsFiles) -> anyhow::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let contents = read(files);
        let pair = parse(files, &contents, &provider)?;
        let current = Arc::new(Current(RwLock::new((Arc::new(pair), Arc::new(contents)))));
        let mut config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { acceptor: Arc::new(config).into(), files: files.clone(), current, provider })
    }

    /// Runs the handshake on a new connection. Its messages are kept until they are complete, and are charged as they
    /// arrive.
    pub async fn accept(&self, stream: ClientStream, budget: &Budget) -> std::io::Result<ClientStream> {
        let ClientStream::Plain(socket) = stream else { return Ok(stream) };
        let charge = budget.take(0).map_err(std::io::Error::other)?;
        let mut stream = self.acceptor.accept(RecordCounter::new(socket, charge)).await?;
        stream.get_mut().0.end_handshake();
        Ok(ClientStream::Tls(Box::new(stream)))
    }

    /// Reads the files again when they change, until a shutdown. If they cannot be used, the last good pair stays.
    pub async fn follow(self: Arc<Self>, shutdown: CancellationToken) {
        while shutdown.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
            let tls = self.clone();
            // Files may be on a network.
            let _ = tokio::task::spawn_blocking(move || tls.look()).await;
        }
    }

    fn look(&self) {
        let contents = read(&self.files);
        let (pair, known) = self.current.get();
        if contents == *known {
            return;
        }
        let pair = match parse(&self.files, &contents, &self.provider) {
            Ok(pair) => {
                tracing::info!("the TLS certificate was read again");
                Arc::new(pair)
            }
            Err(error) => {
                tracing::error!("the last good TLS certificate stays in use: {error:#}");
                pair
            }
        };
        *self.current.0.write().expect("no code panics while it holds the pair") = (pair, Arc::new(contents));
    }
}

impl Current {
    fn get(&self) -> (Arc<CertifiedKey>, Arc<Contents>) {
        self.0.read().expect("no code panics while it holds the pair").clone()
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get().0)
    }
}

fn read(files: &TlsFiles) -> Contents {
    [&files.certificate, &files.key].map(|path| std::fs::read(path).map_err(|error| error.to_string()))
}

fn parse(files: &TlsFiles, contents: &Contents, provider: &CryptoProvider) -> anyhow::Result<CertifiedKey> {
    let [certificate, key] = contents;
    let named = |variable: &'static str, path: &Path| format!("{variable} ({})", path.display());
    let certificate_file = || named("TLS_CERT_FILE", &files.certificate);
    let key_file = || named("TLS_KEY_FILE", &files.key);
    let unreadable = |error: &String| anyhow!("cannot be read: {error}");
    let certificate = certificate.as_ref().map_err(unreadable).with_context(certificate_file)?;
    let key = key.as_ref().map_err(unreadable).with_context(key_file)?;
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| anyhow!("is not PEM: {error}")).with_context(certificate_file)?;
    if chain.is_empty() {
        bail!("{}: there is no certificate in it", certificate_file());
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
        pem::Error::NoItemsFound => anyhow!("there is no private key in it"),
        error => anyhow!("is not PEM: {error}"),
    });
    let key = key.with_context(key_file)?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            anyhow!("the key in {} does not belong to the certificate in {}", key_file(), certificate_file())
        }
        rustls::Error::InvalidCertificate(_) => anyhow!("{}: {error}", certificate_file()),
        error => anyhow!("{}: {error}", key_file()),
    })
}
