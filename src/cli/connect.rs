//! `toolgate connect` and `toolgate disconnect`: write the gateway into the configuration file of an MCP client, and
//! remove it again. Everything else in the file stays as it is.

mod clients;
mod difference;
mod file;
mod json_text;
mod toml_text;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use reqwest::Method;
use serde_json::json;

use super::files;
use super::invocation::Invocation;
use super::output::{self, Format};
use super::wording::Source;
use crate::config::variable;
use clients::{Connection, McpClient, System};
use file::{ClientFile, FileChange};
use model::Secret;

/// Connect an MCP client: write this gateway into the client's own configuration file
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate connect cursor
  toolgate connect claude-code --group dev
  toolgate connect vscode --file .vscode/mcp.json --dry-run
  toolgate connect codex --token - < token.txt

It shows the changes first and asks for confirmation. The rest of the file, comments included, stays as it is, and a
copy of the old file is kept next to it. `toolgate disconnect` removes the entry again.")]
pub struct Connect {
    #[command(flatten)]
    target: Target,
    /// Show only the tools, prompts and resources of this group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Token of the agent, for a gateway in enterprise mode; - reads it from standard input
    #[arg(long, allow_hyphen_values = true, value_name = "TOKEN")]
    token: Option<String>,
}

/// Disconnect an MCP client: remove this gateway from the client's own configuration file
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate disconnect cursor
  toolgate disconnect vscode --file .vscode/mcp.json --yes")]
pub struct Disconnect {
    #[command(flatten)]
    target: Target,
}

#[derive(Args)]
struct Target {
    /// The client
    #[arg(value_enum)]
    client: McpClient,
    /// Name of the entry
    #[arg(long, default_value = "toolgate")]
    name: String,
    /// File to change [default: the client's file for all projects of this user]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Only show the changes
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

/// What happens to the entry in the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryChange {
    Added,
    Replaced,
    Removed,
    Unchanged,
}

impl EntryChange {
    fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Replaced => "replaced",
            Self::Removed => "removed",
            Self::Unchanged => "unchanged",
        }
    }
}

pub async fn connect(invocation: &Invocation, connect: Connect) -> anyhow::Result<()> {
    let Connect { target, group, token } = connect;
    let token = match token.as_deref() {
        Some("-") => Some(files::text(Path::new("-")).await?.trim().to_owned()),
        token => token.map(str::to_owned),
    };
    let token = token.filter(|token| !token.is_empty()).map(Secret::new);
    let path: &[&str] = match &group {
        Some(group) => &["v0", "groups", group, "mcp"],
        None => &["mcp"],
    };
    check(invocation, path, token.as_ref()).await?;
    let url = invocation.remote.url(path.iter().copied());
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let mut arguments = vec!["stdio".to_owned(), "--registry".into(), invocation.remote.registry().into()];
    arguments.extend(group.iter().flat_map(|group| ["--group".to_owned(), group.clone()]));
    let entry = target.client.entry(&Connection {
        url: &url,
        token: token.as_ref(),
        command: program.to_str().context("the path of this program is not text")?,
        arguments: &arguments,
    });
    let file = target.open()?;
    let (format, section) = (target.client.format(), target.client.section());
    let change = match format {
        format if format.is(&file.text, section, &target.name, &entry) => EntryChange::Unchanged,
        format if format.has(&file.text, section, &target.name) => EntryChange::Replaced,
        _ => EntryChange::Added,
    };
    let text = match change {
        EntryChange::Unchanged => file.text.clone(),
        _ => file.explain(format.set(&file.text, section, &target.name, &entry))?,
    };
    let text = FileChange::Edited(text);
    let title = target.client.title();
    let done = match change {
        EntryChange::Unchanged => format!("{title} is already connected to {url}."),
        _ => format!("{title} is connected to {url}. Restart it to use the tools."),
    };
    target.apply(invocation, &file, &text, change, &done).await
}

pub async fn disconnect(invocation: &Invocation, disconnect: Disconnect) -> anyhow::Result<()> {
    let target = disconnect.target;
    let file = target.open()?;
    let (format, section) = (target.client.format(), target.client.section());
    let text = file.explain(format.remove(&file.text, section, &target.name))?;
    let title = target.client.title();
    match text {
        Some(text) => {
            let done = format!("{title} is disconnected. Restart it to apply the change.");
            let change = target.before_connect(&file).unwrap_or(FileChange::Edited(text));
            target.apply(invocation, &file, &change, EntryChange::Removed, &done).await
        }
        None => {
            let done = format!("{title} is not connected: there is no entry {:?}.", target.name);
            let same = FileChange::Edited(file.text.clone());
            target.apply(invocation, &file, &same, EntryChange::Unchanged, &done).await
        }
    }
}

impl Target {
    fn open(&self) -> anyhow::Result<ClientFile> {
        let path = match &self.file {
            Some(path) => path.clone(),
            None => self
                .client
                .path(System::THIS, variable)
                .context("there is no home directory: set HOME, or name the file with --file")?,
        };
        ClientFile::open(path)
    }

    /// What the file was before the entry was added, if nothing else was changed in it since. An entry that was replaced does
    /// not come back.
    fn before_connect(&self, file: &ClientFile) -> Option<FileChange> {
        let (format, section) = (self.client.format(), self.client.section());
        let entry = format.get(&file.text, section, &self.name)?;
        file.before_connect(|old| {
            let made = format.set(old, section, &self.name, &entry);
            !format.has(old, section, &self.name) && made.is_ok_and(|made| made == file.text)
        })
    }

    /// Shows the difference, asks, and changes the file.
    async fn apply(
        &self,
        invocation: &Invocation,
        file: &ClientFile,
        file_change: &FileChange,
        change: EntryChange,
        done: &str,
    ) -> anyhow::Result<()> {
        let path = file.path.display().to_string();
        let mut backup = None;
        if change != EntryChange::Unchanged {
            output::message(&format!("{path}\n{}", difference::lines(&file.text, file_change.text())));
            if !self.dry_run {
                if !self.yes {
                    let question = match file_change {
                        FileChange::Edited(_) | FileChange::Restored(_) => "Write this file?",
                        FileChange::Deleted => "Delete this file?",
                    };
                    match output::ask(question).await {
                        Some(true) => {}
                        Some(false) => bail!("nothing was changed"),
                        None => {
                            bail!(
                                "nothing was changed; confirm with --yes, or preview the changes with --dry-run"
                            )
                        }
                    }
                }
                backup = file.apply(file_change)?;
            }
        }
        match invocation.format {
            Format::Json => output::json(
                &json!({
                    "file": path,
                    "entry": self.name,
                    "change": change.word(),
                    "dry_run": self.dry_run,
                    "backup": backup.map(|backup| backup.display().to_string()),
                })
                .to_string(),
            ),
            Format::Table if self.dry_run && change != EntryChange::Unchanged => {
                output::line("Nothing was changed, because of --dry-run.")
            }
            Format::Table => {
                output::line(done)?;
                backup
                    .map_or(Ok(()), |backup| output::line(&format!("The old file is {}.", backup.display())))
            }
        }
    }
}

/// Checks that the endpoint exists and accepts the token. A gateway that does not run is only worth a warning.
async fn check(invocation: &Invocation, path: &[&str], token: Option<&Secret>) -> anyhow::Result<()> {
    let remote = invocation.remote.with_token(token.map(Secret::expose))?;
    let response = match remote.exchange(|| remote.mcp_request(Method::GET, path)).await {
        Ok(response) => response,
        Err(error) => {
            output::message(&format!("Warning: {}.", remote.unreachable(&error)));
            return Ok(());
        }
    };
    let status = response.status().as_u16();
    match status {
        401 if token.is_none() => bail!(
            "this gateway requires a token for the agent: create one with `{}`, and pass it with --token",
            invocation.command("create mcp-client NAME --allow SERVERS")
        ),
        401 => bail!("the gateway refuses this token"),
        404 => {
            let body = response.bytes().await.unwrap_or_default();
            Err(remote.refused(status, &body, None, Source::default()).into())
        }
        _ => Ok(()),
    }
}
