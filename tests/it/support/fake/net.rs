//! The listener of the fake upstream and its connections. A test can cut one or all of them at any moment, to simulate
//! a server that dies. The messages on them are in `http` and `sse`.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::http;
use super::state::State;

/// Serves until the state is told to die.
pub async fn serve(listener: TcpListener, state: Arc<State>) -> anyhow::Result<()> {
    let mut dead = state.dead.subscribe();
    let door = Door { listener, state: state.clone() };
    let app = http::router(state.clone()).into_make_service_with_connect_info::<Line>();
    tokio::select! {
        served = axum::serve(door, app) => served?,
        _ = dead.wait_for(|dead| *dead) => {}
    }
    // From here on no connection can be accepted.
    drop(state.drop_connections());
    Ok(())
}

/// Ends the one connection that a request came on.
#[derive(Clone, Default)]
pub struct Line(Arc<Notify>);

impl Line {
    pub fn hang_up(&self) {
        self.0.notify_one();
    }
}

impl Connected<IncomingStream<'_, Door>> for Line {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        stream.io().line.clone()
    }
}

pub struct Door {
    listener: TcpListener,
    state: Arc<State>,
}

impl Listener for Door {
    type Io = Wire;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Wire, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        // Without this, small events would wait for TCP acknowledgements of the client.
        let _ = stream.set_nodelay(true);
        let (line, mut cut) = (Line::default(), self.state.cut.subscribe());
        let open = self.state.open.lock().expect("no thread panicked with the connections").clone();
        let ended = line.clone();
        let end = Box::pin(async move {
            tokio::select! {
                _ = cut.changed() => {}
                () = ended.0.notified() => {}
            }
        });
        (Wire { stream, line, end, over: false, _open: open }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that fails as soon as it is cut. hyper reads all the time, also while it responds, so it is
/// enough that reading fails.
pub struct Wire {
    stream: TcpStream,
    line: Line,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
    over: bool,
    _open: Arc<()>,
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.over || self.end.as_mut().poll(context).is_ready() {
            self.over = true;
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
