//! Records of the REST API: reading fields of them, and making small ones.

use serde_json::{Map, Value};

use super::output::{Cell, Tone};

/// A field that is text, or nothing.
pub fn text(object: &Value, key: &str) -> String {
    object[key].as_str().unwrap_or_default().to_owned()
}

/// A map with one key.
pub fn one(key: &str, value: impl Into<Value>) -> Map<String, Value> {
    Map::from_iter([(key.to_owned(), value.into())])
}

/// The cell that says whether something is enabled.
pub fn enabled(record: &Value) -> Cell {
    match record["enabled"].as_bool() {
        Some(false) => Cell::new("no", Tone::Faint),
        Some(true) | None => "yes".into(),
    }
}
