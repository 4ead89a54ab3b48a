//! The only place that prints: results on standard output, messages on standard error.

use std::io::Write;

pub fn line(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}")?;
    Ok(stdout.flush()?)
}
