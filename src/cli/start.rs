//! `toolgate start`: runs the gateway until a signal stops it.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::SystemTime;

use clap::Args;
use tokio_util::sync::CancellationToken;

use super::{output, places, settings, signals};
use crate::app::{self, App};
use crate::config::{self, Config, Mode, StartFlags};
use store::DatabaseAddress;
use telemetry::{self, CallWatcher, EndedCall, LogFormat};

/// How many lines about calls may wait for the terminal.
const SHOWN_AT_ONCE: usize = 256;

/// Run the gateway
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate start
  toolgate start --port 9000 --sqlite-db-path /var/lib/toolgate/toolgate.db
  toolgate start --enterprise

Everything can also be set with variables, or in a file `.env` in the working directory: PORT, HOST, SERVER_MODE,
DATABASE_URL and more. Ctrl-C shuts it down gracefully.")]
pub struct Start {
    /// Port to listen on; 0 picks a free one [default: 8080]
    #[arg(long)]
    port: Option<u16>,
    /// Address to listen on [default: this machine only]
    #[arg(long)]
    host: Option<String>,
    /// Path of the database file [default: ./toolgate.db]
    #[arg(long)]
    sqlite_db_path: Option<PathBuf>,
    /// Require a token from every caller
    #[arg(long, alias = "prod")]
    enterprise: bool,
    /// Do not show calls on the terminal
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(start: Start, give_back_memory: fn()) -> anyhow::Result<()> {
    let is_terminal = std::io::stderr().is_terminal();
    let format = config::log_format(if is_terminal { LogFormat::Text } else { LogFormat::Json })?;
    let shows_calls = !start.quiet && is_terminal && format == LogFormat::Text;
    telemetry::start_logging(config::log_filter()?, format, shows_calls.then(watch_calls).transpose()?);
    let flags = StartFlags {
        port: start.port,
        host: start.host,
        sqlite_db_path: start.sqlite_db_path,
        enterprise: start.enterprise,
    };
    let config = prepare(&flags)?;
    let runtime = runtime()?;
    runtime.block_on(async {
        // Handlers are installed before the gateway listens, so that no signal is missed.
        let (shutdown, hurry) = (CancellationToken::new(), CancellationToken::new());
        tokio::spawn(signals::watch(shutdown.clone(), hurry.clone())?);
        let is_new = config.database.file().is_some_and(|path| !path.exists());
        let app = match &config.database {
            DatabaseAddress::File(_) => App::build(&config).await?,
            // This may wait for a server. An interrupted migration is rolled back.
            DatabaseAddress::Postgres(_) => match shutdown.run_until_cancelled(App::build(&config)).await {
                Some(app) => app?,
                None => return Ok(()),
            },
        };
        let Some(address) = app.addresses().first().copied() else {
            anyhow::bail!("there is no address to listen on")
        };
        if is_open_to_others(&config) {
            tracing::warn!("{OPEN_TO_OTHERS}");
        }
        // Standard output may be a file on a full disk, which must not keep the gateway from serving.
        let (is_initialized, server_count) = (app.is_initialized(), app.server_count());
        let started = StartFacts { address, is_initialized, server_count, is_new };
        let _ = output::page(&greeting(&config, &started));
        app.giving_back(give_back_memory).serve(shutdown, hurry).await;
        Ok(())
    })
}

/// Prepares this process to run a gateway, and reads its settings.
pub fn prepare(flags: &StartFlags) -> anyhow::Result<Config> {
    app::hide_memory();
    // Before the settings are read: a default depends on this limit.
    let descriptors = app::raise_descriptor_limit();
    let mut config = Config::load(flags)?;
    config.child_descriptors = descriptors;
    // hyper panics when it formats a date before 1970.
    if SystemTime::now() < SystemTime::UNIX_EPOCH {
        anyhow::bail!("the clock of this machine shows a time before 1970; set it, then start the gateway");
    }
    app::adopt_orphans();
    Ok(config)
}

const OPEN_TO_OTHERS: &str = "in development mode nobody needs a token, and this gateway does not listen on loopback \
                              only: anyone who can reach it can run commands on this machine";

fn is_open_to_others(config: &Config) -> bool {
    config.mode == Mode::Development && !config.bind.is_loopback()
}

/// Shows calls on the terminal, in a thread of its own: a terminal that is stopped must not stop calls. Calls that it cannot
/// keep up with are not shown.
fn watch_calls() -> std::io::Result<CallWatcher> {
    let (sender, lines) = mpsc::sync_channel::<String>(SHOWN_AT_ONCE);
    std::thread::Builder::new().name("calls".into()).spawn(move || {
        lines.iter().for_each(|line| output::message(&line));
    })?;
    Ok(Box::new(move |call| drop(sender.try_send(line_of(call)))))
}

/// Formats a call that ended: `ok                12.3ms  web__echo`.
fn line_of(call: &EndedCall) -> String {
    let outcome = call.outcome.replace('_', " ");
    let name = match (call.server.as_str(), call.tool.as_str()) {
        ("", "") => "(unknown tool)".to_owned(),
        ("", tool) => tool.to_owned(),
        (server, tool) => format!("{server}__{tool}"),
    };
    format!("{outcome:<14} {:>9}  {}", call.elapsed, name.replace('\n', " "))
}

/// What the start message tells besides the configuration.
struct StartFacts {
    address: SocketAddr,
    is_initialized: bool,
    server_count: usize,
    /// Whether the database did not exist before.
    is_new: bool,
}

/// Formats the start message: the main URLs, the mode, the database and the number of servers.
fn greeting(config: &Config, started: &StartFacts) -> String {
    let address = started.address;
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let base = match &config.public_url {
        Some(url) => url.as_str().trim_end_matches('/').to_owned(),
        // The unspecified address cannot be opened in a browser.
        None if address.ip().is_unspecified() => format!("{scheme}://localhost:{}", address.port()),
        None => format!("{scheme}://{address}"),
    };
    let mut lines = vec![
        format!("toolgate v{} listens on {scheme}://{address}", env!("CARGO_PKG_VERSION")),
        format!("  MCP endpoint  {base}/mcp"),
        format!("  REST API      {base}/api/v0"),
    ];
    let mode = match config.mode {
        Mode::Development => {
            lines.push(format!("  Dashboard     {base}/"));
            "development (no tokens)"
        }
        Mode::Enterprise => "enterprise (every caller needs a token)",
    };
    let new = if started.is_new { " (new)" } else { "" };
    lines.push(format!("  Mode          {mode}"));
    let database = match &config.database {
        DatabaseAddress::File(path) => places::absolute(path).display().to_string(),
        DatabaseAddress::Postgres(address) => address.to_string(),
    };
    lines.push(format!("  Database      {database}{new}"));
    lines.push(format!("  Servers       {}", started.server_count));
    if started.is_new
        && let Some(other) = config.database.file().and_then(places::other_database)
    {
        lines.push(format!(
            "Warning: this database is new, and there is one at {}; to use that one, start with --sqlite-db-path {0}.",
            other.display()
        ));
    }
    lines.extend(is_open_to_others(config).then(|| format!("Warning: {OPEN_TO_OTHERS}.")));
    if config.mode == Mode::Enterprise && !started.is_initialized {
        let registry = (!settings::is_default(scheme, address)).then_some(base.as_str());
        let command = settings::command(registry, "init-server");
        lines.push(format!("It is not initialized yet; run `{command}`."));
    }
    lines.join("\n")
}

/// Builds the runtime. On one processor, a single thread avoids the cost of moving work between threads.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut builder = match processors {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.enable_all().build()
}
