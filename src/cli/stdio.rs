//! `toolgate stdio`: an MCP server on standard input and output, for clients that can only start programs. It connects
//! them to a running gateway, or to one inside this process. Standard output carries messages only.

mod bridge;
mod connection;
mod embedded;
mod endpoint;
mod exchange;
mod in_flight;
mod lines;
mod param_headers;
mod session;
mod streams;

use std::path::PathBuf;

use clap::Args;
use tokio_util::sync::CancellationToken;

use super::remote::{ApiRequest, Remote, RemoteError};
use super::settings::RemoteSettings;
use super::{signals, start};
use crate::config;
use bridge::Bridge;
use embedded::Embedded;
use endpoint::Endpoint;
use telemetry::LogFormat;

/// Serve MCP on standard input and output, for clients that can only start programs
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate stdio
  toolgate stdio --group dev
  toolgate stdio --registry https://gate.example.com --server github

In the configuration of a client: {\"command\": \"toolgate\", \"args\": [\"stdio\"]}

It connects the client to the gateway that the other commands use. If none runs at that address on this machine, it
runs one itself until its input ends, on the same database as `toolgate start` in this directory.")]
pub struct Stdio {
    /// Show only the tools, prompts and resources of this group
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    group: Option<String>,
    /// Show only this server, with the names that it gives its tools
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// File of the database, if no gateway runs [default: ./toolgate.db]
    #[arg(long)]
    sqlite_db_path: Option<PathBuf>,
}

impl Stdio {
    /// Returns the path of the endpoint, as its segments.
    fn path(&self) -> Vec<String> {
        let path: &[&str] = match (&self.group, &self.server) {
            (Some(group), _) => &["v0", "groups", group, "mcp"],
            (None, Some(server)) => &["v0", "servers", server, "mcp"],
            (None, None) => &["mcp"],
        };
        path.iter().map(|segment| (*segment).to_owned()).collect()
    }
}

pub fn run(stdio: Stdio, settings: RemoteSettings) -> anyhow::Result<()> {
    telemetry::start_logging(config::log_filter()?, config::log_format(LogFormat::Text)?, None);
    let runtime = start::runtime()?;
    let done = runtime.block_on(async {
        let (stop, hurry) = (CancellationToken::new(), CancellationToken::new());
        tokio::spawn(signals::watch(stop.clone(), hurry)?);
        let token = settings.token.clone();
        let remote = Remote::new(settings)?;
        match remote.ask_system(ApiRequest::get(&["health"])).await {
            Ok(_) => {
                Bridge::new(Endpoint::new(remote, stdio.path())).run(stop).await;
                Ok(())
            }
            Err(RemoteError::Unreachable { .. }) if remote.is_local() => {
                let embedded = Embedded::start(stdio.sqlite_db_path.clone(), remote.registry()).await?;
                let registry = embedded.registry()?;
                let remote = Remote::new(RemoteSettings { registry, token, is_from_flag: false })?;
                Bridge::new(Endpoint::new(remote, stdio.path())).run(stop).await;
                embedded.stop().await;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    });
    // Does not wait for the thread that is blocked on standard input.
    runtime.shutdown_background();
    done
}
