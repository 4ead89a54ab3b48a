//! Well-behaved callers: one call at a time through any entry point (door) of the gateway, each with a unique text, and
//! the check of the response.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::event::{cut, parse_event};
use super::server::MODERN;
use super::sse_client::SseClient;
use crate::http::{Request, Response};

/// The `timeout_ms` of every server.
pub const TIMEOUT: Duration = Duration::from_secs(2);
/// Tolerance for a busy machine.
pub const SLACK: Duration = Duration::from_secs(3);
/// After this time a call counts as never answered.
const NEVER: Duration = Duration::from_secs(20);

/// An entry point of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Rest,
    /// REST with `Accept: text/event-stream`.
    RestEvents,
    Legacy,
    /// A legacy client that accepts only JSON.
    LegacyJson,
    Modern,
    Sse,
}

pub const DOORS: &[Door] =
    &[Door::Rest, Door::RestEvents, Door::Legacy, Door::LegacyJson, Door::Modern, Door::Sse];

/// One call of a tool.
#[derive(Clone, Debug)]
pub struct Call {
    pub server: String,
    pub tool: &'static str,
    /// Unique, so that a response can be matched to its call.
    pub text: String,
}

impl Call {
    pub fn name(&self) -> String {
        format!("{}__{}", self.server, self.tool)
    }
}

/// The outcome of a call that broke no promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Answered,
    /// An error that says what went wrong.
    Refused(String),
}

/// A client of the gateway at one entry point.
pub struct Caller {
    address: String,
    pub door: Door,
    session: Option<String>,
    stream: Option<SseClient>,
    last_id: u64,
}

impl Caller {
    pub fn new(address: &str, door: Door) -> Self {
        Self { address: address.to_owned(), door, session: None, stream: None, last_id: 0 }
    }

    /// Makes a call; an error is a broken promise.
    pub async fn call(&mut self, call: &Call) -> Result<(Verdict, Duration)> {
        self.prepare().await.context("the gateway itself does not answer")?;
        self.last_id += 1;
        let begun = Instant::now();
        let verdict = match self.door {
            Door::Rest | Door::RestEvents => self.invoke(call).await,
            Door::Legacy | Door::LegacyJson | Door::Modern => self.post(call).await,
            Door::Sse => self.submit(call).await,
        };
        let took = begun.elapsed();
        if verdict.is_err() {
            // A broken stream must not affect the next call.
            self.stream = None;
        }
        let verdict = verdict?;
        if took > TIMEOUT + SLACK {
            bail!("{verdict:?} came after {took:?}, but the timeout is {TIMEOUT:?}");
        }
        Ok((verdict, took))
    }

    /// The request as bytes, for badly behaved clients.
    pub async fn raw(&mut self, call: &Call) -> Result<Vec<u8>> {
        self.prepare().await?;
        self.last_id += 1;
        let request = match self.door {
            Door::Rest | Door::RestEvents => self.invocation(call),
            Door::Legacy | Door::LegacyJson | Door::Modern | Door::Sse => self.message(call),
        };
        Ok(request.to_bytes(&self.address))
    }

    async fn prepare(&mut self) -> Result<()> {
        match self.door {
            Door::Legacy | Door::LegacyJson if self.session.is_none() => {
                let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                    "protocolVersion": "2025-11-25", "capabilities": {},
                    "clientInfo": {"name": "caller", "version": "1"}}});
                let response = Request::new("POST", "/mcp").json(&hello).send(&self.address).await?;
                self.session = Some(response.header("mcp-session-id").context("no session")?.to_owned());
            }
            Door::Sse if self.stream.is_none() => self.stream = Some(SseClient::open(&self.address).await?),
            _ => {}
        }
        Ok(())
    }

    async fn invoke(&self, call: &Call) -> Result<Verdict> {
        let response = self.invocation(call).send(&self.address).await?;
        let (value, is_error) = match self.door {
            Door::RestEvents if response.is_success() => last_event(&response, &call.text)?,
            _ => (response.json()?, !response.is_success()),
        };
        if !is_error {
            return judge_result(&value, &call.text);
        }
        match value["error"].as_str() {
            Some(sentence) if !sentence.is_empty() => Ok(Verdict::Refused(sentence.to_owned())),
            _ => bail!("status {} without a sentence: {value}", response.status),
        }
    }

    async fn post(&self, call: &Call) -> Result<Verdict> {
        let response = self.message(call).send(&self.address).await?;
        let messages = match response.header("content-type") {
            Some(kind) if kind.starts_with("text/event-stream") => {
                events(&response)?.into_iter().map(|(_, value)| value).collect()
            }
            _ => vec![response.json()?],
        };
        judge_messages(&messages, self.last_id, &call.text)
    }

    async fn submit(&mut self, call: &Call) -> Result<Verdict> {
        let request = self.message(call);
        let stream = self.stream.as_mut().context("the stream is open")?;
        let response = request.send(&self.address).await?;
        if response.status != 202 {
            bail!("status {} to a message: {}", response.status, response.text());
        }
        let messages = stream.until_answer(self.last_id, NEVER).await?;
        judge_messages(&messages, self.last_id, &call.text)
    }

    fn invocation(&self, call: &Call) -> Request {
        let body = json!({"name": call.name(), "text": call.text});
        let request = Request::new("POST", "/api/v0/tools/invoke").json(&body).limit(NEVER);
        match self.door {
            Door::RestEvents => request.header("Accept", "text/event-stream"),
            _ => request,
        }
    }

    fn message(&self, call: &Call) -> Request {
        let name = call.name();
        let mut params = json!({"name": name, "arguments": {"text": call.text}});
        if call.tool == "progress" {
            params["_meta"]["progressToken"] = json!(format!("token-{}", self.last_id));
        }
        if self.door == Door::Modern {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        let body = json!({"jsonrpc": "2.0", "id": self.last_id, "method": "tools/call", "params": params});
        let path = self.stream.as_ref().map_or("/mcp", |stream| &stream.endpoint);
        let request = Request::new("POST", path).json(&body).limit(NEVER);
        let both = "application/json, text/event-stream";
        match self.door {
            Door::Modern => request
                .header("Accept", both)
                .header("MCP-Protocol-Version", MODERN)
                .header("Mcp-Method", "tools/call")
                .header("Mcp-Name", &name),
            Door::LegacyJson => self.in_session(request.header("Accept", "application/json")),
            _ => self.in_session(request.header("Accept", both)),
        }
    }

    fn in_session(&self, request: Request) -> Request {
        match &self.session {
            Some(session) => request.header("Mcp-Session-Id", session),
            None => request,
        }
    }
}

/// The last event of a REST stream, and whether it is an error. All others must be progress.
fn last_event(response: &Response, text: &str) -> Result<(Value, bool)> {
    let mut events = events(response)?;
    let (name, value) = events.pop().context("an empty event stream")?;
    if let Some((name, _)) = events.iter().find(|(name, _)| name != "progress") {
        bail!("an event {name:?} before the last one");
    }
    events.iter().try_for_each(|(_, params)| judge_progress(params, text))?;
    match name.as_str() {
        "result" => Ok((value, false)),
        "error" => Ok((value, true)),
        other => bail!("the stream ends with an event {other:?}"),
    }
}

/// Name and data of every event of a complete stream.
fn events(response: &Response) -> Result<Vec<(String, Value)>> {
    let text = std::str::from_utf8(&response.body).context("a stream that is not UTF-8")?;
    let blocks = text.split("\n\n").filter(|block| !block.trim().is_empty());
    blocks.filter_map(|block| parse_event(block).transpose()).collect()
}

/// Checks the messages for one request: notifications, then exactly one response.
fn judge_messages(messages: &[Value], id: u64, text: &str) -> Result<Verdict> {
    let is_answer = |message: &&Value| message.get("method").is_none();
    let notices = messages.iter().filter(|message| message["method"] == "notifications/progress");
    notices.map(|notice| &notice["params"]).try_for_each(|params| judge_progress(params, text))?;
    let mut answers = messages.iter().filter(is_answer);
    let answer = answers.next().context("no answer")?;
    if let Some(second) = answers.next() {
        bail!("a second answer: {}", cut(&second.to_string()));
    }
    if answer["jsonrpc"] != "2.0" || answer["id"] != id {
        bail!("an answer to another request than {id}: {}", cut(&answer.to_string()));
    }
    match (answer.get("result"), answer.get("error")) {
        (Some(result), None) => judge_result(result, text),
        (None, Some(error)) => match error["message"].as_str() {
            Some(message) if error["code"].is_i64() && !message.is_empty() => {
                Ok(Verdict::Refused(message.to_owned()))
            }
            _ => bail!("an error without code or message: {error}"),
        },
        _ => bail!("neither a result nor an error: {}", cut(&answer.to_string())),
    }
}

fn judge_progress(params: &Value, text: &str) -> Result<()> {
    match params["message"].as_str() {
        Some(said) if said == text => Ok(()),
        _ => bail!("ANOTHER CALLER'S PROGRESS: {} instead of {text:?}", cut(&params.to_string())),
    }
}

fn judge_result(result: &Value, text: &str) -> Result<Verdict> {
    match result["content"][0]["text"].as_str() {
        Some(said) if said == text => Ok(Verdict::Answered),
        Some(said) => bail!("ANOTHER CALLER'S TEXT: {:?} instead of {text:?}", cut(said)),
        None => bail!("a result without its text: {}", cut(&result.to_string())),
    }
}
