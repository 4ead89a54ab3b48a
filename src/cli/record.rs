//! Reads and makes JSON records of the REST API.

use serde_json::{Map, Value};

use super::output::{Cell, Tone};

/// Returns a text field; empty if it is missing.
pub fn text(object: &Value, key: &str) -> String {
    object[key].as_str().unwrap_or_default().to_owned()
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
