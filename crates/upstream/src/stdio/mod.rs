//! Servers that run as our child processes and speak in lines over their standard input and output.
//! `guard` is the small process between us and the server that makes sure nothing survives us; `guards` makes sure
//! that nothing survives a guard, and `processes` is how both find and end what runs below them.

mod child;
pub mod guard;
mod guards;
mod processes;
mod stderr;

pub use child::Child;
pub use guards::{Guards, adopt_orphans};
pub use stderr::StderrTail;
