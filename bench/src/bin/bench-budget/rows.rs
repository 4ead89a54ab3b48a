//! The table of rows, and how a row is measured: as the difference of two runs of the same program, of which one does so
//! many operations more. Everything else in them is the same and cancels out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use toolgate_bench::client::{Client, Script, Work};
use toolgate_bench::gateway::{Gateway, Launch, Recording};
use toolgate_bench::grant;
use toolgate_bench::server::{LARGE, Server};
use toolgate_bench::system;
use toolgate_bench::target::Target;

use super::budget::Budget;
use super::counts::Counts;
use super::{Plan, callgrind, functions, sibling, strace};

/// What is registered in the gateway.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scene {
    /// Development mode with 500 tools: a server of each era and a stdio server.
    Usual,
    /// The same, and calls are recorded.
    Recorded,
    /// Enterprise mode with the same tools.
    Enterprise,
    /// Development mode, and a server with 10,000 tools.
    ManyTools,
}

const SCENES: &[Scene] = &[Scene::Usual, Scene::Recorded, Scene::Enterprise, Scene::ManyTools];

/// Tools of the legacy server in the usual scene. With those of the two others they are 500.
const LEGACY_TOOLS: usize = 494;
const OTHER_TOOLS: usize = 3;
const ALL_TOOLS: usize = LEGACY_TOOLS + 2 * OTHER_TOOLS;
const MANY_TOOLS: usize = 10_000;

struct Row {
    name: &'static str,
    scene: Scene,
    /// Operations under callgrind. Large ones are slow.
    operations: usize,
    script: fn(Callers) -> Script,
}

/// Who may call, each with its own token.
struct Callers {
    /// A client; anybody in development mode.
    client: Target,
    /// An agent that acts for a user, in enterprise mode.
    agent: Target,
}

const ROWS: &[Row] = &[
    Row { name: "call", scene: Scene::Usual, operations: 1000, script: |at| echo(at.client, "up__echo") },
    Row {
        name: "call_recorded",
        scene: Scene::Recorded,
        operations: 1000,
        script: |at| echo(at.client, "up__echo"),
    },
    Row {
        name: "call_stdio",
        scene: Scene::Usual,
        operations: 1000,
        script: |at| echo(at.client, "pipe__echo"),
    },
    Row {
        name: "call_modern",
        scene: Scene::Usual,
        operations: 1000,
        script: |at| Script { is_modern: true, ..echo(at.client, "modern__echo") },
    },
    Row {
        name: "call_across_eras",
        scene: Scene::Usual,
        operations: 1000,
        script: |at| Script { is_modern: true, ..echo(at.client, "up__echo") },
    },
    Row {
        name: "call_in_group",
        scene: Scene::Usual,
        operations: 1000,
        script: |at| echo(at.client.at("/v0/groups/team/mcp"), "up__echo"),
    },
    Row {
        name: "call_events",
        scene: Scene::Usual,
        operations: 1000,
        script: |at| echo(at.client, "up__events"),
    },
    Row {
        name: "call_64_kib",
        scene: Scene::Usual,
        operations: 200,
        script: |at| script(at.client, Work::Payload { tool: "up__payload".into(), bytes: LARGE }),
    },
    Row {
        name: "list_500_tools",
        scene: Scene::Usual,
        operations: 1000,
        script: |at| script(at.client, Work::List { tools: ALL_TOOLS }),
    },
    Row {
        name: "session",
        scene: Scene::Usual,
        operations: 500,
        script: |at| script(at.client, Work::Session),
    },
    Row {
        name: "call_with_token",
        scene: Scene::Enterprise,
        operations: 1000,
        script: |at| echo(at.client, "up__echo"),
    },
    Row {
        name: "call_with_grant",
        scene: Scene::Enterprise,
        operations: 1000,
        script: |at| echo(at.agent, "up__echo"),
    },
    Row {
        name: "call_10000_tools",
        scene: Scene::ManyTools,
        operations: 1000,
        script: |at| echo(at.client, "up__tool_5000"),
    },
];

/// Parts of the way of a call, which `bench-parts` repeats.
const PARTS: &[(&str, &str)] = &[
    ("part_head", "head"),
    ("part_patch", "patch"),
    ("part_response", "response"),
    ("part_10_events", "events"),
];
const PART_OPERATIONS: usize = 2000;

/// Operations of each row of a scene in every run, so that what is done only once is done in every run.
const WARM_UP: usize = 20;
/// Operations under strace, which is faster than callgrind.
const TRACED: usize = 1000;
/// How often a row that seems to be over its budget is measured.
const TRIES: usize = 3;

pub fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name).chain(PARTS.iter().map(|(name, _)| *name))
}

fn echo(target: Target, tool: &str) -> Script {
    script(target, Work::Echo { tool: tool.into() })
}

fn script(target: Target, work: Work) -> Script {
    Script { target, is_modern: false, work }
}

/// All programs share one processor. So the gateway has one thread for requests, and what it reads was written
/// completely before: the order of the work, and in how many pieces it is done, is always the same.
fn share_one_processor() -> Result<()> {
    system::pin(std::process::id(), *system::processors()?.first().context("no processor")?)
}

/// The functions that the operations of the rows run through.
pub async fn functions(plan: &Plan) -> Result<BTreeSet<String>> {
    share_one_processor()?;
    let mut used = BTreeSet::new();
    for scene in SCENES {
        let rows: Vec<&Row> = ROWS.iter().filter(|row| row.scene == *scene).collect();
        let stage = Stage::prepare(*scene, &plan.toolgate).await?;
        let base = stage.count_calls(&rows, None).await?;
        for row in &rows {
            let more = stage.count_calls(&rows, Some((row, row.operations))).await?;
            used.extend(functions::of_operation(&more, &base, row.operations));
        }
    }
    Ok(used)
}

pub async fn measure(plan: &Plan, budget: &Budget, mut note: impl FnMut(&'static str, Counts)) -> Result<()> {
    share_one_processor()?;
    for (name, part) in PARTS.iter().filter(|(name, _)| plan.wants(name)) {
        let (few, many) = (count_part(part, WARM_UP)?, count_part(part, WARM_UP + PART_OPERATIONS)?);
        note(name, many.of_one(few, PART_OPERATIONS));
    }
    for scene in SCENES {
        let rows: Vec<&Row> = ROWS.iter().filter(|row| row.scene == *scene).collect();
        if !rows.iter().any(|row| plan.wants(row.name)) {
            continue;
        }
        let stage = Stage::prepare(*scene, &plan.toolgate).await?;
        let (counted, traced) = (stage.count(&rows, None).await?, stage.trace(&rows, None).await?);
        for row in rows.iter().filter(|row| plan.wants(row.name)) {
            let (mut base, mut traced_base) = (Some(counted), Some(traced));
            let counted = async || stage.count_one(&rows, row, base.take()).await;
            let counted = steadily(row, budget, counted).await?;
            let traced = async || stage.trace_one(&rows, row, traced_base.take()).await;
            let traced = steadily(row, budget, traced).await?;
            note(row.name, Counts { system_calls: traced.system_calls, ..counted });
        }
    }
    Ok(())
}

/// Counts vary a little: the order in which programs run on one processor does, and so does what the gateway does by
/// itself meanwhile. So a new budget is the most of several tries, and a row is over its budget only if it is in all of
/// them.
async fn steadily(
    row: &Row,
    budget: &Budget,
    mut measure: impl AsyncFnMut() -> Result<Counts>,
) -> Result<Counts> {
    let mut counts = measure().await?;
    let has_budget = budget.row(row.name).is_some();
    for _ in 1..TRIES {
        if has_budget && budget.allows(row.name, &counts) {
            break;
        }
        let next = measure().await?;
        counts = if has_budget { counts.least(next) } else { counts.most(next) };
    }
    Ok(counts)
}

fn count_part(part: &str, operations: usize) -> Result<Counts> {
    let folder = tempfile::tempdir()?;
    let output = folder.path().join("callgrind");
    let line = callgrind::wrapper(&output);
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]).arg(sibling("bench-parts")?).arg(part).arg(operations.to_string());
    ensure!(command.status().context("cannot start valgrind")?.success(), "bench-parts {part} failed");
    callgrind::read(&output)
}

/// A gateway with a stored catalog, which every run starts anew, and the servers behind it.
struct Stage {
    launch: Launch,
    /// The token of the client, and that of the agent.
    tokens: [String; 2],
    /// The folder for the output of the tools.
    folder: TempDir,
}

impl Stage {
    async fn prepare(scene: Scene, toolgate: &Path) -> Result<Self> {
        let mode = if scene == Scene::Enterprise { "enterprise" } else { "development" };
        let recording = if scene == Scene::Recorded { Recording::Counting } else { Recording::Off };
        let launch = Launch::new(toolgate, mode)?.recording(recording);
        let gateway = Gateway::start(launch.clone()).await?;
        let tools = if scene == Scene::ManyTools { MANY_TOOLS } else { LEGACY_TOOLS };
        gateway.register("up", &serve(tools, false).await?).await?;
        let mut tokens = [String::new(), String::new()];
        if scene != Scene::ManyTools {
            gateway.register("modern", &serve(OTHER_TOOLS, true).await?).await?;
            let program = sibling("bench-upstream")?;
            let arguments = ["--stdio", "1", "--tools", &OTHER_TOOLS.to_string()];
            let server = json!({"name": "pipe", "transport": "stdio", "command": program, "args": arguments});
            gateway.ask("POST", "/api/v0/servers", &server).await?;
            let group = json!({"name": "team", "included_tools": ["up__echo", "pipe__echo"]});
            gateway.ask("POST", "/api/v0/tool-groups", &group).await?;
        }
        if scene == Scene::Enterprise {
            let allowed = ["up".to_owned()];
            tokens = [
                gateway.create_client("client", &allowed).await?,
                grant::grant(&gateway, "user", &allowed).await?,
            ];
        }
        gateway.settle().await?;
        gateway.stop().await?;
        Ok(Self { launch, tokens, folder: tempfile::tempdir()? })
    }

    /// Instructions and allocations of one operation. Without the counts of a run without it, they are counted too.
    async fn count_one(&self, rows: &[&Row], row: &Row, base: Option<Counts>) -> Result<Counts> {
        let base = match base {
            Some(base) => base,
            None => self.count(rows, None).await?,
        };
        Ok(self.count(rows, Some((row, row.operations))).await?.of_one(base, row.operations))
    }

    async fn count(&self, rows: &[&Row], more: Option<(&Row, usize)>) -> Result<Counts> {
        let output = self.folder.path().join("callgrind");
        self.run(callgrind::wrapper(&output), rows, more).await?;
        callgrind::read(&output)
    }

    /// How often each function is called.
    async fn count_calls(&self, rows: &[&Row], more: Option<(&Row, usize)>) -> Result<BTreeMap<String, f64>> {
        let output = self.folder.path().join("callgrind");
        self.run(callgrind::wrapper_for_linker(&output), rows, more).await?;
        callgrind::read_calls(&output)
    }

    /// System calls of one operation, likewise.
    async fn trace_one(&self, rows: &[&Row], row: &Row, base: Option<Counts>) -> Result<Counts> {
        let base = match base {
            Some(base) => base,
            None => self.trace(rows, None).await?,
        };
        Ok(self.trace(rows, Some((row, TRACED))).await?.of_one(base, TRACED))
    }

    async fn trace(&self, rows: &[&Row], more: Option<(&Row, usize)>) -> Result<Counts> {
        let output = self.folder.path().join("strace");
        self.run(strace::wrapper(&output), rows, more).await?;
        Ok(Counts { system_calls: Some(strace::read(&output)?), ..Counts::default() })
    }

    /// Runs a gateway under a tool: the warm-up of all rows, then so many operations of one row.
    async fn run(&self, tool: Vec<String>, rows: &[&Row], more: Option<(&Row, usize)>) -> Result<()> {
        let gateway = Gateway::resume(self.launch.clone().under(tool)).await?;
        // Whether a server connects before, between or after the first requests decides what is done twice.
        gateway.settle().await?;
        let mut clients = Vec::new();
        for row in rows {
            let [client, agent] = self.tokens.each_ref().map(|token| Target::new(&gateway.address, token));
            let script = (row.script)(Callers { client, agent });
            let mut client = Client::connect(&script, 0).await?;
            repeat(&mut client, WARM_UP)
                .await
                .with_context(|| format!("the warm-up of {} failed", row.name))?;
            clients.push((row.name, client));
        }
        gateway.settle().await?;
        if let Some((row, operations)) = more {
            let client = clients.iter_mut().find(|(name, _)| *name == row.name);
            repeat(&mut client.context("the row is in another scene")?.1, operations).await?;
        }
        let status = gateway.stop().await?;
        ensure!(status.success(), "the gateway ended with {status}");
        Ok(())
    }
}

async fn repeat(client: &mut Client, operations: usize) -> Result<()> {
    for _ in 0..operations {
        client.operate().await?;
    }
    Ok(())
}

/// Starts a server within this program; returns its URL.
async fn serve(tools: usize, is_modern: bool) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    tokio::spawn(Arc::new(Server::new(tools, is_modern)).serve_all(listener));
    Ok(url)
}
