//! HTTP to upstreams: hyper's connections with a small pool of our own (`client`, `pool`, `dial`), and MCP's streamable
//! transport on top (`streamable`, `answer`). No header of a client's request is passed on to an upstream.

mod answer;
mod client;
mod dial;
mod pool;
mod streamable;

pub use answer::{AnswerStream, EventReader, Received, is_event_stream};
pub use client::{HttpClient, Target};
pub use dial::Tls;
pub use streamable::{Streamable, start_listening};

use hyper::header::HeaderValue;

pub const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
pub const JSON_OR_EVENTS: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
