//! Servers that run as our child processes and speak in lines over their standard input and output.
//! `guard` is the small process between us and the server that makes sure nothing survives us.

mod child;
pub mod guard;
mod stderr;

pub use child::Child;
pub use stderr::StderrTail;
