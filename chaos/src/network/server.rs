//! The MCP servers behind the faulty connections: their correct responses, and a record of which calls really ran.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::fault::{Fault, Faults};

pub const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
/// How long the tool `slow` takes.
const SLOW: Duration = Duration::from_millis(300);
/// The length of the result of the tool `big`.
const BIG: usize = 4 << 20;

/// The transport of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Legacy streamable HTTP with sessions; responses are JSON.
    Json,
    /// The same; responses are event streams.
    Events,
    Modern,
    /// The older HTTP+SSE transport.
    Sse,
}

/// A message on a stream, and its fault.
pub type Said = (Vec<u8>, Option<Fault>);

pub struct Server {
    pub name: String,
    pub dialect: Dialect,
    /// `None` for the bystander's server, which has no faults.
    pub faults: Option<Arc<Faults>>,
    last_session: AtomicU64,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    sessions: BTreeSet<String>,
    /// Listening streams and streams of the HTTP+SSE transport, by session.
    streams: HashMap<String, mpsc::UnboundedSender<Said>>,
    /// The ids of tool calls in flight.
    in_flight: BTreeSet<u64>,
    /// How often a tool ran, by the text of its call.
    ran: BTreeMap<String, u32>,
}

/// The outcome of a message.
pub struct Outcome {
    /// The request's id as the gateway wrote it.
    pub id: u64,
    pub notices: Vec<String>,
    pub answer: String,
}

impl Server {
    pub fn new(name: &str, dialect: Dialect, faults: Option<Arc<Faults>>) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            dialect,
            faults,
            last_session: AtomicU64::default(),
            memory: Mutex::default(),
        })
    }

    /// Handles a request and returns its response.
    pub async fn answer(&self, request: &Value) -> Outcome {
        let id = request["id"].as_u64().unwrap_or_default();
        let params = &request["params"];
        let mut notices = Vec::new();
        let result = match request["method"].as_str().unwrap_or_default() {
            "initialize" if self.dialect != Dialect::Modern => json!({
                "protocolVersion": LEGACY, "capabilities": {"tools": {}},
                "serverInfo": {"name": self.name, "version": "1"},
            }),
            "server/discover" if self.dialect == Dialect::Modern => json!({
                "supportedVersions": [MODERN], "capabilities": {"tools": {}},
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": self.name, "version": "1"}},
            }),
            "tools/list" => json!({"tools": tools()}),
            "ping" => json!({}),
            "tools/call" => {
                self.memory().in_flight.insert(id);
                let result = self.call(params, &mut notices).await;
                self.memory().in_flight.remove(&id);
                result
            }
            method => {
                let text = format!("method {method:?} is not known here");
                let answer = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": text}});
                return Outcome { id, notices, answer: answer.to_string() };
            }
        };
        Outcome {
            id,
            notices,
            answer: format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, self.finish(result)),
        }
    }

    async fn call(&self, params: &Value, notices: &mut Vec<String>) -> Value {
        let text = params["arguments"]["text"].as_str().unwrap_or_default();
        *self.memory().ran.entry(text.to_owned()).or_default() += 1;
        // Calls overlap, so that a mix-up of callers is possible.
        let delay = self.faults.as_ref().map_or(0, |faults| faults.below(30));
        tokio::time::sleep(Duration::from_millis(delay)).await;
        let mut said = text.to_owned();
        match params["name"].as_str().unwrap_or_default() {
            "slow" => tokio::time::sleep(SLOW).await,
            "progress" => {
                let token = &params["_meta"]["progressToken"];
                notices.extend((1..=3).filter(|_| !token.is_null()).map(|step| progress(token, step, text)));
            }
            "big" => said.push_str(&"x".repeat(BIG)),
            _ => {}
        }
        json!({"content": [{"type": "text", "text": said}]})
    }

    fn finish(&self, mut result: Value) -> Value {
        if self.dialect == Dialect::Modern {
            result["resultType"] = json!("complete");
            result["ttlMs"] = json!(60_000);
            result["cacheScope"] = json!("public");
        }
        result
    }

    pub fn open_session(&self) -> String {
        let number = self.last_session.fetch_add(1, Ordering::Relaxed) + 1;
        let session = format!("{}-{number}", self.name);
        self.memory().sessions.insert(session.clone());
        session
    }

    pub fn has_session(&self, session: Option<&str>) -> bool {
        session.is_some_and(|session| self.memory().sessions.contains(session))
    }

    pub fn end_session(&self, session: Option<&str>) {
        let mut memory = self.memory();
        memory.sessions.remove(session.unwrap_or_default());
        memory.streams.remove(session.unwrap_or_default());
    }

    /// Opens the stream of a session; the receiver gets the messages sent to it.
    pub fn open_stream(&self, session: &str) -> mpsc::UnboundedReceiver<Said> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.memory().streams.insert(session.to_owned(), sender);
        receiver
    }

    /// Sends to the stream of a session, if it still has one.
    pub fn say(&self, session: &str, data: Vec<u8>, fault: Option<Fault>) {
        if let Some(stream) = self.memory().streams.get(session) {
            let _ = stream.send((data, fault));
        }
    }

    /// The id of another call in flight, or one that nobody uses.
    pub fn other_id(&self, id: u64) -> u64 {
        let memory = self.memory();
        memory.in_flight.iter().copied().find(|other| *other != id).unwrap_or(id + 1_000_000)
    }

    /// How often the tool ran for the call with this text.
    pub fn runs_of(&self, text: &str) -> u32 {
        self.memory().ran.get(text).copied().unwrap_or_default()
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().expect("no code panics while it holds the memory")
    }
}

/// A progress message of a call, with the text of the call.
pub fn progress(token: &Value, step: u32, text: &str) -> String {
    let params = json!({"progressToken": token, "progress": step, "message": text});
    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).to_string()
}

fn tools() -> Value {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let tool = |name: &str| json!({"name": name, "inputSchema": schema});
    let look = json!({"name": "look", "inputSchema": schema, "annotations": {"readOnlyHint": true}});
    json!([tool("echo"), tool("slow"), tool("progress"), tool("big"), look])
}
