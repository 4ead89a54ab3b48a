//! Attacks on quotas: many calls at once, over REST and MCP, by principals and on servers and tools with a rate limit.
//! A refused call must not reach the server.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use toolgate_chaos::http::{Request, Response};

use crate::arena::Arena;
use crate::fake::MARK;
use crate::plan::Plan;
use crate::raw;
use crate::verdict::{Attack, Verdict};

/// How many calls a limit allows at once. It does not refill during an attack.
const BURST: usize = 5;
/// How many calls are sent at once.
const CALLS: usize = 60;
const USER: &str = "token-of-limited-user";
const CLIENT: &str = "token-of-limited-client";
const FREE: &str = "token-of-free-client";

pub async fn run(plan: &Plan) -> Result<Vec<Verdict>> {
    let arena = Arena::enterprise(plan, 64, |settings| settings).await?;
    prepare(&arena).await?;
    let rest = |server: &'static str, tool: &'static str| {
        move |token: &str| {
            let body = json!({"name": format!("{server}__{tool}"), "message": MARK});
            Request::new("POST", "/api/v0/tools/invoke").token(token).json(&body)
        }
    };
    let mcp = |server: &'static str, tool: &'static str| {
        move |token: &str| {
            let params = json!({"name": format!("{server}__{tool}"), "arguments": {"message": MARK}});
            raw::post("/mcp", &raw::message("tools/call", &params)).token(token)
        }
    };
    arena
        .attack("quota of a user", "60 calls over REST at once, with a burst of 5", async |attack| {
            burst(&arena, attack, BURST, |_| rest("s", "echo")(USER)).await
        })
        .await?;
    arena
        .attack("quota of a client", "60 calls over MCP at once, with a burst of 5", async |attack| {
            burst(&arena, attack, BURST, |_| mcp("s", "echo")(CLIENT)).await?;
            // Neither the old nor a new token has anything left, and a removed limit holds no more.
            let other = "another-token-of-limited-client";
            let body = json!({"allow_list": ["*"], "rate_limit": limit(), "access_token": other});
            ensure!(arena.rest("PUT", "/api/v0/clients/limited", &body).await?.status == 200, "not changed");
            burst(&arena, attack, 0, |_| mcp("s", "echo")(other)).await?;
            let body = json!({"allow_list": ["*"]});
            ensure!(arena.rest("PUT", "/api/v0/clients/limited", &body).await?.status == 200, "not changed");
            burst(&arena, attack, CALLS, |_| mcp("s", "echo")(other)).await
        })
        .await?;
    let admin = arena.admin.clone().unwrap_or_default();
    arena
        .attack(
            "quota of a server",
            "60 calls over REST and MCP by everybody at once, with a burst of 5",
            async |attack| {
                burst(&arena, attack, BURST, |number| match number % 3 {
                    0 => rest("limited", "echo")(&admin),
                    1 => mcp("limited", "other")(FREE),
                    _ => mcp("limited", "echo")(FREE),
                })
                .await
            },
        )
        .await?;
    arena
        .attack(
            "quotas of tools",
            "60 calls of two tools under one pattern, with a burst of 5 each",
            async |attack| {
                burst(&arena, attack, 2 * BURST, |number| match number % 4 {
                    0 => rest("tools", "echo")(&admin),
                    1 => mcp("tools", "echo")(FREE),
                    2 => rest("tools", "other")(&admin),
                    _ => mcp("tools", "other")(FREE),
                })
                .await
            },
        )
        .await?;
    arena.close().await
}

fn limit() -> Value {
    json!({"calls_per_minute": 1, "burst": BURST})
}

async fn prepare(arena: &Arena) -> Result<()> {
    let server =
        |name: &str| json!({"name": name, "transport": "streamable_http", "url": arena.fake.url(name)});
    let (mut limited, mut tools) = (server("limited"), server("tools"));
    limited["rate_limit"] = limit();
    tools["tool_limits"] = json!({"*": limit()});
    for (path, body) in [
        ("/api/v0/users", json!({"username": "limited", "access_token": USER, "rate_limit": limit()})),
        (
            "/api/v0/clients",
            json!({"name": "limited", "access_token": CLIENT, "allow_list": ["*"], "rate_limit": limit()}),
        ),
        ("/api/v0/clients", json!({"name": "free", "access_token": FREE, "allow_list": ["*"]})),
        ("/api/v0/servers", limited),
        ("/api/v0/servers", tools),
    ] {
        let made = arena.rest("POST", path, &body).await?;
        ensure!(made.status == 201, "POST {path}: {} {}", made.status, made.text());
    }
    Ok(())
}

/// Sends all calls at once. As many as the limit allows must be answered, and only those may reach the server; the
/// others must be refused in the shape of their door, and counted.
async fn burst(
    arena: &Arena,
    attack: &mut Attack,
    allowed: usize,
    call: impl Fn(usize) -> Request,
) -> Result<()> {
    let counted = refused_calls(arena).await?;
    let reached = arena.fake.marked();
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        let (request, address) = (call(number), arena.gateway.address.clone());
        calls.spawn(async move { request.send(&address).await });
    }
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for outcome in calls.join_all().await {
        let answer = outcome?;
        match judge(&answer) {
            Some(what) => *seen.entry(what).or_default() += 1,
            None => attack.fail(format!("a call got {} {}", answer.status, answer.text())),
        }
    }
    let reached = arena.fake.marked() - reached;
    let counted = refused_calls(arena).await? - counted;
    let answered = seen.get(ANSWERED).copied().unwrap_or_default();
    attack.check(answered == allowed && reached == allowed, || {
        format!("{answered} answered and {reached} reached the server, not {allowed}")
    });
    attack.check(counted == CALLS - allowed, || format!("{counted} were counted"));
    let seen: Vec<_> = seen.iter().map(|(what, count)| format!("{count} {what}")).collect();
    attack.came_back(seen.join(" and "));
    Ok(())
}

const ANSWERED: &str = "answered";

/// What a response is; `None` if it is neither a result nor a complete refusal.
fn judge(answer: &Response) -> Option<&'static str> {
    let body = answer.json().ok()?;
    let names_limit = |sentence: &Value| sentence.as_str().is_some_and(|text| text.contains("per minute"));
    match answer.status {
        200 if body.get("content").is_some() || body.get("result").is_some() => Some(ANSWERED),
        200 if body["error"]["code"] == 429 => {
            let error = &body["error"];
            let is_whole = error["data"]["retryAfterMs"].as_u64() > Some(0) && names_limit(&error["message"]);
            is_whole.then_some("errors 429")
        }
        429 => {
            let waits = answer.header("retry-after").and_then(|wait| wait.parse::<u64>().ok());
            (waits > Some(0) && names_limit(&body["error"])).then_some("times 429")
        }
        _ => None,
    }
}

/// How many calls rate limits have refused, of all principals and tools.
async fn refused_calls(arena: &Arena) -> Result<usize> {
    let metrics = arena.gateway.get("/metrics").await?.text();
    let lines = metrics.lines().filter(|line| line.starts_with("toolgate_refused_calls_total{"));
    Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum())
}
