//! The project's own commands, run as `cargo xtask <command>`.
//! Only the words are read here; what a command does is a table in `steps.rs`.

mod chaos;
mod clients;
mod command;
mod conformance;
mod dashboard;
mod fuzz;
mod packages;
mod run;
mod steps;
mod tally;

use std::process::ExitCode;

use run::Run;

const HELP: &str = "\
cargo xtask test [FILTER]   format check, clippy, all tests, faults, documentation; FILTER narrows the tests by name
cargo xtask conformance [FILTER]
                            the official suite alone; FILTER narrows the cases by name, such as client-modern
cargo xtask clients [FILTER]
                            the real clients alone; FILTER narrows them by name, such as Python
cargo xtask dashboard       format, lint, types, unit tests and build of the dashboard alone
cargo xtask browser [FILTER]
                            the dashboard in a real browser alone; FILTER narrows the scripts by name
cargo xtask chaos [PART...] [--minutes N] [--seed N] [--toolgate FILE]
                            fault injection against the release build, or against FILE; all parts by default
cargo xtask web             builds the dashboard into web/dist, which is committed
cargo xtask fuzz [TARGET...] [--seconds N] [--seed N]
                            fuzzing alone; `cargo xtask fuzz --help` tells the targets and the other words
cargo xtask extra           what a fresh machine lacks: cargo-deny
cargo xtask help            this text

A step that cannot run here is skipped with the reason; with CI=true it is a failure.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        ["test"] => Run::new(None).walk(steps::TEST),
        ["test", filter] if !filter.starts_with('-') => {
            Run::new(Some((*filter).to_owned())).walk(steps::TEST)
        }
        ["conformance"] => Run::new(None).walk(steps::CONFORMANCE),
        ["conformance", filter] if !filter.starts_with('-') => {
            Run::new(Some((*filter).to_owned())).walk(steps::CONFORMANCE)
        }
        ["clients"] => Run::new(None).walk(steps::CLIENTS),
        ["clients", filter] if !filter.starts_with('-') => {
            Run::new(Some((*filter).to_owned())).walk(steps::CLIENTS)
        }
        ["dashboard"] => Run::new(None).walk(steps::SOURCES),
        ["browser"] => Run::new(None).walk(steps::BROWSE),
        ["browser", filter] if !filter.starts_with('-') => {
            Run::new(Some((*filter).to_owned())).walk(steps::BROWSE)
        }
        ["chaos", words @ ..] => chaos::run(words),
        ["web"] => Run::new(None).walk(steps::WEB),
        ["fuzz", words @ ..] => match fuzz::run(&Run::new(None).root, words) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        },
        ["extra"] => Run::new(None).walk(steps::EXTRA),
        _ => {
            eprintln!("unknown command \"{}\"\n\n{HELP}", words.join(" "));
            ExitCode::from(2)
        }
    }
}
