//! The only place that prints: results on standard output, messages on standard error. Colours and shortened text
//! appear only on a terminal. In text from elsewhere, characters that would steer a terminal are escaped, in a pipe too:
//! what is written to a file may be shown on a terminal later.

mod json;
mod prompter;
mod spinner;
mod table;
mod terminal;

use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use console::{Term, measure_text_width};

use crate::config;

pub use json::indented;
pub use prompter::{Prompter, can_ask};
pub use spinner::{Spinner, bar};
pub use table::{Cell, Table, Tone};
pub use terminal::{message, printable};

/// The least room for the values of a card.
const NARROWEST_VALUE: usize = 20;

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    // Tables for people.
    Table,
    // The JSON of the API. Doc comments here would make every help text twice as long.
    Json,
}

/// Prints a line of a result.
pub fn line(text: &str) -> anyhow::Result<()> {
    write(&format!("{text}\n"))
}

/// Prints a result, with a line end after it if it has none.
pub fn page(text: &str) -> anyhow::Result<()> {
    if text.is_empty() || text.ends_with('\n') { write(text) } else { line(text) }
}

/// Prints JSON, indented; digits and the order of keys stay the same. Characters that would steer a terminal are escaped
/// as JSON does it.
pub fn json(text: &str) -> anyhow::Result<()> {
    page(&indented(text))
}

/// Prints text from elsewhere.
pub fn foreign(text: &str) -> anyhow::Result<()> {
    page(&printable(text))
}

/// Prints a rendered table as a message, without its colours.
pub fn table_message(table: &str) {
    message(&console::strip_ansi_codes(table));
}

/// Prints the error of a command that failed.
pub fn failure(text: &str) {
    message(&format!("toolgate: {text}"));
}

/// Asks a yes-or-no question. Returns `None` if there is no terminal.
pub async fn ask(question: &str) -> Option<bool> {
    if !can_ask() {
        return None;
    }
    let _ = write!(std::io::stderr().lock(), "{} [y/N] ", printable(question));
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).map(|_| answer)
    });
    let answer = answer.await.ok()?.ok()?;
    Some(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Formats labels and values, one per line; leaves out empty values.
pub fn card(fields: &[(&str, String)]) -> String {
    let filled = || fields.iter().filter(|(_, value)| !value.is_empty());
    let width = filled().map(|(label, _)| label.len()).max().unwrap_or(0) + 2;
    let mut page = String::new();
    let room = self::width().map_or(usize::MAX, |columns| columns.saturating_sub(width).max(NARROWEST_VALUE));
    for (label, value) in filled() {
        let lines: Vec<String> =
            printable(value).trim_end().lines().flat_map(|line| wrap(line, room)).collect();
        let value = lines.join(&format!("\n{}", " ".repeat(width)));
        page.push_str(&format!("{:width$}{value}\n", format!("{label}:")));
    }
    page
}

/// Wraps a line between words; a word that is longer than `room` keeps its line.
pub fn wrap(line: &str, room: usize) -> Vec<String> {
    if measure_text_width(line) <= room {
        return vec![line.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in line.split(' ') {
        let last = lines.last_mut().expect("there is always a line");
        if last.is_empty() {
            last.push_str(word);
        } else if measure_text_width(last) + 1 + measure_text_width(word) <= room {
            last.push_str(&format!(" {word}"));
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Returns the width for results in columns: that of the terminal, or else `COLUMNS`; `None` for no limit.
pub fn width() -> Option<usize> {
    let named = config::variable("COLUMNS").and_then(|columns| columns.parse().ok());
    let measured = || Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
    let columns = if std::io::stdout().is_terminal() { measured().or(named) } else { named };
    columns.filter(|columns| *columns > 0)
}

fn write(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}
