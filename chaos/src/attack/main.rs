//! Attacks on the limits of a gateway, run as `cargo xtask attack`. Each family of attacks is a module; an attack gets
//! its verdict in `arena.rs`, which also watches a bystander, the memory and the recovery of the gateway.

mod arena;
mod aside;
mod browsers;
mod bystander;
mod calls;
mod fake;
mod leaks;
mod lists;
mod memory;
mod messages;
mod mutate;
mod mutation;
mod oauth;
mod plan;
mod processes;
mod quotas;
mod raw;
mod signing;
mod slow;
mod sockets;
mod stdio;
mod tls;
mod tokens;
mod verdict;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};

use plan::Plan;
use verdict::Verdict;

/// Every family by the name used on the command line, in the order of the run.
const FAMILIES: &[&str] = &[
    "slow",
    "sockets",
    "tls",
    "calls",
    "quotas",
    "messages",
    "processes",
    "lists",
    "browsers",
    "oauth",
    "tokens",
    "signing",
    "leaks",
    "random",
];

fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == stdio::SERVER) {
        return Ok(stdio::serve());
    }
    tokio::runtime::Runtime::new()?.block_on(run_all(&words))
}

async fn run_all(words: &[String]) -> Result<ExitCode> {
    let plan = match Plan::parse(words, FAMILIES) {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("{error:#}\n\n{}", plan::USAGE);
            return Ok(ExitCode::from(2));
        }
    };
    println!("seed {} (repeat with --seed {})", plan.seed, plan.seed);
    let begun = Instant::now();
    let mut verdicts: Vec<Verdict> = Vec::new();
    for family in &plan.families {
        println!("\n{family}");
        let outcome = run(family, &plan).await.with_context(|| format!("the family {family}"));
        verdicts.extend(outcome?);
    }
    println!("\n{}", verdict::table(&verdicts));
    let failed = verdicts.iter().filter(|verdict| !verdict.passed()).count();
    println!("\n{} attacks, {failed} failed, {:.0} s", verdicts.len(), begun.elapsed().as_secs_f64());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run(family: &str, plan: &Plan) -> Result<Vec<Verdict>> {
    match family {
        "slow" => slow::run(plan).await,
        "sockets" => sockets::run(plan).await,
        "tls" => tls::run(plan).await,
        "calls" => calls::run(plan).await,
        "quotas" => quotas::run(plan).await,
        "messages" => messages::run(plan).await,
        "processes" => processes::run(plan).await,
        "lists" => lists::run(plan).await,
        "browsers" => browsers::run(plan).await,
        "oauth" => oauth::run(plan).await,
        "tokens" => tokens::run(plan).await,
        "signing" => signing::run(plan).await,
        "leaks" => leaks::run(plan).await,
        "random" => mutate::run(plan).await,
        _ => unreachable!("the plan names known families only"),
    }
}
