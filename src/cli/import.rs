//! `toolgate import`: imports servers and groups from the files of other programs, or from an export. It shows a plan,
//! applies it item by item, and reports the outcome of each.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::{Map, Value, json};

use super::files;
use super::invocation::Invocation;
use super::output::{self, Cell, Format, Spinner, Table, Tone};
use super::record::text;
use super::remote::{ApiRequest, OAUTH_REQUIRED, RemoteError};
use crate::config::variable;
use model::import::{self, Action, ImportEntry, ImportedGroup, Plan};

const KEPT: &str = "it is stored, and the gateway keeps trying to connect";
const ENDINGS: [&str; 3] = ["json", "yaml", "yml"];

/// Import servers from other apps, or servers and groups from an export
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate import ~/.cursor/mcp.json
  toolgate import .vscode/mcp.json --dry-run
  toolgate import \"$HOME/Library/Application Support/Claude/claude_desktop_config.json\"
  toolgate import .toolgate --yes          # an export
  pbpaste | toolgate import - --yes

Understands `mcpServers` and `servers` files (Claude, Cursor, VS Code, Windsurf and others), exports of toolgate and
MCPJungle, in JSON or YAML. ${NAME} is replaced by the variable. Servers and groups that already exist and are identical
are skipped. A new server that cannot be connected is kept as failed; one that exists is changed only if the change
works.")]
pub struct Import {
    /// Files or folders; - is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Only show the plan
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

/// One server or group with its planned action and outcome.
struct ImportItem {
    kind: &'static str,
    name: String,
    action: Action,
    /// Why it is skipped, or a remark.
    note: String,
    /// Whether it is skipped because of an error, rather than because nothing would change.
    unusable: bool,
    input: Map<String, Value>,
    shown: Map<String, Value>,
    failure: Option<ImportFailure>,
}

struct ImportFailure {
    sentence: String,
    /// Whether the server is stored nevertheless, as `failed`.
    kept: bool,
}

pub async fn run(invocation: &Invocation, import: Import) -> anyhow::Result<()> {
    let mut items = plan(invocation, &import.files).await?;
    let is_work = items.iter().any(|item| item.action != Action::Skip);
    if !import.dry_run && is_work && !import.yes {
        output::table_message(&table(&items, false));
        match output::ask(&format!("Import {}?", amount(&items))).await {
            Some(true) => {}
            Some(false) => bail!("nothing was changed"),
            None => bail!("nothing was changed; confirm with --yes, or preview the changes with --dry-run"),
        }
    }
    if !import.dry_run {
        for item in items.iter_mut().filter(|item| item.action != Action::Skip) {
            item.failure = apply(invocation, item).await?;
        }
    }
    match invocation.format {
        Format::Json => output::json(
            &Value::Array(items.iter().map(|item| record(item, import.dry_run)).collect()).to_string(),
        )?,
        Format::Table if items.is_empty() => output::message("There are no servers or groups to import."),
        Format::Table => output::page(&table(&items, !import.dry_run))?,
    }
    let kept = items.iter().filter(|item| item.failure.as_ref().is_some_and(|failure| failure.kept)).count();
    let failed = items.iter().filter(|item| item.unusable || item.failure.is_some()).count() - kept;
    match (failed, kept) {
        (0, 0) => Ok(()),
        (0, _) => bail!("{kept} of {} cannot be connected", items.len()),
        (_, 0) => bail!("{failed} of {} could not be imported", items.len()),
        (_, _) => bail!("{failed} of {} could not be imported, and {kept} cannot be connected", items.len()),
    }
}

/// Counts what would be imported: `5 servers and 1 group`.
fn amount(items: &[ImportItem]) -> String {
    let counted = ["server", "group"].iter().filter_map(|kind| {
        let count = items.iter().filter(|item| item.action != Action::Skip && item.kind == *kind).count();
        match count {
            0 => None,
            1 => Some(format!("1 {kind}")),
            _ => Some(format!("{count} {kind}s")),
        }
    });
    counted.collect::<Vec<_>>().join(" and ")
}

/// Reads all files and compares them with the gateway. Changes nothing.
async fn plan(invocation: &Invocation, paths: &[PathBuf]) -> anyhow::Result<Vec<ImportItem>> {
    let (mut servers, mut groups) = (Vec::new(), Vec::new());
    for path in paths {
        for file in expand_folder(path)? {
            let found = import::parse(&files::text(&file).await?, variable);
            let found = found.with_context(|| format!("cannot use {}", file.display()))?;
            servers.extend(found.servers);
            groups.extend(found.groups);
        }
    }
    let current = invocation.remote.ask(ApiRequest::get(&["server_configs"])).await?.json()?;
    let mut items: Vec<ImportItem> = servers.into_iter().map(|entry| plan_server(entry, &current)).collect();
    if !groups.is_empty() {
        let current = invocation.remote.ask(ApiRequest::get(&["tool-groups"])).await?.json()?;
        items.extend(groups.into_iter().map(|entry| plan_group(entry, &current)));
    }
    for index in 1..items.len() {
        let (earlier, rest) = items.split_at_mut(index);
        let item = &mut rest[0];
        if earlier.iter().any(|other| other.kind == item.kind && other.name == item.name) {
            (item.action, item.unusable) = (Action::Skip, true);
            item.note = format!("there is another {} of this name before it", item.kind);
        }
    }
    Ok(items)
}

/// Replaces a folder by the files in it, including those of an export.
fn expand_folder(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for folder in [path.to_owned(), path.join("servers"), path.join("groups")] {
        if !folder.is_dir() {
            continue;
        }
        let entries =
            std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let files = entries.flatten().map(|entry| entry.path()).filter(|file| {
            file.is_file()
                && file.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known))
        });
        let mut files: Vec<PathBuf> = files.collect();
        files.sort();
        found.extend(files);
    }
    if found.is_empty() && !path.join("servers").is_dir() {
        bail!("the folder {} has no files to import", path.display());
    }
    Ok(found)
}

fn plan_server(entry: ImportEntry, current: &Value) -> ImportItem {
    let shown = json!({ "transport": entry.transport, "summary": entry.summary,
        "env_keys": entry.env_keys, "header_keys": entry.header_keys });
    let mut notes = vec![entry.summary];
    notes.extend(entry.renamed_from.map(|name| format!("was called {name:?}")));
    if !entry.ignored.is_empty() {
        notes.push(format!("without {}", entry.ignored.join(", ")));
    }
    notes.retain(|note| !note.is_empty());
    let mut item = ImportItem {
        kind: "server",
        name: entry.name,
        action: Action::Add,
        note: notes.join("; "),
        unusable: false,
        input: Map::new(),
        shown: shown.as_object().cloned().unwrap_or_default(),
        failure: None,
    };
    item.follow(Plan::of_server(entry.outcome, named(current, &item.name)));
    item
}

fn plan_group(entry: ImportedGroup, current: &Value) -> ImportItem {
    let mut item = ImportItem {
        kind: "group",
        name: entry.name,
        action: Action::Add,
        note: String::new(),
        unusable: false,
        input: Map::new(),
        shown: Map::new(),
        failure: None,
    };
    item.follow(Plan::of_group(entry.outcome, named(current, &item.name)));
    item
}

impl ImportItem {
    fn follow(&mut self, plan: Plan) {
        self.action = plan.action();
        self.unusable = matches!(plan, Plan::Unusable(_));
        if let Some(reason) = plan.reason() {
            reason.clone_into(&mut self.note);
        }
        self.input = plan.into_input().unwrap_or_default();
    }
}

fn named<'a>(list: &'a Value, name: &str) -> Option<&'a Map<String, Value>> {
    let found = list.as_array().into_iter().flatten().find(|item| item["name"] == name);
    found.and_then(Value::as_object)
}

/// Applies an item and returns its error message, if the gateway refused it. Other errors end the import.
async fn apply(invocation: &Invocation, item: &ImportItem) -> anyhow::Result<Option<ImportFailure>> {
    let spinner = Spinner::start(&format!("importing {}", item.name));
    let request = match (item.kind, item.action) {
        ("server", action) => {
            let force = if action == Action::Change { "true" } else { "false" };
            ApiRequest::post(&["servers"]).query("force", force)
        }
        (_, Action::Change) => ApiRequest::put(&["tool-groups", &item.name]),
        (_, Action::Add | Action::Skip) => ApiRequest::post(&["tool-groups"]),
    };
    let mut input = item.input.clone();
    // A server that works is not replaced by one that does not.
    if (item.kind, item.action) == ("server", Action::Add) {
        input.insert("keep_failed".into(), true.into());
    }
    let answer = invocation.remote.ask(request.object(&input)).await;
    drop(spinner);
    let refused = |sentence: String| Ok(Some(ImportFailure { sentence, kept: false }));
    // Import does not start authorizations: a person gives them for one server at a time.
    let requires_authorization = || {
        format!("it requires authorization; register it separately with `{}`", invocation.command("register"))
    };
    match answer {
        Ok(answer) if answer.status == 202 => refused(requires_authorization()),
        Ok(answer) => {
            let record = answer.json()?;
            let failed = item.kind == "server" && record["status"] == "failed";
            let sentence = format!("{}; {KEPT}", text(&record, "status_reason"));
            Ok(failed.then_some(ImportFailure { sentence, kept: true }))
        }
        Err(RemoteError::Refused { code: Some(code), .. }) if code == OAUTH_REQUIRED => {
            refused(requires_authorization())
        }
        Err(RemoteError::Refused { sentence, .. }) => refused(sentence),
        Err(error) => Err(error.into()),
    }
}

fn table(items: &[ImportItem], done: bool) -> String {
    let mut table = Table::new(["NAME", "KIND", if done { "RESULT" } else { "ACTION" }, "NOTE"]).whole();
    for item in items {
        let (word, tone) = match (item.action, &item.failure, done) {
            (_, Some(_), _) => ("failed", Tone::Bad),
            (Action::Skip, None, _) => ("skipped", if item.unusable { Tone::Doubtful } else { Tone::Faint }),
            (Action::Add, None, true) => ("added", Tone::Good),
            (Action::Change, None, true) => ("changed", Tone::Good),
            (action, None, false) => (action.as_str(), Tone::Plain),
        };
        let word = if !done && item.action == Action::Skip { "skip" } else { word };
        let note = item.failure.as_ref().map_or(&item.note, |failure| &failure.sentence).clone();
        table.row([item.name.clone().into(), item.kind.into(), Cell::new(word, tone), note.into()]);
    }
    table.render(output::width())
}

fn record(item: &ImportItem, dry_run: bool) -> Value {
    let mut record = item.shown.clone();
    record.insert("kind".into(), item.kind.into());
    record.insert("name".into(), item.name.clone().into());
    record.insert("action".into(), item.action.as_str().into());
    if item.action == Action::Skip {
        record.insert("reason".into(), item.note.clone().into());
    } else if let Some(failure) = &item.failure {
        record.insert("error".into(), failure.sentence.clone().into());
        record.insert("kept".into(), failure.kept.into());
    }
    if !dry_run && item.action != Action::Skip {
        record.insert("done".into(), item.failure.is_none().into());
    }
    record.into()
}
