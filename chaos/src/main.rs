//! Fault injection, run as `cargo xtask chaos`: breaks what the gateway depends on and checks what it promises.
//! Each part is a module that turns a [`Plan`] into a [`Report`]; the parts share only the library of this crate.

mod network;
mod plan;
mod processes;
mod report;
mod soak;
mod store;

use std::process::ExitCode;

use anyhow::Result;

use plan::Plan;
use report::Report;
use toolgate_chaos::{gateway, http, random, server};

/// Every part by the name used on the command line.
const PARTS: &[&str] = &["store", "processes", "network", "soak"];

fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // A server forks, which is safe only in a process with one thread.
    if words.first().is_some_and(|word| word == processes::SERVER) {
        return Ok(processes::serve(&words[1..]));
    }
    tokio::runtime::Runtime::new()?.block_on(run_all(words))
}

async fn run_all(words: Vec<String>) -> Result<ExitCode> {
    let plan = match Plan::parse(&words, PARTS) {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("{error:#}\n\n{}", plan::USAGE);
            return Ok(ExitCode::from(2));
        }
    };
    println!("seed {} (repeat with --seed {})", plan.seed, plan.seed);
    let mut reports = Vec::new();
    for part in &plan.parts {
        println!("\n{part}: {} s ...", plan.duration.as_secs());
        let report = run(part, &plan).await?;
        print!("{report}");
        reports.push(report);
    }
    println!("\n{}", report::table(&reports));
    let violations: usize = reports.iter().map(Report::violations).sum();
    Ok(if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run(part: &str, plan: &Plan) -> Result<Report> {
    match part {
        "store" => store::run(plan).await,
        "processes" => processes::run(plan).await,
        "network" => network::run(plan).await,
        "soak" => soak::run(plan).await,
        _ => unreachable!("the plan names known parts only"),
    }
}
