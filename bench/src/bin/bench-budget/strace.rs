//! Strace: its command line, and the number of system calls in its summary.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The command line in front of a program. The summary is written when the program and its children have ended.
pub fn wrapper(output: &Path) -> Vec<String> {
    ["strace", "-f", "-c", "-o", &output.display().to_string()].map(str::to_owned).into()
}

pub fn read(output: &Path) -> Result<f64> {
    let text = fs::read_to_string(output).with_context(|| format!("strace wrote no {}", output.display()))?;
    parse(&text).context("unexpected summary of strace")
}

/// Adds up the rows `% time, seconds, usecs/call, calls, [errors], syscall`.
fn parse(text: &str) -> Option<f64> {
    let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rows = rows.filter(|row| row.len() >= 5 && row[0].parse::<f64>().is_ok());
    let rows = rows.filter(|row| row.last() != Some(&"total"));
    let calls: Option<Vec<f64>> = rows.map(|row| row[3].parse().ok()).collect();
    calls.filter(|calls| !calls.is_empty()).map(|calls| calls.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_added_up_without_the_total() {
        let text = "% time     seconds  usecs/call     calls    errors syscall\n\
            ------ ----------- ----------- --------- --------- ----------------\n \
            60.00    0.000600           6       100         3 read\n 40.00    0.000400           4        50           write\n\
            ------ ----------- ----------- --------- --------- ----------------\n\
            100.00    0.001000           6       150         3 total\n";
        assert_eq!(parse(text), Some(150.0));
    }

    #[test]
    fn a_text_without_rows_is_not_read() {
        assert_eq!(parse("strace: Process 5 attached\n"), None);
    }
}
