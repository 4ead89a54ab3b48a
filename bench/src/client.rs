//! A client in a closed loop: it repeats one operation over one connection and checks every response.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::target::Target;
use crate::{Message, Wire};

/// What a client does.
#[derive(Clone)]
pub struct Script {
    pub target: Target,
    /// Without a session.
    pub is_modern: bool,
    pub work: Work,
}

/// One operation.
#[derive(Clone)]
pub enum Work {
    /// Calls a tool that returns its text.
    Echo { tool: String },
    /// Calls a tool that returns a text of this size.
    Payload { tool: String, bytes: usize },
    /// Lists all tools, of which there must be so many.
    List { tools: usize },
    /// Opens and closes a session.
    Session,
}

pub struct Client {
    script: Script,
    wire: Wire,
    /// Empty if an operation has several requests.
    request: Vec<u8>,
    /// The text that the first response must contain.
    expected: String,
    /// The first response. All others must be the same, since the requests are.
    first: Option<Vec<u8>>,
}

impl Client {
    /// Connects, and opens a session if the operation needs one. The number makes the client's requests unique.
    pub async fn connect(script: &Script, number: usize) -> Result<Self> {
        let target = &script.target;
        let mut wire = Wire::connect(&target.address).await?;
        let text = format!("hello from {number}");
        let (method, params) = match &script.work {
            Work::Echo { tool } => ("tools/call", json!({"name": tool, "arguments": {"text": text}})),
            Work::Payload { tool, bytes } => {
                ("tools/call", json!({"name": tool, "arguments": {"bytes": bytes}}))
            }
            Work::List { .. } => ("tools/list", json!({})),
            Work::Session => ("", Value::Null),
        };
        let request = match (&script.work, script.is_modern) {
            (Work::Session, _) => Vec::new(),
            (_, true) => target.modern(method, params),
            (_, false) => {
                let headers = target.open_session(&mut wire).await?;
                target.legacy(&headers, method, &params)
            }
        };
        Ok(Self { script: script.clone(), wire, request, expected: text, first: None })
    }

    pub async fn operate(&mut self) -> Result<()> {
        if matches!(self.script.work, Work::Session) {
            let target = &self.script.target;
            let headers = target.open_session(&mut self.wire).await?;
            return target.close_session(&mut self.wire, &headers).await;
        }
        self.wire.send(&self.request).await?;
        let answer = self.wire.receive().await?.context("the connection was closed")?;
        let is_right = match &self.first {
            Some(first) => answer.body == *first,
            None => self.is_right(&answer)?,
        };
        let text = || String::from_utf8_lossy(&answer.body[..answer.body.len().min(500)]).into_owned();
        ensure!(
            is_right && answer.head.starts_with("HTTP/1.1 200"),
            "unexpected: {} {}",
            answer.head,
            text()
        );
        self.first.get_or_insert(answer.body);
        Ok(())
    }

    fn is_right(&self, answer: &Message) -> Result<bool> {
        let message: Value = serde_json::from_slice(&answer.body).context("the response is not JSON")?;
        let text = message["result"]["content"][0]["text"].as_str();
        Ok(match &self.script.work {
            Work::Echo { .. } => text == Some(self.expected.as_str()),
            Work::Payload { bytes, .. } => text.is_some_and(|text| text.len() == *bytes),
            Work::List { tools } => message["result"]["tools"].as_array().map(Vec::len) == Some(*tools),
            Work::Session => true,
        })
    }
}
