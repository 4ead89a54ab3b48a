//! `toolgate logs`: the log of a server, once or as it grows.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::events::CallEvents;
use super::invocation::Invocation;
use super::output::{self, Format};
use super::remote::{ApiRequest, RemoteError};
use super::suggestion::{ListedNoun, explain};

/// The pause before a lost stream is opened again.
const PAUSE: Duration = Duration::from_secs(1);
/// How many lines a stream that is opened again begins with: all that the gateway keeps.
const ALL: u16 = 1000;

/// Show the log of a server: its standard error, and what happened to it
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate logs files
  toolgate logs files --tail 20
  toolgate logs files -f

The gateway keeps the last lines of each server, at most 1000, until it ends itself: what the processes of the server
wrote to standard error, and what the gateway noted about it, such as lost connections and failed calls.")]
pub struct LogsArgs {
    /// Name of the server
    name: String,
    /// Show new lines as they arrive, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// How many of the last lines to show
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=1000))]
    tail: u16,
}

pub async fn run(invocation: &Invocation, logs: LogsArgs) -> anyhow::Result<()> {
    if logs.follow {
        return follow(invocation, &logs).await;
    }
    let answer = invocation.remote.ask(request(&logs.name, logs.tail)).await;
    let answer = explain(invocation, ListedNoun::Server, &logs.name, answer).await?;
    let page = answer.json()?;
    let lines = page["lines"].as_array().map(Vec::as_slice).unwrap_or_default();
    match invocation.format {
        Format::Json => output::json(&answer.text)?,
        Format::Table if lines.is_empty() => output::message("The log of the server is empty."),
        Format::Table => lines.iter().try_for_each(show)?,
    }
    Ok(())
}

/// Prints lines until the server is removed. A stream that breaks off is opened again, since the gateway may have been
/// restarted.
async fn follow(invocation: &Invocation, logs: &LogsArgs) -> anyhow::Result<()> {
    let mut shown = ShownLines::default();
    let (mut tail, mut was_open) = (logs.tail, false);
    loop {
        let request = request(&logs.name, tail).query("follow", "true");
        match invocation.remote.ask_for_events(request).await {
            Ok(response) => {
                was_open = true;
                let mut events = CallEvents::new(&invocation.remote, response);
                while let Ok(Some(event)) = events.next().await {
                    let line: Value = serde_json::from_str(&event.data)?;
                    match invocation.format {
                        _ if !shown.add(&line) => {}
                        Format::Json => output::json(&event.data)?,
                        Format::Table => show(&line)?,
                    }
                }
                output::message("The stream has ended; opening it again.");
            }
            Err(error) if was_open && is_passing(&error) => {}
            Err(error) => {
                return Ok(explain(invocation, ListedNoun::Server, &logs.name, Err(error)).await?);
            }
        }
        // What was written meanwhile is not missed, and what was shown is not repeated.
        tail = ALL;
        shown.begin_again();
        tokio::time::sleep(PAUSE).await;
    }
}

/// The lines that were shown last, as far as they are needed to recognize them in another stream.
#[derive(Default)]
struct ShownLines {
    /// The time of the last line, and all lines of that time.
    last: String,
    of_last: Vec<Value>,
    /// The same, of the stream before.
    before: (String, Vec<Value>),
}

impl ShownLines {
    /// Tells whether a line is new.
    fn add(&mut self, line: &Value) -> bool {
        let at = line["at"].as_str().unwrap_or_default();
        let (before, of_before) = &self.before;
        if at < before.as_str() || of_before.contains(line) {
            return false;
        }
        if at != self.last {
            at.clone_into(&mut self.last);
            self.of_last.clear();
        }
        self.of_last.push(line.clone());
        true
    }

    fn begin_again(&mut self) {
        if !self.last.is_empty() {
            self.before = (std::mem::take(&mut self.last), std::mem::take(&mut self.of_last));
        }
    }
}

fn request(name: &str, tail: u16) -> ApiRequest {
    ApiRequest::get(&["servers", name, "logs"]).query("tail", tail.to_string())
}

/// Tells whether the same request may succeed later.
fn is_passing(error: &RemoteError) -> bool {
    match error {
        RemoteError::Unreachable { .. } => true,
        RemoteError::Refused { status, .. } => matches!(status, 429 | 503),
        RemoteError::UnusableToken | RemoteError::Foreign { .. } => false,
    }
}

/// Prints a line: `2026-11-17T10:00:35.123Z stderr  listening`.
fn show(line: &Value) -> anyhow::Result<()> {
    let text = |key: &str| line[key].as_str().unwrap_or_default();
    output::foreign(&format!("{} {:<7} {}\n", text("at"), text("source"), text("text")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_line_is_shown_twice_and_none_is_left_out() {
        let line = |at: &str, text: &str| json!({"at": at, "source": "stderr", "text": text});
        let mut shown = ShownLines::default();
        assert!(["a", "a", "b"].map(|text| shown.add(&line("1", text))).iter().all(|is_new| *is_new));
        assert!(shown.add(&line("2", "c")));
        shown.begin_again();
        shown.begin_again();
        let again = [("1", "b"), ("2", "c"), ("2", "d"), ("3", "c")];
        assert_eq!(again.map(|(at, text)| shown.add(&line(at, text))), [false, false, true, true]);
    }
}
