//! Attacks by and on servers that run as processes: too many of them, and one that looks for the gateway's key.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use toolgate_chaos::gateway::Settings;
use toolgate_chaos::http::Request;

use crate::arena::Arena;
use crate::plan::Plan;
use crate::raw;
use crate::stdio;
use crate::verdict::{Attack, Verdict};

/// The user that runs the servers if the attacks run as root, whose processes may read everything otherwise.
const USER: &str = "nobody";
const KEY: &str = "5ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7e75ec7";

pub async fn run(plan: &Plan) -> Result<Vec<Verdict>> {
    let place = tempfile::tempdir().context("cannot make a folder")?;
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755))?;
    let program = place.path().join("attack");
    std::fs::copy(std::env::current_exe()?, &program)?;
    let arena =
        Arena::development(plan, 160, |settings| confined(settings.variable("MAX_MESSAGE_MB", "4"))).await?;
    register(&arena, "child", &program, "stateful").await?;
    arena
        .attack("processes", "40 sessions on a stateful stdio server", async |attack| {
            processes(&arena, &program, attack).await
        })
        .await?;
    arena.remove("child").await?;
    register(&arena, "child", &program, "stateless").await?;
    arena
        .attack(
            "huge messages",
            "messages of 24 MiB over stdio, HTTP and SSE, with MAX_MESSAGE_MB=4",
            async |attack| huge(&arena, attack).await,
        )
        .await?;
    let mut verdicts = arena.close().await?;
    let arena = Arena::development(plan, 64, |settings| {
        confined(settings.variable("TOOLGATE_SECRET_KEY", KEY).variable("INIT_SECRET", KEY))
    })
    .await?;
    register(&arena, "child", &program, "stateless").await?;
    arena
        .attack(
            "the key, from a child",
            "a child reads environments and files of its ancestors",
            async |attack| {
                let found = spied(&arena).await?;
                attack.check(!found.contains(KEY), || "it found the key".to_owned());
                let what: Vec<_> = found.lines().filter_map(|line| line.split(['=', ':']).next()).collect();
                attack.came_back(format!("it saw {}", what.join(" ")));
                Ok(())
            },
        )
        .await?;
    verdicts.extend(arena.close().await?);
    Ok(verdicts)
}

fn confined(settings: Settings) -> Settings {
    if is_root() { settings.variable("STDIO_USER", USER) } else { settings }
}

fn is_root() -> bool {
    // SAFETY: a plain system call without memory.
    #[allow(unsafe_code)]
    unsafe {
        libc::geteuid() == 0
    }
}

async fn register(arena: &Arena, name: &str, program: &Path, mode: &str) -> Result<()> {
    let input = json!({"name": name, "transport": "stdio", "command": program, "args": [stdio::SERVER],
        "cwd": "/", "session_mode": mode});
    let made = arena.rest("POST", "/api/v0/servers", &input).await?;
    ensure!(made.status == 201, "not registered: {} {}", made.status, made.text());
    Ok(())
}

async fn processes(arena: &Arena, program: &Path, attack: &mut Attack) -> Result<()> {
    let mut most = 0;
    for _ in 0..40 {
        let session = raw::session(&arena.gateway.address).await?;
        let call = raw::message("tools/call", &json!({"name": "child__pid", "arguments": {}}));
        let answer = arena.gateway.send(raw::post("/mcp", &call).header("Mcp-Session-Id", &session)).await?;
        let answer = answer.json()?;
        let said = answer["result"]["content"].is_array() || answer.to_string().contains("processes");
        attack.check(said, || format!("a session got {answer}"));
        most = most.max(count(program));
    }
    attack.check((1..=32).contains(&most), || format!("{most} processes"));
    attack.came_back(format!("at most {most} processes"));
    Ok(())
}

/// The processes that run a program directly; a guard has it as an argument.
fn count(program: &Path) -> usize {
    let folders = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = folders.filter_map(|folder| std::fs::read(folder.path().join("cmdline")).ok());
    let name = program.as_os_str().as_encoded_bytes();
    lines.filter(|line| line.split(|byte| *byte == 0).next() == Some(name)).count()
}

async fn huge(arena: &Arena, attack: &mut Attack) -> Result<()> {
    ensure!(arena.register("huge", "huge").await?.status == 201, "not registered");
    ensure!(arena.register("stream", "huge-stream").await?.status == 201, "not registered");
    for tool in ["child__huge", "huge__echo", "stream__echo"] {
        let answer = invoke(arena, json!({"name": tool})).await?;
        let error = answer["error"].as_str().unwrap_or_default();
        attack.check(error.contains("MAX_MESSAGE_MB"), || format!("{tool}: {:.200}", answer.to_string()));
    }
    let answer = invoke(arena, json!({"name": "child__pid"})).await?;
    attack.check(answer["content"].is_array(), || format!("the link did not go on: {answer}"));
    attack.came_back(format!("{} refused as too large", arena.refusals("message_size").await?));
    arena.remove("huge").await?;
    arena.remove("stream").await
}

async fn spied(arena: &Arena) -> Result<String> {
    let folder = arena.folder.path();
    let answer = invoke(arena, json!({"name": "child__spy", "folder": folder})).await?;
    let text = answer["content"][0]["text"].as_str().with_context(|| format!("no answer: {answer}"))?;
    Ok(text.to_owned())
}

async fn invoke(arena: &Arena, body: Value) -> Result<Value> {
    let request = Request::new("POST", "/api/v0/tools/invoke").json(&body).limit(Duration::from_secs(60));
    arena.gateway.send(request).await?.json()
}
