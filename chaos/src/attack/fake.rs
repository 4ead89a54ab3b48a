//! The server behind the gateway: correct at `/plain`, and badly behaved at other paths. It speaks the legacy era over
//! streamable HTTP.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use toolgate_chaos::server::next_request;

use crate::aside::Aside;

/// The part of the path of [`Fake::url`] that only admins may see.
pub const SECRET: &str = "secret-path";
/// A name that would change the title of a terminal, clear it, and turn the direction of the text.
pub const STEERING: &str = "x\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}y";
/// The message of calls that are counted.
pub const MARK: &str = "counted";
/// A message that never fits.
const HUGE: usize = 24 << 20;

pub struct Fake {
    address: String,
    reached: Arc<Reached>,
    _work: Aside,
}

/// What arrived at the server.
#[derive(Default)]
struct Reached {
    methods: Mutex<Vec<String>>,
    /// Calls with [`MARK`] as their message.
    marked: AtomicUsize,
}

impl Fake {
    pub fn start() -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        let reached = Arc::<Reached>::default();
        let work = Aside::run(accept(listener, reached.clone()))?;
        Ok(Self { address, reached, _work: work })
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// The methods that arrived since the last call of this function.
    pub fn take_reached(&self) -> Vec<String> {
        std::mem::take(&mut self.reached.methods.lock().expect("no code panics while it holds the list"))
    }

    /// How many calls with [`MARK`] arrived in all.
    pub fn marked(&self) -> usize {
        self.reached.marked.load(Ordering::Relaxed)
    }
}

async fn accept(listener: std::net::TcpListener, reached: Arc<Reached>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                let _ = stream.set_nodelay(true);
                connections.spawn(serve(stream, reached.clone()));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(mut stream: TcpStream, reached: Arc<Reached>) {
    let mut read = Vec::new();
    while let Ok(Some((http_method, path, body))) = next_request(&mut stream, &mut read).await {
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let method = message["method"].as_str().unwrap_or_default();
        reached.methods.lock().expect("no code panics while it holds the list").push(method.to_owned());
        let is_call = method == "tools/call";
        if is_call && message["params"]["arguments"]["message"] == MARK {
            reached.marked.fetch_add(1, Ordering::Relaxed);
        }
        let written = if http_method != "POST" {
            respond(&mut stream, "405 Method Not Allowed", "text/plain", "").await
        } else if is_call && path.starts_with("/huge") {
            let kind = if path == "/huge-stream" { "text/event-stream" } else { "application/json" };
            respond(&mut stream, "200 OK", kind, &huge(&message["id"], kind)).await
        } else if is_call && path.starts_with("/asks") {
            return ask(&mut stream).await;
        } else if is_call && path.starts_with("/fail") {
            let trace = format!("Traceback: File \"/srv/{SECRET}/app.py\" --api-key=topsecret");
            respond(&mut stream, "500 Internal Server Error", "text/plain", &trace).await
        } else {
            match answer(&path, &message).await {
                Some(answer) => respond(&mut stream, "200 OK", "application/json", &answer).await,
                None => respond(&mut stream, "202 Accepted", "text/plain", "").await,
            }
        };
        if written.is_err() {
            return;
        }
    }
}

async fn respond(stream: &mut TcpStream, status: &str, kind: &str, body: &str) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await
}

/// Asks the client for something and waits for the answer until the connection is closed.
async fn ask(stream: &mut TcpStream) {
    let params = json!({"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}});
    let question = json!({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params});
    let response = format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {question}\n\n");
    if stream.write_all(response.as_bytes()).await.is_ok() {
        let mut rest = [0; 64];
        while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
    }
}

fn huge(id: &Value, kind: &str) -> String {
    let message = long(id, HUGE);
    if kind == "text/event-stream" { format!("data: {message}\n\n") } else { message }
}

/// The response to a call with a text of this many bytes. It is not made as a [`Value`], which would take long.
fn long(id: &Value, bytes: usize) -> String {
    let text = "x".repeat(bytes);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#)
}

/// The response to a request; `None` for a notification.
async fn answer(path: &str, message: &Value) -> Option<String> {
    let id = message.get("id")?;
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}, "resources": {"subscribe": true}, "tasks": {"list": {}, "cancel": {}}},
            "serverInfo": {"name": "fake", "version": "1"}
        }),
        "ping" | "resources/subscribe" | "resources/unsubscribe" => json!({}),
        "tools/list" => {
            return Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, tools(path, message)));
        }
        "resources/list" => json!({"resources": [{"uri": "fake://text", "name": "text"}]}),
        "resources/templates/list" => json!({"resourceTemplates": [
            {"uriTemplate": "x://{+path}{?q}", "name": "x"}, {"uriTemplate": "fake://item/{id}", "name": "item"}]}),
        "resources/read" => json!({"contents": [{"uri": message["params"]["uri"], "text": "text"}]}),
        "tools/call" => {
            let arguments = &message["params"]["arguments"];
            let number = |name: &str| arguments[name].as_u64().unwrap_or_default();
            tokio::time::sleep(Duration::from_millis(number("ms"))).await;
            match (arguments["task"].as_str(), usize::try_from(number("bytes")).unwrap_or_default()) {
                (Some(id), _) => json!({"task": task(id)}),
                (None, 0) => json!({"content": [{"type": "text", "text": arguments["message"].to_string()}]}),
                (None, bytes) => return Some(long(id, bytes)),
            }
        }
        "tasks/list" => json!({"tasks": [task("task-a"), task("task-b")]}),
        "tasks/get" | "tasks/cancel" | "tasks/result" => {
            task(message["params"]["taskId"].as_str().unwrap_or_default())
        }
        _ => {
            let error = json!({"code": -32601, "message": "method not found"});
            return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string());
        }
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
}

fn task(id: &str) -> Value {
    json!({"taskId": id, "status": "working", "createdAt": "2026-01-01T00:00:00Z",
        "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": 60_000})
}

/// A page of the list of tools.
fn tools(path: &str, message: &Value) -> String {
    let tool = |name: &str, text: &str| {
        json!({"name": name, "description": text, "inputSchema": {"type": "object"}}).to_string()
    };
    let many = |count: usize, text: &str| {
        (0..count).map(|number| tool(&format!("t{number}"), text)).collect::<Vec<_>>().join(",")
    };
    match path {
        "/pages" => {
            let page: u64 = message["params"]["cursor"]
                .as_str()
                .and_then(|cursor| cursor.parse().ok())
                .unwrap_or_default();
            let tool = tool(&format!("t{page}"), &"x".repeat(1 << 20));
            format!(r#"{{"tools":[{tool}],"nextCursor":"{}"}}"#, page + 1)
        }
        "/items" => format!(r#"{{"tools":[{}]}}"#, many(10_050, "")),
        "/duplicates" => {
            let same = format!("{},", tool("same", "")).repeat(100_000);
            format!(r#"{{"tools":[{}]}}"#, same.trim_end_matches(','))
        }
        "/many" => format!(r#"{{"tools":[{}]}}"#, many(200, &"x".repeat(1000))),
        "/steering" => format!(r#"{{"tools":[{}]}}"#, tool(STEERING, STEERING)),
        _ => format!(r#"{{"tools":[{},{}]}}"#, tool("echo", "Answers."), tool("other", "Answers, too.")),
    }
}
