//! An MCP client that sends raw text and keeps every byte of the responses: one session over streamable HTTP (`Agent`)
//! or HTTP+SSE (`SseAgent`).

use serde_json::{Value, json};

use super::TestApp;
use super::client::{self, Answer, Events};

pub const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");

pub struct Agent {
    address: String,
    path: String,
    pub session: String,
}

impl Agent {
    /// Does the handshake in revision 2025-11-25.
    pub async fn open(app: &TestApp, path: &str, capabilities: Value) -> Self {
        let mut agent = Self { address: app.address.clone(), path: path.into(), session: String::new() };
        let answer = agent.post(&hello(capabilities)).await.expect(200);
        agent.session = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
        agent.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await.expect(202);
        agent
    }

    pub async fn post(&self, message: &str) -> Answer {
        client::request(&self.address, "POST", &self.path, &self.headers(), message.into()).await
    }

    /// Sends a request that is answered with an event stream.
    pub async fn post_for_events(&self, message: &str) -> Events {
        let headers = self.headers();
        Events::new(client::open(&self.address, "POST", &self.path, &headers, message.into()).await)
    }

    /// All messages that come back for a request, unchanged; the response is the last.
    pub async fn ask(&self, message: &str) -> Vec<String> {
        let answer = self.post(message).await.expect(200);
        if answer.headers["content-type"] == "application/json" {
            return vec![answer.text()];
        }
        let mut scanner = wire::sse::Scanner::new(1 << 26);
        scanner.feed(&answer.body);
        let mut messages = Vec::new();
        while let Some(event) = scanner.next_event() {
            messages.push(String::from_utf8(event.unwrap().data.to_vec()).unwrap());
        }
        messages
    }

    /// Opens the stream for messages outside of calls.
    pub async fn listen(&self) -> Events {
        let headers = self.headers();
        Events::new(client::open(&self.address, "GET", &self.path, &headers, Vec::new()).await)
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        let mut headers = vec![ACCEPT, ("content-type", "application/json")];
        if !self.session.is_empty() {
            headers
                .extend([("mcp-session-id", self.session.as_str()), ("mcp-protocol-version", "2025-11-25")]);
        }
        headers
    }
}

pub struct SseAgent {
    address: String,
    pub path: String,
    events: Events,
}

impl SseAgent {
    /// `path` is that of an event stream, such as `/sse`.
    pub async fn open(app: &TestApp, path: &str, capabilities: Value) -> Self {
        let headers = [("accept", "text/event-stream")];
        let mut events = Events::new(client::open(&app.address, "GET", path, &headers, Vec::new()).await);
        let endpoint = events.next().await.expect("the stream begins with the address to post to");
        assert_eq!(endpoint.name.as_deref(), Some("endpoint"));
        let path = String::from_utf8(endpoint.data.to_vec()).unwrap();
        let mut agent = Self { address: app.address.clone(), path, events };
        agent.post(&hello(capabilities)).await;
        agent.next().await;
        agent.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        agent
    }

    pub async fn post(&self, message: &str) {
        let headers = [("content-type", "application/json")];
        client::request(&self.address, "POST", &self.path, &headers, message.into()).await.expect(202);
    }

    /// The next message on the stream, unchanged.
    pub async fn next(&mut self) -> String {
        let event = self.events.next().await.expect("the stream stays open");
        String::from_utf8(event.data.to_vec()).unwrap()
    }

    /// All messages that come back for a request, up to its response.
    pub async fn ask(&mut self, message: &str) -> Vec<String> {
        self.post(message).await;
        let mut messages = Vec::new();
        loop {
            messages.push(self.next().await);
            let said: Value = serde_json::from_str(messages.last().unwrap()).unwrap();
            if said.get("method").is_none() {
                return messages;
            }
        }
    }
}

fn hello(capabilities: Value) -> String {
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "clientInfo": {"name": "agent", "version": "1"},
    });
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string()
}

/// The text of the first content block of a response.
pub fn text_of(answer: &str) -> String {
    let answer: Value = serde_json::from_str(answer).unwrap();
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text: {answer}")).to_owned()
}
