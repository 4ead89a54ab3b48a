//! Reads results as far as the gateway needs to: their members, and the text of a tool error.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The first text in the result of a tool that reported an error, for people.
pub fn said_in(result: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Block {
        text: Option<String>,
    }
    let content = members(result).get("content").and_then(|content| {
        let blocks: Result<Vec<Block>, _> = serde_json::from_str(content.get());
        blocks.ok()?.into_iter().find_map(|block| block.text)
    });
    content.unwrap_or_else(|| "the tool reported an error without a message".into())
}

/// The members of a result; empty if it is not an object.
pub fn members(result: &[u8]) -> HashMap<Cow<'_, str>, &RawValue> {
    serde_json::from_slice(result).unwrap_or_default()
}
