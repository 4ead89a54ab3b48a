//! Calling a tool: finds it, gets the link, sends the call and waits for its result. A call whose link turned out
//! to be dead is sent once more where that is safe; dropping the future cancels the call upstream.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::catalog::Entry;
use super::{Error, Gateway};
use crate::model::{Redactor, Tool};
use crate::telemetry::Outcome;
use crate::upstream::{CallError, Inbound, Link, Request, Upstream};
use crate::wire::{Head, RpcError, text};

/// A tool's answer: the members of the result, as the upstream wrote them.
pub struct ToolResult {
    answer: Bytes,
}

/// How a call went, short of an answer.
enum Failure {
    Call(CallError),
    /// The upstream's own error, in its words.
    Rpc {
        code: i64,
        message: String,
    },
    /// The tool asked for something that only an MCP client can give.
    NeedsInput,
}

impl Gateway {
    /// Calls a tool with arguments given as JSON. Progress goes to `progress` where somebody wants it.
    pub async fn invoke(
        &self,
        full_name: &str,
        arguments: &[u8],
        progress: Option<mpsc::Sender<Bytes>>,
    ) -> Result<ToolResult, Error> {
        let catalog = self.catalog();
        let (entry, tool) = catalog.tool(full_name)?;
        let Some(upstream) = &entry.upstream else {
            return Err(Error::invalid(format!("server {:?} is disabled", entry.name().as_str())));
        };
        let begun = Instant::now();
        let mut unfinished = self.metrics.call_begins(entry.name().as_str(), &tool.name);
        let limit = entry.registration.config.timeout();
        let call = self.call(upstream, tool, arguments, progress);
        let outcome = match limit {
            None => call.await,
            Some(limit) => within(limit, call).await,
        };
        unfinished.ends(match &outcome {
            Ok(result) if result.is_error() => Outcome::ToolError,
            Ok(_) => Outcome::Ok,
            Err(Failure::Call(CallError::TimedOut(_))) => Outcome::TimedOut,
            Err(_) => Outcome::Failed,
        });
        tracing::debug!(tool = full_name, elapsed = ?begun.elapsed(), ok = outcome.is_ok(), "called a tool");
        outcome.map_err(|failure| failure.explain(full_name, entry))
    }

    async fn call(
        &self,
        upstream: &Upstream,
        tool: &Tool,
        arguments: &[u8],
        progress: Option<mpsc::Sender<Bytes>>,
    ) -> Result<ToolResult, Failure> {
        let _permit = upstream.permit().await;
        let mut link = upstream.link().await?;
        let error = match call_once(&link, tool, arguments, progress.as_ref()).await {
            Err(Failure::Call(error)) => error,
            settled => return settled,
        };
        let link_is_dead = error.did_not_run() || matches!(error, CallError::Lost(_));
        let is_safe = error.did_not_run() || tool.is_repeatable();
        if link_is_dead {
            upstream.report(&link, &error);
        }
        if !(link_is_dead && is_safe) {
            return Err(error.into());
        }
        link = upstream.link().await?;
        call_once(&link, tool, arguments, progress.as_ref()).await
    }
}

async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(limit, call).await.unwrap_or(Err(Failure::Call(CallError::TimedOut(limit))))
}

async fn call_once(
    link: &Arc<Link>,
    tool: &Tool,
    arguments: &[u8],
    progress: Option<&mpsc::Sender<Bytes>>,
) -> Result<ToolResult, Failure> {
    let name = text::quote(&tool.name);
    let params: &[(&str, &[u8])] = &[("name", &name), ("arguments", arguments)];
    let request = Request { method: "tools/call", params, progress: progress.is_some() };
    let mut exchange = link.request(request).await?;
    loop {
        match exchange.next().await? {
            Inbound::Answer(answer) => return ToolResult::read(answer),
            Inbound::Notice(notice) => {
                if let (Some(progress), Some(params)) = (progress, progress_in(&notice)) {
                    // Somebody who reads slowly misses steps, never the result.
                    let _ = progress.try_send(params);
                }
            }
            Inbound::Request(request) => {
                exchange.refuse(&request);
                return Err(Failure::NeedsInput);
            }
        }
    }
}

/// The params of a progress notice.
fn progress_in(notice: &Bytes) -> Option<Bytes> {
    let head = Head::parse(notice).ok()?;
    let params = head.params.filter(|_| head.method.as_deref() == Some("notifications/progress"))?;
    Some(notice.slice(params.span))
}

impl ToolResult {
    fn read(answer: Bytes) -> Result<Self, Failure> {
        let head = Head::parse(&answer).map_err(|error| {
            Failure::Call(CallError::Lost(format!("the answer is not understood: {error}")))
        })?;
        if let Some(error) = head.error.and_then(|span| RpcError::parse(&answer[span])) {
            return Err(Failure::Rpc { code: error.code, message: error.message.into_owned() });
        }
        let result = head.result.map(|span| answer.slice(span)).unwrap_or_default();
        let result = Self { answer: result };
        match result.members().get("resultType") {
            Some(kind) if kind.get() == r#""input_required""# => Err(Failure::NeedsInput),
            Some(_) | None => Ok(result),
        }
    }

    fn members(&self) -> HashMap<Cow<'_, str>, &RawValue> {
        serde_json::from_slice(&self.answer).unwrap_or_default()
    }

    pub fn is_error(&self) -> bool {
        self.members().get("isError").is_some_and(|flag| flag.get() == "true")
    }

    /// `content` and `isError` always, `structuredContent` and `_meta` where the upstream sent them.
    pub fn to_json(&self) -> Vec<u8> {
        let members = self.members();
        let get = |key: &str| members.get(key).map(|value| value.get().as_bytes());
        let mut shown: Vec<(&str, &[u8])> = vec![
            ("content", get("content").unwrap_or(b"[]")),
            ("isError", if self.is_error() { b"true" } else { b"false" }),
        ];
        for key in ["structuredContent", "_meta"] {
            shown.extend(get(key).map(|value| (key, value)));
        }
        crate::wire::authored::object(&shown)
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Failure::Call(error)
    }
}

impl Failure {
    fn explain(self, full_name: &str, entry: &Entry) -> Error {
        let sentence = match self {
            Failure::Call(error) => format!("{full_name} failed: {error}"),
            Failure::Rpc { code, message } => format!("{full_name} failed: {message} (code {code})"),
            Failure::NeedsInput => {
                format!(
                    "{full_name} asks for input while it runs, which needs an MCP client; connect one to /mcp"
                )
            }
        };
        Error::upstream(Redactor::of(&entry.registration.config).redact(&sentence))
    }
}
