//! The project's own commands, run as `cargo xtask <command>`.
//! This file only parses the arguments; what each command does is a table in `steps.rs`.

mod balancer;
mod bench;
mod chaos;
mod clients;
mod command;
mod conformance;
mod dashboard;
mod deployment;
mod fresh;
mod fuzz;
mod packages;
mod postgres;
// The tests of replicas use more of it.
#[allow(dead_code)]
mod postgres_server;
mod profile;
mod python;
mod release;
mod run;
mod shells;
mod sign_in;
mod steps;
mod tally;

use std::process::ExitCode;

use run::Run;

const HELP: &str = "\
cargo xtask test [FILTER]   all checks; with FILTER only the tests whose name contains it
cargo xtask conformance [FILTER]
                            only the official suite; FILTER selects cases by name, such as client-modern
cargo xtask conformance --write
                            writes the scores of the gateway into tests/conformance/README.md
cargo xtask clients [FILTER]
                            only the real clients; FILTER selects them by name, such as Python
cargo xtask sign-in [FILTER]
                            only real clients that sign in, in a browser; FILTER selects scripts by name
cargo xtask postgres [FILTER]
                            the integration tests on a Postgres server of their own, and those of several
                            gateways on one database
cargo xtask completion      only the completion of names in zsh and fish
cargo xtask dashboard       only format, lint, types, unit tests and build of the dashboard
cargo xtask deployment      only the files in deploy/: images, compose, chart, balancer, service
cargo xtask browser [FILTER]
                            only the dashboard in a real browser; FILTER selects scripts by name
cargo xtask chaos [PART...] [--minutes N] [--seed N] [--toolgate FILE]
                            fault injection against the release build, or against FILE; all parts by default
cargo xtask attack [FAMILY...] [--seed N] [--requests N] [--toolgate FILE]
                            attacks on the limits of the release build, or of FILE; all families by default
cargo xtask budget [ROW...] [--toolgate FILE]
                            counts instructions, allocations and system calls of the release build, or of FILE, and
                            compares them with bench/budget.toml
cargo xtask budget --write  writes the counts into bench/budget.toml
cargo xtask budget --functions
                            writes the functions that operations run through into bench/functions.txt, for the linker
cargo xtask bench [TOPIC...] [--rounds N] [--seconds S] [--toolgate FILE]
                            CPU time, latency and memory of the release build, or of FILE, beside nginx, into
                            bench/results.md; with TOPIC (workloads, rest, ways, growth) only printed
cargo xtask profile         writes the profile of calls, bench/profile/calls.profdata, for the compiler; takes 15 minutes
cargo xtask web             builds the dashboard into web/dist, which is committed
cargo xtask fuzz [TARGET...] [--seconds N] [--seed N]
                            only fuzzing; `cargo xtask fuzz --help` lists the targets and options
cargo xtask release [--toolgate FILE [--into FOLDER]]
                            the archive of a release, of the release build or of FILE, into target/release-archive or
                            FOLDER: program, completions, manual pages, licences, checksums
cargo xtask fresh [--keep]  as root: both commands of the README in a bare Debian 12; --keep leaves it in place
cargo xtask fresh --enter [COMMAND...]
                            as root: a shell, or COMMAND, in the Debian that --keep left
cargo xtask extra           checks that need tools of their own: cargo-deny
cargo xtask help            this text

A step that cannot run here is skipped with the reason; with CI=true it fails instead.";

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
        ["conformance", "--write"] => Run::new(None).walk(steps::SCORES),
        ["conformance", filter] if !filter.starts_with('-') => {
            Run::new(Some((*filter).to_owned())).walk(steps::CONFORMANCE)
        }
        ["clients"] => Run::new(None).walk(steps::CLIENTS),
        ["clients", filter] if !filter.starts_with('-') => {
            Run::new(Some((*filter).to_owned())).walk(steps::CLIENTS)
        }
        ["sign-in"] => Run::new(None).walk(steps::SIGN_IN),
        ["sign-in", filter] if !filter.starts_with('-') => {
            Run::new(Some((*filter).to_owned())).walk(steps::SIGN_IN)
        }
        ["postgres"] => Run::new(None).walk(steps::POSTGRES),
        ["postgres", filter] if !filter.starts_with('-') => {
            Run::new(Some((*filter).to_owned())).walk(steps::POSTGRES)
        }
        ["completion"] => Run::new(None).walk(steps::COMPLETION),
        ["dashboard"] => Run::new(None).walk(steps::SOURCES),
        ["deployment"] => Run::new(None).walk(steps::DEPLOY),
        ["browser"] => Run::new(None).walk(steps::BROWSE),
        ["browser", filter] if !filter.starts_with('-') => {
            Run::new(Some((*filter).to_owned())).walk(steps::BROWSE)
        }
        ["chaos", words @ ..] => chaos::run(chaos::CHAOS, words),
        ["attack", words @ ..] => chaos::run(chaos::ATTACK, words),
        ["budget", words @ ..] => bench::budget(words),
        ["bench", words @ ..] => bench::workloads(words),
        ["profile"] => profile::run(),
        ["web"] => Run::new(None).walk(steps::WEB),
        ["fuzz", words @ ..] => match fuzz::run(&Run::new(None).root, words) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        },
        ["release", words @ ..] => release::run(words),
        ["fresh", words @ ..] => fresh::run(words),
        ["extra"] => Run::new(None).walk(steps::EXTRA),
        _ => {
            eprintln!("unknown command \"{}\"\n\n{HELP}", words.join(" "));
            ExitCode::from(2)
        }
    }
}
