//! Raw connections: bytes at any pace, and agents as heads and bodies.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use toolgate_chaos::http::{Request, Response, header};

pub const VERSION: &str = "2026-07-28";
const BOTH: &str = "application/json, text/event-stream";

/// Opens a connection.
pub async fn open(address: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).await.context("cannot connect")?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Opens a connection with a small buffer for what arrives.
pub async fn open_narrow(address: &str) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    socket.connect(address.parse()?).await.context("cannot connect")
}

/// Opens a connection from another address of this machine.
pub async fn open_from(source: &str, address: &str) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(format!("{source}:0").parse()?)?;
    socket.connect(address.parse()?).await.context("cannot connect")
}

/// Opens a connection and sends bytes; what the peer refuses to take is no error.
pub async fn begin(address: &str, bytes: &[u8]) -> Result<TcpStream> {
    let mut stream = open(address).await?;
    let _ = stream.write_all(bytes).await;
    Ok(stream)
}

/// The bytes of a request on a connection that is kept.
pub fn kept(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

/// Reads one response with a length; `None` if the connection ends or nothing comes before.
pub async fn response(stream: &mut TcpStream, limit: Duration) -> Option<Response> {
    let read = async {
        let mut bytes = Vec::new();
        loop {
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
                let length: usize = header(&head, "content-length")?.parse().ok()?;
                let status = head.split(' ').nth(1)?.parse().ok()?;
                if let Some(body) = bytes.get(end + 4..end + 4 + length) {
                    return Some(Response { status, head, body: body.to_vec() });
                }
            }
            if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    };
    tokio::time::timeout(limit, read).await.ok().flatten()
}

/// Reads the status of a response, whatever its body is.
pub async fn status(stream: &mut TcpStream, limit: Duration) -> Option<u16> {
    let read = async {
        let mut bytes = Vec::new();
        while !bytes.windows(4).any(|window| window == b"\r\n\r\n") {
            if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return None;
            }
        }
        String::from_utf8_lossy(&bytes).split(' ').nth(1)?.parse().ok()
    };
    tokio::time::timeout(limit, read).await.ok().flatten()
}

/// Reads until the connection ends; returns the number of bytes, or `None` if it is still open after the limit.
pub async fn until_closed(stream: &mut TcpStream, limit: Duration) -> Option<usize> {
    let read = async {
        let (mut total, mut part) = (0, vec![0; 64 * 1024]);
        while let Ok(count @ 1..) = stream.read(&mut part).await {
            total += count;
        }
        total
    };
    tokio::time::timeout(limit, read).await.ok()
}

/// How many connections to this machine are open at their other end with bytes that this end does not take. The system
/// closes such an end without telling its peer.
pub fn count_unread(streams: &[TcpStream]) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let is_unread = |stream: &&TcpStream| {
        let (Ok(here), Ok(there)) = (stream.local_addr(), stream.peer_addr()) else { return false };
        let ends = format!(":{:04X} 0100007F:{:04X} 01 ", there.port(), here.port());
        table.split_once(&ends).is_some_and(|(_, rest)| !rest.starts_with("00000000:"))
    };
    streams.iter().filter(is_unread).count()
}

/// A legacy message of an agent.
pub fn message(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

/// A request of an agent of the legacy era.
pub fn post(path: &str, message: &Value) -> Request {
    Request::new("POST", path).header("Accept", BOTH).json(message)
}

/// A request of an agent of the modern era.
pub fn modern(path: &str, method: &str, params: Value) -> Request {
    modern_with(path, method, params, &json!({}))
}

/// A request of a client that declares these capabilities.
pub fn modern_with(path: &str, method: &str, mut params: Value, capabilities: &Value) -> Request {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": {"name": "attack", "version": "1"},
    });
    let name = params.get("name").or(params.get("uri")).and_then(Value::as_str).map(str::to_owned);
    let mut request = post(path, &message(method, &params))
        .header("MCP-Protocol-Version", VERSION)
        .header("Mcp-Method", method);
    if let Some(name) = name {
        request = request.header("Mcp-Name", &name);
    }
    request
}

/// Opens a session of the legacy era and returns its id.
pub async fn session(address: &str) -> Result<String> {
    session_of(address, "2025-06-18").await
}

/// Opens a session of a client that declares these capabilities.
pub async fn session_with(address: &str, capabilities: &Value) -> Result<String> {
    open_session(address, "2025-06-18", capabilities).await
}

/// Opens a session of one version of the protocol.
pub async fn session_of(address: &str, version: &str) -> Result<String> {
    open_session(address, version, &json!({})).await
}

async fn open_session(address: &str, version: &str, capabilities: &Value) -> Result<String> {
    let hello = json!({"protocolVersion": version, "capabilities": capabilities,
        "clientInfo": {"name": "attack", "version": "1"}});
    let response = post("/mcp", &message("initialize", &hello)).send(address).await?;
    let id = response.header("mcp-session-id").map(str::to_owned);
    id.with_context(|| format!("no session: {} {}", response.status, response.text()))
}
