//! `toolgate reset-admin`: a new token for the admin, for those who lost the old one. It works on the database
//! itself, so the gateway must not run meanwhile; whoever may read the database and its key may do this.

use std::path::PathBuf;

use clap::Args;

use super::output;
use crate::app;
use crate::config::{self, Config, Flags};
use crate::telemetry;

/// Make a new token for the user `admin`, beside the database of a gateway that does not run
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate reset-admin
  toolgate reset-admin --sqlite-db-path /var/lib/toolgate/toolgate.db | toolgate login -")]
pub struct ResetAdmin {
    /// File of the database [default: ./toolgate.db]
    #[arg(long)]
    sqlite_db_path: Option<PathBuf>,
}

/// Prints the token alone, so that it can be passed on to another command.
pub fn run(command: ResetAdmin) -> anyhow::Result<()> {
    telemetry::start_logging(config::log_filter()?);
    let config = Config::load(&Flags { sqlite_db_path: command.sqlite_db_path, ..Flags::default() })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let token = runtime.block_on(app::reset_admin(&config))?;
    output::line(token.expose())
}
