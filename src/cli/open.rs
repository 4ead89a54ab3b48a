//! `toolgate open`: opens the dashboard in a browser.

use anyhow::bail;
use clap::Args;

use super::authorize::open_browser;
use super::invocation::Invocation;
use super::output;
use super::remote::{ApiRequest, RemoteError};

/// Open the dashboard in a browser
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate open
  toolgate open --no-browser")]
pub struct OpenDashboard {
    /// Print the address, do not open a browser
    #[arg(long)]
    no_browser: bool,
}

pub async fn run(invocation: &Invocation, open: OpenDashboard) -> anyhow::Result<()> {
    match invocation.remote.ask_system(ApiRequest::get(&[])).await {
        Ok(_) => {}
        Err(RemoteError::Refused { status: 404, .. }) => {
            bail!("{} has no dashboard: it runs in enterprise mode", invocation.remote.registry())
        }
        Err(error) => return Err(error.into()),
    }
    let address = format!("{}/", invocation.remote.registry());
    output::line(&address)?;
    if !open.no_browser && !open_browser(&address) {
        output::message("No browser could be started; open the address yourself.");
    }
    Ok(())
}
