//! Reads a JSON object field by field, so that every mistake in it becomes one sentence that names the field. `null`
//! counts as absent. Reading a field removes it, so the fields left at the end are unknown ones.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// An invalid field of the input, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field \"{field}\" {problem}")]
pub struct FieldError {
    pub field: String,
    pub problem: String,
}

impl FieldError {
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }

    /// The same mistake, seen from the object that has the object with the mistake as its field `outer`.
    pub fn within(self, outer: &str) -> Self {
        Self { field: format!("{outer}.{}", self.field), ..self }
    }
}

pub struct Fields(Map<String, Value>);

impl Fields {
    pub fn new(object: Map<String, Value>) -> Self {
        Self(object)
    }

    pub fn take(&mut self, field: &str) -> Option<Value> {
        self.0.remove(field).filter(|value| !value.is_null())
    }

    pub fn text(&mut self, field: &str) -> Result<Option<String>, FieldError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(field, "a string", &other)),
        }
    }

    pub fn required_text(&mut self, field: &str) -> Result<String, FieldError> {
        self.text(field)?.ok_or_else(|| FieldError::new(field, "is required"))
    }

    pub fn flag(&mut self, field: &str) -> Result<Option<bool>, FieldError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(wrong_type(field, "true or false", &other)),
        }
    }

    pub fn count(&mut self, field: &str) -> Result<Option<u64>, FieldError> {
        match self.take(field) {
            None => Ok(None),
            Some(value) => value
                .as_u64()
                .map(Some)
                .ok_or_else(|| wrong_type(field, "a whole number of 0 or more", &value)),
        }
    }

    pub fn texts(&mut self, field: &str) -> Result<Option<Vec<String>>, FieldError> {
        let items = match self.take(field) {
            None => return Ok(None),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(wrong_type(field, "an array of strings", &other)),
        };
        let texts = items.into_iter().enumerate().map(|(index, item)| match item {
            Value::String(text) => Ok(text),
            other => Err(wrong_type(&format!("{field}[{index}]"), "a string", &other)),
        });
        texts.collect::<Result<_, _>>().map(Some)
    }

    pub fn text_map(&mut self, field: &str) -> Result<Option<BTreeMap<String, String>>, FieldError> {
        let entries = match self.take(field) {
            None => return Ok(None),
            Some(Value::Object(entries)) => entries,
            Some(other) => return Err(wrong_type(field, "an object of strings", &other)),
        };
        let texts = entries.into_iter().map(|(key, value)| match value {
            Value::String(text) => Ok((key, text)),
            other => Err(wrong_type(&format!("{field}.{key}"), "a string", &other)),
        });
        texts.collect::<Result<_, _>>().map(Some)
    }

    pub fn object(&mut self, field: &str) -> Result<Option<Map<String, Value>>, FieldError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(other) => Err(wrong_type(field, "an object", &other)),
        }
    }

    /// Fails if there is a field that was not read.
    pub fn finish(self) -> Result<(), FieldError> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some((field, _)) => Err(FieldError::new(field, "is unknown")),
        }
    }
}

fn wrong_type(field: &str, wanted: &str, got: &Value) -> FieldError {
    let got = match got {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    FieldError::new(field, format!("must be {wanted}, not {got}"))
}
