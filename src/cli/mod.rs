//! The command line. All commands except `start`, `completions` and those that open the database talk to a running gateway
//! over HTTP; `stdio` runs one itself where there is none. One file per noun; verbs that several nouns share are in
//! `verbs`.

#![allow(clippy::disallowed_methods)] // Tasks of the command line end with its process.

mod answer;
mod arguments;
mod audit;
mod authorize;
mod calls;
mod clients;
mod complete;
mod completions;
mod connect;
mod content;
mod conversation;
mod database;
mod doctor;
mod epochs;
mod error;
mod events;
mod explain;
mod export;
mod files;
mod flags;
mod form_field;
mod grants;
mod groups;
mod idp_groups;
mod import;
mod invocation;
mod invoke;
mod logs;
mod man_pages;
mod migrate_store;
mod oauth_clients;
mod open;
mod output;
mod places;
mod prompts;
mod question;
mod record;
mod register;
mod remote;
mod reset_admin;
mod resources;
mod rotate_key;
mod schema;
mod servers;
mod settings;
mod signals;
mod start;
mod status;
mod stdio;
mod suggestion;
mod switch;
mod system;
mod text_format;
mod tools;
mod usage;
mod users;
mod verbs;
mod why;
mod wording;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use url::Url;

use error::UsageError;
use invocation::Invocation;
use output::Format;
use remote::Remote;
use settings::RemoteSettings;

/// Exit code after Ctrl-C, by the convention of shells: 128 and the number of the signal.
const INTERRUPTED: u8 = 130;
const WRONG_USAGE: u8 = 2;

#[derive(Parser)]
#[command(
    name = "toolgate",
    about = "A gateway for MCP servers: all tools at one address, for every AI agent",
    version = concat!("v", env!("CARGO_PKG_VERSION")),
    disable_version_flag = true,
    after_help = "Examples:
  toolgate start
  toolgate register --name everything -- npx -y @modelcontextprotocol/server-everything
  toolgate list tools
  toolgate invoke everything__echo message=hello

`toolgate <COMMAND> --help` shows more about each command."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// URL of the gateway [default: http://127.0.0.1:8080]
    #[arg(long, global = true, value_name = "URL", value_parser = settings::parse_registry)]
    registry: Option<Url>,
    /// Output format
    #[arg(long, short, global = true, value_name = "FORMAT", value_enum, default_value = "table")]
    output: Format,
    /// Print the version
    #[arg(long, short = 'v', short_alias = 'V', action = clap::ArgAction::Version)]
    version: (),
}

#[derive(Subcommand)]
enum Command {
    Start(start::Start),
    Stdio(stdio::Stdio),
    Status(status::StatusArgs),
    Doctor(doctor::Doctor),
    Logs(logs::LogsArgs),
    Calls(calls::CallsArgs),
    Stats(calls::StatsArgs),
    Audit(audit::AuditArgs),
    Open(open::OpenDashboard),
    #[command(visible_alias = "add")]
    Register(Box<register::Register>),
    #[command(visible_alias = "ls")]
    List(verbs::List),
    Usage(usage::Usage),
    Why(why::Why),
    Explain(explain::ExplainArgs),
    Invoke(invoke::Invoke),
    Get(verbs::Get),
    #[command(hide = true)]
    Read(verbs::Read),
    Enable(verbs::Enable),
    Disable(verbs::Disable),
    Refresh(servers::Refresh),
    Authorize(authorize::Authorize),
    Update(verbs::Update),
    #[command(visible_alias = "rm")]
    Deregister(servers::Deregister),
    Create(verbs::Create),
    Delete(verbs::Delete),
    Connect(connect::Connect),
    Disconnect(connect::Disconnect),
    Import(import::Import),
    Export(export::Export),
    InitServer(system::InitServer),
    Login(system::Login),
    Whoami(system::Whoami),
    ResetAdmin(reset_admin::ResetAdmin),
    Backup(database::Backup),
    Check(database::Check),
    MigrateStore(migrate_store::MigrateStore),
    RotateKey(rotate_key::RotateKey),
    Version(system::Version),
    Completions(completions::Completions),
    #[command(name = "__complete", hide = true)]
    Complete(complete::Complete),
    #[command(hide = true)]
    ManPages(man_pages::ManPages),
}

/// Runs the command line of this process. `give_back_memory` returns memory that is free to the system.
pub fn run(give_back_memory: fn()) -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            let informed = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return if informed { ExitCode::SUCCESS } else { ExitCode::from(WRONG_USAGE) };
        }
    };
    match perform(arguments, give_back_memory) {
        Ok(Some(())) => ExitCode::SUCCESS,
        Ok(None) => ExitCode::from(INTERRUPTED),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::failure(&format!("{error:#}"));
            let wrong_usage = error.is::<UsageError>();
            if wrong_usage { ExitCode::from(WRONG_USAGE) } else { ExitCode::FAILURE }
        }
    }
}

/// Runs the command. Returns `None` if it was interrupted by Ctrl-C.
fn perform(arguments: Arguments, give_back_memory: fn()) -> anyhow::Result<Option<()>> {
    let Arguments { command, registry, output, version: () } = arguments;
    match command {
        Command::Start(start) => start::run(start, give_back_memory).map(Some),
        Command::Stdio(stdio) => stdio::run(stdio, RemoteSettings::load(registry)?).map(Some),
        Command::ResetAdmin(reset) => reset_admin::run(reset).map(Some),
        Command::Backup(backup) => database::backup(backup, output).map(Some),
        Command::Check(check) => database::check(check, output).map(Some),
        Command::MigrateStore(command) => migrate_store::run(command, output).map(Some),
        Command::RotateKey(command) => rotate_key::run(command, output).map(Some),
        Command::Audit(audit) => audit::run(audit, registry, output).map(Some),
        Command::Completions(completions) => completions::run(completions, Arguments::command()).map(Some),
        Command::ManPages(pages) => man_pages::run(pages, Arguments::command()).map(Some),
        command => {
            let settings = RemoteSettings::load(registry)?;
            let is_call = matches!(command, Command::Invoke(_));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let done = runtime.block_on(async {
                let invocation = Invocation { remote: Remote::new(settings)?, format: output };
                tokio::select! {
                    done = ask(&invocation, command) => done.map(Some),
                    _ = tokio::signal::ctrl_c() => Ok(None),
                }
            });
            // Does not wait for a thread that is blocked on standard input.
            runtime.shutdown_background();
            if matches!(done, Ok(None)) && is_call {
                output::message("The call was cancelled.");
            }
            done
        }
    }
}

async fn ask(invocation: &Invocation, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Start(_)
        | Command::Stdio(_)
        | Command::ResetAdmin(_)
        | Command::Backup(_)
        | Command::Check(_)
        | Command::MigrateStore(_)
        | Command::RotateKey(_)
        | Command::Audit(_)
        | Command::Completions(_)
        | Command::ManPages(_) => Ok(()),
        Command::Status(_) => status::run(invocation).await,
        Command::Doctor(_) => doctor::run(invocation).await,
        Command::Logs(logs) => logs::run(invocation, logs).await,
        Command::Calls(calls) => calls::run(invocation, calls).await,
        Command::Stats(stats) => calls::stats(invocation, stats).await,
        Command::Open(open) => open::run(invocation, open).await,
        Command::Register(register) => register::run(invocation, *register).await,
        Command::List(list) => verbs::list(invocation, list).await,
        Command::Why(why) => why::run(invocation, why).await,
        Command::Explain(explain) => explain::run(invocation, explain).await,
        Command::Usage(usage) => usage::run(invocation, usage).await,
        Command::Invoke(invoke) => invoke::run(invocation, invoke).await,
        Command::Get(get) => verbs::get(invocation, get).await,
        Command::Read(read) => verbs::read(invocation, read).await,
        Command::Enable(enable) => verbs::enable(invocation, enable).await,
        Command::Disable(disable) => verbs::disable(invocation, disable).await,
        Command::Refresh(refresh) => servers::refresh(invocation, refresh).await,
        Command::Authorize(authorize) => authorize::run(invocation, authorize).await,
        Command::Update(update) => verbs::update(invocation, update).await,
        Command::Deregister(deregister) => servers::deregister(invocation, deregister).await,
        Command::Create(create) => verbs::create(invocation, create).await,
        Command::Delete(delete) => verbs::delete(invocation, delete).await,
        Command::Connect(connect) => connect::connect(invocation, connect).await,
        Command::Disconnect(disconnect) => connect::disconnect(invocation, disconnect).await,
        Command::Import(import) => import::run(invocation, import).await,
        Command::Export(export) => export::run(invocation, export).await,
        Command::InitServer(_) => system::init_server(invocation).await,
        Command::Login(login) => system::login(invocation, login).await,
        Command::Whoami(_) => system::whoami(invocation).await,
        Command::Version(_) => system::version(invocation).await,
        Command::Complete(complete) => complete::run(invocation, complete).await,
    }
}

/// Tells whether the reader of the output closed the pipe, as in `toolgate list tools | head -1`.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
