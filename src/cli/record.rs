//! Reads and makes JSON records of the REST API.

use serde_json::{Map, Value};

use super::output::{Cell, Tone};

/// Returns a text field; empty if it is missing.
pub fn text(object: &Value, key: &str) -> String {
    object[key].as_str().unwrap_or_default().to_owned()
}

/// Returns a number with its noun: `1 tool`, `2 tools`.
pub fn counted(number: &Value, noun: &str) -> String {
    let ending = if number.as_u64() == Some(1) { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

/// Returns a rate limit in words; empty if there is none.
pub fn rate_limit(limit: &Value) -> String {
    match (&limit["calls_per_minute"], &limit["burst"]) {
        (Value::Null, _) => String::new(),
        (calls, Value::Null) => format!("{} per minute", counted(calls, "call")),
        (calls, burst) => format!("{} per minute, {burst} at once", counted(calls, "call")),
    }
}

/// Makes an object with one field.
pub fn one(key: &str, value: impl Into<Value>) -> Map<String, Value> {
    Map::from_iter([(key.to_owned(), value.into())])
}

/// Makes the table cell for the field `enabled`.
pub fn enabled(record: &Value) -> Cell {
    match record["enabled"].as_bool() {
        Some(false) => Cell::new("no", Tone::Faint),
        Some(true) | None => "yes".into(),
    }
}

/// The rules of a user or client.
pub fn allowed(holder: &Value) -> String {
    let rules = holder["allow_list"].as_array().into_iter().flatten().filter_map(Value::as_str);
    rules.collect::<Vec<_>>().join(", ")
}
