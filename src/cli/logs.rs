//! `toolgate logs`: what the processes of a server wrote to standard error.

use std::time::Duration;

use clap::Args;

use super::invocation::Invocation;
use super::output::{self, Format};
use super::remote::ApiRequest;
use super::suggestion::{ListedNoun, explain};

/// How often new lines are asked for.
const PACE: Duration = Duration::from_millis(500);

/// Show what a server wrote to its standard error
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate logs files
  toolgate logs files -f

The gateway keeps the last 200 lines of a server that it runs as a process, until the server is disabled or the gateway
ends.")]
pub struct LogsArgs {
    /// Name of the server
    name: String,
    /// Show new lines as they arrive, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
}

pub async fn run(invocation: &Invocation, logs: LogsArgs) -> anyhow::Result<()> {
    let mut after = 0;
    let mut is_first = true;
    loop {
        let request = ApiRequest::get(&["servers", &logs.name, "logs"]).query("after", after.to_string());
        let answer = invocation.remote.ask(request).await;
        let answer = explain(invocation, ListedNoun::Server, &logs.name, answer).await?;
        let page = answer.json()?;
        let lines: Vec<&str> =
            page["lines"].as_array().into_iter().flatten().filter_map(|line| line.as_str()).collect();
        match invocation.format {
            Format::Json if is_first || !lines.is_empty() => output::json(&answer.text)?,
            Format::Json => {}
            Format::Table if is_first && lines.is_empty() => {
                output::message("The server has written nothing to its standard error.");
            }
            Format::Table => {
                for line in lines {
                    output::foreign(&format!("{line}\n"))?;
                }
            }
        }
        if !logs.follow {
            return Ok(());
        }
        // A server that was started again counts from the beginning.
        after = page["next"].as_u64().unwrap_or(0);
        is_first = false;
        tokio::time::sleep(PACE).await;
    }
}
