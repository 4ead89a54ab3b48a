//! `toolgate backup` and `toolgate check`: commands that read the database directly. A gateway may be running.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use serde_json::json;

use super::output::{self, Format};
use crate::app;
use crate::config::{self, Config, StartFlags};

/// Copy the database to a file, also while the gateway runs
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate backup /backups/toolgate-monday.db
  toolgate backup --sqlite-db-path /var/lib/toolgate/toolgate.db /backups/toolgate.db

The copy is one file and is sealed with the same key as the database: keep that key too, but not beside the copy. To
restore, put the copy in the place of the database while no gateway runs.")]
pub struct Backup {
    /// File to write; it must not exist yet
    file: PathBuf,
    /// File of the database [default: ./toolgate.db]
    #[arg(long)]
    sqlite_db_path: Option<PathBuf>,
}

/// Read everything in the database and say what is wrong with it
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate check
  toolgate check --sqlite-db-path /backups/toolgate-monday.db

Nothing is changed, and the gateway may run meanwhile. The exit code is 1 when anything is wrong.")]
pub struct Check {
    /// File of the database [default: ./toolgate.db]
    #[arg(long)]
    sqlite_db_path: Option<PathBuf>,
}

pub fn backup(command: Backup, format: Format) -> anyhow::Result<()> {
    let copied =
        run(command.sqlite_db_path, async |config: &Config| app::backup(config, &command.file).await)?;
    let file = command.file.display();
    match format {
        Format::Table => output::line(&format!(
            "copied to {file} ({} bytes); it is sealed with the key in {}, fingerprint {}",
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
    telemetry::start_logging(config::log_filter()?, None);
    let config = Config::load(&StartFlags { sqlite_db_path, ..StartFlags::default() })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work(&config))
}
