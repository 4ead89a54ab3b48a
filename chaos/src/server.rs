//! A small, correct MCP server over streamable HTTP inside the harness, for parts whose faults are elsewhere.
//! It responds at every path, so that one server can be registered under many URLs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The tool that responds immediately.
pub const ECHO: &str = "echo";
/// The slow tool.
pub const WAIT: &str = "wait";
/// How long [`WAIT`] takes.
const WAITING: Duration = Duration::from_secs(2);

/// The names of its prompts.
pub const PROMPTS: [&str; 2] = ["greeting", "farewell"];

pub struct Server {
    address: String,
    task: JoinHandle<()>,
}

/// The data for the responses of every connection.
struct Offer {
    tools: Value,
    prompts: Value,
}

impl Server {
    /// Starts a server with this many tools, each with a description of this many bytes.
    pub async fn start(tools: usize, bytes: usize) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen")?;
        let address = listener.local_addr()?.to_string();
        let offer = Arc::new(Offer::new(tools, bytes));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                        connections.spawn(serve(stream, offer.clone()));
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self { address, task })
    }

    /// The URL to register; each path gives a different URL.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The names of the first tools of a server.
pub fn tool(index: usize) -> String {
    match index {
        0 => ECHO.to_owned(),
        1 => WAIT.to_owned(),
        index => format!("tool-{index}"),
    }
}

impl Offer {
    fn new(tools: usize, bytes: usize) -> Self {
        let filler = "x".repeat(bytes);
        let definition = |index| {
            let properties = json!({"message": {"type": "string", "description": filler}});
            json!({"name": tool(index), "description": "Answers with a text.",
                "inputSchema": {"type": "object", "properties": properties}})
        };
        let tools = (0..tools).map(definition).collect();
        let prompts = PROMPTS.iter().map(|name| json!({"name": name})).collect();
        Self { tools, prompts }
    }

    /// The result of a request, or a JSON-RPC error; a notification gets neither.
    async fn answer(&self, message: &Value) -> Option<Value> {
        let id = message.get("id")?;
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}, "prompts": {}},
                "serverInfo": {"name": "chaos", "version": "1"}
            }),
            "ping" => json!({}),
            "tools/list" => json!({"tools": self.tools}),
            "prompts/list" => json!({"prompts": self.prompts}),
            "tools/call" => {
                if message["params"]["name"] == WAIT {
                    tokio::time::sleep(WAITING).await;
                }
                let text = message["params"]["arguments"]["message"].as_str().unwrap_or_default();
                json!({"content": [{"type": "text", "text": text}]})
            }
            _ => {
                let error = json!({"code": -32601, "message": "method not found"});
                return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
        };
        Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }
}

/// Responds to the requests of one connection, one after the other, until it ends.
async fn serve(mut stream: TcpStream, offer: Arc<Offer>) {
    let mut read = Vec::new();
    while let Ok(Some((method, _, body))) = next_request(&mut stream, &mut read).await {
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (status, body) = match method.as_str() {
            "POST" => match offer.answer(&message).await {
                Some(answer) => ("200 OK", answer.to_string()),
                None => ("202 Accepted", String::new()),
            },
            _ => ("405 Method Not Allowed", String::new()),
        };
        let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
        let response = format!("HTTP/1.1 {status}\r\n{kind}Content-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(response.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads the method, the path (in lower case) and the body of the next request; `None` at the end of the connection.
pub async fn next_request(
    stream: &mut TcpStream,
    read: &mut Vec<u8>,
) -> Result<Option<(String, String, Vec<u8>)>> {
    loop {
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.map_or(Ok(0), |length| length.trim().parse())?;
            if read.len() >= end + 4 + length {
                let rest = read.split_off(end + 4 + length);
                let request = std::mem::replace(read, rest);
                let mut words = head.split(' ');
                let method = words.next().unwrap_or_default().to_ascii_uppercase();
                let path = words.next().unwrap_or_default().to_owned();
                return Ok(Some((method, path, request[end + 4..].to_vec())));
            }
        }
        if stream.read_buf(read).await? == 0 {
            return Ok(None);
        }
    }
}
