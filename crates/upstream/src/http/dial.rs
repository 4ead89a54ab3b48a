//! Opens one connection to an origin, with TLS for `https`.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::Url;

const DIAL_LIMIT: Duration = Duration::from_secs(15);

/// The TLS settings of this gateway, created when the first `https` upstream needs them.
#[derive(Clone, Default)]
pub struct Tls(Arc<OnceLock<Arc<ClientConfig>>>);

impl Tls {
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

/// A connection that takes one request at a time. It makes progress only inside [`Connection::drive`], which the task
/// that uses it awaits: this saves a task per connection and switching to it and back.
pub struct Connection {
    pub sender: SendRequest<Full<Bytes>>,
    /// The address of the other side.
    pub peer: Option<IpAddr>,
    driver: Driver,
}

type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Connection {
    /// Runs `work` and drives the connection meanwhile.
    pub async fn drive<T>(&mut self, work: impl AsyncFnOnce(&mut SendRequest<Full<Bytes>>) -> T) -> T {
        let Self { sender, driver, .. } = self;
        let work = work(sender);
        tokio::pin!(work);
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(done);
            }
            // The connection made progress or ended, so the work may be ready now.
            if driver.as_mut().poll(context).is_ready() {
                *driver = Box::pin(std::future::pending());
            }
            work.as_mut().poll(context)
        })
        .await
    }

    /// Whether the connection is still open. Polls it, since the upstream may have closed it meanwhile.
    pub fn is_open(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.driver.as_mut().poll(&mut context).is_pending() && !self.sender.is_closed()
    }
}

/// Opens a connection. The error does not contain the URL: the caller adds it without secrets.
pub async fn dial(url: &Url, tls: &Tls) -> Result<Connection, String> {
    let host = url.host_str().unwrap_or_default();
    let bare_host = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or(80);
    let connect = async {
        let stream = TcpStream::connect((bare_host, port)).await.map_err(|error| error.to_string())?;
        // A request is one write; waiting for more to send would only delay it.
        let _ = stream.set_nodelay(true);
        let peer = stream.peer_addr().ok().map(|peer| peer.ip());
        if url.scheme() != "https" {
            return handshake(stream, peer).await;
        }
        let name = ServerName::try_from(bare_host.to_owned()).map_err(|error| error.to_string())?;
        let stream = tls.connector().connect(name, stream).await.map_err(|error| format!("TLS: {error}"))?;
        handshake(stream, peer).await
    };
    match tokio::time::timeout(DIAL_LIMIT, connect).await {
        Ok(result) => result,
        Err(_) => Err(format!("no connection within {} s", DIAL_LIMIT.as_secs())),
    }
}

async fn handshake<S>(stream: S, peer: Option<IpAddr>) -> Result<Connection, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = Builder::new().handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|error| error.to_string())?;
    let driver = Box::pin(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "an upstream connection ended");
        }
    });
    Ok(Connection { sender, peer, driver })
}
