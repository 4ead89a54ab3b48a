//! The terminal's face: what can be asked of `toolgate` on a command line, one file per command.

mod reset_admin;
mod start;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "toolgate",
    about = "One place where AI agents reach every tool",
    disable_version_flag = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway
    Start(start::Start),
    /// Make a new token for the user `admin`, beside the database of a gateway that does not run
    ResetAdmin(reset_admin::ResetAdmin),
    /// Print the version
    Version,
}

/// Runs the command line of this process; an error is for standard error and exit code 1.
pub fn run() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Start(start) => start::run(start),
        Command::ResetAdmin(command) => reset_admin::run(command),
        Command::Version => output::line(concat!("toolgate v", env!("CARGO_PKG_VERSION"))),
    }
}

mod output;
