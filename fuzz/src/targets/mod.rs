//! One file for each target, named after what it reads.

pub mod authorize;
pub mod body;
pub mod head;
pub mod import;
pub mod input;
pub mod jwt;
pub mod patch;
pub mod request;
pub mod response;
pub mod session;
pub mod sse;
pub mod state;
pub mod template;
