//! `toolgate audit`: who changed what. `toolgate audit verify` asks a gateway whether the record of that is complete, or
//! reads the database itself.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use url::Url;

use super::database;
use super::error::UsageError;
use super::invocation::Invocation;
use super::output::{self, Cell, Format, Table, Tone};
use super::record::text;
use super::remote::{ApiRequest, Remote, RemoteError};
use super::settings::RemoteSettings;
use crate::app;
use crate::config::Config;
use model::AuditHead;

/// Show who changed what, newest first
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  toolgate audit
  toolgate audit --action server --target github
  toolgate audit --actor anna --since 2026-01-31T12:00:00Z --limit 1000
  toolgate audit verify

An action is a noun and a verb, such as server.register or tool.disable; a noun alone selects all of its actions."
)]
pub struct AuditArgs {
    #[command(subcommand)]
    command: Option<AuditCommand>,
    /// Only changes of this user or client
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Only this action, or all actions of a noun
    #[arg(long)]
    action: Option<String>,
    /// Only changes of what has this name
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// Only changes with this outcome: ok, refused or failed
    #[arg(long)]
    outcome: Option<String>,
    /// Only changes from this time on, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only changes until this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only changes with this text in actor, action, target or address
    #[arg(long, short, value_name = "TEXT")]
    query: Option<String>,
    /// How many changes to show at most
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
}

#[derive(Subcommand)]
enum AuditCommand {
    Verify(VerifyArgs),
}

/// Check that no entry of the audit was removed or altered
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate audit verify
  toolgate audit verify --head 1042:6d0fa3c51b7e9204d8c6f1a09b35e7720f4d81c96ab23e5570d1c84f9e62b3a8
  toolgate audit verify --database
  toolgate audit verify --sqlite-db-path /backups/toolgate-monday.db

It asks the gateway, and reads the database itself if no gateway can be reached. The head that it prints stands for
all entries so far. Note it in another place: only with --head it is noticed that somebody cut off the newest entries.
The exit code is 1 if something is wrong.")]
struct VerifyArgs {
    /// A head that was printed earlier, which must be among the entries
    #[arg(long, value_name = "HEAD")]
    head: Option<String>,
    /// Read the database that the settings name, even if a gateway can be reached
    #[arg(long)]
    database: bool,
    /// Read this database file
    #[arg(long)]
    sqlite_db_path: Option<PathBuf>,
}

pub fn run(audit: AuditArgs, registry: Option<Url>, format: Format) -> anyhow::Result<()> {
    match audit.command {
        Some(AuditCommand::Verify(verify)) => self::verify(verify, registry, format),
        None => with_gateway(registry, format, async |invocation| list(invocation, &audit).await),
    }
}

/// Runs work that talks to a gateway.
fn with_gateway<T>(
    registry: Option<Url>,
    format: Format,
    work: impl AsyncFnOnce(&Invocation) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let settings = RemoteSettings::load(registry)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { work(&Invocation { remote: Remote::new(settings)?, format }).await })
}

async fn list(invocation: &Invocation, audit: &AuditArgs) -> anyhow::Result<()> {
    let mut request = ApiRequest::get(&["audit"]).filters(&[
        ("actor", &audit.actor),
        ("action", &audit.action),
        ("target", &audit.target),
        ("outcome", &audit.outcome),
        ("since", &audit.since),
        ("until", &audit.until),
        ("q", &audit.query),
    ]);
    if let Some(limit) = audit.limit {
        request = request.query("limit", limit.to_string());
    }
    let answer = invocation.remote.ask(request).await?;
    invocation.show(&answer, |answer| {
        let entries = answer["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
        if entries.is_empty() {
            output::message("There are no such changes.");
            return String::new();
        }
        let mut table = Table::new(["TIME", "WHO", "ADDRESS", "ACTION", "TARGET", "OUTCOME", "COUNT"]);
        for entry in entries {
            table.row(row(entry));
        }
        table.render(output::width())
    })
}

fn row(entry: &Value) -> [Cell; 7] {
    let outcome = text(entry, "outcome");
    let tone = if outcome == "ok" { Tone::Good } else { Tone::Bad };
    [
        text(entry, "at").into(),
        text(&entry["actor"], "name").into(),
        text(entry, "address").into(),
        text(entry, "action").into(),
        text(entry, "target").into(),
        Cell::new(outcome, tone),
        entry["count"].to_string().into(),
    ]
}

fn verify(verify: VerifyArgs, registry: Option<Url>, format: Format) -> anyhow::Result<()> {
    let wrong = || UsageError("--head must be a head as it was printed: <number>:<hash>".to_owned());
    let noted = verify.head.as_deref().map(|text| AuditHead::parse(text).ok_or_else(wrong)).transpose()?;
    let beside = || -> anyhow::Result<Value> {
        let report = database::run(verify.sqlite_db_path.clone(), async |config: &Config| {
            app::verify_audit(config, noted).await
        })?;
        let problem = report.problem.as_ref();
        Ok(json!({
            "ok": problem.is_none(),
            "head": report.head.to_string(),
            "entries": report.entries,
            "anchor": (report.anchor.number > 0).then(|| report.anchor.to_string()),
            "problem": problem.map(|problem| json!({ "number": problem.number, "reason": problem.reason })),
        }))
    };
    let report = match verify.database || verify.sqlite_db_path.is_some() {
        true => beside()?,
        false => {
            let asked = with_gateway(registry.clone(), format, async |invocation| {
                let mut request = ApiRequest::get(&["audit", "verify"]);
                if let Some(head) = &verify.head {
                    request = request.query("head", head);
                }
                Ok(invocation.remote.ask(request).await?.json()?)
            });
            match asked {
                Err(error) if registry.is_none() && is_unreachable(&error) => match beside() {
                    Ok(report) => {
                        output::message("No gateway can be reached: this is the database of the settings.");
                        report
                    }
                    Err(beside) => bail!("{error:#}; and beside it: {beside:#}"),
                },
                asked => asked?,
            }
        }
    };
    match format {
        Format::Json => output::json(&report.to_string())?,
        Format::Table => {
            let mut fields =
                vec![("Head", text(&report, "head")), ("Entries", report["entries"].to_string())];
            if let Some(anchor) = report["anchor"].as_str() {
                fields.push(("Deleted up to", anchor.to_owned()));
            }
            output::page(&output::card(&fields))?;
        }
    }
    match &report["problem"] {
        Value::Null => Ok(()),
        problem => bail!("the audit is wrong at entry {}: {}", problem["number"], text(problem, "reason")),
    }
}

fn is_unreachable(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(RemoteError::Unreachable { .. }))
}
