//! Server-sent events as the gateway writes them, one block of lines each.

use anyhow::{Context, Result};
use serde_json::Value;

/// Name and data of one event; `None` for a comment.
pub fn parse_event(block: &str) -> Result<Option<(String, Value)>> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let Some(data) = field("data:") else { return Ok(None) };
    let value =
        serde_json::from_str(data).with_context(|| format!("an event that is not JSON: {}", cut(data)))?;
    Ok(Some((field("event:").unwrap_or("message").to_owned(), value)))
}

/// The beginning of a text, for a report.
pub fn cut(text: &str) -> String {
    text.chars().take(160).collect()
}
