//! What callers must not learn or pass: methods in another case, state of the other era, tasks of others, details of
//! failures, groups that they may not see, and control characters on terminals.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use toolgate_chaos::http::Request;

use crate::arena::Arena;
use crate::fake::{SECRET, STEERING};
use crate::plan::Plan;
use crate::raw;
use crate::stdio;
use crate::verdict::{Attack, Verdict};

const NATIVE: &str = "/v0/servers/s/mcp";
const ANNA: &str = "token-of-anna";
const BOB: &str = "token-of-bob";
const NOBODY: &str = "token-of-nobody";

pub async fn run(plan: &Plan) -> Result<Vec<Verdict>> {
    let arena = Arena::enterprise(plan, 64, |settings| settings).await?;
    for (name, token, allowed) in
        [("anna", ANNA, json!(["*"])), ("bob", BOB, json!(["*"])), ("nobody", NOBODY, json!([]))]
    {
        let client = json!({"name": name, "access_token": token, "allow_list": allowed});
        create(&arena, "/api/v0/clients", &client).await?;
    }
    create(&arena, "/api/v0/users", &json!({"username": "user", "access_token": "token-of-user"})).await?;
    create(
        &arena,
        "/api/v0/tool-groups",
        &json!({"name": "hidden", "description": "about it", "included_servers": ["s"]}),
    )
    .await?;
    arena.rest("POST", "/api/v0/tools/disable", &json!({"entity": "s__other"})).await?;
    arena
        .attack(
            "methods in another case",
            "a disabled tool by TOOLS/CALL, on every endpoint",
            async |attack| other_case(&arena, attack).await,
        )
        .await?;
    arena
        .attack("raw request state", "requestState and inputResponses of a legacy client", async |attack| {
            raw_state(&arena, attack).await
        })
        .await?;
    arena
        .attack("tasks of others", "tasks/list, get and cancel by another client", async |attack| {
            tasks(&arena, attack).await
        })
        .await?;
    arena
        .attack("details of failures", "failing servers, called by clients and users", async |attack| {
            failures(&arena, attack).await
        })
        .await?;
    arena
        .attack("hidden groups", "a client with an empty allow list at a group's endpoints", async |attack| {
            groups(&arena, attack).await
        })
        .await?;
    arena
        .attack("terminals", "names with control characters, printed by the command line", async |attack| {
            terminals(plan, &arena, attack).await
        })
        .await?;
    arena.close().await
}

async fn create(arena: &Arena, path: &str, body: &Value) -> Result<()> {
    let made = arena.rest("POST", path, body).await?;
    ensure!(made.status == 201, "POST {path}: {} {}", made.status, made.text());
    Ok(())
}

async fn ask(arena: &Arena, path: &str, token: &str, method: &str, params: &Value) -> Result<Value> {
    arena.gateway.send(raw::post(path, &raw::message(method, params)).token(token)).await?.json()
}

async fn other_case(arena: &Arena, attack: &mut Attack) -> Result<()> {
    arena.fake.take_reached();
    for (path, tool) in [(NATIVE, "other"), ("/mcp", "s__other"), ("/v0/groups/hidden/mcp", "s__other")] {
        for method in ["TOOLS/CALL", "Tools/Call", "tools/cALL"] {
            let params = json!({"name": tool, "arguments": {}});
            let answer = ask(arena, path, ANNA, method, &params).await?;
            attack.check(answer["error"]["code"] == -32601, || format!("{method} at {path}: {answer}"));
            let modern = raw::modern(path, method, params).token(ANNA);
            let answer = arena.gateway.send(modern).await?.json()?;
            attack
                .check(answer["error"]["code"] == -32601, || format!("modern {method} at {path}: {answer}"));
        }
    }
    let reached = arena.fake.take_reached();
    let odd = reached.iter().find(|method| method.chars().any(char::is_uppercase));
    attack.check(odd.is_none(), || format!("{odd:?} reached the server"));
    attack.came_back("each -32601");
    Ok(())
}

async fn raw_state(arena: &Arena, attack: &mut Attack) -> Result<()> {
    for (path, tool) in [(NATIVE, "echo"), ("/mcp", "s__echo")] {
        for (key, value) in [("requestState", json!("raw")), ("inputResponses", json!({"a": {}}))] {
            let mut params = json!({"name": tool, "arguments": {}});
            params[key] = value;
            let answer = ask(arena, path, ANNA, "tools/call", &params).await?;
            attack.check(answer["error"]["code"] == -32602, || format!("{key} at {path}: {answer}"));
        }
    }
    attack.came_back("each -32602");
    Ok(())
}

async fn tasks(arena: &Arena, attack: &mut Attack) -> Result<()> {
    for (token, task) in [(ANNA, "task-a"), (BOB, "task-b")] {
        let call = json!({"name": "echo", "arguments": {"task": task}, "task": {"ttl": 60_000}});
        ask(arena, NATIVE, token, "tools/call", &call).await?;
    }
    let list = ask(arena, NATIVE, ANNA, "tasks/list", &json!({})).await?.to_string();
    attack.check(list.contains("task-a") && !list.contains("task-b"), || format!("tasks/list: {list}"));
    for method in ["tasks/get", "tasks/cancel", "tasks/result"] {
        let answer = ask(arena, NATIVE, ANNA, method, &json!({"taskId": "task-b"})).await?;
        attack.check(answer["error"]["code"] == -32602, || format!("{method}: {answer}"));
    }
    attack.came_back("own tasks only");
    Ok(())
}

async fn failures(arena: &Arena, attack: &mut Attack) -> Result<()> {
    let registered = arena.register("fails", &format!("fail/{SECRET}")).await?;
    ensure!(registered.status == 201, "{}", registered.text());
    let program = std::env::current_exe()?;
    let child = json!({"name": "child", "transport": "stdio", "command": program, "args": [stdio::SERVER]});
    create(arena, "/api/v0/servers", &child).await?;
    let mut said = Vec::new();
    for tool in ["fails__echo", "child__die"] {
        said.push(
            ask(arena, "/mcp", ANNA, "tools/call", &json!({"name": tool, "arguments": {}}))
                .await?
                .to_string(),
        );
        let invoke = Request::new("POST", "/api/v0/tools/invoke").token("token-of-user");
        said.push(arena.gateway.send(invoke.json(&json!({"name": tool}))).await?.text());
    }
    let list = Request::new("GET", "/api/v0/servers").token("token-of-user");
    said.push(arena.gateway.send(list).await?.text());
    for text in &said {
        for secret in [SECRET, "topsecret", "Traceback", stdio::STDERR] {
            attack.check(!text.contains(secret), || format!("a caller learned {secret}: {text:.300}"));
        }
    }
    attack.came_back(format!("{:.120}", said[0]));
    arena.remove("fails").await?;
    arena.remove("child").await
}

async fn groups(arena: &Arena, attack: &mut Attack) -> Result<()> {
    for (method, end) in [("POST", "mcp"), ("GET", "mcp"), ("GET", "sse"), ("POST", "message?sessionId=x")] {
        let mut said = Vec::new();
        for group in ["hidden", "unknown"] {
            let request = Request::new(method, &format!("/v0/groups/{group}/{end}"));
            let request = request.token(NOBODY).header("Accept", "application/json, text/event-stream");
            let answer = arena.gateway.send(request.json(&raw::message("ping", &json!({})))).await?;
            attack.check(answer.status == 404, || format!("{method} {group}/{end}: {}", answer.status));
            said.push(answer.text().replace(group, "GROUP"));
        }
        attack.check(said[0] == said[1], || format!("the responses differ: {said:?}"));
    }
    attack.came_back("each 404, like an unknown group");
    Ok(())
}

async fn terminals(plan: &Plan, arena: &Arena, attack: &mut Attack) -> Result<()> {
    let registered = arena.register("steering", "steering").await?;
    ensure!(registered.status == 201, "{}", registered.text());
    let tool = format!("steering__{STEERING}");
    let registry = format!("http://{}", arena.gateway.address);
    let (mut printed, mut commands) = (0, 0);
    for words in [
        &["list", "tools"][..],
        &["list", "tools", "-o", "json"],
        &["disable", "tool", "steering"],
        &["enable", "tool", "steering"],
        &["enable", "tool", &tool],
        &["usage", &tool],
        &["get", "server", "steering"],
        &["get", "server", "steering", "-o", "json"],
    ] {
        let output = tokio::process::Command::new(&plan.program)
            .args(words)
            .args(["--registry", &registry])
            .current_dir(arena.folder.path())
            .env("TOOLGATE_TOKEN", arena.admin.as_deref().context("enterprise mode")?)
            .stdin(Stdio::null())
            .output()
            .await?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let steers =
            |letter: char| (letter.is_control() && letter != '\n' && letter != '\t') || letter == '\u{202e}';
        attack.check(!text.contains(steers), || format!("{words:?} printed {text:?}"));
        (printed, commands) = (printed + text.matches("owned").count(), commands + 1);
    }
    attack.check(printed > 0, || "no command printed the name".to_owned());
    attack.came_back(format!("{commands} commands printed it {printed} times, escaped"));
    arena.remove("steering").await
}
