//! The program: runs the command line, or the guard of a child process.

use std::process::ExitCode;

use toolgate::allocator::{self, Allocator};
use toolgate::cli;
use upstream::stdio::guard;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    // Before anything else is set up: there is a guard for each child process, so guards must use little memory.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == guard::COMMAND) {
        return guard::run(arguments);
    }
    allocator::set_up();
    cli::run(allocator::give_back)
}
