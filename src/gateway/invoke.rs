//! Calling a tool, and what comes of it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Instant;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::call::{Call, Failure};
use super::caller::Owner;
use super::{Error, Gateway};
use crate::telemetry::Outcome;
use crate::upstream::CallError;
use crate::wire::{authored, text};

/// A tool's answer: the members of the result, as the upstream wrote them.
pub struct ToolResult(Bytes);

impl Gateway {
    /// Says what is wrong with calling this tool before anything is sent.
    pub fn check_callable(&self, full_name: &str) -> Result<(), Error> {
        let catalog = self.catalog();
        let (entry, _) = catalog.tool(full_name)?;
        match entry.upstream {
            Some(_) => Ok(()),
            None => Err(Failure::Disabled.explain(full_name, entry)),
        }
    }

    /// Calls a tool with arguments given as JSON. Progress goes to `progress` where somebody wants it.
    pub async fn invoke(
        &self,
        owner: Owner,
        full_name: &str,
        arguments: &[u8],
        progress: Option<mpsc::Sender<Bytes>>,
    ) -> Result<ToolResult, Error> {
        let catalog = self.catalog();
        let (entry, tool) = catalog.tool(full_name)?;
        let begun = Instant::now();
        let mut measure = self.metrics.call_begins(entry.name().as_str(), &tool.name);
        let name = text::quote(&tool.name);
        let params: &[(&str, &[u8])] = &[("name", &name), ("arguments", arguments)];
        let is_repeatable = tool.is_repeatable();
        let call = Call { method: "tools/call", params, is_repeatable, owner: Some(owner), progress };
        let outcome = call.run(entry).await.map(ToolResult);
        measure.ends(match &outcome {
            Ok(result) if result.is_error() => Outcome::ToolError,
            Ok(_) => Outcome::Ok,
            Err(Failure::Call(CallError::TimedOut(_))) => Outcome::TimedOut,
            Err(_) => Outcome::Failed,
        });
        tracing::debug!(tool = full_name, elapsed = ?begun.elapsed(), ok = outcome.is_ok(), "called a tool");
        if let (Ok(result), Some(upstream)) = (&outcome, &entry.upstream)
            && result.is_error()
        {
            upstream.note_failure(&tool.name, &said_in(&result.0));
        }
        outcome.map_err(|failure| {
            let error = failure.explain(full_name, entry);
            if let Some(upstream) = &entry.upstream {
                upstream.note_failure(&tool.name, &error.to_string());
            }
            error
        })
    }
}

impl ToolResult {
    pub fn is_error(&self) -> bool {
        members(&self.0).get("isError").is_some_and(|flag| flag.get() == "true")
    }

    /// `content` and `isError` always, `structuredContent` and `_meta` where the upstream sent them.
    pub fn to_json(&self) -> Vec<u8> {
        let members = members(&self.0);
        let get = |key: &str| members.get(key).map(|value| value.get().as_bytes());
        let mut shown: Vec<(&str, &[u8])> = vec![
            ("content", get("content").unwrap_or(b"[]")),
            ("isError", if self.is_error() { b"true" } else { b"false" }),
        ];
        for key in ["structuredContent", "_meta"] {
            shown.extend(get(key).map(|value| (key, value)));
        }
        authored::object(&shown)
    }
}

/// What a tool that reported an error said first, for people.
pub fn said_in(result: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Block {
        text: Option<String>,
    }
    let content = members(result).get("content").and_then(|content| {
        let blocks: Result<Vec<Block>, _> = serde_json::from_str(content.get());
        blocks.ok()?.into_iter().find_map(|block| block.text)
    });
    content.unwrap_or_else(|| "the tool reported an error without saying which".into())
}

/// The members of a result; none where it is no object.
pub fn members(result: &[u8]) -> HashMap<Cow<'_, str>, &RawValue> {
    serde_json::from_slice(result).unwrap_or_default()
}
