//! An MCP server with minimal cost: it searches for a few words in a request and responds from memory.
//!
//! bench-upstream --listen 127.0.0.1:9100 [--tools 50] [--era legacy|modern]

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use toolgate_bench::{LEGACY, MODERN, Wire};

struct Server {
    is_modern: bool,
    tools: Value,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let (mut listen, mut tools, mut is_modern) = ("127.0.0.1:0".to_owned(), 50, false);
    let mut words = std::env::args().skip(1);
    while let (Some(flag), Some(value)) = (words.next(), words.next()) {
        match flag.as_str() {
            "--listen" => listen = value,
            "--tools" => tools = value.parse()?,
            "--era" => is_modern = value == "modern",
            _ => bail!("unknown flag {flag}"),
        }
    }
    let listener = TcpListener::bind(&listen).await?;
    println!("http://{}/mcp", listener.local_addr()?);
    let server = Arc::new(Server { is_modern, tools: (0..tools).map(tool).collect() });
    loop {
        let (stream, _) = listener.accept().await?;
        let server = server.clone();
        tokio::spawn(async move {
            if let Err(error) = server.serve(stream).await {
                eprintln!("{error:#}");
            }
        });
    }
}

/// The first tool is the one that is called.
fn tool(number: usize) -> Value {
    let name = if number == 0 { "echo".to_owned() } else { format!("tool_{number}") };
    let text = json!({"type": "string", "description": "The text that comes back."});
    json!({
        "name": name,
        "description": "Says what it is told, as many tools do, with a description of the usual length.",
        "inputSchema": {"type": "object", "properties": {"text": text}, "required": ["text"]},
    })
}

impl Server {
    async fn serve(&self, stream: TcpStream) -> Result<()> {
        let mut wire = Wire::new(stream)?;
        while let Some(message) = wire.receive().await? {
            let answer = match message.head.starts_with("POST ") {
                true => self.answer(&message.body)?,
                false => response("405 Method Not Allowed", ""),
            };
            wire.send(&answer).await?;
        }
        Ok(())
    }

    fn answer(&self, body: &[u8]) -> Result<Vec<u8>> {
        let request: Value = serde_json::from_slice(body).context("a request is JSON")?;
        let Some(id) = request.get("id") else { return Ok(response("202 Accepted", "")) };
        let result = match request["method"].as_str().unwrap_or_default() {
            "initialize" if !self.is_modern => json!({
                "protocolVersion": LEGACY,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bench", "version": "1"},
            }),
            "server/discover" if self.is_modern => json!({
                "resultType": "complete", "ttlMs": 600_000, "cacheScope": "public",
                "supportedVersions": [MODERN], "capabilities": {"tools": {}},
            }),
            "tools/list" => self.marked(json!({"tools": self.tools})),
            "tools/call" => {
                let text = &request["params"]["arguments"]["text"];
                self.marked(json!({"content": [{"type": "text", "text": text}]}))
            }
            _ => {
                let error = json!({"code": -32601, "message": "unknown method"});
                let answer = json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string();
                return Ok(response("404 Not Found", &answer));
            }
        };
        Ok(response("200 OK", &json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()))
    }

    fn marked(&self, mut result: Value) -> Value {
        if self.is_modern {
            result["resultType"] = "complete".into();
        }
        result
    }
}

fn response(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}
