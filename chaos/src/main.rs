//! Fault injection, run as `cargo xtask chaos`: breaks what the gateway depends on and checks what it promises.
//! Each part is a module that turns a [`Plan`] into a [`Report`]; the parts share only the modules listed first.

mod gateway;
mod http;
mod network;
mod plan;
mod random;
mod report;

use std::process::ExitCode;

use anyhow::Result;

use plan::Plan;
use report::Report;

/// Every part by the name used on the command line.
const PARTS: &[&str] = &["network"];

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
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
        "network" => network::run(plan).await,
        _ => unreachable!("the plan names known parts only"),
    }
}
