//! The REST management API under `/api/v0`, one file per noun.

pub mod servers;
pub mod tools;
