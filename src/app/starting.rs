//! Answers requests while the gateway starts, which may take long: it waits for a database server, or migrates its tables. It
//! tells that the process is alive and not ready; every other request is refused. A connection carries one request.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body as RouterBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::front;
use super::in_use::{HEAD_TIME, READ_BUFFER};
use super::stream::ClientStream;
use super::tls::Tls;
use crate::http::{body, system};
use budget::Budgets;

/// How long a connection may take, from its first byte.
const ANSWERING: Duration = HEAD_TIME.saturating_mul(2);
/// How long no connection is accepted after an error.
const PAUSE: Duration = Duration::from_millis(100);

/// A new connection, on which nothing was read, and the address of its client.
pub type NewConnection = (TcpStream, IpAddr);

/// The tasks that answer; they end when this is dropped.
pub struct Starting {
    _tasks: JoinSet<()>,
    started: CancellationToken,
    unused: mpsc::UnboundedReceiver<NewConnection>,
}

/// What the tasks share.
#[derive(Clone)]
struct Answering {
    tls: Option<Arc<Tls>>,
    budgets: Budgets,
    started: CancellationToken,
    unused: mpsc::UnboundedSender<NewConnection>,
}

impl Starting {
    /// Begins to accept connections.
    pub fn begin(listeners: &[Arc<TcpListener>], tls: Option<Arc<Tls>>, budgets: Budgets) -> Self {
        let (sender, unused) = mpsc::unbounded_channel();
        let started = CancellationToken::new();
        let answering = Answering { tls, budgets, started: started.clone(), unused: sender };
        let mut tasks = JoinSet::new();
        for listener in listeners {
            tasks.spawn(answering.clone().accept(listener.clone()));
        }
        Self { _tasks: tasks, started, unused }
    }

    /// Accepts no more connections. Requests that have arrived are still answered.
    pub fn end(&self) {
        self.started.cancel();
    }

    /// The next connection that was accepted before the end and has not sent anything until then. `None` after the last one.
    pub async fn next_unused(&mut self) -> Option<NewConnection> {
        self.unused.recv().await
    }
}

impl Answering {
    async fn accept(self, listener: Arc<TcpListener>) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = self.started.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((socket, peer)) => {
                        connections.spawn(self.clone().serve(socket, peer.ip().to_canonical()));
                    }
                    Err(error) => {
                        tracing::error!(%error, "cannot accept connections");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
            }
        }
        drop((self, listener));
        connections.join_all().await;
    }

    async fn serve(self, socket: TcpStream, peer: IpAddr) {
        // Closed without an answer: most likely the others do not want one either.
        let Ok(place) = self.budgets.connections.take(1) else { return };
        let stream = ClientStream::Plain(socket);
        let arrived = tokio::select! {
            biased;
            arrived = stream.first_byte() => Some(arrived),
            () = self.started.cancelled() => None,
        };
        match (arrived, stream) {
            (Some(Ok(())), stream) if !self.started.is_cancelled() => {
                let _ = tokio::time::timeout(ANSWERING, self.answer(stream)).await;
            }
            (Some(Ok(())) | None, ClientStream::Plain(socket)) => {
                drop(place);
                let _ = self.unused.send((socket, peer));
            }
            (Some(_) | None, _) => {}
        }
    }

    async fn answer(&self, stream: ClientStream) {
        let Ok(_buffer) = self.budgets.buffered.take(READ_BUFFER as u64) else { return };
        let stream = match &self.tls {
            Some(tls) => tls.accept(stream, &self.budgets.buffered).await,
            None => Ok(stream),
        };
        let served = match stream {
            Ok(stream) => {
                let mut builder = http1::Builder::new();
                builder.keep_alive(false).max_buf_size(READ_BUFFER);
                builder.serve_connection(TokioIo::new(stream), service_fn(refuse)).await
            }
            Err(error) => {
                tracing::debug!(%error, "TLS handshake failed");
                return;
            }
        };
        if let Err(error) = served {
            tracing::debug!(%error, "connection ended early");
        }
    }
}

async fn refuse(request: Request<Incoming>) -> Result<Response<RouterBody>, Infallible> {
    let (head, body) = request.into_parts();
    body::discard(body, 0).await;
    let mut response = system::answer_while_starting(&head.method, head.uri.path());
    front::add_headers(response.headers_mut());
    front::close_after(response.headers_mut());
    Ok(response)
}
