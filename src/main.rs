//! The program: runs the command line, or the guard of a child process.

use std::process::ExitCode;

use toolgate::cli;
use upstream::stdio::guard;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything else is set up: there is a guard for each child process, so guards must use little memory.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == guard::COMMAND) {
        return guard::run(arguments);
    }
    cli::run(give_back_memory)
}

/// Returns memory that is free to the system. The allocator does so by itself only while it is used.
#[allow(unsafe_code)] // The function has no safe interface.
fn give_back_memory() {
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: a function of the allocator above, which may be called at any time by any thread.
    unsafe { mi_collect(true) }
}
