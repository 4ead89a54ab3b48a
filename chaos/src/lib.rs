//! What the programs of this crate share: the program under test, an HTTP client, a small server, random choices.

pub mod gateway;
pub mod http;
pub mod random;
pub mod server;
