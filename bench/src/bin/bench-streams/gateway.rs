//! The measured gateway: a process in a temporary folder, which ends with this program. Also the requests of users and
//! agents to it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use toolgate_bench::{LEGACY, MODERN, Message, Wire, header};

use crate::servers::Servers;

const STARTING: Duration = Duration::from_secs(60);

pub struct Gateway {
    _folder: TempDir,
    child: Child,
    pub address: String,
    /// The token of the admin; empty in development mode.
    admin: String,
}

impl Gateway {
    pub async fn start(program: &Path, mode: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let program = program.canonicalize().with_context(|| format!("there is no {}", program.display()))?;
        let mut command = Command::new(program);
        command.arg("start").current_dir(folder.path()).kill_on_drop(true).env_clear();
        command.envs([("PORT", "0"), ("HOST", "127.0.0.1"), ("SERVER_MODE", mode), ("RUST_LOG", "error")]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start the gateway")?;
        let mut lines = BufReader::new(child.stdout.take().context("stdout is piped")?).lines();
        let first =
            tokio::time::timeout(STARTING, lines.next_line()).await.context("the gateway is silent")??;
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let address = first.as_deref().and_then(|line| line.split_once("http://")).context("no address")?.1;
        let mut gateway = Self { _folder: folder, child, address: address.to_owned(), admin: String::new() };
        if mode == "enterprise" {
            let answer = gateway.ask("POST", "/init", &json!({})).await?;
            gateway.admin = answer["admin_access_token"].as_str().context("no token of an admin")?.to_owned();
        }
        Ok(gateway)
    }

    pub fn process(&self) -> Result<u32> {
        self.child.id().context("the gateway has ended")
    }

    pub async fn connect(&self) -> Result<Wire> {
        connect(&self.address).await
    }

    /// Registers the servers as `s0`, `s1` and so on.
    pub async fn register(&self, servers: &Servers, count: usize) -> Result<()> {
        for number in 0..count {
            let url = servers.url(number);
            let server = json!({"name": server_name(number), "transport": "streamable_http", "url": url});
            self.ask("POST", "/api/v0/servers", &server).await?;
        }
        Ok(())
    }

    /// Creates a client and returns its token.
    pub async fn create_client(&self, name: &str, allow_list: &[String]) -> Result<String> {
        let client = json!({"name": name, "allow_list": allow_list});
        let answer = self.ask("POST", "/api/v0/clients", &client).await?;
        Ok(answer["access_token"].as_str().context("a client without a token")?.to_owned())
    }

    /// Sends a request to the REST API, which must succeed.
    pub async fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let answer = self.fetch(method, path, body).await?;
        Ok(serde_json::from_slice(&answer.body).unwrap_or_default())
    }

    /// The same, but returns the response as it is.
    pub async fn fetch(&self, method: &str, path: &str, body: &Value) -> Result<Message> {
        let mut wire = self.connect().await?;
        let body = if method == "GET" { String::new() } else { body.to_string() };
        wire.send(&request(&self.address, method, path, &self.admin, "", &body)).await?;
        let answer = wire.receive().await?.context("the gateway closed the connection")?;
        let text = || String::from_utf8_lossy(&answer.body).into_owned();
        ensure!(answer.head.starts_with("HTTP/1.1 20"), "{method} {path}: {} {}", answer.head, text());
        Ok(answer)
    }
}

pub async fn connect(address: &str) -> Result<Wire> {
    Wire::new(TcpStream::connect(address).await.context("cannot connect to the gateway")?)
}

pub fn server_name(number: usize) -> String {
    format!("s{number}")
}

pub fn request(host: &str, method: &str, path: &str, token: &str, headers: &str, body: &str) -> Vec<u8> {
    let token = match token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{token}{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A request of a client without a session.
pub fn modern(host: &str, token: &str, method: &str, mut params: Value) -> Vec<u8> {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let name = params["name"].as_str().map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
    let headers = format!("MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {method}\r\n{name}");
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    request(host, "POST", "/mcp", token, &headers, &body.to_string())
}

/// Opens a session of a client with a handshake; returns the headers that its further requests carry.
pub async fn open_session(wire: &mut Wire, host: &str, token: &str) -> Result<String> {
    let params = json!({
        "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"},
    });
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    wire.send(&request(host, "POST", "/mcp", token, "", &hello.to_string())).await?;
    let answer = wire.receive().await?.context("the gateway closed the connection")?;
    let session = header(&answer.head, "mcp-session-id").context("no session was opened")?;
    let headers = format!("MCP-Protocol-Version: {LEGACY}\r\nMcp-Session-Id: {session}\r\n");
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    wire.send(&request(host, "POST", "/mcp", token, &headers, &ready.to_string())).await?;
    wire.receive().await?.context("the gateway closed the connection")?;
    Ok(headers)
}
