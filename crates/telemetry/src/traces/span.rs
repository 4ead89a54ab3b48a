//! A span that has ended.

use std::sync::Arc;

use super::context::{SpanId, TraceContext};

/// How much of a text is kept: callers choose names and URIs.
const LONGEST_TEXT: usize = 1024;

/// Which side of a request a span describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// The request of a caller, as it was served.
    Server,
    /// A request to a server.
    Client,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue {
    Text(String),
    Number(i64),
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        AttributeValue::Text(text[..text.floor_char_boundary(LONGEST_TEXT)].to_owned())
    }
}

impl From<i64> for AttributeValue {
    fn from(number: i64) -> Self {
        AttributeValue::Number(number)
    }
}

/// A span that has ended and is part of a sampled trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedSpan {
    pub context: TraceContext,
    pub parent: Option<SpanId>,
    /// Whether the parent is a span of another program.
    pub is_parent_remote: bool,
    /// The `tracestate` of the trace.
    pub state: Option<Arc<str>>,
    /// Another span that the request is related to, such as that of the HTTP request that carried it.
    pub link: Option<TraceContext>,
    pub kind: SpanKind,
    pub name: String,
    /// In nanoseconds since 1970.
    pub begun_ns: u64,
    pub ended_ns: u64,
    pub attributes: Vec<(&'static str, AttributeValue)>,
    pub is_error: bool,
}

impl FinishedSpan {
    /// The name of a span: the method and, if it says something, what it is about.
    pub fn name_of(method: &str, target: Option<&str>) -> String {
        match target.filter(|target| !target.is_empty()) {
            Some(target) => format!("{method} {}", &target[..target.floor_char_boundary(LONGEST_TEXT)]),
            None => method.to_owned(),
        }
    }
}
