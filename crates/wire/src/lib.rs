//! MCP messages as bytes: what the gateway must know of a message is read in one borrowed pass, what it must
//! change is a patch, all else stays as sent. No I/O, no async, no other layer.
//!
//! Reading order: [`scan`] with `token` and `word`, [`walk`] (JSON as spans), [`text`] and [`id`] (what tokens
//! say), [`head`], [`params`] and [`keys`] (what a message says), [`response`] with `marks` (a server's response), [`patch`] (how
//! it is changed), [`authored`] and [`error`] (what we write ourselves), [`sse`] (how it travels), [`era`], [`meta`]
//! and [`headers`] with `annotation` (what differs between protocol revisions).

mod annotation;
pub mod authored;
pub mod era;
pub mod error;
pub mod head;
mod head_error;
pub mod headers;
pub mod id;
pub mod keys;
mod marks;
pub mod meta;
pub mod params;
pub mod patch;
pub mod response;
pub mod scan;
pub mod sse;
pub mod text;
mod token;
pub mod walk;
mod word;

pub use era::{Era, Version};
pub use error::RpcError;
pub use head::{Head, MessageKind};
pub use head_error::HeadError;
pub use headers::HeaderParam;
pub use id::{Id, find_answer_id};
pub use params::{Meta, Params, Reference};
pub use patch::Patch;
pub use response::Response;
pub use scan::Span;
pub use text::Text;
