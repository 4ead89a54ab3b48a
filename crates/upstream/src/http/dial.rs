//! Opens one connection to an origin, with TLS for `https`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::Url;

use super::connection::{Connection, Security};
use super::stream::ServerStream;

const DIAL_LIMIT: Duration = Duration::from_secs(15);

/// The TLS settings of this gateway, created when the first `https` upstream needs them.
#[derive(Clone, Default)]
pub struct Tls(Arc<OnceLock<Arc<ClientConfig>>>);

impl Tls {
    /// Other settings than those of the system.
    #[cfg(test)]
    pub fn of(config: ClientConfig) -> Self {
        Self(Arc::new(OnceLock::from(Arc::new(config))))
    }

    fn connector(&self) -> TlsConnector {
        TlsConnector::from(self.config())
    }

    pub fn config(&self) -> Arc<ClientConfig> {
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
        config.clone()
    }
}

/// Opens a connection. The error does not contain the URL: the caller adds it without secrets.
pub async fn dial(url: &Url, tls: &Tls) -> Result<Box<Connection>, String> {
    let host = url.host_str().unwrap_or_default();
    let bare_host = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or(80);
    let connect = async {
        let stream = TcpStream::connect((bare_host, port)).await.map_err(|error| error.to_string())?;
        // A request is one write; waiting for more to send would only delay it.
        let _ = stream.set_nodelay(true);
        let peer = stream.peer_addr().ok().map(|peer| peer.ip());
        if url.scheme() != "https" {
            return Ok(Connection::new(ServerStream::Plain(stream), Security::Plain, peer));
        }
        let name = ServerName::try_from(bare_host.to_owned()).map_err(|error| error.to_string())?;
        let stream = tls.connector().connect(name, stream).await.map_err(|error| format!("TLS: {error}"))?;
        Ok(Connection::new(ServerStream::Tls(Box::new(stream)), Security::Tls, peer))
    };
    match tokio::time::timeout(DIAL_LIMIT, connect).await {
        Ok(result) => result,
        Err(_) => Err(format!("no connection within {} s", DIAL_LIMIT.as_secs())),
    }
}
