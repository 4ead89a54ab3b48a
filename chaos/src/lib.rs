//! What the programs of this crate share: the program under test, an HTTP client, small servers, random choices.

pub mod choice;
pub mod gateway;
pub mod http;
pub mod layer;
pub mod random;
pub mod server;
pub mod stdio;
pub mod tls;
