//! `toolgate rotate-key`: replaces the secret key of a database. It opens the database directly; gateways may be running on
//! Postgres, but not on a SQLite file.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::database;
use super::output::{self, Format};
use crate::config::Config;
use model::Secret;
use store::{Rotated, RotationOptions};

/// Replace the secret key of the database; gateways on Postgres keep running
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate rotate-key --new-key 6d0fa3c51b7e9204d8c6f1a09b35e7720f4d81c96ab23e5570d1c84f9e62b3a8
  toolgate rotate-key --new-key 6d0fa3c51b7e9204d8c6f1a09b35e7720f4d81c96ab23e5570d1c84f9e62b3a8 --finish

On Postgres, run it, then restart all gateways with TOOLGATE_SECRET_KEY set to the new key, one after the other, and run
it again: only then the old key opens nothing any more. Use --finish if no gateway is running. If the command was
interrupted, run it again. On SQLite, stop the gateway first; one run is enough.")]
pub struct RotateKey {
    /// The new key, 64 hexadecimal characters, such as `openssl rand -hex 32` prints
    #[arg(long, value_name = "HEX")]
    new_key: String,
    /// Make the old key useless although no gateway runs with the new one
    #[arg(long)]
    finish: bool,
    /// Path of the database file [default: ./toolgate.db]
    #[arg(long)]
    sqlite_db_path: Option<PathBuf>,
}

pub fn run(command: RotateKey, format: Format) -> anyhow::Result<()> {
    let new_key = Secret::new(command.new_key);
    let finish = command.finish;
    let rotated = database::run(command.sqlite_db_path, async |config: &Config| {
        let options = RotationOptions {
            database: config.database.clone(),
            secret_key: config.secret_key.clone(),
            new_key,
            finish,
            now_ms: gateway::now_ms(),
        };
        Ok(store::rotate(&options).await?)
    })?;
    match format {
        Format::Table => output::foreign(&summary(&rotated)),
        Format::Json => {
            let result = json!({
                "rows": rotated.rows,
                "unreadable": rotated.unreadable,
                "waiting_for": rotated.waiting_for,
                "finished": rotated.is_finished,
                "key_file": rotated.key_file.map(|path| path.display().to_string()),
            });
            output::json(&result.to_string())
        }
    }
}

fn summary(rotated: &Rotated) -> String {
    let mut lines = vec![format!("rows that were encrypted with the new key: {}", rotated.rows)];
    lines.extend(rotated.unreadable.iter().map(|row| format!("left as it is, {row}")));
    lines.push(match (rotated.is_finished, rotated.waiting_for.is_empty()) {
        (true, _) => "finished: the old key opens nothing any more".to_owned(),
        (false, true) => "no gateway is running: start one with TOOLGATE_SECRET_KEY set to the new key and run this \
                          command again, or use --finish"
            .to_owned(),
        (false, false) => format!(
            "these gateways still have the old key: {}; restart them with TOOLGATE_SECRET_KEY set to the new key, and \
             run this command again",
            rotated.waiting_for.join(", ")
        ),
    });
    if let Some(path) = &rotated.key_file {
        lines.push(format!("the new key is in {0}, the old one in {0}.old", path.display()));
    }
    lines.join("\n")
}
