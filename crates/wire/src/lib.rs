//! MCP messages as bytes: the parts of a message that the gateway needs are read in one borrowed pass, changes are made
//! with a patch, and everything else stays as sent. No I/O, no async, no other layer.
//!
//! Reading order: [`scan`] with `token` and `word`, [`walk`] (JSON as spans), [`text`] and [`id`] with `ends` (the values
//! of tokens), [`head`], [`params`] and `keys` (the contents of a message), [`response`] with `marks` (a server's
//! response), [`patch`] (changes), [`authored`] and [`error`] (messages that we write), [`sse`] (event streams),
//! [`same_head`] (heads of HTTP that come again), [`method`], [`era`], [`meta`] and [`headers`] with `annotation` (differences between protocol revisions).

mod annotation;
pub mod authored;
mod ends;
pub mod era;
pub mod error;
pub mod head;
mod head_error;
pub mod headers;
pub mod id;
mod keys;
mod marks;
pub mod meta;
pub mod method;
pub mod params;
pub mod patch;
pub mod response;
pub mod same_head;
pub mod scan;
pub mod sse;
pub mod text;
mod token;
pub mod walk;
mod word;

pub use ends::Ends;
pub use era::{Era, Version};
pub use error::RpcError;
pub use head::{Head, MessageKind};
pub use head_error::HeadError;
pub use headers::HeaderParam;
pub use id::{Id, OwnedId, find_answer_id};
pub use params::{Meta, Params, Reference};
pub use patch::Patch;
pub use response::Response;
pub use scan::Span;
pub use text::Text;
