//! HTTP to upstreams: connections of our own (`stream`, `dial`, `connection`) with their heads (`fields`, `head`) and bodies
//! (`framing`, `body`), a small pool of them (`pool`, `client`), and MCP's streamable transport on top (`streamable`,
//! `answer`). No header of a client's request is passed on to an upstream.

mod answer;
mod body;
mod client;
mod connection;
mod dial;
mod fields;
mod framing;
mod head;
mod pool;
mod stream;
mod streamable;

pub use answer::{AnswerStream, EventReader, Received};
pub use client::HttpClient;
pub use connection::{read_response, read_second_response};
pub use dial::Tls;
pub use fields::{Method, Target, render};
pub use streamable::{Streamable, start_listening};

use http::header::HeaderValue;

pub const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
pub const JSON_OR_EVENTS: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
