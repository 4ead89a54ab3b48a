//! `toolgate migrate-store`: moves all data to another database. It opens both directly, so no gateway may be running on
//! either.

use clap::Args;
use serde_json::{Map, json};

use super::database;
use super::error::UsageError;
use super::output::{self, Format};
use crate::config::Config;
use model::Secret;
use store::{DatabaseAddress, KeyOrigin, TransferOptions, Transferred};

/// A move needs one connection, and another one to see whether gateways use the database.
const CONNECTIONS: u32 = 2;

/// Move all data to another database, such as from SQLite to Postgres; no gateway may be running on either
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate migrate-store --from sqlite:toolgate.db --to postgres://toolgate:password@db.example/toolgate
  toolgate migrate-store --from sqlite:toolgate.db --to sqlite:/var/lib/toolgate/toolgate.db

The target must be empty. Everything is copied in one transaction and compared; the source stays as it is.
The key of the source is --from-key, else the key file next to a SQLite database, else TOOLGATE_SECRET_KEY. That of the
target is --to-key, else TOOLGATE_SECRET_KEY, else the key file next to a SQLite database, which is created if missing.")]
pub struct MigrateStore {
    /// Database to read: sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE
    #[arg(long, value_name = "URL")]
    from: String,
    /// Database to fill: sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE
    #[arg(long, value_name = "URL")]
    to: String,
    /// Secret key of the source, 64 hexadecimal characters
    #[arg(long, value_name = "HEX")]
    from_key: Option<String>,
    /// Secret key of the target, 64 hexadecimal characters
    #[arg(long, value_name = "HEX")]
    to_key: Option<String>,
}

pub fn run(command: MigrateStore, format: Format) -> anyhow::Result<()> {
    let (from, to) = (parse("--from", &command.from)?, parse("--to", &command.to)?);
    let secret = |key: Option<String>| key.map(Secret::new);
    let mut options = TransferOptions {
        from,
        to,
        from_key: secret(command.from_key),
        to_key: secret(command.to_key),
        secret_key: None,
    };
    let moved = database::run(None, async |config: &Config| {
        options.secret_key.clone_from(&config.secret_key);
        Ok(store::transfer(&options).await?)
    })?;
    match format {
        Format::Table => output::foreign(&summary(&options, &moved)),
        Format::Json => {
            let tables = moved.tables.iter().map(|(name, count)| ((*name).to_owned(), json!(count)));
            let result = json!({
                "from": options.from.to_string(),
                "to": options.to.to_string(),
                "rows": tables.collect::<Map<_, _>>(),
                "retired_tokens_left": moved.left_tokens,
                "key": moved.key.to_string(),
                "has_another_key": moved.has_another_key,
            });
            output::json(&result.to_string())
        }
    }
}

fn parse(flag: &'static str, url: &str) -> Result<DatabaseAddress, UsageError> {
    let address = DatabaseAddress::parse(flag, &Secret::new(url), None, CONNECTIONS);
    address.map_err(|error| UsageError(error.to_string()))
}

fn summary(options: &TransferOptions, moved: &Transferred) -> String {
    let mut lines = vec![format!("moved {} to {}, and compared all rows:", options.from, options.to)];
    lines.extend(moved.tables.iter().map(|(name, count)| format!("  {name}: {count}")));
    if moved.left_tokens > 0 {
        lines
            .push(format!("not moved, because the key is another one: {} retired tokens", moved.left_tokens));
    }
    lines.push(match &moved.key {
        KeyOrigin::Argument(flag) => {
            format!("the new database is encrypted with the key in {flag}: set TOOLGATE_SECRET_KEY to it")
        }
        origin => format!("the new database is encrypted with the key in {origin}"),
    });
    lines.join("\n")
}
