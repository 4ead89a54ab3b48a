//! Joins clients and servers of different eras or of different capabilities. Input that a legacy server asks a modern
//! client for parks the call (`parking`, `open_questions`); input that a modern server asks a legacy client for becomes
//! requests to the client (`asking`). `state` is what a client keeps meanwhile, `need` what it must have declared.

pub mod asking;
mod fingerprint;
pub mod need;
pub mod open_questions;
pub mod parking;
pub mod state;
