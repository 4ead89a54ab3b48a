//! An MCP server with minimal cost, which responds from memory. It has no sessions and no streams.
//! Its tools: `echo`, `payload` (a text of a given size), `events` (an echo as an event stream), and others that echo.

use std::borrow::Cow;
use std::io::{BufRead, Write};
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use crate::{LEGACY, MODERN, Wire};

/// Size of the texts that are kept in memory.
pub const LARGE: usize = 64 * 1024;

pub struct Server {
    is_modern: bool,
    /// The result of `tools/list`.
    tools: String,
    /// A JSON string of `LARGE` bytes.
    large: String,
}

/// What a request gets.
enum Reply<'a> {
    Result { id: String, result: Cow<'a, str>, is_event: bool },
    Unknown(String),
    Nothing,
}

impl Server {
    pub fn new(tools: usize, is_modern: bool) -> Self {
        let list: Vec<_> = (0..tools).map(tool).collect();
        let mark = if is_modern { MARK } else { "" };
        Self { is_modern, tools: format!(r#"{{{mark}"tools":[{}]}}"#, list.join(",")), large: text_of(LARGE) }
    }

    pub async fn serve_all(self: Arc<Self>, listener: TcpListener) -> Result<()> {
        loop {
            let (stream, _) = listener.accept().await?;
            let server = self.clone();
            tokio::spawn(async move {
                // A gateway that ends closes its connections, perhaps before it has read a response.
                let _ = server.serve(stream).await;
            });
        }
    }

    async fn serve(&self, stream: TcpStream) -> Result<()> {
        let mut wire = Wire::new(stream)?;
        while let Some(message) = wire.receive().await? {
            let answer = match message.head.split(' ').next() {
                Some("POST") => self.answer(&message.body)?.into_response(),
                Some("DELETE") => response("200 OK", JSON, &[]),
                _ => response("405 Method Not Allowed", JSON, &[]),
            };
            wire.send(&answer).await?;
        }
        Ok(())
    }

    /// Serves over stdin and stdout, one message in a line, until stdin ends.
    pub fn serve_lines(&self, mut input: impl BufRead, mut output: impl Write) -> Result<()> {
        let mut line = String::new();
        while input.read_line(&mut line)? > 0 {
            let text = match self.answer(line.as_bytes())? {
                Reply::Result { id, result, .. } => concat(&[BEGINNING, &id, MIDDLE, &result, "}\n"]),
                Reply::Unknown(text) => concat(&[&text, "\n"]),
                Reply::Nothing => Vec::new(),
            };
            output.write_all(&text)?;
            output.flush()?;
            line.clear();
        }
        Ok(())
    }

    fn answer(&self, body: &[u8]) -> Result<Reply<'_>> {
        let request: Value = serde_json::from_slice(body).context("a request is JSON")?;
        let Some(id) = request.get("id") else { return Ok(Reply::Nothing) };
        let arguments = &request["params"]["arguments"];
        let result = match request["method"].as_str().unwrap_or_default() {
            "initialize" if !self.is_modern => json!({
                "protocolVersion": LEGACY,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bench", "version": "1"},
            })
            .to_string(),
            "server/discover" if self.is_modern => json!({
                "resultType": "complete", "ttlMs": 600_000, "cacheScope": "public",
                "supportedVersions": [MODERN], "capabilities": {"tools": {}},
            })
            .to_string(),
            "tools/list" => {
                let result = Cow::Borrowed(self.tools.as_str());
                return Ok(Reply::Result { id: id.to_string(), result, is_event: false });
            }
            "tools/call" => {
                let text = match arguments["bytes"].as_u64() {
                    Some(bytes) if bytes == LARGE as u64 => &self.large,
                    Some(bytes) => &text_of(usize::try_from(bytes)?),
                    None => &arguments["text"].to_string(),
                };
                let mark = if self.is_modern { MARK } else { "" };
                format!(r#"{{{mark}"content":[{{"type":"text","text":{text}}}]}}"#)
            }
            _ => {
                let error = json!({"code": -32601, "message": "unknown method"});
                return Ok(Reply::Unknown(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string()));
            }
        };
        let is_event = request["params"]["name"] == "events";
        Ok(Reply::Result { id: id.to_string(), result: result.into(), is_event })
    }
}

impl Reply<'_> {
    fn into_response(self) -> Vec<u8> {
        match self {
            Self::Result { id, result, is_event: false } => {
                response("200 OK", JSON, &[BEGINNING, &id, MIDDLE, &result, "}"])
            }
            Self::Result { id, result, is_event: true } => {
                let parts = ["event: message\ndata: ", BEGINNING, &id, MIDDLE, &result, "}\n\n"];
                response("200 OK", "text/event-stream", &parts)
            }
            Self::Unknown(text) => response("404 Not Found", JSON, &[&text]),
            Self::Nothing => response("202 Accepted", JSON, &[]),
        }
    }
}

const JSON: &str = "application/json";
/// What every result of a modern server begins with.
const MARK: &str = r#""resultType":"complete","#;
/// What a response is, before its id and between id and result.
const BEGINNING: &str = r#"{"jsonrpc":"2.0","id":"#;
const MIDDLE: &str = r#","result":"#;

/// A message of HTTP whose body is these parts, in one piece: they are copied once.
fn response(status: &str, kind: &str, body: &[&str]) -> Vec<u8> {
    let length: usize = body.iter().map(|part| part.len()).sum();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n");
    concat(&[&[head.as_str()], body].concat())
}

fn concat(parts: &[&str]) -> Vec<u8> {
    parts.concat().into_bytes()
}

/// A JSON string with this many bytes of content.
fn text_of(bytes: usize) -> String {
    let words = "the quick brown fox jumps over the lazy dog and runs on ";
    let text: String = words.chars().cycle().take(bytes).collect();
    format!("\"{text}\"")
}

/// A definition of about 800 bytes, which is usual.
fn tool(number: usize) -> String {
    let name = match number {
        0 => "echo".to_owned(),
        1 => "payload".to_owned(),
        2 => "events".to_owned(),
        _ => format!("tool_{number}"),
    };
    json!({
        "name": name,
        "description": format!(
            "Searches collection {number} for records that match the text, and returns the newest first. For records \
             of collection {number} only: there is a tool for each of the other collections."
        ),
        "inputSchema": {"type": "object", "properties": {
            "text": {"type": "string", "description": "Text that the title or the content of a record contains"},
            "bytes": {"type": "integer", "minimum": 1, "description": "How many bytes of text to return"},
            "order": {"type": "string", "enum": ["newest", "oldest", "best"], "description": "Order of the records"},
            "filter": {"type": "object", "properties": {
                "author": {"type": "string"}, "labels": {"type": "array", "items": {"type": "string"}},
            }},
        }},
        "annotations": {"readOnlyHint": true},
    })
    .to_string()
}
