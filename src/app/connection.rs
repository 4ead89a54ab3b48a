//! Serves one client connection until it closes. Plain requests are served on the socket itself (`plain`), all others by
//! hyper (`unusual`). When a connection becomes idle, its buffers are dropped and only the stream is kept, so that idle
//! connections need little memory.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::events::AfterEvents;
use super::in_use::{Begun, HEAD_TIME, READ_BUFFER, Shared};
use super::plain::{self, Next};
use super::stream::ClientStream;
use super::tls::Tls;
use super::unusual;
use crate::http::error::ErrorResponse;
use budget::{Bound, Budgets, Exceeded};

/// What TLS costs besides: a record that is being received.
const RECORD_BUFFER: u64 = 20 * 1024;
/// How long a client may not read anything of what is sent to it.
const SEND_TIME: Duration = Duration::from_secs(30);
/// How long a connection that is turned away may take to read why.
const LAST_WORDS: Duration = Duration::from_secs(1);

pub async fn serve(socket: TcpStream, peer: IpAddr, shared: Arc<Shared>) {
    let mut taken = match shared.connections.admit().await {
        Ok(taken) => taken,
        Err(exceeded) => return Box::pin(turn_away(ClientStream::Plain(socket), &shared, exceeded)).await,
    };
    // Responses are written as a whole, and Nagle's algorithm would delay event streams.
    let _ = socket.set_nodelay(true);
    // The kernel closes a connection whose client reads nothing, whatever is being sent by whom.
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(&socket).set_tcp_user_timeout(Some(SEND_TIME));
    let mut stream = ClientStream::Plain(socket);
    let mut is_new = true;
    loop {
        let place = shared.connections.rest(taken);
        let readable = tokio::select! {
            readable = wait_for_bytes(&stream, is_new) => readable,
            () = place.evicted() => return,
        };
        taken = match (readable, place.leave()) {
            (Ok(()), Some(taken)) => taken,
            _ => return,
        };
        is_new = false;
        // Boxed, so that idle connections do not reserve memory for these futures.
        let mut next = Box::pin(serve_until_rest(stream, peer, &shared)).await;
        stream = loop {
            match next {
                Next::Rest(stream) => break stream,
                Next::Closed => return,
                Next::Begun(begun) => next = Box::pin(serve_begun(*begun, peer, &shared)).await,
                Next::Events(events) => match Box::pin(events.send(&shared)).await {
                    AfterEvents::Rest(stream) => break stream,
                    AfterEvents::Closed => return,
                    AfterEvents::Begun(begun) => next = Next::Begun(begun),
                },
            }
        };
    }
}

async fn wait_for_bytes(stream: &ClientStream, is_new: bool) -> std::io::Result<()> {
    if is_new { stream.first_byte().await } else { stream.readable().await }
}

/// Serves a connection that has something to read, until it rests or its response becomes a stream of events.
async fn serve_until_rest(mut stream: ClientStream, peer: IpAddr, shared: &Shared) -> Next {
    let head_begun = Instant::now();
    let charge = match shared.budgets.buffered.take(READ_BUFFER as u64) {
        Ok(charge) => charge,
        Err(exceeded) => {
            turn_away(stream, shared, exceeded).await;
            return Next::Closed;
        }
    };
    if let Some(tls) = shared.tls.as_ref().filter(|_| !stream.is_tls()) {
        let shaken = Box::pin(shake_hands(stream, tls, &shared.budgets));
        match shared.shutdown.run_until_cancelled(shaken).await.flatten() {
            Some(ready) => stream = ready,
            None => return Next::Closed,
        }
    }
    serve_begun(Begun { stream, unread: Bytes::new(), head_begun, charge }, peer, shared).await
}

async fn serve_begun(begun: Begun, peer: IpAddr, shared: &Shared) -> Next {
    let record = begun.stream.is_tls().then(|| shared.budgets.buffered.take(RECORD_BUFFER)).transpose();
    let _record = match record {
        Ok(record) => record,
        Err(exceeded) => {
            turn_away(begun.stream, shared, exceeded).await;
            return Next::Closed;
        }
    };
    match plain::serve(begun, peer, shared).await {
        Next::Begun(unusual) => {
            // Boxed, since plain requests are more frequent.
            let rested = Box::pin(unusual::serve_until_rest(*unusual, peer, shared)).await;
            rested.map_or(Next::Closed, Next::Rest)
        }
        next => next,
    }
}

/// Answers 503 and closes the connection; without an answer if TLS would be needed first. If many are being turned away
/// it waits for nothing, and the answer may get lost.
async fn turn_away(stream: ClientStream, shared: &Shared, exceeded: Exceeded) {
    if shared.tls.is_some() && !stream.is_tls() {
        return;
    }
    let turn = shared.connections.turning_away.try_acquire();
    let mut stream = stream;
    let told = async {
        let mut rest = [0; 1024];
        if turn.is_err() {
            // Unread bytes would make the kernel discard the answer.
            let _ = tokio::time::timeout(Duration::ZERO, stream.read(&mut rest)).await;
        }
        stream.write_all(&ErrorResponse::overloaded(exceeded).into_last_words()).await?;
        stream.shutdown().await?;
        if turn.is_err() {
            return Ok(());
        }
        // Closing while the client is still sending would discard the answer.
        while stream.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    let _ = tokio::time::timeout(LAST_WORDS, told).await;
}

/// Makes a TLS session of a new connection. Returns `None` if that fails, takes too long or needs too much.
async fn shake_hands(stream: ClientStream, tls: &Tls, budgets: &Budgets) -> Option<ClientStream> {
    match tokio::time::timeout(HEAD_TIME, tls.accept(stream, &budgets.buffered)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
        Err(_) => {
            budgets.refusals.count(Bound::HeadTime);
            None
        }
    }
}
