//! Attacks on calls: more than `MAX_CALLS` at once by one client, and calls that are left waiting for input.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;
use toolgate_chaos::gateway::eventually;
use toolgate_chaos::http::Request;

use crate::arena::Arena;
use crate::plan::Plan;
use crate::raw;
use crate::verdict::{Attack, Verdict};

const LIMIT: Duration = Duration::from_secs(10);

pub async fn run(plan: &Plan) -> Result<Vec<Verdict>> {
    let arena = Arena::enterprise(plan, 64, |settings| settings.variable("MAX_CALLS", "10")).await?;
    let client = json!({"name": "attacker", "access_token": "token-of-attacker", "allow_list": ["*"]});
    let made = arena.rest("POST", "/api/v0/clients", &client).await?;
    ensure!(made.status == 201, "{}", made.text());
    arena
        .attack("calls in flight", "40 calls of one client at once, with MAX_CALLS=10", async |attack| {
            in_flight(&arena, attack).await
        })
        .await?;
    let mut verdicts = arena.close().await?;
    verdicts.extend(parked_calls(plan).await?);
    Ok(verdicts)
}

/// Calls of a server that asks, whose client never answers.
async fn parked_calls(plan: &Plan) -> Result<Vec<Verdict>> {
    let arena = Arena::development(plan, 64, |settings| settings.variable("PARK_TIMEOUT_SEC", "8")).await?;
    let input = json!({"name": "asks", "transport": "streamable_http", "url": arena.fake.url("asks")});
    let made = arena.rest("POST", "/api/v0/servers", &input).await?;
    ensure!(made.status == 201, "{}", made.text());
    arena
        .attack("parked calls", "500 calls that ask for input, none of them answered", async |attack| {
            leave_waiting(&arena, attack).await
        })
        .await?;
    arena.close().await
}

async fn leave_waiting(arena: &Arena, attack: &mut Attack) -> Result<()> {
    let mut asked = 0;
    for _ in 0..10 {
        let mut calls = JoinSet::new();
        for _ in 0..50 {
            let params = json!({"name": "asks__echo", "arguments": {}});
            let request = raw::modern_with("/mcp", "tools/call", params, &json!({"elicitation": {}}));
            let address = arena.gateway.address.clone();
            calls.spawn(async move { request.send(&address).await?.json() });
        }
        for outcome in calls.join_all().await {
            asked += usize::from(outcome?["result"]["resultType"] == "input_required");
        }
    }
    let left = parked(arena).await?;
    attack.check(asked == 500, || format!("only {asked} calls were parked"));
    attack.check(left <= 100, || format!("{left} calls are parked"));
    attack.came_back(format!("{asked} asked for input, {left} still parked"));
    let over = eventually(2 * LIMIT, async || parked(arena).await.is_ok_and(|parked| parked == 0));
    attack.check(over.await, || "calls stay parked".to_owned());
    Ok(())
}

async fn parked(arena: &Arena) -> Result<u64> {
    let metrics = arena.gateway.send(Request::new("GET", "/metrics")).await?.text();
    let line = metrics.lines().find_map(|line| line.strip_prefix("toolgate_calls_parked "));
    Ok(line.context("no count of parked calls")?.parse()?)
}

fn call(token: &str, ms: u64) -> Request {
    let params = json!({"name": "s__echo", "arguments": {"ms": ms}});
    raw::post("/mcp", &raw::message("tools/call", &params)).token(token)
}

async fn in_flight(arena: &Arena, attack: &mut Attack) -> Result<()> {
    let mut calls = JoinSet::new();
    for _ in 0..40 {
        let (request, address) = (call("token-of-attacker", 3000), arena.gateway.address.clone());
        calls.spawn(async move { request.send(&address).await?.json() });
    }
    let (mut answered, mut refused) = (0, 0);
    for outcome in calls.join_all().await {
        let answer = outcome?;
        if answer["error"]["code"] == 429 && answer["error"]["data"]["retryAfterMs"].as_u64() > Some(0) {
            refused += 1;
        } else if answer.get("result").is_some() {
            answered += 1;
        } else {
            attack.fail(format!("a call got {answer}"));
        }
    }
    attack.check(answered <= 10 && refused >= 30, || "the bound did not hold".to_owned());
    attack.came_back(format!("{answered} answered, {refused} errors 429"));
    let again = eventually(LIMIT, async || {
        let answer = arena.gateway.send(call("token-of-attacker", 0)).await;
        answer.and_then(|answer| answer.json()).is_ok_and(|answer| answer.get("result").is_some())
    });
    attack.check(again.await, || "a call is still refused afterwards".to_owned());
    Ok(())
}
