//! Where the requests of an agent go, and the requests themselves.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{LEGACY, MODERN, Wire, header};

/// An endpoint, and the token of its user.
#[derive(Clone)]
pub struct Target {
    pub address: String,
    path: String,
    /// Empty where no token is required.
    token: String,
}

impl Target {
    /// The endpoint of all servers.
    pub fn new(address: &str, token: &str) -> Self {
        Self { address: address.to_owned(), path: "/mcp".to_owned(), token: token.to_owned() }
    }

    /// The same at another path.
    pub fn at(mut self, path: &str) -> Self {
        self.path = path.to_owned();
        self
    }

    pub fn request(&self, method: &str, headers: &str, body: &str) -> Vec<u8> {
        let Self { address, path, token } = self;
        let token = match token.as_str() {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        };
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{token}{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    /// A request within a session, which the headers name.
    pub fn legacy(&self, headers: &str, method: &str, params: &Value) -> Vec<u8> {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        self.request("POST", headers, &body.to_string())
    }

    /// A request of a client without a session.
    pub fn modern(&self, method: &str, mut params: Value) -> Vec<u8> {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let name = params["name"].as_str().map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
        let headers = format!("MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n{name}");
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        self.request("POST", &headers, &body.to_string())
    }

    /// Opens a session of a client with a handshake; returns the headers that its further requests carry.
    pub async fn open_session(&self, wire: &mut Wire) -> Result<String> {
        let params = json!({
            "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"},
        });
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        wire.send(&self.request("POST", "", &hello.to_string())).await?;
        let answer = wire.receive().await?.context("the connection was closed")?;
        ensure!(answer.head.starts_with("HTTP/1.1 200"), "unexpected: {}", answer.head);
        // A server may do without sessions.
        let session = header(&answer.head, "mcp-session-id").map(|id| format!("Mcp-Session-Id: {id}\r\n"));
        let headers = format!("MCP-Protocol-Version: {LEGACY}\r\n{}", session.unwrap_or_default());
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        wire.send(&self.request("POST", &headers, &ready.to_string())).await?;
        let answer = wire.receive().await?.context("the connection was closed")?;
        ensure!(answer.head.starts_with("HTTP/1.1 202"), "unexpected: {}", answer.head);
        Ok(headers)
    }

    /// Ends the session that the headers name.
    pub async fn close_session(&self, wire: &mut Wire, headers: &str) -> Result<()> {
        wire.send(&self.request("DELETE", headers, "")).await?;
        let answer = wire.receive().await?.context("the connection was closed")?;
        ensure!(answer.head.starts_with("HTTP/1.1 20"), "unexpected: {}", answer.head);
        Ok(())
    }
}
