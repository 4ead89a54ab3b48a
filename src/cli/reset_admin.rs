//! `toolgate reset-admin`: replaces a lost admin token. It writes to the database directly, so the gateway must not be
//! running; access to the database and its key is all the authorization it needs.

use std::path::PathBuf;

use clap::Args;

use super::{database, output};
use crate::app;

/// Create a new token for the user `admin`, directly in the database of a stopped gateway
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate reset-admin
  toolgate reset-admin --sqlite-db-path /var/lib/toolgate/toolgate.db | toolgate login -")]
pub struct ResetAdmin {
    /// Path of the database file [default: ./toolgate.db]
    #[arg(long)]
    sqlite_db_path: Option<PathBuf>,
}

/// Prints only the token, so that it can be piped to another command.
pub fn run(command: ResetAdmin) -> anyhow::Result<()> {
    let token = database::run(command.sqlite_db_path, app::reset_admin)?;
    output::line(token.expose())
}
