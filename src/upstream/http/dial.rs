//! Opens one connection to an origin, with TLS where the scheme asks for it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use url::Url;

const DIAL_LIMIT: Duration = Duration::from_secs(15);

/// The TLS settings of this gateway, made when the first `https` upstream needs them.
#[derive(Clone, Default)]
pub struct Tls(Arc<OnceLock<Arc<ClientConfig>>>);

impl Tls {
    fn connector(&self) -> TlsConnector {
        let config = self.0.get_or_init(|| {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("ring supports the default versions")
                .with_root_certificates(roots)
                .with_no_client_auth();
            Arc::new(config)
        });
        TlsConnector::from(config.clone())
    }
}

/// A connection that takes one request at a time.
pub struct Connection {
    pub sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Err is what went wrong, without the URL: the caller knows how to name it.
pub async fn dial(url: &Url, tls: &Tls) -> Result<Connection, String> {
    let host = url.host_str().unwrap_or_default();
    let bare_host = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or(80);
    let connect = async {
        let stream = TcpStream::connect((bare_host, port)).await.map_err(|error| error.to_string())?;
        // A request is one write; waiting for more to send would only delay it.
        let _ = stream.set_nodelay(true);
        if url.scheme() != "https" {
            return handshake(stream).await;
        }
        let name = ServerName::try_from(bare_host.to_owned()).map_err(|error| error.to_string())?;
        let stream = tls.connector().connect(name, stream).await.map_err(|error| format!("TLS: {error}"))?;
        handshake(stream).await
    };
    match tokio::time::timeout(DIAL_LIMIT, connect).await {
        Ok(result) => result,
        Err(_) => Err(format!("no connection within {} s", DIAL_LIMIT.as_secs())),
    }
}

async fn handshake<S>(stream: S) -> Result<Connection, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = Builder::new().handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|error| error.to_string())?;
    let driver = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "an upstream connection ended");
        }
    });
    Ok(Connection { sender, driver: driver.abort_handle() })
}
