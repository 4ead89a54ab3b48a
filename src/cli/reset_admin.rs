//! `toolgate reset-admin`: a new token for the admin, for those who lost the old one. It works on the database
//! itself, so the gateway must not run meanwhile; whoever may read the database and its key may do this.

use std::path::PathBuf;

use clap::Args;

use super::{database, output};
use crate::app;

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
    let token = database::run(command.sqlite_db_path, app::reset_admin)?;
    output::line(token.expose())
}
