//! An agent that connects to an MCP endpoint of the gateway: a session, its requests, and its stream.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::http::{Request, Response, header};

const VERSION: &str = "2025-06-18";
/// The revision without sessions.
const MODERN: &str = "2026-07-28";
/// The content types that a request accepts.
const BOTH: &str = "application/json, text/event-stream";
/// How long the head of a stream may take.
const LIMIT: Duration = Duration::from_secs(30);

pub struct Agent {
    address: String,
    path: String,
    token: String,
    session: String,
}

impl Agent {
    /// Opens a session at an endpoint.
    pub async fn connect(address: &str, path: &str, token: &str) -> Result<Self> {
        let mut agent = Self {
            address: address.to_owned(),
            path: path.to_owned(),
            token: token.to_owned(),
            session: String::new(),
        };
        let params = json!({"protocolVersion": VERSION, "capabilities": {},
            "clientInfo": {"name": "chaos", "version": "1"}});
        let greeted = agent.request("initialize", params).send(address).await?;
        ensure!(greeted.status == 200, "initialize at {path}: {} {}", greeted.status, greeted.text());
        agent.session = greeted.header("mcp-session-id").context("no session")?.to_owned();
        agent.tell("notifications/initialized", json!({})).await?;
        Ok(agent)
    }

    /// Sends a request and returns its result.
    pub async fn ask(&self, method: &str, params: Value) -> Result<Value> {
        let response = self.request(method, params).send(&self.address).await?;
        ensure!(response.status == 200, "{method}: {} {}", response.status, response.text());
        let mut message = response.json()?;
        ensure!(message.get("error").is_none(), "{method}: {}", response.text());
        Ok(message["result"].take())
    }

    pub async fn tell(&self, method: &str, params: Value) -> Result<()> {
        let body = json!({"jsonrpc": "2.0", "method": method, "params": params});
        let response = self.post(&body).send(&self.address).await?;
        ensure!(response.status == 202, "{method}: {} {}", response.status, response.text());
        Ok(())
    }

    /// Starts a call and cancels it before its response.
    pub async fn cancel_call(&self, tool: &str) -> Result<()> {
        let call = self.request("tools/call", json!({"name": tool, "arguments": {}}));
        let mut stream = TcpStream::connect(&self.address).await?;
        stream.write_all(&call.to_bytes(&self.address)).await?;
        // The call must be in flight; a notification that arrives before it would cancel nothing.
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.tell("notifications/cancelled", json!({"requestId": 1, "reason": "chaos"})).await
    }

    /// Opens the stream for the gateway's notifications; dropping it closes it.
    pub async fn stream(&self) -> Result<TcpStream> {
        self.open(self.with_headers(Request::new("GET", &self.path))).await
    }

    /// Opens an HTTP+SSE stream, which is a session that ends with the stream.
    pub async fn sse_stream(&self) -> Result<TcpStream> {
        let request = Request::new("GET", "/sse").token(&self.token).header("Accept", "text/event-stream");
        self.open(request).await
    }

    /// Opens a subscription of the revision without sessions.
    pub async fn subscription(&self) -> Result<TcpStream> {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "chaos", "version": "1"}});
        let params = json!({"_meta": meta, "notifications": {"toolsListChanged": true}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params});
        let request = Request::new("POST", &self.path).json(&body).token(&self.token);
        let request = request.header("Accept", BOTH).header("MCP-Protocol-Version", MODERN);
        self.open(request.header("Mcp-Method", "subscriptions/listen")).await
    }

    /// Sends a request and waits until its event stream begins.
    async fn open(&self, request: Request) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).await?;
        stream.write_all(&request.to_bytes(&self.address)).await?;
        let mut head = Vec::new();
        let read = async {
            while !head.windows(4).any(|window| window == b"\r\n\r\n") {
                ensure!(stream.read_buf(&mut head).await? > 0, "the stream ended early");
            }
            Ok(())
        };
        tokio::time::timeout(LIMIT, read).await.context("the stream does not begin")??;
        let head = String::from_utf8_lossy(&head);
        let is_stream = header(&head, "content-type").is_some_and(|media| media == "text/event-stream");
        ensure!(head.starts_with("HTTP/1.1 200") && is_stream, "the stream is refused: {head}");
        Ok(stream)
    }

    /// Ends the session.
    pub async fn end(self) -> Result<Response> {
        self.with_headers(Request::new("DELETE", &self.path)).send(&self.address).await
    }

    fn request(&self, method: &str, params: Value) -> Request {
        self.post(&json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
    }

    fn post(&self, body: &Value) -> Request {
        self.with_headers(Request::new("POST", &self.path).json(body))
    }

    fn with_headers(&self, request: Request) -> Request {
        let accepted = if request.method == "GET" { "text/event-stream" } else { BOTH };
        let request = request.token(&self.token).header("Accept", accepted);
        match self.session.as_str() {
            "" => request,
            session => request.header("Mcp-Session-Id", session).header("MCP-Protocol-Version", VERSION),
        }
    }
}
