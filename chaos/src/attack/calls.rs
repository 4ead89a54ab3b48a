//! Attacks on calls: more than `MAX_CALLS` at once, by one client.

use std::time::Duration;

use anyhow::{Result, ensure};
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
    arena.close().await
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
