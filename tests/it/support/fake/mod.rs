//! The fake upstream: a real MCP server of both eras over all three transports, whose behaviour a test sets.
//! It shares no code with the gateway, so that a mistake in one is not hidden by the same mistake in the other.
//! Tests use it in-process through `Fake`; `main.rs` builds the same sources as a program for stdio.

// Two programs are built from these files, and each uses only a part of them.
#![allow(dead_code, unused_imports)]

mod behaviour;
mod catalog;
mod control;
mod core;
mod handle;
mod http;
mod interview;
mod modern;
mod net;
mod sse;
mod state;
mod tasks;
mod tools;

pub use behaviour::{Behaviour, Era, Probe, Style};
pub use handle::{Fake, stdio_command};
pub use state::{Seen, State as Protected, recorded};
