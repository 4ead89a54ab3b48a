//! Arguments in, exit code out.

use std::process::ExitCode;

use toolgate::cli;
use upstream::stdio::guard;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything else: a guard is a small program of its own that must stay small.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == guard::COMMAND) {
        return guard::run(arguments);
    }
    cli::run()
}
