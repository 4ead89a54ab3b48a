//! The connections of a server: accepts them, reads requests, writes responses, and carries out the faults of bytes and
//! connections. Without faults it is a correct server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;

use super::fault::Fault;
use super::reply::{self, Reply};
use super::server::{Dialect, Said, Server, progress};
use crate::http::header;

/// Size limit of an endless response.
pub const ENDLESS: usize = 96 << 20;
/// Size limit of an endless head.
const ENDLESS_HEAD: usize = 8 << 20;
/// Number of notifications before a response.
const FLOOD: u32 = 500;
const DELUGE: u32 = 3000;
/// How long a stalled connection stays open.
const STALL: Duration = Duration::from_secs(8);
/// Percentage of faulty responses to calls, and to everything else.
const CALL_FAULTS: u64 = 35;
const OTHER_FAULTS: u64 = 6;
const CONNECTION_FAULTS: u64 = 3;

/// A server that listens.
pub struct Listening {
    pub server: Arc<Server>,
    pub address: SocketAddr,
    /// Keeps the port bound while the server does not listen, so that no other program gets it.
    _port: TcpSocket,
}

impl Listening {
    pub fn start(server: Arc<Server>) -> Result<Self> {
        let port = bind("127.0.0.1:0".parse()?).context("no free port")?;
        let address = port.local_addr()?;
        let listener = bind(address)?.listen(256)?;
        tokio::spawn(accept(listener, address, server.clone()));
        Ok(Self { server, address, _port: port })
    }

    pub fn url(&self) -> String {
        let path = if self.server.dialect == Dialect::Sse { "/sse" } else { "/mcp" };
        format!("http://{}{path}", self.address)
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn accept(mut listener: TcpListener, address: SocketAddr, server: Arc<Server>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        if let Some(faults) = &server.faults
            && faults.chance(1)
        {
            faults.count("connections refused for a while");
            drop((stream, listener));
            tokio::time::sleep(Duration::from_millis(200 + faults.below(1000))).await;
            listener = loop {
                match bind(address).and_then(|socket| socket.listen(256)) {
                    Ok(listener) => break listener,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            };
            continue;
        }
        let server = server.clone();
        tokio::spawn(async move {
            // A peer that hangs up is not an error here.
            let _ = serve(stream, &server).await;
        });
    }
}

/// A request as received.
pub struct Incoming {
    pub head: String,
    pub body: Vec<u8>,
}

impl Incoming {
    fn method(&self) -> &str {
        self.head.split(' ').next().unwrap_or_default()
    }

    fn session(&self) -> Option<&str> {
        let target = self.head.split(' ').nth(1).unwrap_or_default();
        header(&self.head, "mcp-session-id").or_else(|| Some(target.split_once("sessionId=")?.1))
    }
}

async fn serve(mut stream: TcpStream, server: &Arc<Server>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    if let Some(faults) = &server.faults
        && faults.chance(CONNECTION_FAULTS)
    {
        faults.count("connection reset when accepted");
        return stream.set_zero_linger();
    }
    let mut buffer = Vec::new();
    while let Some(request) = read(&mut stream, &mut buffer).await? {
        let goes_on = match request.method() {
            "POST" => post(&mut stream, server, &request).await?,
            "GET" => return listen(stream, server, &request).await,
            _ => {
                server.end_session(request.session());
                send(&mut stream, &Reply::status(200, ""), None, 0).await?
            }
        };
        let is_last = header(&request.head, "connection").is_some_and(|value| value == "close");
        if is_last || !goes_on {
            break;
        }
    }
    Ok(())
}

async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<Incoming>> {
    loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
            let length = header(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
            if buffer.len() >= end + 4 + length {
                let rest = buffer.split_off(end + 4 + length);
                let body = std::mem::replace(buffer, rest).split_off(end + 4);
                return Ok(Some(Incoming { head, body }));
            }
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// Responds to one message; returns false when the connection can no longer be used.
async fn post(stream: &mut TcpStream, server: &Arc<Server>, request: &Incoming) -> io::Result<bool> {
    let Ok(message) = serde_json::from_slice::<Value>(&request.body) else {
        return send(stream, &Reply::status(400, "not JSON"), None, 0).await;
    };
    let is_call = message["method"] == "tools/call";
    let fault = server.faults.as_ref().and_then(|faults| {
        let fault = faults.draw(if is_call { CALL_FAULTS } else { OTHER_FAULTS })?;
        faults.count(fault.name());
        Some(fault)
    });
    let draw = server.faults.as_ref().map_or(0, |faults| faults.below(1 << 32));
    let is_new =
        message["method"] == "initialize" && matches!(server.dialect, Dialect::Json | Dialect::Events);
    let needs_session = server.dialect != Dialect::Modern && !is_new;
    if fault == Some(Fault::LostSession) {
        server.end_session(request.session());
    }
    if needs_session && !server.has_session(request.session()) {
        return send(stream, &Reply::status(404, "session not found"), None, draw).await;
    }
    if message.get("id").is_none() || message.get("method").is_none() {
        return send(stream, &Reply::status(202, ""), fault.filter(|fault| !fault.is_of_text()), draw).await;
    }
    if let Some(reply) = fault.and_then(Reply::refusal) {
        return send(stream, &reply, None, draw).await;
    }
    if server.dialect == Dialect::Sse {
        return submit(stream, server, request, message, fault, draw).await;
    }
    let mut outcome = server.answer(&message).await;
    let takes_other = matches!(fault, Some(Fault::OtherId | Fault::OtherToken | Fault::Stray));
    let other = if takes_other { server.other_id(outcome.id) } else { outcome.id + 1_000_000 };
    let text = message["params"]["arguments"]["text"].as_str().unwrap_or_default();
    match fault {
        Some(Fault::OtherToken) => outcome.notices.push(progress(&other.into(), 7, text)),
        Some(Fault::Flood | Fault::Deluge) => {
            let token = &message["params"]["_meta"]["progressToken"];
            let count = if fault == Some(Fault::Flood) { FLOOD } else { DELUGE };
            outcome.notices.extend((0..count).map(|step| progress(token, step, text)));
        }
        Some(Fault::Stray) => {
            let stray = Fault::OtherId.deform(&outcome.answer, outcome.id, other);
            server.say(request.session().unwrap_or_default(), stray, None);
        }
        _ => {}
    }
    let answer = match fault {
        Some(fault) if fault.is_of_text() => fault.deform(&outcome.answer, outcome.id, other),
        _ => outcome.answer.into_bytes(),
    };
    let session = is_new.then(|| server.open_session());
    let as_events = server.dialect == Dialect::Events || !outcome.notices.is_empty();
    let messages = outcome.notices.into_iter().map(String::into_bytes).chain([answer]).collect();
    send(stream, &Reply::messages(messages, as_events, session), fault, draw).await
}

/// HTTP+SSE: accepts the message here and responds on the stream. A fault affects one of the two.
async fn submit(
    stream: &mut TcpStream,
    server: &Arc<Server>,
    request: &Incoming,
    message: Value,
    fault: Option<Fault>,
    draw: u64,
) -> io::Result<bool> {
    let session = request.session().unwrap_or_default().to_owned();
    let hits_stream = fault.is_some_and(|fault| fault.is_of_text() || draw.is_multiple_of(2));
    let (answering, later) = (server.clone(), fault.filter(|_| hits_stream));
    tokio::spawn(async move {
        let outcome = answering.answer(&message).await;
        for notice in outcome.notices {
            answering.say(&session, notice.into_bytes(), None);
        }
        // Only an id that is not in use: on this transport responses differ only by their id.
        let answer = match later {
            Some(fault) => fault.deform(&outcome.answer, outcome.id, outcome.id + 1_000_000),
            None => outcome.answer.into_bytes(),
        };
        answering.say(&session, answer, later);
    });
    send(stream, &Reply::status(202, "Accepted"), fault.filter(|_| !hits_stream), draw).await
}

/// An event stream for messages that are not the response to a POST.
async fn listen(mut stream: TcpStream, server: &Arc<Server>, request: &Incoming) -> io::Result<()> {
    let endpoint = match server.dialect {
        Dialect::Sse => Some(server.open_session()),
        Dialect::Json | Dialect::Events if server.has_session(request.session()) => None,
        Dialect::Json | Dialect::Events => {
            send(&mut stream, &Reply::status(404, "session not found"), None, 0).await?;
            return Ok(());
        }
        Dialect::Modern => {
            send(&mut stream, &Reply::status(405, ""), None, 0).await?;
            return Ok(());
        }
    };
    stream.write_all(reply::EVENTS_HEAD).await?;
    let session = endpoint.as_deref().or(request.session()).unwrap_or_default();
    let mut messages = server.open_stream(session);
    if endpoint.is_some() {
        let first = format!("event: endpoint\ndata: /message?sessionId={session}\n\n");
        stream.write_all(&reply::chunk(first.as_bytes())).await?;
    }
    let carry = carry(&mut stream, &mut messages);
    match server.faults.as_ref().filter(|faults| faults.chance(50)) {
        Some(faults) => {
            faults.count("listening stream reset");
            let life = Duration::from_millis(faults.below(3000));
            let _ = tokio::time::timeout(life, carry).await;
            stream.set_zero_linger()
        }
        None => carry.await,
    }
}

/// Sends messages on a stream until it breaks or its peer disconnects.
async fn carry(stream: &mut TcpStream, messages: &mut mpsc::UnboundedReceiver<Said>) -> io::Result<()> {
    let mut byte = [0];
    loop {
        let (data, fault) = tokio::select! {
            message = messages.recv() => match message {
                Some(message) => message,
                None => return Ok(()),
            },
            read = stream.read(&mut byte) => match read? {
                0 => return Ok(()),
                _ => continue,
            },
        };
        let event = reply::chunk(&reply::event(&data));
        match fault {
            Some(Fault::Twice) => stream.write_all(&[&event[..], &event].concat()).await?,
            Some(Fault::Drip) => drip(stream, &event).await?,
            Some(Fault::Reset | Fault::HalfClose) => return stream.set_zero_linger(),
            Some(Fault::ResetMidway | Fault::CutStream | Fault::LongLength | Fault::ShortLength) => {
                stream.write_all(&event[..event.len() / 2]).await?;
                return stream.set_zero_linger();
            }
            Some(Fault::BrokenChunk | Fault::Garbage) => return stream.write_all(b"ZZ\r\ngarbage").await,
            Some(Fault::Stall | Fault::StallMidway | Fault::EmptyBody) => {}
            Some(_) | None => stream.write_all(&event).await?,
        }
    }
}

/// Writes a response with its fault; returns false when the connection can no longer be used. `draw` is a random number.
async fn send(stream: &mut TcpStream, reply: &Reply, fault: Option<Fault>, draw: u64) -> io::Result<bool> {
    let whole = reply.to_bytes(fault);
    let part = usize::try_from(draw % whole.len().max(1) as u64).unwrap_or_default();
    match fault {
        Some(Fault::Reset) => stream.set_zero_linger()?,
        Some(Fault::ResetMidway) => {
            stream.write_all(&whole[..part]).await?;
            stream.set_zero_linger()?;
        }
        Some(Fault::Stall) => wait(stream).await?,
        Some(Fault::StallMidway) => {
            stream.write_all(&whole[..part]).await?;
            wait(stream).await?;
        }
        Some(Fault::HalfClose) => {
            stream.shutdown().await?;
            wait(stream).await?;
        }
        Some(Fault::Drip) => {
            drip(stream, &whole).await?;
            return Ok(true);
        }
        Some(Fault::LongLength | Fault::Garbage | Fault::BrokenChunk | Fault::CutUnframed) => {
            stream.write_all(&whole).await?;
        }
        Some(Fault::EndlessHead) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n").await?;
            let line = format!("X-More: {}\r\n", "x".repeat(1000));
            for _ in 0..ENDLESS_HEAD / line.len() {
                stream.write_all(line.as_bytes()).await?;
            }
        }
        Some(Fault::Endless) => endless(stream, &whole).await?,
        Some(Fault::Unasked) => {
            stream.write_all(&whole).await?;
            tokio::time::sleep(Duration::from_millis(draw % 20)).await;
            stream.write_all(&whole).await?;
            return Ok(true);
        }
        Some(_) | None => {
            stream.write_all(&whole).await?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Sends nothing until the peer disconnects, but for no longer than [`STALL`].
async fn wait(stream: &mut TcpStream) -> io::Result<()> {
    tokio::time::timeout(STALL, until_gone(stream)).await.unwrap_or(Ok(()))
}

async fn until_gone(stream: &mut TcpStream) -> io::Result<()> {
    let mut nothing = [0; 64];
    while stream.read(&mut nothing).await? > 0 {}
    Ok(())
}

async fn drip(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    // A large response is sent in larger pieces, so that it still arrives in time.
    for drop in bytes.chunks((bytes.len() / 150).max(3)) {
        stream.write_all(drop).await?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

async fn endless(stream: &mut TcpStream, beginning: &[u8]) -> io::Result<()> {
    stream.write_all(beginning).await?;
    let more = reply::chunk(&[b'x'; 32 << 10]);
    for _ in 0..ENDLESS / more.len() {
        stream.write_all(&more).await?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
