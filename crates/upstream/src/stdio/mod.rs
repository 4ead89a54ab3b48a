//! Servers that run as our child processes and exchange lines over their standard input and output.
//! `guard` is the small process between the gateway and a server; it ensures that no process of the server survives the
//! gateway. `guards` ensures that none survives a guard. Both use `processes` to find and end descendants. `slot` counts
//! the processes, `stderr` reads what they write to standard error. `confinement` and `user` limit what a server can see and do.

mod child;
mod confinement;
pub mod guard;
mod guards;
mod lines;
mod processes;
mod slot;
mod stderr;
mod user;

pub use child::{Child, append_line};
pub use confinement::{ChildSettings, hide_memory, raise_descriptor_limit};
pub use guards::{Guards, adopt_orphans};
pub use slot::{ProcessCount, ProcessSlot};
pub use stderr::Stderr;
pub use user::ChildUser;
