//! Clients in a closed loop: each sends its next request after the response to the last one, and checks every response.
//! Prints one line of JSON with the latencies and the CPU time of the watched process.
//!
//! bench-load --address 127.0.0.1:8080 --pid 1234 [--era legacy|modern] [--work call|list] [--tool up__echo] [--tools 500]
//!     [--clients 32] [--seconds 4] [--token T]

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::json;
use toolgate_bench::client::{Script, Work};
use toolgate_bench::load;
use toolgate_bench::target::Target;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let (mut address, mut token, mut pid, mut is_modern) = (String::new(), String::new(), 0, false);
    let (mut is_list, mut tool, mut tools) = (false, "up0__echo".to_owned(), 500);
    let (mut clients, mut seconds) = (32, 4.0);
    let mut words = std::env::args().skip(1);
    while let (Some(flag), Some(value)) = (words.next(), words.next()) {
        match flag.as_str() {
            "--address" => address = value,
            "--pid" => pid = value.parse()?,
            "--era" => is_modern = value == "modern",
            "--work" => is_list = value == "list",
            "--tool" => tool = value,
            "--tools" => tools = value.parse()?,
            "--token" => token = value,
            "--clients" => clients = value.parse()?,
            "--seconds" => seconds = value.parse()?,
            _ => bail!("unknown flag {flag}"),
        }
    }
    let work = if is_list { Work::List { tools } } else { Work::Echo { tool } };
    let script = Script { target: Target::new(&address, &token), is_modern, work };
    let seen = load::measure(&script, clients, Duration::from_secs_f64(seconds), pid).await?;
    println!(
        "{}",
        json!({
            "operations": seen.operations, "p50_us": seen.p50_us, "p99_us": seen.p99_us, "cpu_us": seen.cpu_us,
        })
    );
    Ok(())
}
