//! `toolgate backup` and `toolgate check`: commands that read the database directly. A gateway may be running.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use serde_json::json;

use super::output::{self, Format};
use crate::app;
use crate::config::{self, Config, StartFlags};
use telemetry::LogFormat;

/// Back up the database to a file; the gateway may be running
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate backup /backups/toolgate-monday.db
  toolgate backup --sqlite-db-path /var/lib/toolgate/toolgate.db /backups/toolgate.db

The copy is one file. Its secrets are encrypted with the key of the database: keep that key too, but in another place.
To restore, stop the gateway and replace the database with the copy.")]
pub struct Backup {
    /// File to write; it must not exist yet
    file: PathBuf,
    /// Path of the database file [default: ./toolgate.db]
    #[arg(long)]
    sqlite_db_path: Option<PathBuf>,
}

/// Check the whole database and list all problems
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate check
  toolgate check --sqlite-db-path /backups/toolgate-monday.db

Nothing is changed, and the gateway may be running. The exit code is 1 if there is a problem.")]
pub struct Check {
    /// Path of the database file [default: ./toolgate.db]
    #[arg(long)]
    sqlite_db_path: Option<PathBuf>,
}

pub fn backup(command: Backup, format: Format) -> anyhow::Result<()> {
    let copied =
        run(command.sqlite_db_path, async |config: &Config| app::backup(config, &command.file).await)?;
    let file = command.file.display();
    match format {
        Format::Table => output::line(&format!(
            "copied to {file} ({} bytes); its secrets are encrypted with the key in {}, fingerprint {}",
            copied.bytes, copied.key, copied.fingerprint
        )),
        Format::Json => output::json(
            &json!({
                "file": file.to_string(),
                "bytes": copied.bytes,
                "key": copied.key.to_string(),
                "key_fingerprint": copied.fingerprint,
            })
            .to_string(),
        ),
    }
}

pub fn check(command: Check, format: Format) -> anyhow::Result<()> {
    let findings = run(command.sqlite_db_path, async |config: &Config| app::check(config).await)?;
    let wrong: usize = findings.iter().map(|finding| finding.problems.len()).sum();
    match format {
        Format::Table => {
            let mut lines = Vec::new();
            for finding in &findings {
                let verdict = if finding.problems.is_empty() { "ok   " } else { "wrong" };
                lines.push(format!("{verdict}  {}", finding.subject));
                lines.extend(finding.problems.iter().map(|problem| format!("         {problem}")));
            }
            output::foreign(&lines.join("\n"))?;
        }
        Format::Json => {
            let findings = findings.iter();
            let findings =
                findings.map(|finding| json!({ "subject": finding.subject, "problems": finding.problems }));
            output::json(&json!(findings.collect::<Vec<_>>()).to_string())?;
        }
    }
    match wrong {
        0 => Ok(()),
        1 => bail!("1 problem was found"),
        _ => bail!("{wrong} problems were found"),
    }
}

/// Runs work that needs the settings of the gateway, but no running gateway.
pub fn run<T>(
    sqlite_db_path: Option<PathBuf>,
    work: impl AsyncFnOnce(&Config) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    telemetry::start_logging(config::log_filter()?, config::log_format(LogFormat::Text)?, None);
    let config = Config::load(&StartFlags { sqlite_db_path, ..StartFlags::default() })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work(&config))
}
